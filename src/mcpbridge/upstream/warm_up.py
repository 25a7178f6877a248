"""Check in the background whether servers still offer what is remembered of them, a few at a time.

What is idle when the bridge starts is listed from the manifest. Servers with a `url` are connected here all the same,
as their own list may change at any time and a connection costs little; a program is started only when what is
remembered of it is old, and ends again soon if nobody uses it. Nobody waits for any of this: a call starts the server
that it needs by itself, whatever is under way here.
"""

import asyncio
import time
from collections.abc import Mapping

import anyio

from mcpbridge.upstream.session.listings import LIST_SECONDS
from mcpbridge.upstream.supervisor import Upstream

FIRST_SECONDS = 0.5
"""Seconds after the start of the bridge: its first client is answered before."""
AGAIN_SECONDS = 60.0
"""Seconds between looks for servers that have become due, or have come with another configuration."""
LEAST_SECONDS = 3600.0
"""Seconds between two starts of the same program, whatever it says of its age; a server may never come up."""


class WarmUp:
    """Starts what is idle and due."""

    def __init__(self, upstreams: Mapping[str, Upstream], *, at_once: int, revalidate: float) -> None:
        """`at_once`: how many may be starting; 0: none ever. `revalidate`: see `DaemonSettings`."""
        self._upstreams, self._at_once, self._revalidate = upstreams, at_once, revalidate
        self._tried: dict[str, tuple[Upstream, float]] = {}
        """By name, which instance was started, and the loop time."""

    async def run(self) -> None:
        """Do it until cancelled."""
        if not self._at_once:
            return
        await anyio.sleep(FIRST_SECONDS)
        while True:
            await self._round()
            await anyio.sleep(AGAIN_SECONDS)

    async def _round(self) -> None:
        """Start everything that is due now, those with a URL first."""
        waiting = iter(sorted(self._due(), key=lambda upstream: (upstream.settings.url is None, upstream.seen)))

        async def take() -> None:
            for upstream in waiting:
                await self._start(upstream)

        async with anyio.create_task_group() as tasks:
            for _ in range(self._at_once):
                tasks.start_soon(take)

    async def _start(self, upstream: Upstream) -> None:
        self._tried[upstream.name] = upstream, asyncio.get_running_loop().time()
        with anyio.move_on_after(upstream.settings.init_timeout + LIST_SECONDS):
            await upstream.look()

    def _due(self) -> list[Upstream]:
        return [upstream for upstream in self._upstreams.values() if self._is_due(upstream)]

    def _is_due(self, upstream: Upstream) -> bool:
        if upstream.status.state != "idle":
            return False
        tried, at = self._tried.get(upstream.name, (None, 0.0))
        if tried is upstream and asyncio.get_running_loop().time() - at < max(self._revalidate, LEAST_SECONDS):
            return False
        return upstream.settings.url is not None or time.time() - upstream.seen >= self._revalidate
