"""A run for programs that are not asynchronous: `Run`, in the loop of another thread."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import suppress
from typing import Any

from mcpbridge.errors import BridgeClosed
from mcpbridge.library.loop_thread import END_SECONDS, LoopThread
from mcpbridge.library.run_events import RunEvent
from mcpbridge.library.run_outcome import RunOutcome
from mcpbridge.library.running import Run

__all__ = ["SyncRun"]


class SyncRun:
    """One run, usable once: `bridge.run(…).outcome`, or `for event in bridge.run(…)`, which tells what happens.

    Ctrl-C while it waits cancels it, and so does ending the iteration early.
    """

    def __init__(self, thread: LoopThread[Any], run: Run) -> None:
        self._thread, self._run = thread, run
        self._has_begun = False

    @property
    def id(self) -> str:
        """By which its calls, its events and what is paused in it are found."""
        return self._run.id

    @property
    def outcome(self) -> RunOutcome:
        """What came of it; waits for that if nothing has begun it yet.

        Raises:
            RuntimeError: it is being iterated, and has not ended yet. RunFailed: it failed.
        """
        if self._has_begun:
            return self._run.outcome
        self._has_begun = True
        return self._thread.wait(self._finished())

    def __iter__(self) -> Generator[RunEvent, None, None]:
        if self._has_begun:
            raise RuntimeError("a run can be used once; `outcome` is what came of it")
        self._has_begun = True
        events: AsyncIterator[RunEvent] | None = None
        try:
            # In here: it begins with this, and from then on an interrupt has to end it.
            events = self._thread.do(self._run.__aiter__)
            while (event := self._thread.wait(_next(events))) is not None:
                yield event
        finally:
            with suppress(BridgeClosed):
                self._thread.wait(self._over(events))

    async def _over(self, events: AsyncIterator[RunEvent] | None) -> None:
        """Have it end, where it has not; in bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS), self._run:
                pass  # leaving it cancels it
        if isinstance(events, AsyncGenerator):
            # It may wait for the same end; or somebody who is cancelled in there has not left it yet, and ends it.
            with suppress(TimeoutError, RuntimeError):
                async with asyncio.timeout(END_SECONDS):
                    await events.aclose()

    async def _finished(self) -> RunOutcome:
        return await self._run


async def _next(events: AsyncIterator[RunEvent]) -> RunEvent | None:
    return await anext(events, None)
