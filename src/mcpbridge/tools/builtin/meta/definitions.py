"""The definitions of `find_tools`, `describe_tools` and `call_tool`, as models read them; their arguments and results.

Every token of a definition is in every conversation. Together with `recall` and a map of the catalog they stay
within 600 tokens; a test counts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from mcpbridge.base.suggestions import nearest
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode

_READS = {"readOnlyHint": True, "openWorldHint": False}

FIND_TOOLS: dict[str, Any] = {
    "name": "find_tools",
    "description": ("Find tools by what they do; most tools are not listed. Call what you find with call_tool."),
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to do, in a few words; server:NAME narrows"},
            "limit": {"type": "integer", "default": 8},
            "detail": {"enum": ["names", "signatures", "schemas"], "default": "signatures"},
        },
        "required": ["query"],
    },
    "annotations": _READS,
}

DESCRIBE_TOOLS: dict[str, Any] = {
    "name": "describe_tools",
    "description": "Tell all of some tools: every parameter, the whole description, what they return.",
    "inputSchema": {
        "type": "object",
        "properties": {"names": {"type": "array", "items": {"type": "string"}}},
        "required": ["names"],
    },
    "annotations": _READS,
}

CALL_TOOL: dict[str, Any] = {
    "name": "call_tool",
    "description": "Call a tool that find_tools found. Wrong arguments are answered with its signature.",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name"],
    },
}


def with_map(definition: dict[str, Any], map_: str) -> dict[str, Any]:
    """The definition, whose description ends with a map of the catalog."""
    return {**definition, "description": f"{definition['description']} {map_}".strip()}


class Refused(Exception):
    """The arguments make no sense; the message says what is allowed."""


def arguments_of(params: Body, known: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The arguments by their names here; `known` has other names that models use for them.

    Raises:
        Refused: they are no object, or one of them is unknown.
    """
    raw = params.get("arguments")
    try:
        found: object = {} if raw is None else msgspec.json.decode(raw)
        if isinstance(found, str):  # as JSON in a string
            found = msgspec.json.decode(found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(f"arguments: an object with {', '.join(known)}")
    arguments: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", found).items():
        meant = next((own for own, others in known.items() if name in others), None)
        if meant is None:
            shown = name[:60].encode(errors="replace").decode()
            close = nearest(shown, known, limit=1)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise Refused(f"{shown}: no such argument{hint} There are: {', '.join(known)}")
        if meant not in arguments or name == meant:
            arguments[meant] = value
    return arguments


def text_result(text: str, *, is_error: bool = False) -> Body:
    """A result of one text."""
    content = {"content": [{"type": "text", "text": text}]}
    return Body(encode({**content, "isError": True} if is_error else content))
