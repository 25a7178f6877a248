"""One run for equal calls that come to several bridges at the same time: who has the lease of a key runs it.

The others wait, and look again and again until the run is over: for its result, which is published if anybody waits, or
for the lease, if its owner gave it up or was killed. Whoever follows does so for two owners at most, and then runs by
itself, so that nobody waits in turn behind failures. A lease is short and renewed while the run lasts. With a renewal
goes the last progress, if somebody waits.

Each change is one script, and times are the server's. Where that does not answer, nobody waits, and each runs by
itself. Names of keys and what is published follow from the fleet's key, so whoever can read the server learns nothing.

    PREFIX:{v1/#epochs}:run:DIGEST      a hash. While a run lasts: its `owner`, when it `began`, `wanted` if its result
                                        is (how many wait), the last progress `news` and its number `said`. Then, for
                                        some seconds: its `result`, when it `ended`, and whether it may be kept, `keeps`
"""

import asyncio
import hmac
import json
import random
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.storage.compression import Unreadable, Workers, is_worth_packing, pack, unpack
from mcpbridge.storage.redis.connections import script
from mcpbridge.storage.redis.epochs import SharedEpochs

log = get_logger("mcpbridge.storage")

LEASE_SECONDS = 3.0
"""How long a lease lasts that is not renewed."""
RENEW_SECONDS = 1.0
"""Between two renewals."""
PUBLISHED_SECONDS = 5.0
"""How long those who wait have to fetch a result."""
MOST_BYTES = 512 * 1024
"""Of a result, compressed, that is published; for a larger one each bridge runs the call itself."""
_MOST_NEWS = 16 * 1024
"""Bytes of progress; a larger one is for this bridge alone."""
_MOST_OWNERS = 2
_FIRST_LOOK, _LATER_LOOKS = 0.005, 0.1
"""Seconds between two looks, which become more."""
_END_SECONDS = 1.0
"""How long the end of the bridge waits for leases that are being given up."""
_NAMES, _SEALS = b"mcpbridge fleet, names of runs, 1", b"mcpbridge fleet, results of runs, 1"
_SIZE_BYTES, _NONCE_BYTES = 8, 12

_WAIT, _LED, _PUBLISHED = 0, 1, 2
_NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""
_LEAD = script(
    _NOW
    + """
-- ARGV: who asks, milliseconds of a lease, whom it waits for, the number of the last progress that it knows
local run = redis.call('HMGET', KEYS[1], 'owner', 'began', 'said', 'news', 'ended', 'keeps', 'result')
if run[7] then return {2, now - run[2], now - run[5], run[6], run[7]} end
if not run[1] or run[1] == ARGV[1] then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'began', now)
  -- Whoever waited for the last owner as well may look again only when this run is over.
  if ARGV[3] ~= '' then redis.call('HSETNX', KEYS[1], 'wanted', 0) end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1}
end
if run[1] ~= ARGV[3] then redis.call('HINCRBY', KEYS[1], 'wanted', 1) end
local said, news = run[3] or '0', ''
if said ~= ARGV[4] then news = run[4] or '' end
return {0, now - run[2], run[1], said, news}
"""
)
_RENEW = script("""
-- ARGV: the owner, milliseconds of a lease, the last progress. Returns whether it is still its own, and who waits
local run = redis.call('HMGET', KEYS[1], 'owner', 'wanted', 'result')
if run[1] ~= ARGV[1] or run[3] then return {0, 0} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'news', ARGV[3])
  redis.call('HINCRBY', KEYS[1], 'said', 1)
end
return {1, run[2] and 1 or 0}
""")
_END = script("""
-- KEYS: the run, the epoch of its server. ARGV: the owner, the epoch that it began in, milliseconds to publish in
-- Returns whether the epoch is the same, and whether the result is wanted: if not, the lease is over
local is_same = redis.call('GET', KEYS[2]) == ARGV[2] and 1 or 0
local run = redis.call('HMGET', KEYS[1], 'owner', 'wanted')
if run[1] ~= ARGV[1] then return {is_same, 0} end
if run[2] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {is_same, 1}
end
redis.call('DEL', KEYS[1])
return {is_same, 0}
""")
_PUBLISH = script(
    _NOW
    + """
-- ARGV: the owner, the result, whether it may be kept, milliseconds
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'wanted', 'news', 'said')
redis.call('HSET', KEYS[1], 'result', ARGV[2], 'keeps', ARGV[3], 'ended', now)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
)
_FREE = script("""
-- ARGV: the owner, milliseconds of a lease
local run = redis.call('HMGET', KEYS[1], 'owner', 'wanted', 'result')
if run[1] ~= ARGV[1] or run[3] then return 0 end
redis.call('DEL', KEYS[1])
if run[2] then -- the next owner is to publish its result, though nobody may have asked for it by then
  redis.call('HSET', KEYS[1], 'wanted', 0)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
""")

Published = tuple[bytes, float | None]
"""A result, and how many seconds ago it came; None: it is for those who waited, and must not be kept."""


class RunLeases:
    """The leases, as one bridge sees them. It never fails."""

    def __init__(self, epochs: SharedEpochs, prefix: str, key: str) -> None:
        """`key`: the fleet's. The connections are those of the epochs: who gets no answer there asks no more here."""
        self._epochs, self._server = epochs, epochs.server
        self._begin = f"{prefix}:{{v1/#epochs}}:run:"
        self._names, self._seals = (hmac.digest(key.encode(), use, "sha256") for use in (_NAMES, _SEALS))
        self._workers, self._tasks = Workers(), OwnedTasks()
        self._has_complained = False

    def __repr__(self) -> str:
        return f"<RunLeases: {len(self._tasks.under_way())} tasks>"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Leases can be taken meanwhile. At the end, those that were given up are free."""
        async with self._tasks.running():
            try:
                yield
            finally:
                if tasks := self._tasks.under_way():
                    with anyio.move_on_after(_END_SECONDS, shield=True):
                        await asyncio.wait(tasks)

    async def lead(
        self,
        key: Sequence[str],
        server: str,
        epoch: str,
        *,
        is_fresh: Callable[[float, float], bool],
        on_progress: Callable[[bytes], None],
    ) -> "RunLease | Published | None":
        """The lease of this key, or what another bridge published: waits while one runs the same call.

        None: run it without a lease, since the server does not answer, or what others have is no use. `epoch`: of the
        server that is called, part of `key`. `is_fresh`: whether a run is one to wait for that began so many seconds
        ago, and ended so many. `on_progress` gets the progress of the other bridge.

        Cancelling is safe: a lease that may have been taken is given up.
        """
        name, mine = self._name(key), secrets.token_hex(8)
        followed, owners, said, pause = b"", 0, b"0", _FIRST_LOOK
        while True:
            try:
                reply = await self._server.run(_LEAD, [name], mine, _ms(LEASE_SECONDS), followed, said)
            except StoreFailed:
                return None
            except asyncio.CancelledError:
                self.spawn(self.free(name, mine))
                raise
            if reply[0] == _LED:
                return RunLease(self, name, mine, server, epoch)
            is_over = reply[0] == _PUBLISHED
            if not is_fresh(reply[1] / 1000, reply[2] / 1000 if is_over else 0.0):
                return None
            if is_over:
                result = await self._opened(name, reply[4])
                return None if result is None else (result, reply[2] / 1000 if reply[3] == b"1" else None)
            if reply[2] != followed:
                followed, owners, pause = reply[2], owners + 1, _FIRST_LOOK
                if owners > _MOST_OWNERS:
                    return None
            if reply[4] and (news := await self._opened(name, reply[4])) is not None:
                on_progress(news)
            said = reply[3]
            await asyncio.sleep(pause * (0.75 + random.random() / 4))
            pause = min(_LATER_LOOKS, pause * 1.5)

    # -- for the leases

    async def renew(self, name: str, mine: str, news: bytes) -> tuple[bool, bool]:
        """Make a lease last, with progress to publish. Returns whether it is still there, and whether anybody waits."""
        sealed = await self._sealed(name, news) if news else b""
        is_mine, is_wanted = await self._server.run(_RENEW, [name], mine, _ms(LEASE_SECONDS), sealed)
        return bool(is_mine), bool(is_wanted)

    async def end(
        self, name: str, mine: str, server: str, epoch: str, result: bytes, seconds: float, *, may_keep: bool
    ) -> bool:
        """See `RunLease.end`."""
        is_same = False
        try:
            keys = [name, self._epochs.key_of(server)]
            found = await self._server.run(_END, keys, mine, epoch, _ms(LEASE_SECONDS))
            is_same = bool(found[0]) and not self._epochs.owes(server)
            if found[1]:
                sealed = await self._sealed(name, result)
                if len(sealed) > MOST_BYTES:
                    await self._server.run(_FREE, [name], mine, _ms(LEASE_SECONDS))
                else:
                    keeps, kept = int(may_keep and is_same), _ms(min(PUBLISHED_SECONDS, seconds))
                    await self._server.run(_PUBLISH, [name], mine, sealed, keeps, kept)
        except StoreFailed as error:
            log.debug("a result was not published for other bridges", reason=str(error))
        except asyncio.CancelledError:
            self.spawn(self.free(name, mine))
            raise
        return is_same

    async def free(self, name: str, mine: str) -> None:
        """Give up a lease, if it is this bridge's."""
        try:
            await self._server.run(_FREE, [name], mine, _ms(LEASE_SECONDS))
        except StoreFailed as error:  # it ends by itself
            log.debug("a lease of a run was not given up", reason=str(error))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside the calls."""
        self._tasks.spawn(work)

    # -- what is written

    def _name(self, key: Sequence[str]) -> str:
        return self._begin + hmac.digest(self._names, json.dumps(list(key)).encode(), "sha256").hex()

    async def _sealed(self, name: str, data: bytes) -> bytes:
        if not is_worth_packing(data):
            return self._close(name, data)
        return await self._workers.run(self._close, name, data, size=len(data))

    async def _opened(self, name: str, sealed: bytes) -> bytes | None:
        """What another bridge wrote; None, and a line in the log, if it cannot be read."""
        try:
            if not is_worth_packing(sealed):
                return self._open(name, sealed)
            return await self._workers.run(self._open, name, sealed, size=len(sealed))
        except Unreadable as error:
            if not self._has_complained:
                self._has_complained = True
                log.warning("results of other bridges cannot be read; calls are made here", reason=str(error))
            return None

    def _close(self, name: str, data: bytes) -> bytes:
        form, body = pack(data)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        head = bytes([form]) + len(data).to_bytes(_SIZE_BYTES, "big")
        return nonce + self._cipher(name).encrypt(nonce, head + bytes(body), name.encode())

    def _open(self, name: str, sealed: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            data = self._cipher(name).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError) as error:
            raise Unreadable("it was written with another key, or changed since") from error
        at = 1 + _SIZE_BYTES
        return unpack(data[0], data[at:], int.from_bytes(data[1:at], "big"))

    def _cipher(self, name: str) -> Any:
        """With a key for each name, so that no nonce comes twice with one."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(hmac.digest(self._seals, name.encode(), "sha256"))


class RunLease:
    """This bridge runs a call for all that make the same one. Nothing here fails."""

    __slots__ = ("_at", "_is_over", "_is_wanted", "_leases", "_mine", "_name", "_news", "_timer")

    def __init__(self, leases: RunLeases, name: str, mine: str, server: str, epoch: str) -> None:
        self._leases, self._name, self._mine, self._at = leases, name, mine, (server, epoch)
        self._news = b""
        self._is_over = self._is_wanted = False
        self._timer = asyncio.get_running_loop().call_later(RENEW_SECONDS, self._renew_soon)

    def __repr__(self) -> str:
        state = "over" if self._is_over else "wanted" if self._is_wanted else "held"
        return f"<RunLease of {self._at[0]!r}, {state}>"

    def progressed(self, params: bytes) -> None:
        """The run has made progress, which those who wait hear of within a second or two."""
        if len(params) <= _MOST_NEWS:
            self._news = params

    def give_up(self) -> None:
        """Whoever waits has to run by itself. Returns at once; nothing if the lease is over."""
        if not self._is_over:
            self._finish()
            self._leases.spawn(self._leases.free(self._name, self._mine))

    async def end(self, result: bytes, seconds: float, *, may_keep: bool) -> bool:
        """The run is over: publish its result, if anybody waits for it. `seconds`: for which it is good.

        `may_keep`: they may keep it. Returns whether nothing was written to the server that is called meanwhile, by
        way of whatever bridge; False also if that cannot be known, or the lease was given up before.
        """
        if self._is_over:
            return False
        self._finish()
        return await self._leases.end(self._name, self._mine, *self._at, result, seconds, may_keep=may_keep)

    def _finish(self) -> None:
        self._is_over = True
        self._timer.cancel()

    def _renew_soon(self) -> None:
        self._leases.spawn(self._renew())

    async def _renew(self) -> None:
        news, is_mine = self._news if self._is_wanted else b"", True
        try:
            is_mine, self._is_wanted = await self._leases.renew(self._name, self._mine, news)
            if self._news is news:
                self._news = b""
        except StoreFailed as error:
            log.debug("a lease of a run was not renewed", reason=str(error))
        if is_mine and not self._is_over:
            is_due = self._is_wanted and self._news and not news  # it has just turned out that somebody waits
            self._timer = asyncio.get_running_loop().call_later(0 if is_due else RENEW_SECONDS, self._renew_soon)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
