"""Connections that nobody uses at the moment, for all parts of a bridge that use a server with the same settings.

How many connections a part may use at once, how long a command may take, and when the server counts as failing is each
part's own (`connections.py`); here is only what is left of it. A connection that was used by nobody for some seconds is
closed: a hundred bridges that had much to do once must not keep a server's last connections from the others.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

import anyio

from mcpbridge.storage.redis.nodes import Node
from mcpbridge.storage.settings import RedisAddress

IDLE_SECONDS = 10.0
"""How long a connection stays open that nobody uses."""


class Pool:
    """The idle connections, by node. The last that was used is used first, so that the others get old."""

    def __init__(self) -> None:
        self._idle = defaultdict[Node, deque[tuple[Any, float]]](deque)
        """With the time since when nobody uses it; the oldest come first."""
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = set[asyncio.Task[None]]()

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    def join(self) -> None:
        """One more part of the bridge uses it."""
        self._users += 1

    async def leave(self) -> None:
        """A part does not any more. The last one closes what is idle, within a second each."""
        self._users -= 1
        if not self._users:
            await _close(self._all(), is_last=True)
            if self._closing:
                await asyncio.wait(self._closing, timeout=1)

    def take(self, node: Node) -> Any | None:
        """An idle connection to this node, which is whoever takes it's own."""
        idle = self._idle.get(node)
        return idle.pop()[0] if idle else None

    def give_back(self, node: Node, connection: Any) -> bool:
        """Keep a connection, to which no reply is on its way. False: nobody uses this any more, so it is not kept."""
        if not self._users:
            return False
        loop = asyncio.get_running_loop()
        self._idle[node].append((connection, loop.time()))
        if self._timer is None:
            self._timer = loop.call_later(IDLE_SECONDS, self._close_old)
        return True

    async def close_idle(self, node: Node | None = None) -> None:
        """Close the idle connections, to all nodes or to one."""
        await _close(self._all() if node is None else [one for one, _ in self._idle.pop(node, ())])

    def _all(self) -> list[Any]:
        found = [connection for idle in self._idle.values() for connection, _ in idle]
        self._idle.clear()
        return found

    def _close_old(self) -> None:
        loop, old, oldest = asyncio.get_running_loop(), list[Any](), None
        now, self._timer = loop.time(), None
        for node, idle in list(self._idle.items()):
            while idle and idle[0][1] <= now - IDLE_SECONDS:
                old.append(idle.popleft()[0])
            if idle:
                oldest = min(idle[0][1], oldest or now)
            else:
                del self._idle[node]
        if oldest is not None:
            self._timer = loop.call_at(oldest + IDLE_SECONDS, self._close_old)
        if old:
            task = loop.create_task(_close(old))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _close(connections: Iterable[Any], *, is_last: bool = False) -> None:
    """`is_last`: the loop may end soon, so wait until they are closed."""
    for connection in connections:
        with anyio.move_on_after(1, shield=True):
            await connection.disconnect(nowait=not is_last)


_pools = WeakValueDictionary[tuple[asyncio.AbstractEventLoop, RedisAddress], Pool]()
"""Those that are in use. The parts are made in many places, some anew with each configuration."""


def pool_of(address: RedisAddress) -> Pool:
    """The pool of this event loop for a server and these settings of it."""
    key = asyncio.get_running_loop(), address
    found = _pools.get(key)
    if found is None:
        found = _pools[key] = Pool()
    return found
