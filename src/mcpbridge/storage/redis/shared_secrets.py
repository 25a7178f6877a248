"""Secrets that all bridges of one store have in common, on its server: sealed values, rows of the vault, and locks.

Everything is sealed before it leaves the bridge, so that the server sees digests and bytes. Each change has a number:
whoever has read up to one asks only for what came later. Numbers are milliseconds of the server's clock, or one more
than the last: of two rows the one with the higher number is the newer one, also after a failover that undid changes.

What a failover must not undo is done once a replica has it: rows, since a refresh token that was used must not come
back, and locks. A lock ends by itself when its holder dies; whoever lost it to another one, or may have done so while
stopped, is cancelled. Layout:

    PREFIX:{v1/#accounts}:rows       a hash: rows of the vault, sealed, by their place
    PREFIX:{v1/#accounts}:changes    places by the number of their last change, also of rows that are gone
    PREFIX:{v1/#accounts}:seq        the last number
    PREFIX:{v1/#accounts}:salt       what the keys are made with
    PREFIX:{v1/#accounts}:secrets    a hash: other secrets, sealed, by the digest of their name
    PREFIX:{v1/#accounts}:lock:NAME  who holds a lock
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic

import anyio
import anyio.to_thread
from msgspec import Struct

from mcpbridge.base.background_tasks import repeat
from mcpbridge.base.errors import ConfigError, StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.storage.compression import Unreadable
from mcpbridge.storage.encryption import Seals
from mcpbridge.storage.redis.connections import Connections, script
from mcpbridge.storage.settings import RedisAddress

log = get_logger("mcpbridge.storage")

_LOCK_SECONDS = 15.0
"""How long a lock lasts that its holder does not renew; it does so three times in that."""
SEND_SECONDS = 15.0
"""How long whoever holds a lock keeps trying to write down what it has changed: as during a failover."""
SEND_AGAIN = 0.2
"""Seconds between two tries."""
_LONGEST_PAUSE = 1.0
"""Seconds between two attempts to reach the server: whoever has a newer row is to be there before the lock ends."""
_LOOK = 0.05
"""Seconds between two tries to get a lock."""
_PAGE = 200
"""Rows that are read in one step."""

_NUMBER = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local number = math.max(now, tonumber(redis.call('GET', KEYS[3]) or '0') + 1)
redis.call('SET', KEYS[3], string.format('%.0f', number))
redis.call('ZADD', KEYS[2], number, ARGV[1])
"""
_PUT_ROW = script(f"{_NUMBER} redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) return number")
_DROP_ROW = script(f"{_NUMBER} return {{number, redis.call('HDEL', KEYS[1], ARGV[1])}}")
_CHANGES = script("""
local places = redis.call('ZRANGE', KEYS[2], '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
local last, found = tonumber(redis.call('GET', KEYS[3]) or '0'), {}
for i = 1, #places, 2 do
  found[#found + 1] = {places[i], places[i + 1], redis.call('HGET', KEYS[1], places[i]) or ''}
end
return {last, found, redis.call('GET', KEYS[4]) or '', redis.call('ZSCORE', KEYS[2], ARGV[3]) or '0'}
""")
_FREE = script("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
_RENEW = script("""
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 'another bridge got it' end
if not holder and ARGV[3] == '0' then return 'another bridge may have had it' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) -- a failover may have undone it
return ''
""")


class Change(Struct, frozen=True):
    """What became of a row."""

    place: str
    number: int
    data: bytes
    """Empty: it is gone."""


class SharedRows:
    """The rows of the vault on the server, and locks. Every method raises `StoreFailed` where that does not answer."""

    def __init__(self, address: RedisAddress, prefix: str) -> None:
        self.server = Connections(address, longest_pause=_LONGEST_PAUSE)
        self._place = address.without_password
        self.name = hashlib.sha256(f"{address.without_password}\n{prefix}".encode()).hexdigest()[:12]
        """Tells the records of one store from those of another."""
        self.begin = f"{prefix}:{{v1/#accounts}}:"
        self._keys = [self.begin + part for part in ("rows", "changes", "seq", "salt")]

    async def salt(self) -> bytes:
        """What the keys are made with; the same for all."""
        key = f"{self.begin}salt"
        found = await self.server.call("GET", key)
        if found is None:
            await self.server.call("SET", key, secrets.token_bytes(16), "NX")
            found = await self.server.call("GET", key)
        return found or b""

    async def changes(self, after: int, newest: tuple[str, int]) -> tuple[Sequence[Change], bytes, bool]:
        """The next rows that changed after this number, the salt, and whether the server has lost changes.

        `newest`: the place and number of the newest change that is known here.
        """
        last, found, salt, number = await self.server.run(_CHANGES, self._keys, after, _PAGE, newest[0])
        page = [Change(place.decode(), int(number), data) for place, number, data in found]
        return page, salt, last < after or int(number) < newest[1]

    async def put(self, place: str, data: bytes) -> int:
        """Keep a row; returns the number of this change."""
        return await self.server.run(_PUT_ROW, self._keys, place, data, until="on a replica that is up")

    async def drop(self, place: str) -> tuple[int, bool]:
        """Take a row away; returns the number of this change, and whether there was one."""
        number, was_there = await self.server.run(_DROP_ROW, self._keys, place, until="on a replica that is up")
        return number, bool(was_there)

    @asynccontextmanager
    async def lock(self, name: str, seconds: float) -> AsyncGenerator[None]:
        """Alone among all bridges of the store; waits at most `seconds`.

        Raises:
            TimeoutError: another holds it all the time.
            StoreFailed: the server does not answer; or another one got the lock meanwhile, or may have had it, and the
                body was cancelled.
        """
        key, mine = f"{self.begin}lock:{name}", secrets.token_hex(16)
        lease, held = int(_LOCK_SECONDS * 1000), asyncio.timeout(None)
        renewed_at, lost = monotonic(), b""

        async def renew() -> bool:
            nonlocal renewed_at, lost
            now = monotonic()
            with suppress(StoreFailed):
                # After that long it has ended by itself, and nobody knows who has had it since.
                may_set = int(now - renewed_at < _LOCK_SECONDS)
                lost = await self.server.run(_RENEW, [key], mine, lease, may_set)
                if lost:
                    log.warning("a lock of the shared accounts ended while it was held", reason=lost.decode())
                    held.reschedule(0)  # ends it now
                    return True
                renewed_at = now
            return False

        try:
            with anyio.fail_after(seconds):
                while not await self._got(key, mine, lease):
                    await anyio.sleep(_LOOK)
                    renewed_at = monotonic()
            async with held:
                keeper = asyncio.create_task(repeat(_LOCK_SECONDS / 3, renew))
                try:
                    yield
                finally:
                    keeper.cancel()
        except TimeoutError as error:
            if held.expired():
                what = f"a lock of the shared accounts ended while it was held here: {lost.decode()}"
                raise StoreFailed(what, file=self._place) from error
            raise
        finally:  # also if it was written, and the answer never came
            with anyio.CancelScope(shield=True), suppress(StoreFailed):  # then it ends by itself
                await self.server.run(_FREE, [key], mine)

    async def _got(self, key: str, mine: str, lease: int) -> bool:
        return await self.server.call("SET", key, mine, "NX", "PX", lease, until="on a replica that is up") is not None

    async def close(self) -> None:
        """End the connections."""
        await self.server.close()


class SharedSecrets:
    """A `SecretStore` (`upstream/auth/grant.py`) on the server, for all bridges that have the same key."""

    def __init__(self, rows: SharedRows, keys: Callable[[], Sequence[str]]) -> None:
        """`keys`: the newest first, with which values are sealed from now on; the others open older ones.

        It raises `ConfigError` where they could not be read, and nothing is opened or kept then.
        """
        self._rows, self._keys = rows, keys
        self._seals: dict[str, Seals] = {}
        self._known: dict[str, bytes | None] = {}
        """What was read or written last, for as long as the server does not answer."""
        self._held = 0
        """Locks that are held here."""

    async def load(self, key: str) -> bytes | None:
        """What is kept under `key`; what it was last, while the server does not answer. See `SecretStore`."""
        try:
            found = await self._rows.server.call("HGET", f"{self._rows.begin}secrets", _digest(key))
            self._known[key] = None if found is None else await self._opened(key, found)
        except StoreFailed as error:
            log.warning("the shared sign-ins cannot be read; what is known of them counts", reason=str(error))
        return self._known.get(key)

    async def save(self, key: str, value: bytes) -> None:
        """Keep `value`. See `SecretStore`.

        Under a lock, a failover is waited for: what was used up elsewhere for this value is of no use any more.
        """
        end = anyio.current_time() + SEND_SECONDS
        while True:
            try:
                await self._save(key, value)
            except StoreFailed as error:
                if not self._held or anyio.current_time() > end:
                    raise ConfigError(f"a sign-in cannot be stored: {error.what}", file=error.file) from error
                await anyio.sleep(SEND_AGAIN)
            else:
                self._known[key] = value
                return

    async def _save(self, key: str, value: bytes) -> None:
        seal = await anyio.to_thread.run_sync(self._all_seals()[0].of, await self._rows.salt())
        data = seal.id.to_bytes(8, "big") + seal.close(value, "secret", key)
        command = "HSET", f"{self._rows.begin}secrets", _digest(key), data
        await self._rows.server.call(*command, until="on a replica that is up")

    async def drop(self, key: str) -> bool:
        """Forget what is kept under `key`. See `SecretStore`."""
        command = "HDEL", f"{self._rows.begin}secrets", _digest(key)
        was_there = bool(await self._rows.server.call(*command, until="on a replica that is up"))
        self._known.pop(key, None)
        return was_there

    @asynccontextmanager
    async def lock(self, name: str, seconds: float) -> AsyncGenerator[None]:
        """Hold a lock over all bridges. See `SecretStore`."""
        async with self._rows.lock(_digest(name), seconds):
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1

    async def close(self) -> None:
        """End the connections."""
        await self._rows.close()

    def _all_seals(self) -> Sequence[Seals]:
        self._seals = {key: self._seals.get(key) or Seals(key) for key in self._keys()}
        return list(self._seals.values())

    async def _opened(self, key: str, data: bytes) -> bytes | None:
        salt, number = await self._rows.salt(), int.from_bytes(data[:8], "big")
        for seals in self._all_seals():
            seal = await anyio.to_thread.run_sync(seals.of, salt)
            if seal.id == number:
                with suppress(Unreadable):
                    return seal.open(data[8:], "secret", key)
        log.warning("a shared sign-in has another key, or was changed; ignoring it")
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]
