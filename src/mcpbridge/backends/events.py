"""What a function yields: events, which reach the client as progress, and in the end perhaps its result.

An event is any JSON value. A text is a message; an object may have `message`, `progress` and `total`, as notifications
of progress do. The whole event goes along in `_meta` where it says more than that. Progress must increase (spec,
progress): what says no number counts on.
"""

import math
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from msgspec import Raw

from mcpbridge.model import Call
from mcpbridge.toolcalls import ToolResult
from mcpbridge.wire.frame import encode

__all__ = ["EVENT", "EventRefused", "Result", "Teller", "parameters_of"]

EVENT = "mcpbridge/event"
"""In `_meta` of a notification of progress: the event that a tool yielded."""

LONGEST_MESSAGE = 200
"""Characters of an event that is told as a message because it has none of its own."""

TOO_LARGE = 1e300
"""Numbers from here on count as none: near the largest that JSON's readers know, nothing could increase any more."""

_SPOKEN = frozenset({"message", "progress", "total"})

T = TypeVar("T")


class Result(Generic[T]):
    """Yielded in place of an event: the result, after which nothing more is wanted. Async generators return nothing."""

    __slots__ = ("value",)

    def __init__(self, value: T | ToolResult[T]) -> None:
        self.value = value


class EventRefused(Exception):
    """An event is no JSON, or not what the tool's `event_schema` allows; the message says why."""


class Teller:
    """Tells the client of one call's events. On the event loop."""

    __slots__ = ("_call", "_last")

    def __init__(self, call: Call | None) -> None:
        """`call`: None where nobody listens."""
        self._call, self._last = call, 0.0

    def tell(self, event: object) -> None:
        """Tell of one event, a JSON value."""
        if self._call is None or not self._call.wants_progress:
            return
        params = parameters_of(event, self._last)
        self._last = params["progress"]
        self._call.update("notifications/progress", Raw(encode(params)))


def parameters_of(event: object, last: float) -> dict[str, Any]:
    """An event as parameters of a notification of progress. `last`: the progress told before."""
    said: Mapping[str, object] = cast("Mapping[str, object]", event) if isinstance(event, dict) else {}
    own, total, message = _number(said.get("progress")), _number(said.get("total")), said.get("message")
    if own is not None and own > last:
        params: dict[str, Any] = {"progress": own}
    elif "progress" in said or last != int(last):
        params = {"progress": math.nextafter(last, math.inf)}  # between numbers of its own: no more than a trace
    else:
        params = {"progress": int(last) + 1}
    if total is not None:
        params["total"] = total
    if told := message if isinstance(message, str) else _short(cast("object", event), said):
        params["message"] = told
    if not isinstance(event, str) and (not said or said.keys() - _SPOKEN):
        params["_meta"] = {EVENT: event}
    return params


def _number(value: object) -> float | None:
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < TOO_LARGE
    return cast("float", value) if is_one else None  # no NaN either


def _short(event: object, said: Mapping[str, object]) -> str:
    if isinstance(event, str):
        return event
    if said and not said.keys() - _SPOKEN:
        return ""
    text = encode(event).decode()
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"
