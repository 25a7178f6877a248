"""A `Store` in memory: for bridges that must leave nothing behind, and for when the file cannot be used."""

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.errors import ValueTooLarge
from mcpbridge.storage.compression import PLAIN, Workers, is_worth_packing, pack, unpack
from mcpbridge.storage.store import (
    MAX_COUNTS,
    BytesLike,
    DailyCounts,
    Entry,
    add,
    new_handle,
    next_to_shrink,
    oldest_day,
)

_MAX_BYTES = 64 * 1024**2
_ROOM = 512
"""Bytes that a value takes besides its body, roughly, so that many empty ones are bounded too."""
_SWEEP = 60.0
"""Seconds between two sweeps; they happen when something is kept."""


class _Value(Struct, frozen=True):
    form: int
    data: bytes
    size: int
    label: bytes
    created: float
    used: float
    expires: float

    @property
    def room(self) -> int:
        return len(self.data) + len(self.label) + _ROOM


_Name = tuple[str, str]
_Names = dict[_Name, _Value]
"""Values of one kind by principal and handle, least recently used first."""


def _pack(body: BytesLike) -> tuple[int, bytes]:
    """As `pack`, and what is kept holds nothing but itself."""
    form, data = pack(body)
    return form, bytes(data)


class MemoryStore:
    """Values for as long as the process lives. See `Store` for the methods' promises."""

    def __init__(self, *, max_bytes: int = _MAX_BYTES, clock: Callable[[], float] = time.time) -> None:
        """`max_bytes`: of all values together."""
        self._max_bytes = max_bytes
        self._clock = clock
        self._kinds: dict[str, _Names] = {}
        self._rooms: dict[str, int] = {}
        self._bounds: dict[str, int] = {}
        self._ledgers: dict[str, DailyCounts] = {}
        self._workers = Workers()
        self._sweep_at = 0.0

    async def put(
        self, kind: str, body: BytesLike, *, principal: str, expires_in: float, handle: str = "", label: bytes = b""
    ) -> str:
        """Keep a value."""
        handle = handle or new_handle()
        self._set(kind, (principal, handle), await self._packed(body, label), expires_in)
        return handle

    async def put_if_absent(
        self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str, label: bytes = b""
    ) -> bytes:
        """The value that is there, or this one."""
        value = await self._packed(body, label)
        found = self._find(kind, (principal, handle))
        if found is None:
            self._set(kind, (principal, handle), value, expires_in)
            return body
        return await self._unpacked(found)

    async def get(self, kind: str, handle: str, *, principal: str, renew: float | None = None) -> bytes | None:
        """The value, if there is one."""
        name = (principal, handle)
        value = self._find(kind, name)
        if value is None:
            return None
        if renew is not None:
            now = self._clock()
            names = self._kinds[kind]
            del names[name]
            names[name] = replace(value, used=now, expires=max(value.expires, now + renew))
        return await self._unpacked(value)

    async def renew(
        self, kind: str, handle: str, *, principal: str, expires_in: float, label: bytes | None = None
    ) -> bool:
        """Treat a value as new, if there is one."""
        value = self._find(kind, (principal, handle))
        if value is None:
            return False
        lasting = max(expires_in, value.expires - self._clock())
        value = replace(value, label=value.label if label is None else bytes(label))
        self._set(kind, (principal, handle), value, lasting)
        return True

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, once."""
        value = self._remove(kind, (principal, handle))
        return None if value is None or value.expires <= self._clock() else await self._unpacked(value)

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        """Forget a value."""
        value = self._remove(kind, (principal, handle))
        return value is not None and value.expires > self._clock()

    async def entry(self, kind: str, handle: str, *, principal: str) -> Entry | None:
        """What is known of one value."""
        value = self._find(kind, (principal, handle))
        return None if value is None else _entry((principal, handle), value)

    async def entries(
        self, kind: str, *, principal: str | None, limit: int | None = None, newest_first: bool = False
    ) -> list[Entry]:
        """What there is of a kind."""
        now = self._clock()
        found = [
            (name, value)
            for name, value in self._kinds.get(kind, {}).items()
            if value.expires > now and principal in (None, name[0])
        ]
        found.sort(key=lambda item: item[1].created)
        if newest_first:
            found.reverse()
        return [_entry(name, value) for name, value in found[:limit]]

    def bound(self, kind: str, max_bytes: int) -> None:
        """Bound one kind."""
        self._bounds[kind] = max_bytes

    async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
        """Add numbers."""
        add(self._ledgers.setdefault(ledger, {}), rows)
        if sum(map(len, self._ledgers.values())) > MAX_COUNTS:
            self._forget_tallies()

    async def read_counts(self, ledger: str, *, since: str = "") -> DailyCounts:
        """What was counted."""
        first = max(since, oldest_day(self._clock()))
        return {key: list(numbers) for key, numbers in self._ledgers.get(ledger, {}).items() if key[0] >= first}

    async def close(self) -> None:
        """Forget everything."""
        self._kinds.clear()
        self._rooms.clear()
        self._ledgers.clear()

    # -- how

    async def _packed(self, body: BytesLike, label: bytes) -> _Value:
        is_long = is_worth_packing(body)
        form, data = await self._workers.run(_pack, body, size=len(body)) if is_long else (PLAIN, bytes(body))
        return _Value(form, data, len(body), bytes(label), 0, 0, 0)

    async def _unpacked(self, value: _Value) -> bytes:
        if value.form == PLAIN:
            return value.data
        return await self._workers.run(unpack, value.form, value.data, value.size, size=value.size)

    def _find(self, kind: str, name: _Name) -> _Value | None:
        value = self._kinds.get(kind, {}).get(name)
        return None if value is None or value.expires <= self._clock() else value

    def _set(self, kind: str, name: _Name, value: _Value, expires_in: float) -> None:
        limit = min(self._max_bytes, self._bounds.get(kind, self._max_bytes))
        if value.room > limit:
            raise ValueTooLarge(value.room, limit)
        now = self._clock()
        self._remove(kind, name)
        self._kinds.setdefault(kind, {})[name] = replace(value, created=now, used=now, expires=now + expires_in)
        self._rooms[kind] = self._rooms.get(kind, 0) + value.room
        if now >= self._sweep_at or self._is_full() or self._rooms[kind] > limit:
            self._sweep(now)

    def _remove(self, kind: str, name: _Name) -> _Value | None:
        names = self._kinds.get(kind, {})
        value = names.pop(name, None)
        if value is not None:
            self._rooms[kind] -= value.room
            if not names:
                del self._kinds[kind], self._rooms[kind]
        return value

    def _is_full(self) -> bool:
        return sum(self._rooms.values()) > self._max_bytes

    def _sweep(self, now: float) -> None:
        """Remove what has expired, and what is beyond the bounds."""
        self._sweep_at = now + _SWEEP
        for kind, names in list(self._kinds.items()):
            for name in [name for name, value in names.items() if value.expires <= now]:
                self._remove(kind, name)
        for kind, limit in self._bounds.items():
            while self._rooms.get(kind, 0) > limit:
                self._remove(kind, next(iter(self._kinds[kind])))
        while self._is_full():
            kind, _ = next_to_shrink(self._rooms, self._max_bytes)
            self._remove(kind, next(iter(self._kinds[kind])))

    def _forget_tallies(self) -> None:
        keys = [(key[0], ledger, key) for ledger, tallies in self._ledgers.items() for key in tallies]
        first = oldest_day(self._clock())
        old = sum(1 for day, _, _ in keys if day < first)
        for _, ledger, key in sorted(keys)[: max(old, len(keys) - MAX_COUNTS * 9 // 10)]:
            del self._ledgers[ledger][key]


def _entry(name: _Name, value: _Value) -> Entry:
    principal, handle = name
    return Entry(handle, principal, value.size, value.created, value.expires, value.room, value.used, value.label)
