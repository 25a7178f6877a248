"""Tools about the session: `brief`, `pulse` (or `context-status`), `task-complete` and `final-answer`.

`brief` and `pulse` say what there is for a caller, and the state of its session. With `task-complete` and
`final-answer` an agent says that it is done, and hands over what it made. The program gets that as an event
(`deliverable`), and hooks as `Session.state["deliverable"]`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.builtin.builtin import UNTREATED

ReadStatus = Callable[[Call, str], Awaitable[Mapping[str, Any]]]
"""What the tool of this name says to a caller, as JSON values."""

_READS = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_TEXTS = {
    "brief": (
        "What there is now",
        "What tools, servers, kept results and limits there are for you now, in a few lines. find_tools finds a tool.",
    ),
    "pulse": (
        "The state of this session",
        "Calls so far, errors, kept results, an estimate of the tokens that calls took, and the time.",
    ),
}


class StatusTool:
    """`brief` or `pulse`; `read_status` gives what it says to a caller: lines of text and the same as data."""

    treatment = UNTREATED

    def __init__(self, name: str, read_status: ReadStatus) -> None:
        self._name, self._read_status = name, read_status

    @property
    def definition(self) -> dict[str, Any]:
        """See `Builtin`."""
        title, description = _TEXTS["brief" if self._name == "brief" else "pulse"]
        return {
            "name": self._name,
            "title": title,
            "description": description,
            "inputSchema": _NO_ARGUMENTS,
            "annotations": _READS,
        }

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        status = await self._read_status(call, self._name)
        text = "\n".join(_lines(status))
        return Body(encode({"content": [{"type": "text", "text": text}], "structuredContent": dict(status)}))


def _lines(status: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for key, value in status.items():
        name = key.replace("_", " ")
        if isinstance(value, list):
            items: list[Any] = value  # pyright: ignore[reportUnknownVariableType] - JSON values
            lines.append(f"{name}: {', '.join(map(_item_text, items)) or 'none'}")
        elif isinstance(value, dict):
            members: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - JSON values
            members_text = ", ".join(f"{inner.replace('_', ' ')} {one}" for inner, one in members.items())
            lines.append(f"{name}: {members_text or 'none'}")
        else:
            lines.append(f"{name}: {value}")
    return lines


def _item_text(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    members: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - JSON values
    name = members.get("name", "")
    rest = ", ".join(f"{one} {key}" if key == "tools" else str(one) for key, one in members.items() if key != "name")
    return f"{name} ({rest})" if rest else str(name)


DELIVERABLE = "deliverable"
"""The event, and the key in the state of the session."""

_ANNOTATIONS = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
_FINAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"description": "The answer: text, or any JSON value where `format` is `json`."},
        "format": {"type": "string", "enum": ["text", "markdown", "json", "html", "code"], "default": "text"},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1, "description": "How sure you are, from 0 to 1."},
        "sources": {"type": "array", "items": {"type": "string"}, "description": "What it rests on: URLs, handles."},
    },
    "required": ["answer"],
}
_COMPLETE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "summary": {"type": "string", "description": "What was done, in a sentence or two."},
        "status": {"type": "string", "enum": ["done", "partial", "failed"], "default": "done"},
        "left": {"type": "array", "items": {"type": "string"}, "description": "What is not done."},
    },
    "required": ["summary"],
}
_DELIVERABLE_TEXTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "final-answer": (
        "Hand over the answer",
        "Hand over the final answer to the task. Call it once, at the end.",
        _FINAL,
    ),
    "task-complete": ("Say that the task is done", "Say that the task is done, or how far it came.", _COMPLETE),
}


class Deliverable:
    """`task-complete` or `final-answer`."""

    treatment = UNTREATED

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def definition(self) -> dict[str, Any]:
        """See `Builtin`."""
        title, description, schema = _DELIVERABLE_TEXTS[self._name]
        return {
            "name": self._name,
            "title": title,
            "description": description,
            "inputSchema": schema,
            "annotations": _ANNOTATIONS,
        }

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        arguments = call.params.inner("arguments")
        arguments_given: dict[str, Any] = msgspec.json.decode(arguments.data) if arguments is not None else {}
        _, _, schema = _DELIVERABLE_TEXTS[self._name]
        for key, part in schema["properties"].items():
            if "default" in part:
                arguments_given.setdefault(key, part["default"])
        handed, context = {"tool": self._name, **arguments_given}, call.context
        context.session.state[DELIVERABLE] = handed
        context.events.publish(DELIVERABLE, handed)
        text = "Handed over." if self._name == "final-answer" else f"Noted: {arguments_given['status']}."
        return Body(encode({"content": [{"type": "text", "text": text}], "structuredContent": arguments_given}))
