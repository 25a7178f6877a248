"""Which runs are for several calls, and which results: none that came of what one client alone was asked."""

from collections.abc import Awaitable

import msgspec
from msgspec import Raw

from mcpbridge.interaction import Asker, Question, Through
from mcpbridge.model import Call
from mcpbridge.pipeline.single_flight import Flight
from mcpbridge.toolcalls import is_paused
from mcpbridge.wire.body import Body

__all__ = ["AskedAlone", "is_error", "is_final"]


class AskedAlone(Through):
    """The client that began a run, as an `Asker`. Once it is asked something, the run is for it alone."""

    __slots__ = ("_call", "_flight", "was_asked")

    def __init__(self, call: Call, flight: Flight) -> None:
        """`call`: the one that began the run; whom it can ask may change meanwhile, as when its client gives it up."""
        self._call, self._flight = call, flight
        self.was_asked = False
        """What comes of the run came of an answer: it is nothing to keep."""

    @property
    def asker(self) -> Asker:
        """The client, as it can be asked now."""
        return self._call.client

    def ask(self, question: Question) -> Awaitable[Raw]:
        """Put the question; from now on the run is for this client alone."""
        self.was_asked = True
        self._flight.be_personal()
        return self.asker.ask(question)


def is_final(result: Body, data: bytes) -> bool:
    """It is the result of the call itself, no question, task or pause, so others may have it. `data`: its bytes."""
    try:
        if not result.is_object or is_paused(result, data):
            return False
        if b'"resultType"' in data and bytes(result.get("resultType") or b'"complete"') != b'"complete"':
            return False
        return b'"task"' not in data or "content" in result
    except (msgspec.DecodeError, RecursionError):
        return False


def is_error(result: Body, data: bytes) -> bool:
    """It tells of a failure. `data`: the bytes of the result."""
    return b'"isError"' in data and bytes(result.get("isError") or b"false") != b"false"
