"""`brief`: what there is for a caller now, in a few lines; `pulse` (or `context-status`): how its session stands."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcpbridge.builtin.tool import UNTREATED
from mcpbridge.conduct import CallSettings
from mcpbridge.model import Call
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["StandingTool", "Tell"]

Tell = Callable[[Call, str], Awaitable[Mapping[str, Any]]]
"""What the tool of this name says to a caller, as JSON values."""

_READS = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_TEXTS = {
    "brief": (
        "What there is now",
        "What tools, servers, kept results and limits there are for you now, in a few lines. find_tools finds a tool.",
    ),
    "pulse": (
        "How this session stands",
        "Calls so far, errors, kept results, an estimate of the tokens that calls took, and the time.",
    ),
}


class StandingTool:
    """One of them; `tell` gives what it says to a caller: lines of text and the same as data."""

    def __init__(self, name: str, tell: Tell) -> None:
        self._name, self._tell = name, tell

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

    @property
    def treatment(self) -> CallSettings:
        """See `Builtin`."""
        return UNTREATED

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        told = await self._tell(call, self._name)
        text = "\n".join(_lines(told))
        return Body(encode({"content": [{"type": "text", "text": text}], "structuredContent": dict(told)}))


def _lines(told: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for key, value in told.items():
        name = key.replace("_", " ")
        if isinstance(value, list):
            items: list[Any] = value  # pyright: ignore[reportUnknownVariableType] - JSON values
            lines.append(f"{name}: {', '.join(map(_said, items)) or 'none'}")
        elif isinstance(value, dict):
            members: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
            said = ", ".join(f"{inner.replace('_', ' ')} {one}" for inner, one in members.items())
            lines.append(f"{name}: {said or 'none'}")
        else:
            lines.append(f"{name}: {value}")
    return lines


def _said(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    members: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    name = members.get("name", "")
    rest = ", ".join(f"{one} {key}" if key == "tools" else str(one) for key, one in members.items() if key != "name")
    return f"{name} ({rest})" if rest else str(name)
