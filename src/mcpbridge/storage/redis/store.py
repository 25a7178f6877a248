"""A `Store` on a Redis or Valkey server, which bridges on several machines share.

Each change is one script, so of several takers, on whatever machine, one gets the value. Times are the server's. A
large value travels in parts of half a megabyte; a reader notices if it is replaced meanwhile and starts again. Values
are compressed and encrypted here, as for the file, so the server sees no content where a key is configured.

Where the server does not answer, every method raises `StoreFailed` within seconds; nothing is kept here instead.
Whoever is cancelled, or loses the connection, does not know whether the change took effect.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import anyio

import mcpbridge.storage.store as protocol
from mcpbridge.base.errors import StoreFailed, ValueTooLarge
from mcpbridge.base.log import get_logger
from mcpbridge.storage.compression import Unreadable, Workers, is_worth_packing
from mcpbridge.storage.encryption import OtherKey, Seal, Seals, number_of
from mcpbridge.storage.redis import scripts
from mcpbridge.storage.redis.connections import COMMAND_SECONDS, Connections
from mcpbridge.storage.redis.counts import RedisCounts
from mcpbridge.storage.redis.scripts import Keys, Name, member, member_start
from mcpbridge.storage.settings import RedisAddress
from mcpbridge.storage.sqlite.schema import SLACK, Row, is_plain, open_label, unwrap, wrap, wrap_label
from mcpbridge.storage.store import BytesLike, DailyCounts, Entry, new_handle, next_to_shrink, oldest_day

log = get_logger("mcpbridge.storage")

MAX_BYTES = 1024**3
"""Of all values, where nothing else is set."""
_PART = 512 * 1024
"""Bytes of a value in one command."""
_PAGE = 500
"""Entries that one script looks at."""
_SWEEP = 600.0
"""Seconds between two sweeps of one bridge."""
_USED_AGAIN = 60.0
"""Seconds between two times that the use of one value is written down."""
_DRAFT_SECONDS = 600
"""How long a large value may take from one part to the next, or to be read once it was taken."""
_TRIES = 5

_Stored = tuple[Row, str, int, bytes]
"""What is known of a value, its number, how many parts it has, and the first."""


class RedisStore:
    """Values at one server. See `Store` for the methods' promises."""

    def __init__(
        self,
        address: RedisAddress,
        *,
        prefix: str = "mcpbridge",
        max_bytes: int = MAX_BYTES,
        key: str | None = None,
        clock: Callable[[], float] | None = None,
        seconds: float = COMMAND_SECONDS,
    ) -> None:
        """`max_bytes`: of all values. `key`: a secret; with one, what is written from now on is encrypted.

        `clock`: another than the server's, for tests. `seconds`: how long one command may take.
        """
        self._server = Connections(address, seconds=seconds)
        self._place = address.without_password
        self._keys = Keys(prefix)
        self._max_bytes = max_bytes
        self._counts = RedisCounts(self._server, self._keys, self._place)
        self._clock = clock
        self._workers = Workers()
        self._seals = Seals(key) if key else None
        self._seal: tuple[int, Seal] | None = None
        self._bounds: dict[str, int] = {}
        self._kinds = set[str]()
        self._written = Counter[str]()
        self._sweep_at = 0.0
        self._complaints = set[str]()

    def __repr__(self) -> str:
        return f"<RedisStore {self._server!r}>"

    async def check(self) -> None:
        """Look whether the server can be used. Cancelling is safe.

        Raises:
            StoreFailed: it cannot be reached, or refuses the password.
            ConfigError: it is too old, removes values by itself, or is a kind of server that is not supported.
        """
        await self._server.check()

    async def put(
        self, kind: str, body: BytesLike, *, principal: str, expires_in: float, handle: str = "", label: bytes = b""
    ) -> str:
        """Keep a value."""
        name = (kind, principal, handle or new_handle())
        row, data = await self._wrapped(name, body, label, await self._current())
        await self._put(row, data, expires_in, "*")
        await self._wrote(row)
        return name[2]

    async def put_if_absent(
        self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str, label: bytes = b""
    ) -> bytes:
        """The value that is there, or this one."""
        seal = await self._current()
        row, data = await self._wrapped((kind, principal, handle), body, label, seal)
        may_replace = ""
        for _ in range(_TRIES):
            there = await self._put(row, data, expires_in, may_replace)
            if there is None:
                await self._wrote(row)
                return body
            kept = await self._read(there, self._keys.of(row.name)[0], seal)
            if kept is not None:
                return kept
            may_replace = there[1]  # of no use to anybody who has this key, or gone
        raise StoreFailed("a value is replaced again and again", file=self._place)

    async def get(self, kind: str, handle: str, *, principal: str, renew: float | None = None) -> bytes | None:
        """The value, if there is one."""
        name, seal = (kind, principal, handle), await self._current()
        keys = self._keys.of(name)
        lasting = ("", 0) if renew is None else (repr(renew), repr(min(_USED_AGAIN, renew / 10)))
        for _ in range(_TRIES):
            arguments = (self._now(), member(name), lasting[0], number_of(seal), lasting[1])
            found = _parse(name, await self._server.run(scripts.GET, keys, *arguments))
            if found is None:
                return None
            data = await self._bytes_of(found, keys[0])
            if data is not None:
                return await self._unwrap(found[0], data, seal)
        raise StoreFailed("a value is replaced again and again", file=self._place)

    async def renew(
        self, kind: str, handle: str, *, principal: str, expires_in: float, label: bytes | None = None
    ) -> bool:
        """Treat a value as new, if there is one."""
        name, seal = (kind, principal, handle), await self._current()
        closed = b"" if label is None else await self._wrap_label(name, label, seal)
        arguments = (self._now(), member(name), repr(expires_in), number_of(seal), int(label is not None), closed)
        return bool(await self._server.run(scripts.RENEW, self._keys.of(name), *arguments))

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, once. Who is cancelled meanwhile may have taken it."""
        name, seal = (kind, principal, handle), await self._current()
        aside = self._keys.draft(kind, new_handle())
        arguments = (self._now(), member(name), number_of(seal), _DRAFT_SECONDS)
        found = _parse(
            name, await self._server.run(scripts.TAKE, [*self._keys.of(name), aside], *arguments, until="on a replica")
        )
        if found is None:
            return None
        if found[2] == 1 or found[0].seal not in (0, number_of(seal)):
            return await self._unwrap(found[0], found[3], seal)
        try:
            return await self._read(found, aside, seal)
        finally:
            await self._remove(aside)

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        """Forget a value, whether or not it can be read."""
        name = (kind, principal, handle)
        return bool(await self._server.run(scripts.DROP, self._keys.of(name), self._now(), member(name)))

    async def entry(self, kind: str, handle: str, *, principal: str) -> Entry | None:
        """What is known of one value."""
        name, seal = (kind, principal, handle), await self._current()
        facts = await self._server.run(scripts.FACTS, self._keys.of(name), self._now())
        if facts is None:
            return None
        opened = await self._opened([_row(name, facts)], seal)
        return opened[0] if opened else None

    async def entries(
        self, kind: str, *, principal: str | None, limit: int | None = None, newest_first: bool = False
    ) -> list[Entry]:
        """What there is of a kind."""
        seal = await self._current()
        start = "" if principal is None else member_start(principal)
        keys = [self._keys.values(kind), *self._keys.lists(kind)]
        after, found = "+inf" if newest_first else "-inf", dict[str, Entry]()
        while limit is None or len(found) < limit:
            arguments = (self._now(), start, int(newest_first), after, _PAGE)
            last, looked_at, page = await self._server.run(scripts.LIST, keys, *arguments)
            rows = [_row(_name(kind, name.decode()), facts) for name, facts in page]
            for entry in await self._opened(rows, seal):
                found.setdefault(member((kind, entry.principal, entry.handle)), entry)
            if looked_at < _PAGE:
                break
            after = f"({last.decode()}"  # numbers are given once
        return list(found.values())[:limit]

    def bound(self, kind: str, max_bytes: int) -> None:
        """Bound one kind: by this bridge."""
        self._bounds[kind] = max_bytes

    async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
        """Add numbers. Where the answer gets lost, they count all the same, and once: see `RedisCounts`."""
        await self._sweep_if_due()
        await self._counts.count(ledger, rows)

    async def read_counts(self, ledger: str, *, since: str = "") -> DailyCounts:
        """What was counted."""
        return await self._counts.read(ledger, max(since, oldest_day(self._local_time())))

    async def close(self) -> None:
        """Close the connections."""
        await self._counts.close()
        await self._server.close()

    # -- values

    def _now(self) -> str:
        """What time scripts shall take it for; empty: the server's."""
        return "" if self._clock is None else repr(self._clock())

    def _local_time(self) -> float:
        return time.time() if self._clock is None else self._clock()

    async def _wrapped(self, name: Name, body: BytesLike, label: bytes, seal: Seal | None) -> tuple[Row, BytesLike]:
        if seal is None and not is_worth_packing(body):
            row, data = wrap(name, body, label, seal)
        else:
            row, data = await self._workers.run(wrap, name, body, label, seal, size=len(body))
        limit = min(self._max_bytes, self._bounds.get(name[0], self._max_bytes))
        if row.room > limit - limit // SLACK:
            raise ValueTooLarge(row.room, limit)
        return row, data

    async def _wrap_label(self, name: Name, label: bytes, seal: Seal | None) -> bytes:
        return label if seal is None else await self._workers.run(wrap_label, name, label, seal, size=len(label))

    async def _put(self, row: Row, data: BytesLike, expires_in: float, may_replace: str) -> _Stored | None:
        """Write it; what is there instead if that must not be replaced."""
        await self._know_kind(row.kind)
        parts = max(1, -(-len(data) // _PART))
        facts = (row.size, row.room, row.form, row.seal, row.label, parts, may_replace)
        arguments = (self._now(), member(row.name), repr(float(expires_in)), *facts)
        keys = self._keys.of(row.name)
        if parts == 1:
            reply = await self._server.run(scripts.PUT, keys, *arguments, bytes(data))
        else:
            draft, view = self._keys.draft(row.kind, new_handle()), memoryview(data)
            try:
                for part in range(parts):
                    piece = bytes(view[part * _PART : (part + 1) * _PART])
                    await self._server.run(scripts.ADD_PART, [draft], f"b{part}", piece, _DRAFT_SECONDS)
                reply = await self._server.run(scripts.PUT, [*keys, draft], *arguments)
            except BaseException:
                await self._remove(draft)
                raise
            if reply != 1:
                await self._remove(draft)
        if reply == -1:
            raise StoreFailed("a value was removed while it was written", file=self._place)
        return None if reply == 1 else _parse(row.name, reply)

    async def _remove(self, draft: str) -> None:
        """Remove a draft, whatever happened; if that fails, it expires."""
        with anyio.move_on_after(1, shield=True):
            try:
                await self._server.call("UNLINK", draft)
            except StoreFailed:
                pass

    async def _bytes_of(self, stored: _Stored, key: str) -> bytes | None:
        """All its parts; None: it was replaced or has gone meanwhile."""
        _, number, parts, first = stored
        pieces = [first]
        for part in range(1, parts):
            piece = await self._server.run(scripts.PART, [key], f"b{part}", number)
            if piece is None:
                return None
            pieces.append(piece)
        return first if parts == 1 else b"".join(pieces)

    async def _read(self, stored: _Stored, key: str, seal: Seal | None) -> bytes | None:
        data = await self._bytes_of(stored, key)
        return None if data is None else await self._unwrap(stored[0], data, seal)

    async def _unwrap(self, row: Row, data: bytes, seal: Seal | None) -> bytes | None:
        """The value of a row; None, and a line in the log, if it cannot be read."""
        try:
            if is_plain(row):
                return unwrap(row, data, seal)
            return await self._workers.run(unwrap, row, data, seal, size=row.size)
        except Unreadable as error:
            topic = "key" if isinstance(error, OtherKey) else str(error)
            if topic not in self._complaints:
                self._complaints.add(topic)
                log.warning("stored values cannot be read and count as missing", file=self._place, reason=str(error))
            return None

    async def _opened(self, rows: list[Row], seal: Seal | None) -> list[Entry]:
        """The entries that this key can open."""
        if any(row.seal for row in rows):
            rows = await self._workers.run(_readable, rows, seal, size=0)
        return [_entry(row) for row in rows]

    async def _current(self) -> Seal | None:
        """The seal of the server's present data. After a failure these may be others."""
        if self._seals is None:
            return None
        if self._seal is None or self._seal[0] != self._server.epoch:
            epoch, fresh = self._server.epoch, secrets.token_bytes(16)
            kept = await self._server.call("SET", self._keys.salt, fresh, "NX", "GET")
            self._seal = epoch, await self._workers.run(self._seals.of, kept or fresh, size=0)
        return self._seal[1]

    # -- bounds

    async def _know_kind(self, kind: str) -> None:
        if kind not in self._kinds:
            await self._server.call("SADD", self._keys.kinds, kind.encode("utf-8", "surrogatepass"))
            self._kinds.add(kind)

    async def _wrote(self, row: Row) -> None:
        """Look after the bounds when enough was written since the last time."""
        self._written[row.kind] += row.room
        bound = self._bounds.get(row.kind)
        is_full = self._written.total() > self._max_bytes // SLACK
        await self._sweep_if_due(is_full=is_full or (bound is not None and self._written[row.kind] > bound // SLACK))

    async def _sweep_if_due(self, *, is_full: bool = False) -> None:
        now = self._local_time()
        if not is_full and now < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP
        self._written.clear()
        try:
            await self._sweep()
        except StoreFailed:  # what it belongs to is done; the next one does it
            log.debug("the store was not swept", file=self._place)

    async def _sweep(self) -> None:
        """Remove the names of what has expired, and what is beyond the bounds: of the kinds, and of all together."""
        self._seal = None  # who removed all data made another salt
        known, self._kinds = self._kinds, set[str]()
        for kind in known:
            await self._know_kind(kind)
        names = await self._server.call("SMEMBERS", self._keys.kinds)
        kinds = {kind.decode("utf-8", "surrogatepass") for kind in names}
        rooms = {kind: await self._expire(kind) for kind in kinds}
        for kind, bound in self._bounds.items():
            surplus = rooms.get(kind, 0) - (bound - bound // SLACK)
            if surplus > 0:
                rooms[kind] -= await self._evict(kind, surplus)
        surplus = sum(rooms.values()) - (self._max_bytes - self._max_bytes // SLACK)
        while surplus > 0:
            kind, most = next_to_shrink(rooms, surplus)
            gone = await self._evict(kind, most)
            if gone <= 0:  # others removed it
                break
            rooms[kind] -= gone
            surplus -= gone
        first_day, prefix = oldest_day(self._local_time()), self._keys.counts("", "")[0].removesuffix(":")
        await self._server.run(scripts.FORGET_COUNTS, [self._keys.days, prefix], first_day, protocol.MAX_COUNTS)

    async def _expire(self, kind: str) -> int:
        """Remove the names of what has expired; the bytes that the rest takes."""
        keys = [self._keys.values(kind), *self._keys.lists(kind)]
        while True:
            gone, room = await self._server.run(scripts.EXPIRE, keys, self._now(), _PAGE)
            if gone < _PAGE:
                return room

    async def _evict(self, kind: str, surplus: int) -> int:
        """Remove what was not used for longest, until so many bytes are free; how many it were."""
        keys = [self._keys.values(kind), *self._keys.lists(kind)]
        total = 0
        while total < surplus:
            gone = await self._server.run(scripts.EVICT, keys, surplus - total, _PAGE)
            if gone <= 0:
                break
            total += gone
        return total


def _parse(name: Name, reply: Any) -> _Stored | None:
    if reply is None:
        return None
    return _row(name, reply), reply[8].decode(), int(reply[9]), reply[10] if len(reply) > 10 else b""


def _row(name: Name, facts: list[bytes]) -> Row:
    size, room, created, used, expires, form, seal, label, _, _ = facts[:10]
    row = Row(None, *name, int(size), int(room), 0, 0, 0, int(form), int(seal), label)
    return replace(row, created=float(created), used=float(used), expires=float(expires))


def _name(kind: str, name: str) -> Name:
    principal, _, handle = name.partition("/")
    return kind, unquote(principal, errors="surrogatepass"), unquote(handle, errors="surrogatepass")


def _readable(rows: list[Row], seal: Seal | None) -> list[Row]:
    opened: list[Row] = []
    for row in rows:
        try:
            opened.append(open_label(row, seal))
        except OtherKey:  # as good as not there
            continue
    return opened


def _entry(row: Row) -> Entry:
    return Entry(row.handle, row.principal, row.size, row.created, row.expires, row.room, row.used, row.label)
