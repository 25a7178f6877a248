"""A run for programs that are not asynchronous: `Run`, in the loop of another thread."""

from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from typing import Any

from mcpbridge.errors import BridgeClosed
from mcpbridge.library.loop_thread import LoopThread
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
        self._has_begun = True
        events = self._thread.do(self._run.__aiter__)

        async def following() -> RunEvent | None:
            return await anext(events, None)

        async def over() -> None:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

        def iterated() -> Generator[RunEvent, None, None]:
            try:
                while (event := self._thread.wait(following())) is not None:
                    yield event
            finally:
                with suppress(BridgeClosed):
                    self._thread.wait(over())

        return iterated()

    async def _finished(self) -> RunOutcome:
        return await self._run
