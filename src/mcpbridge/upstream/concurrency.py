"""Keep one busy upstream from taking the whole bridge: its concurrency limit, and the queue before it.

Each upstream has its own slots and its own queue, so a slow server delays its own callers only. A call that
cannot get a slot in time, or finds the queue full, is refused before the server sees anything of it. The numbers are
settings of the server (`max_concurrent`, `max_queued`, `queue_timeout`).

How many calls a server takes at a time cannot be known beforehand. One that answers them one after the other gains
nothing from more, and a call that waits in its pipe cannot be refused unsent any more; one that answers them side by
side would be slowed down. So the slots follow what its answers show, unless a number is configured. The rule, asked
only while calls wait (`LearnedSlots`), is additive increase and decrease on the latency, as TCP's slow start and Vegas:

1. The server answered within `QUICK`, or not much later than its best answer of that kind, or before a quarter of the
   calls that it had got earlier: one slot more.
2. Otherwise, if it took longer than `SLOW`: one slot less, down to where it began.
3. Otherwise they stay.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from mcpbridge.base.errors import Overloaded
from mcpbridge.core.model import Call

_CLOCK_RESOLUTION = 0.001
"""Seconds; a timer may fire this much before its time."""


def takes_slot(call: Call) -> bool:
    """Not what waits by design for as long as a task runs (2025-11-25, retrieving task results)."""
    return call.method != "tasks/result"


class LearnedSlots:
    """How many slots a server has whose number nobody set: between `FEWEST` and `MOST`."""

    FEWEST = 16
    """Calls in flight at a server of which nothing is known."""
    MOST = 512
    """Calls in flight at any server that shows to answer them side by side."""
    QUICK = 0.25
    """Seconds; a server that answers so soon is given more, whether or not it answers in order."""
    SLOW = 1.0
    """Seconds; a server that takes so long in order of sending has calls waiting in its pipe."""

    @classmethod
    def change(cls, slots: int, seconds: float, best: float, *, overtook: bool) -> int:
        """By how many the slots change (1, 0 or -1) after an answer that took so many seconds.

        `best`: the fewest seconds that an answer of this kind took. `overtook`: it came before others' that were due.
        """
        if overtook or seconds <= max(cls.QUICK, 2 * best):
            return 1 if slots < cls.MOST else 0
        return -1 if seconds > cls.SLOW and slots > cls.FEWEST else 0


class _Turn(asyncio.Future[bool]):
    """The wait of one call. Its result: whether it got a slot before its time was over."""

    until = 0.0


class ConcurrencyLimiter:
    """At most `slots` calls at a time; `places` more wait in order of arrival, none longer than `patience` seconds."""

    def __init__(self, what: str, *, slots: int | None, places: int, patience: float) -> None:
        """`what` is it that takes only so many, as refusals name it: `Server 'x'`. `slots`: None to learn them."""
        self._what, self._places, self._patience = what, places, patience
        self._learns, self._slots = slots is None, LearnedSlots.FEWEST if slots is None else slots
        self._best: dict[str, float] = {}
        """The fewest seconds that the server took while calls waited, for each kind of call: a tool, or a method."""
        self.free = self._slots
        """Slots that nobody has; below zero while those go on that had lent out theirs."""
        self.queue: deque[_Turn] = deque()
        """Who waits for a slot."""
        self._timer: asyncio.TimerHandle | None = None
        """When the first of the queue has waited long enough: one for all, since a timer a call is dear."""
        self._resting: dict[Call, int] = {}
        """Calls that lend out their slot, and for how many questions."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._what}: {self.free} of {self._slots} free, {len(self.queue)} waiting>"

    @property
    def slots(self) -> int:
        """Calls that may run at a time, as things are."""
        return self._slots

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
        """Wait for a slot; `patience` in seconds, if it is not the usual one. Cancelling gives up the place.

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
        loop = asyncio.get_running_loop()
        turn = _Turn(loop=loop)
        turn.until = loop.time() + patience
        self.queue.append(turn)
        if self._timer is None or self._timer.when() > turn.until:
            self._expire_at(turn.until)
        try:
            has_slot = await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.result():
                self.leave()  # the slot was handed over in the very turn that ended the wait
            elif turn in self.queue:
                self.queue.remove(turn)
            raise
        if not has_slot:
            others = "another call" if self._slots == 1 else f"{self._slots} other calls"
            raise Overloaded(f"{self._what} was busy for {round(patience, 2):g} s with {others}")

    def leave(self) -> None:
        """Give the slot back: to the one who waits longest, else to whoever comes."""
        while self.queue and self.free >= 0:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self.free += 1

    def answered(self, kind: str, seconds: float, *, overtook: bool) -> None:
        """Give back the slot of a call that the server answered; while others wait, that says how many slots it needs.

        `kind`: the tool, or the method. `seconds` it took; `overtook`: before a quarter of those sent earlier.
        """
        change = 0
        if self._learns:
            best = self._best[kind] = min(seconds, self._best.get(kind, seconds))
            change = LearnedSlots.change(self._slots, seconds, best, overtook=overtook)
            self._slots += change
        if change >= 0:  # else the slot goes with the call
            self.leave()
        if change > 0:
            self.leave()

    def _expire_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._expire)

    def _expire(self) -> None:
        """The time of somebody who waits is over. Times differ little, so this is rare and may look at all."""
        self._timer = None
        now = asyncio.get_running_loop().time() + _CLOCK_RESOLUTION
        waiting: deque[_Turn] = deque()
        for turn in self.queue:
            if turn.until > now:
                waiting.append(turn)
            elif not turn.done():
                turn.set_result(False)
        self.queue = waiting
        if waiting:
            self._expire_at(min(turn.until for turn in waiting))

    @contextmanager
    def rest(self, call: Call) -> Generator[None]:
        """Lend out the slot of a call that waits for a person. It continues at once, even if all slots are taken then.

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
