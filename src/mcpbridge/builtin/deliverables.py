"""`task-complete` and `final-answer`: how an agent says that it is done, and hands over what it made.

What is handed over reaches the program as an event (`deliverable`), and `Session.state["deliverable"]` for hooks.
"""

from typing import Any

import msgspec

from mcpbridge.builtin.tool import UNTREATED
from mcpbridge.conduct import CallSettings
from mcpbridge.model import Call
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["DELIVERABLE", "Deliverable"]

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
_TEXTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "final-answer": (
        "Hand over the answer",
        "Hand over the final answer to the task. Call it once, at the end.",
        _FINAL,
    ),
    "task-complete": ("Say that the task is done", "Say that the task is done, or how far it came.", _COMPLETE),
}


class Deliverable:
    """One of them."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def definition(self) -> dict[str, Any]:
        """See `Builtin`."""
        title, description, schema = _TEXTS[self._name]
        return {
            "name": self._name,
            "title": title,
            "description": description,
            "inputSchema": schema,
            "annotations": _ANNOTATIONS,
        }

    @property
    def treatment(self) -> CallSettings:
        """See `Builtin`."""
        return UNTREATED

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        arguments = call.params.inner("arguments")
        said: dict[str, Any] = msgspec.json.decode(arguments.data) if arguments is not None else {}
        _, _, schema = _TEXTS[self._name]
        for key, part in schema["properties"].items():
            if "default" in part:
                said.setdefault(key, part["default"])
        handed, context = {"tool": self._name, **said}, call.context
        context.session.state[DELIVERABLE] = handed
        context.events.publish(DELIVERABLE, handed)
        text = "Handed over." if self._name == "final-answer" else f"Noted: {said['status']}."
        return Body(encode({"content": [{"type": "text", "text": text}], "structuredContent": said}))
