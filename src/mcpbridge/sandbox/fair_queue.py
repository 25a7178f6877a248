"""Decides who goes next where only a few can run at a time: owners take turns, however much one of them wants.

Each free place goes to the owner who has the fewest, and among those round in a circle. So what one owner wants more
makes nobody wait longer, and an owner who is alone gets every place.
"""

import asyncio
from collections import Counter, deque


class FairQueue:
    """Places for one event loop, free at first."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._running = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By owner, in the order of their next turns."""

    async def acquire(self, owner: str) -> None:
        """Return when it is this owner's turn; `release` ends it. Within one owner in order of arrival."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._pass_on()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(owner, turn)
            else:  # it came in the same moment
                self.release(owner)
            raise

    def take(self, owner: str) -> None:
        """Have a place at once, even if none is free: the next ones that are released make up for it."""
        self._free -= 1
        self._running[owner] += 1

    def release(self, owner: str) -> None:
        """The turn is over."""
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        self._free += 1
        self._pass_on()

    def _pass_on(self) -> None:
        while self._free > 0 and self._waiting:
            owner = min(self._waiting, key=self._running.__getitem__)
            turns = self._waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns  # behind all others
            if not turn.done():  # else it was cancelled, and whose it was has not run yet
                self._free -= 1
                self._running[owner] += 1
                turn.set_result(None)

    def _forget(self, owner: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(owner)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[owner]
