"""Calls that are under way for certain when something is done to the fleet (issue 24).

A session is opened at the bridge that it is done to, and its call goes by way of another one. The server there writes
down that it has begun, and does not end it.
"""

import asyncio
from typing import TYPE_CHECKING

import httpx2

from support.fleet_checker.talkers import PATIENCE, Talker
from support.replicas import Replica

if TYPE_CHECKING:
    from support.fleet_checker.run import Run

_TRIES = 100
_PAUSE = 0.2
"""Seconds between two of them."""
_LOOK = 0.02
"""Seconds between two looks at what the server has written."""


class HeldCall(Talker):
    """One, and its client."""

    async def begin_at(self, owner: Replica, by: Replica) -> bool:
        """Begin it. False: something failed, and nothing is under way."""
        self.http = httpx2.AsyncClient(trust_env=False, timeout=PATIENCE)
        everybody, self.url = self.url, owner.url
        try:
            if not await self.begin():
                return False
            self.url = by.url
            self._task = asyncio.create_task(self._call())
            while not (has_begun := self._has_begun()) and not self._task.done():
                await asyncio.sleep(_LOOK)
            return has_begun
        except httpx2.HTTPError:
            return False
        finally:
            self.url = everybody

    async def _call(self) -> None:
        await self.call("held")

    def _has_begun(self) -> bool:
        return f"{self.name}-1 " in self.run.journal.read_text("utf-8")

    async def end(self) -> None:
        """Have it ended at its server, if that is still there. Returns when its client knows what came of it."""
        while self.session and (await self.call("release"))[0] != "answered":
            await asyncio.sleep(_PAUSE)
        await self._task
        await self.http.aclose()


async def hold(run: "Run", owner: Replica, by: Replica) -> HeldCall:
    """A call that the server of this bridge has begun, and which came by way of the other one."""
    for _ in range(_TRIES):
        run.held += 1
        one = HeldCall(run, f"h{run.held}")
        if await one.begin_at(owner, by):
            return one
        await asyncio.sleep(_PAUSE)
    raise AssertionError(f"no call of a session of {owner.name} can be made by way of {by.name}\n{run.whole()}")
