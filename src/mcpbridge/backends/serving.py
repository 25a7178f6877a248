"""How calls reach tools that no server has: found by name, and held to their time.

A server's calls have their deadlines kept where they are sent; these have theirs kept here. Each message of progress
starts the time anew, up to the longest time that a call may take in all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager

from msgspec import Raw

from mcpbridge.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from mcpbridge.model import OWN, Call
from mcpbridge.wire.body import Body
from mcpbridge.wire.deadlines import Timeouts

__all__ = ["Run", "Serving"]

Run = Callable[[Call], Awaitable[Body]]
"""Does the work of one call."""


class Serving:
    """The end of the way of calls to tools that no server has. It outlives the settings, for calls under way."""

    def __init__(self) -> None:
        self._running: set[Call] = set()

    def works_on(self, call: Call) -> bool:
        """Whether this call runs."""
        return call in self._running

    async def serve(self, call: Call, run: Run, timeouts: Timeouts) -> Body:
        """The result of a call, in time. `timeouts`: where the call has none of its own.

        Raises:
            UpstreamTimeout: the time was up; what ran was cancelled.
        """
        timeouts = call.timeouts or timeouts
        loop = asyncio.get_running_loop()
        began = loop.time()
        end = began + timeouts.total
        limit = asyncio.timeout_at(min(_by(call, began + timeouts.idle), end))
        self._running.add(call)
        try:
            async with limit:
                with _heard(call, lambda: limit.reschedule(min(loop.time() + timeouts.idle, end))):
                    return await run(call)
        except UpstreamError as error:  # first: one of them is a TimeoutError as well
            raise _renamed(error, call) from None
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise UpstreamTimeout(_named(call), round(loop.time() - began, 3)) from error
        finally:
            self._running.discard(call)
            call.upstream_seconds += loop.time() - began


def found(run_of: Mapping[str, Run], call: Call) -> Run:
    """Who does the work of this call, by the name of its tool.

    Raises:
        UpstreamUnavailable: the tool went away meanwhile.
    """
    run = run_of.get(call.target)
    if run is None:
        raise UpstreamUnavailable(_named(call), "it is not there any more")
    return run


def _by(call: Call, time: float) -> float:
    return min(call.deadline, time) if call.deadline else time


@contextmanager
def _heard(call: Call, again: Callable[[], None]) -> Generator[None]:
    """Progress is told of even where the client wants none: it says that the work goes on."""
    update, wanted = call.update, call.wants_progress

    def heard(method: str, params: Raw) -> None:
        is_progress = method == "notifications/progress"
        if is_progress:
            again()
        if wanted or not is_progress:
            update(method, params)

    call.update, call.wants_progress = heard, True
    try:
        yield
    finally:
        call.update, call.wants_progress = update, wanted


def _named(call: Call) -> str:
    return f"{call.upstream}/{call.target}" if call.upstream in OWN else call.upstream


def _renamed(error: UpstreamError, call: Call) -> UpstreamError:
    """Tools of ours have no server that could be named."""
    if error.upstream in OWN:
        error.rename(_named(call))
    return error
