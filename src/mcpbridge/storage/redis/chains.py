"""Runs of calls that bridges on several machines count together: how many calls have followed one another in each.

A run is a hash at the server. Each bridge writes down there how many calls of the run it has under way, so that what a
bridge that died had under way does not count: see `bridges` in `shares.py`. What follows from the numbers is the same
as for one bridge (`pipeline/stages/call_budget.py`).

No call waits for a replica, so a failover may forget the last steps of a run, which may then become that much longer.
While the server is away no call begins, and none waits.

    PREFIX:{v1/#shares}:c:DIGEST    `length`, `last` (microseconds), and `r:BRIDGE` for each bridge with calls under way
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import anyio

from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.redis.connections import Connections, script

_DAYS = 7
"""After the last call of a run, it is forgotten; one that ends with a pause, that much later than the pause."""
_END_SECONDS = 2.0
"""Longer than a command may take, since another one may be under way. After it, the end is written down later."""
_AGAIN_AFTER = 1.0
"""Seconds after which the end of a call is written down again, if it could not be."""

_COUNT = script(
    """#!lua flags=allow-oom
-- KEYS: a run, the bridges. ARGV: this bridge, calls that it has under way, the last place of those that ended,
-- calls that may follow one another (0: none begins now), microseconds of a pause, seconds to keep it
-- Returns the place of the call that begins; 0: it may not
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local held, length, last, others = redis.call('HGETALL', KEYS[1]), 0, -1, 0
local own, most, pause = 'r:' .. ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
for at = 1, #held, 2 do
  local name, value = held[at], tonumber(held[at + 1])
  if name == 'length' then
    length = value
  elseif name == 'last' then
    last = value
  elseif name ~= own then
    local ends = redis.call('ZSCORE', KEYS[2], string.sub(name, 3))
    if ends and tonumber(ends) >= tonumber(clock[1]) then
      others = others + value
    else
      redis.call('HDEL', KEYS[1], name)
    end
  end
end
length = math.max(length, tonumber(ARGV[3]))
local running, place = tonumber(ARGV[2]), 0
if most > 0 then
  if pause > 0 and running + others == 0 and now - last >= pause then length = 0 end
  if length < most then
    place = length + 1
    running = running + 1
  end
end
redis.call('HSET', KEYS[1], 'length', length, 'last', string.format('%.0f', now), own, running)
if running == 0 then redis.call('HDEL', KEYS[1], own) end
redis.call('EXPIRE', KEYS[1], ARGV[6])
return place
"""
)


class Counting(Protocol):
    """What a run needs of the bridge that counts."""

    @property
    def id(self) -> str:
        """Names this bridge among those that share."""
        ...

    @property
    def server(self) -> Connections:
        """Where the numbers are."""
        ...

    @property
    def is_away(self) -> bool:
        """The server did not answer the last time; whoever counts looks every second whether it does again."""
        ...

    def lost(self, error: StoreFailed) -> None:
        """The server does not answer."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        """Do it in the background."""
        ...


class SharedChain:
    """One run, as this bridge counts it. It is kept by those who have a call under way, and by nobody else."""

    __slots__ = ("__weakref__", "_bridges", "_ended", "_is_writing", "_key", "_lock", "_owner", "_pause", "_running")

    def __init__(self, owner: Counting, key: str, bridges: str) -> None:
        """`key` and `bridges` are keys at the server: of the run, and of who shares."""
        self._owner, self._key, self._bridges = owner, key, bridges
        self._running = self._ended = 0
        self._is_writing = False
        self._pause = 0.0
        self._lock = asyncio.Lock()  # else a number might arrive after a newer one

    def __repr__(self) -> str:
        return f"<SharedChain: {self._running} calls under way>"

    async def begin(self, *, most: int, pause: float) -> int:
        """A call wants to begin. Returns its place in the row, from 1; 0: it would be longer than `most`.

        After `pause` seconds without a call, by way of whatever bridge, it is a new run; 0: it never is.

        Raises:
            StoreFailed: the server is away. Nobody waits once that is known.
        """
        async with self._lock:
            self._pause = pause
            place = await self._count(most)
            self._running += place > 0
            return place

    async def end(self, place: int) -> None:
        """The call with this place is over. Returns when the others can know, unless the server is away."""
        self._running -= 1
        self._ended = max(self._ended, place)
        is_known = False
        try:
            with anyio.move_on_after(_END_SECONDS, shield=True):
                await self._end_now()
                is_known = True
        except StoreFailed:
            pass
        finally:
            if not is_known:
                self._write_later()

    async def _end_now(self) -> None:
        async with self._lock:
            await self._count(0)

    def _write_later(self) -> None:
        """Say how many are under way, as soon as the server answers."""
        if not self._is_writing:
            self._is_writing = True
            self._owner.spawn(self._write())

    async def _write(self) -> None:
        try:
            while True:
                try:
                    await self._end_now()
                    return
                except StoreFailed:
                    await asyncio.sleep(_AGAIN_AFTER)
        finally:
            self._is_writing = False

    async def _count(self, most: int) -> int:
        if self._owner.is_away:  # nobody waits for it but who looks whether it is back
            raise StoreFailed("the server of the store is away")
        ended, pause = self._ended, self._pause
        keep = _DAYS * 86400 + round(pause)
        arguments = (self._owner.id, self._running, ended, most, round(pause * 1e6), keep)
        try:
            place: int = await self._owner.server.run(_COUNT, [self._key, self._bridges], *arguments)
        except BaseException as error:
            if isinstance(error, StoreFailed):
                self._owner.lost(error)
            if most:
                self._write_later()  # it may have begun there
            raise
        if ended == self._ended:
            self._ended = 0  # it is known there; in a new run it must not come again
        return place
