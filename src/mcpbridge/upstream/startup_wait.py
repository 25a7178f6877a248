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


STRAGGLER_FACTOR = 3.0
"""Where one server is ready, the rest are waited for so many times as long as the slowest of the ready ones took."""
STRAGGLER_SECONDS = 1.0
"""Seconds that they are given in any case."""


class StartupWait:
    """Over when every upstream is ready or has failed once, or when its time is up; then nobody waits any more."""

    def __init__(
        self,
        pool: Pool,
        seconds: float,
        loaded: asyncio.Event | None = None,
        others: Callable[[], bool] = lambda: True,
        *,
        is_fixed: bool = True,
    ) -> None:
        """`loaded`: set once all that was kept of earlier runs is read that listings are made with.

        `others`: whether all others that offer something have settled, too. `is_fixed`: the seconds are meant so, and
        not only as the most: see `STRAGGLER_FACTOR`.
        """
        self._is_fixed = is_fixed
        self._others = others
        self._pool, self._loaded = pool, loaded
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._ends = self._began + seconds
        self._last_ready, self._ready = 0.0, 0
        """Seconds until the last server that is ready was, and how many are."""
        self._news = asyncio.Event()
        self._room = WaitingRoom("The bridge is starting", places=_PLACES)
        self.is_over = False

    def end(self) -> None:
        """Nobody waits any more: what has not come by now is not waited for."""
        self.is_over = True
        self.noticed()

    def noticed(self) -> None:
        """An upstream, or another that offers tools, changed its state."""
        ready = sum(upstream.session is not None for upstream in self._pool.upstreams.values())
        if ready > self._ready:
            self._ready, self._last_ready = ready, self._loop.time() - self._began
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
        left = self._most() - self._loop.time()
        has_settled = self._others() and all(upstream.has_settled for upstream in self._pool.upstreams.values())
        news = self._news if not has_settled else self._loaded
        if self.is_over or left <= 0 or news is None or (has_settled and news.is_set()):
            self.is_over = True
            return False
        async with self._room:
            with anyio.move_on_after(left):
                await news.wait()
        return True

    def _most(self) -> float:
        """Until when servers are waited for. One that is much slower than others may not start at all."""
        if self._is_fixed or not self._ready:
            return self._ends
        return min(self._ends, self._began + max(STRAGGLER_SECONDS, STRAGGLER_FACTOR * self._last_ready))
