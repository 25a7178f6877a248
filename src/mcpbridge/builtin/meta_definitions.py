"""What clients are told of the tools that find, describe and call others. Every token stands in every conversation.

Together with `recall` and a map of the catalog they stay within 600 tokens; a test counts.
"""

from typing import Any

__all__ = ["CALL_TOOL", "DESCRIBE_TOOLS", "FIND_TOOLS", "with_map"]

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
