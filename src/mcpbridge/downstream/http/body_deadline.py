"""A cheap deadline for many short waits: one timer for all of them.

Reading a body takes microseconds, and a timer for each costs more than the reading (12 µs with `asyncio.timeout`, a
tenth of a whole request).
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

BODY_SECONDS = 30.0
"""How long a client may take to send the body of a request."""
_CHECKS = 4
"""How often the timer looks within the time limit: a wait may take a quarter longer than that."""

T = TypeVar("T")


class Deadline:
    """Ends each wait that takes longer than `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._since: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()
        self._is_checking = False

    async def within(self, wait: Awaitable[T]) -> T:
        """Await it.

        Raises:
            TimeoutError: it took too long and was cancelled.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can wait")
        loop = asyncio.get_running_loop()
        before = task.cancelling()
        self._since[task] = loop.time()
        if not self._is_checking:
            self._is_checking = True
            loop.call_later(self.seconds / _CHECKS, self._check, loop)
        try:
            return await wait
        except asyncio.CancelledError:
            if task not in self._expired:
                raise
            self._expired.discard(task)
            if task.uncancel() > before:
                raise  # somebody else cancelled it in the same turn
            raise TimeoutError from None
        finally:
            del self._since[task]
            if task in self._expired:  # it ended by itself all the same
                self._expired.discard(task)
                task.uncancel()

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        oldest = loop.time() - self.seconds
        for task, since in self._since.items():
            if since > oldest:
                break  # they are in the order in which they began
            self._expired.add(task)
            task.cancel()
        self._is_checking = bool(self._since)
        if self._is_checking:
            loop.call_later(self.seconds / _CHECKS, self._check, loop)
