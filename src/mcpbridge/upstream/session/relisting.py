"""When the lists of one instance are asked for again, and who waits for that.

A server announces that a list has changed, often in the middle of the call that changed it. What it announced before
its answer is in force before that answer is passed on: the call waits for the new list (`in_force`), and so do calls of
unknown names and requests for lists. Nobody waits longer than `MAX_WAIT`.

A server that announces changes without end would have its lists read, and the catalog made anew, without end. So it has
a brake: `BURST` lists at once, then one every `PACE` seconds. A list that a call has changed costs a part of that: who
calls such a tool several times in a row is to have what it brings. Nobody waits for a server under the brake.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress

from mcpbridge.base.log import get_logger

log = get_logger("mcpbridge.upstream")

RELIST_DELAY = 0.05
"""Seconds to collect several announcements into one look, unless somebody waits for it."""
MAX_WAIT = 1.0
"""Seconds that anybody waits for a list that is due."""
BURST = 8
"""Looks in a row that a server may cause at once."""
CALL_COST = 0.25
"""What a look costs that a call waits for; one that the server causes by itself costs 1."""
PACE = 2.0
"""Seconds for which a server earns one more look."""
COST_FACTOR = 10.0
"""A look of a server under the brake is followed by a pause of so many times the seconds that it took."""
LONGEST_PAUSE = 30.0
"""Seconds; no pause of the brake is longer."""


class RelistBrake:
    """Decides when the lists of one server may be read again. Pure: the time is passed in."""

    def __init__(self) -> None:
        self._credit, self._at, self._seconds = float(BURST), 0.0, 0.0
        self._is_on = False

    def wait(self, now: float) -> float:
        """Seconds until a look may begin; 0: now."""
        credit = self._earned(now)
        return 0.0 if credit >= 1 else (1 - credit) * self._pace

    def is_on(self, now: float) -> bool:
        """The server is under the brake: from the moment its credit is used up until it has earned half of it again."""
        credit = self._earned(now)
        self._is_on = credit < (BURST / 2 if self._is_on else 1)
        return self._is_on

    def looked(self, now: float, seconds: float, cost: float = 1) -> None:
        """A look that took so many seconds is over."""
        self._credit, self._at, self._seconds = self._earned(now) - cost, now, seconds

    @property
    def _pace(self) -> float:
        return max(PACE, min(LONGEST_PAUSE, COST_FACTOR * self._seconds))

    def _earned(self, now: float) -> float:
        return min(float(BURST), self._credit + max(0.0, now - self._at) / self._pace)


class Relisting:
    """The lists of one instance that are to be read again, over all its sessions."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._brake = RelistBrake()
        self._stale: set[str] = set()
        self._has_stale = asyncio.Event()
        self._hurry = asyncio.Event()
        self._progress = asyncio.Event()
        """Set, and replaced, when more is in force, or when nobody is to wait any more."""
        self._announced = self._reading = self._in_force = 0
        """Numbers of announcements: the last that came, the last that the present look sees, the last in force."""
        self._began = 0.0
        self._waiting = 0
        self._is_of_call = self._is_look_of_call = False
        """A call waits for what was announced, and for the present look."""
        self.is_due = False
        """Something that the server announced is not in force yet, and it is worth the wait."""
        self.is_braked = False
        """The server announces so many changes that its lists are read at intervals only."""

    def __repr__(self) -> str:
        state = "braked" if self.is_braked else "due" if self.is_due else "in force"
        return f"<Relisting {self._name!r} {state}, {self._waiting} waiting>"

    # -- what makes a list stale

    def announced(self, *kinds: str) -> None:
        """The server said that these lists have changed."""
        self._announced += 1
        self.mark_stale(*kinds)
        self.is_due = not self.is_braked

    def mark_stale(self, *kinds: str) -> None:
        """These lists may have changed, by other signs. Nobody waits for them."""
        if kinds:
            self._stale.update(kinds)
            self._has_stale.set()

    def begin(self) -> None:
        """Another connection is opened, which lists everything: what was announced on the last one is seen anyway."""
        self._stale.clear()
        self._has_stale.clear()
        self._release()

    # -- for those who need the lists

    async def in_force(self, *, is_of_call: bool = False) -> None:
        """Return when what was announced up to now is in force, or when that takes too long. Cancelling is safe.

        `is_of_call`: a call of this server is over, during which that was announced.
        """
        wanted = self._announced
        self._is_of_call |= is_of_call
        self._waiting += 1
        self._hurry.set()
        try:
            async with asyncio.timeout(MAX_WAIT):
                while self.is_due and self._in_force < wanted:
                    await self._progress.wait()
        except TimeoutError:
            log.info("a changed list did not arrive in time", upstream=self._name, seconds=MAX_WAIT)
        finally:
            self._waiting -= 1

    # -- for the one who reads them

    async def next_kinds(self, listed: Collection[str]) -> list[str]:
        """Wait until lists are to be read, of those that the server has (`listed`). To be followed by `finished`.

        Cancelling is safe: they stay stale.
        """
        while True:
            await self._has_stale.wait()
            await self._gather()
            now = self._loop.time()
            self._set_brake(self._brake.is_on(now))
            if pause := self._brake.wait(now):
                await asyncio.sleep(pause)
            self._has_stale.clear()
            kinds = sorted(self._stale & set(listed))
            self._stale.clear()
            self._reading, self._began = self._announced, self._loop.time()
            self._is_look_of_call, self._is_of_call = self._is_of_call, False
            if kinds:
                return kinds
            self._now_in_force()

    def finished(self) -> None:
        """The lists that `next_kinds` gave are in force now, or could not be had."""
        now = self._loop.time()
        self._brake.looked(now, now - self._began, CALL_COST if self._is_look_of_call else 1)
        self._now_in_force()

    # -- internals

    async def _gather(self) -> None:
        """Let further announcements come, unless somebody waits."""
        if self._waiting:
            return
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(RELIST_DELAY):
                await self._hurry.wait()

    def _set_brake(self, is_on: bool) -> None:
        if is_on and not self.is_braked:
            log.warning("server announces changes of its lists too often; reading them less often", upstream=self._name)
        self.is_braked = is_on
        if is_on:
            self._release()

    def _now_in_force(self) -> None:
        self._in_force = self._reading
        if self._in_force == self._announced:
            self._release()
        else:
            self._wake()

    def _release(self) -> None:
        """Nothing is due."""
        self.is_due = False
        self._wake()

    def _wake(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()
