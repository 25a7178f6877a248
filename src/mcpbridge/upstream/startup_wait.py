"""The first seconds: whoever asks for something that a starting server may have waits for it, once and not for long."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import anyio

from mcpbridge.base.errors import Overloaded
from mcpbridge.upstream.concurrency import WaitingRoom
from mcpbridge.upstream.pool import Pool

_PLACES = 1000
"""Requests that may wait at a time; each costs some 7 KB meanwhile."""


class StartupWait:
    """Over when every upstream is ready or has failed once, or when its time is up; then nobody waits any more."""

    def __init__(
        self,
        pool: Pool,
        seconds: float,
        loaded: asyncio.Event | None = None,
        others: Callable[[], bool] = lambda: True,
    ) -> None:
        """`loaded`: set once all that was kept of earlier runs is read that listings are made with.

        `others`: whether all others that offer something have settled, too.
        """
        self._others = others
        self._pool, self._loaded = pool, loaded
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + seconds
        self._news = asyncio.Event()
        self._room = WaitingRoom("The bridge is starting", places=_PLACES)
        self.is_over = False

    def noticed(self) -> None:
        """An upstream, or another that offers tools, changed its state."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def settled(self) -> None:
        """Return once it is over, and what servers announced of their lists is in force.

        Who comes when too many wait gets the catalog as it is, and its changes later. Cancelling is safe.
        """
        with suppress(Overloaded):
            while await self.more():
                pass
        await self._pool.lists_in_force()

    async def more(self) -> bool:
        """Return when an upstream has changed its state; False when it is over.

        Raises:
            Overloaded: too many wait already.
        """
        left = self._ends - self._loop.time()
        has_settled = self._others() and all(upstream.has_settled for upstream in self._pool.upstreams.values())
        news = self._news if not has_settled else self._loaded
        if self.is_over or left <= 0 or news is None or (has_settled and news.is_set()):
            self.is_over = True
            return False
        async with self._room:
            with anyio.move_on_after(left):
                await news.wait()
        return True
