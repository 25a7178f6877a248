"""Keep one busy upstream from taking the whole bridge: its concurrency limit, and the queue before it.

Each upstream has its own slots and its own queue, so a slow server delays its own callers only. A call that
cannot get a slot in time, or finds the queue full, is refused before the server sees anything of it. The numbers are
settings of the server (`max_concurrent`, `max_queued`, `queue_timeout`).
"""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from mcpbridge.base.errors import Overloaded
from mcpbridge.core.model import Call


def takes_slot(call: Call) -> bool:
    """Not what waits by design for as long as a task runs (2025-11-25, retrieving task results)."""
    return call.method != "tasks/result"


class ConcurrencyLimiter:
    """At most `slots` calls at a time; `places` more wait in order of arrival, none longer than `patience` seconds."""

    def __init__(self, what: str, *, slots: int, places: int, patience: float) -> None:
        """`what` is it that takes only so many, as refusals name it: `Server 'x'`."""
        self._what, self._slots, self._places, self._patience = what, slots, places, patience
        self.free = slots
        """Slots that nobody has; below zero while those go on that had lent out theirs."""
        self.queue: deque[asyncio.Future[None]] = deque()
        """Who waits for a slot."""
        self._resting: dict[Call, int] = {}
        """Calls that lend out their slot, and for how many questions."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._what}: {self.free} of {self._slots} free, {len(self.queue)} waiting>"

    @property
    def is_busy(self) -> bool:
        """All slots are taken."""
        return self.free <= 0

    def try_enter(self) -> bool:
        """Take a slot if one is free and nobody waits; the cheap way for the usual case."""
        if self.free > 0 and not self.queue:
            self.free -= 1
            return True
        return False

    async def enter(self, patience: float | None = None) -> None:
        """Wait for a slot; `patience` in seconds, if it is not the usual one.

        Raises:
            Overloaded: the queue is full, or the wait took too long.
        """
        if len(self.queue) >= self._places:
            await asyncio.sleep(0)  # who was cancelled in this turn of the loop leaves in the next
            if self.try_enter():
                return
        if len(self.queue) >= self._places:
            raise Overloaded(f"{self._what} is busy: {_calls(self._slots)} and {self._places} wait, more are not taken")
        patience = self._patience if patience is None else max(0.0, patience)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.append(turn)
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave()  # the slot was handed over in the very turn that ended the wait
            elif turn in self.queue:
                self.queue.remove(turn)
            if isinstance(error, TimeoutError):
                others = "another call" if self._slots == 1 else f"{self._slots} other calls"
                raise Overloaded(f"{self._what} was busy for {round(patience, 2):g} s with {others}") from None
            raise

    def leave(self) -> None:
        """Give the slot back: to the one who waits longest, else to whoever comes."""
        while self.queue and self.free >= 0:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1

    @contextmanager
    def rest(self, call: Call) -> Generator[None]:
        """Lend out the slot of a call that waits for a person. It goes on at once, even if all slots are taken then.

        It is one slot, however many questions of the call wait.
        """
        questions = self._resting[call] = self._resting.get(call, 0) + 1
        if questions == 1:
            self.leave()
        try:
            yield
        finally:
            self._resting[call] -= 1
            if not self._resting[call]:
                del self._resting[call]
                self.free -= 1


def _calls(slots: int) -> str:
    return "1 call runs" if slots == 1 else f"{slots} calls run"


class WaitingRoom:
    """For those who wait for the same thing: `async with room:` around the wait. At most `places` at a time."""

    def __init__(self, what: str, *, places: int) -> None:
        """`what` is going on meanwhile, as a clause: `Server 'x' is starting`."""
        self._what, self._places = what, places
        self._occupied = 0

    def __repr__(self) -> str:
        return f"<WaitingRoom {self._what}: {self._occupied} of {self._places} places taken>"

    async def __aenter__(self) -> None:
        """Take a place.

        Raises:
            Overloaded: there is none.
        """
        if self._occupied >= self._places:
            await asyncio.sleep(0)  # as above
        if self._occupied >= self._places:
            raise Overloaded(f"{self._what}: {self._occupied} calls wait for it, more are not taken")
        self._occupied += 1

    async def __aexit__(self, *_: object) -> None:
        self._occupied -= 1
