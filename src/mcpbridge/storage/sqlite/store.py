"""A `Store` in an SQLite file, which all bridges of one user share.

Every change is one transaction that takes the file's write lock first, so of several takers, in whatever process, one
gets the value. Expired values are never returned; they are removed at the first use and every ten minutes of use.
Compressing and sealing large values happens in threads beside the one that has the file.

The seal is made of the configured secret and the file's salt. A file that was removed and made anew has another salt,
so each piece of work checks that it has the right seal, and is done again with the new one if not (`Access`).
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mcpbridge.base.errors import StoreFailed, ValueTooLarge
from mcpbridge.base.log import get_logger
from mcpbridge.storage.compression import Unreadable, Workers, is_worth_packing
from mcpbridge.storage.encryption import OtherKey, Seal, Seals, number_of
from mcpbridge.storage.sqlite import schema as rows
from mcpbridge.storage.sqlite.database import Database, Work
from mcpbridge.storage.sqlite.schema import (
    SCHEMA,
    SLACK,
    Name,
    Row,
    count_foreign,
    is_plain,
    open_label,
    salt_of,
    unwrap,
    wrap,
    wrap_label,
)
from mcpbridge.storage.store import BytesLike, DailyCounts, Entry, add_rows, new_handle, read_rows

if TYPE_CHECKING:
    from sqlite3 import Connection


log = get_logger("mcpbridge.storage")

_TRIES = 5
_T = TypeVar("_T")


class _OtherSalt(Exception):
    """The file was made anew since the seal was made."""


class Access:
    """A file of values, as those get at it who have the key `key`; None: without one."""

    def __init__(self, path: Path, key: str | None) -> None:
        self.database = Database(path, SCHEMA)
        self._workers = Workers()
        self._seals = Seals(key) if key else None
        self._seal: Seal | None = None
        self._has_looked = False
        self._complaints = set[str]()

    async def sealed(self, attempt: "Callable[[Seal | None], Awaitable[_T]]") -> _T:
        """Do something with the seal that the file wants, again if that turns out to be another one.

        Raises:
            StoreFailed: the file cannot be used, or not now.
        """
        for _ in range(_TRIES):
            try:
                return await attempt(await self._current())
            except _OtherSalt:
                self._seal = None
        raise StoreFailed("is made anew again and again", file=str(self.database.path))

    def run(self, work: Work[_T], seal: Seal | None, *, writes: bool = True) -> Awaitable[_T]:
        """As `Database.run`, for a file that this seal belongs to. To be called by what `sealed` calls."""
        if seal is None:
            return self.database.run(work, writes=writes)

        def checked(connection: "Connection") -> _T:
            if salt_of(connection) != seal.salt:
                raise _OtherSalt
            return work(connection)

        return self.database.run(checked, writes=writes)

    async def wrap(self, name: Name, body: BytesLike, label: bytes, seal: Seal | None) -> tuple[Row, BytesLike]:
        """See `schema.wrap`; in a thread if it may take long."""
        if seal is None and not is_worth_packing(body):
            return wrap(name, body, label, seal)
        return await self._workers.run(wrap, name, body, label, seal, size=len(body))

    async def wrap_label(self, name: Name, label: bytes, seal: Seal | None) -> bytes:
        """See `schema.wrap_label`."""
        return label if seal is None else await self._workers.run(wrap_label, name, label, seal, size=len(label))

    async def unwrap(self, row: Row, data: bytes, seal: Seal | None) -> bytes | None:
        """The value of a row; None, and a line in the log, if it cannot be read."""
        try:
            if is_plain(row):
                return unwrap(row, data, seal)
            return await self._workers.run(unwrap, row, data, seal, size=row.size)
        except Unreadable as error:
            self._complain("key" if isinstance(error, OtherKey) else str(error), str(error))
            return None

    async def open_labels(self, rows: list[Row], seal: Seal | None) -> list[Row]:
        """The rows with their labels, without those of another key."""
        if all(not row.seal for row in rows):
            return rows
        return await self._workers.run(_readable, rows, seal, size=0)

    def _complain(self, topic: str, reason: str) -> None:
        """Say why values cannot be read, once of each topic."""
        if topic not in self._complaints:
            self._complaints.add(topic)
            file = str(self.database.path)
            log.warning("stored values cannot be read and count as missing", file=file, reason=reason)

    async def _current(self) -> Seal | None:
        if self._seals is not None and self._seal is None:
            salt = await self.database.run(salt_of, writes=False)
            self._seal = await self._workers.run(self._seals.of, salt, size=0)
        if not self._has_looked:
            self._has_looked = True
            self._look_for_foreign_values(number_of(self._seal))
        return self._seal

    def _look_for_foreign_values(self, own: int) -> None:
        """Say, some time soon, whether there are values that were written with another key."""
        found = 0

        def work(connection: "Connection") -> None:
            nonlocal found
            found = count_foreign(connection, own)

        def done(error: Exception | None) -> None:
            if error is None and found:
                self._complain(
                    "key", f"{found} were written with {'another key' if own else 'a key, and none is configured'}"
                )

        self.database.post(work, done)


def _readable(rows: list[Row], seal: Seal | None) -> list[Row]:
    opened: list[Row] = []
    for row in rows:
        try:
            opened.append(open_label(row, seal))
        except OtherKey:  # as good as not there
            continue
    return opened


_MAX_BYTES = 1024**3
_LARGEST = 10**9 - 1024
"""Bytes of one value as it is written: SQLite takes no more."""
_PART = 2 * 1024**2
"""Bytes that are written in one transaction."""
_SWEEP = 600.0
"""Seconds between two sweeps."""
_USED_AGAIN = 60.0
"""Seconds between two times that the use of one value is written down."""


class SqliteStore:
    """Values in the file `path`, which is opened at the first use. See `Store` for the methods' promises."""

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = _MAX_BYTES,
        key: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_bytes`: of all values. `key`: a secret; with one, what is written from now on is encrypted."""
        self._access = Access(path, key)
        self._max_bytes = max_bytes
        self._clock = clock
        self._bounds: dict[str, int] = {}
        self._sweep_at = 0.0
        self._written = Counter[str]()

    async def put(
        self, kind: str, body: BytesLike, *, principal: str, expires_in: float, handle: str = "", label: bytes = b""
    ) -> str:
        """Keep a value."""
        name = (kind, principal, handle or new_handle())

        async def attempt(seal: Seal | None) -> None:
            row, data = await self._wrapped(name, body, label, expires_in, seal)
            if len(data) > _PART:
                await self._put_in_parts(row, data, seal)
            else:
                kept = self._access.run(lambda connection: rows.insert(connection, row, data), seal)
                self._wrote(row)
                await kept

        await self._access.sealed(attempt)
        return name[2]

    async def put_if_absent(
        self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str, label: bytes = b""
    ) -> bytes:
        """The value that is there, or this one."""
        name = (kind, principal, handle)

        async def attempt(seal: Seal | None) -> bytes:
            row, data = await self._wrapped(name, body, label, expires_in, seal)

            def keep(connection: "Connection") -> bytes:
                found = rows.find(connection, name, row.created)
                if found is not None:
                    try:
                        return unwrap(found, rows.read_body(connection, found), seal)
                    except Unreadable:
                        pass  # of no use to anybody who has this key
                rows.insert(connection, row, data)
                return body

            kept = self._access.run(keep, seal)
            self._wrote(row)
            return await kept

        return await self._access.sealed(attempt)

    async def get(self, kind: str, handle: str, *, principal: str, renew: float | None = None) -> bytes | None:
        """The value, if there is one."""
        name, now = (kind, principal, handle), self._clock()
        self._sweep_if_due(now)

        async def attempt(seal: Seal | None) -> bytes | None:
            found = await self._access.run(lambda connection: _read(connection, name, now), seal, writes=False)
            if found is None:
                return None
            body = await self._access.unwrap(*found, seal)
            if body is not None and renew is not None and now - found[0].used >= min(_USED_AGAIN, renew / 10):
                expires = now + renew
                self._access.database.post(lambda connection: rows.touch(connection, name, now, expires))
            return body

        return await self._access.sealed(attempt)

    async def renew(
        self, kind: str, handle: str, *, principal: str, expires_in: float, label: bytes | None = None
    ) -> bool:
        """Treat a value as new, if there is one."""
        name, now = (kind, principal, handle), self._clock()
        self._sweep_if_due(now)

        async def attempt(seal: Seal | None) -> bool:
            closed = None if label is None else await self._access.wrap_label(name, label, seal)

            def renew(connection: "Connection") -> bool:
                row = rows.find(connection, name, now)
                if row is None or row.seal not in (0, number_of(seal)):
                    return False
                if closed is not None and row.seal != number_of(seal):  # a label is written as its value is
                    return False
                rows.renew(connection, row, now, now + expires_in, row.label if closed is None else closed)
                return True

            return await self._access.run(renew, seal)

        return await self._access.sealed(attempt)

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, once."""
        name, now = (kind, principal, handle), self._clock()
        self._sweep_if_due(now)

        async def attempt(seal: Seal | None) -> bytes | None:
            def take(connection: "Connection") -> tuple[Row, bytes] | None:
                found = _read(connection, name, now)
                if found is not None and found[0].seal in (0, number_of(seal)):  # else who has the key may take it
                    rows.delete(connection, name)
                return found

            found = await self._access.run(take, seal)
            return None if found is None else await self._access.unwrap(*found, seal)

        return await self._access.sealed(attempt)

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        """Forget a value, whether or not it can be read."""
        name, now = (kind, principal, handle), self._clock()
        self._sweep_if_due(now)

        def drop(connection: "Connection") -> bool:
            found = rows.find(connection, name, now)
            rows.delete(connection, name)
            return found is not None

        return await self._access.database.run(drop)

    async def entry(self, kind: str, handle: str, *, principal: str) -> Entry | None:
        """What is known of one value."""
        name, now = (kind, principal, handle), self._clock()
        self._sweep_if_due(now)

        def find(connection: "Connection", _: int) -> list[Row]:
            row = rows.find(connection, name, now)
            return [] if row is None else [row]

        found = await self._opened(find)
        return found[0] if found else None

    async def entries(
        self, kind: str, *, principal: str | None, limit: int | None = None, newest_first: bool = False
    ) -> list[Entry]:
        """What there is of a kind."""
        now = self._clock()
        self._sweep_if_due(now)

        def find(connection: "Connection", seal: int) -> list[Row]:
            return rows.list_rows(connection, kind, principal, now, seal=seal, limit=limit, newest_first=newest_first)

        return await self._opened(find)

    def bound(self, kind: str, max_bytes: int) -> None:
        """Bound one kind."""
        self._bounds[kind] = max_bytes

    async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
        """Add numbers."""
        self._sweep_if_due(self._clock())
        await self._access.database.run(lambda connection: add_rows(connection, ledger, rows))

    async def read_counts(self, ledger: str, *, since: str = "") -> DailyCounts:
        """What was counted."""
        return await self._access.database.run(lambda connection: read_rows(connection, ledger, since), writes=False)

    async def close(self) -> None:
        """Finish what is under way, within seconds, and close the file."""
        await self._access.database.close()

    # -- how

    async def _wrapped(
        self, name: Name, body: BytesLike, label: bytes, expires_in: float, seal: Seal | None
    ) -> tuple[Row, BytesLike]:
        row, data = await self._access.wrap(name, body, label, seal)
        limit = min(self._max_bytes, self._bounds.get(name[0], self._max_bytes))
        if row.room > min(limit - limit // SLACK, _LARGEST):
            raise ValueTooLarge(row.room, limit)
        now = self._clock()
        return replace(row, created=now, used=now, expires=now + expires_in), data

    async def _put_in_parts(self, row: Row, data: BytesLike, seal: Seal | None) -> None:
        """Write a large value in many small transactions: others want to use the file meanwhile."""
        draft, view = rows.draft_of(row, new_handle()), memoryview(data)

        def drop(connection: "Connection") -> None:
            rows.delete(connection, draft.name)

        try:
            await self._access.run(lambda connection: rows.insert(connection, draft, b""), seal)
            for part, start in enumerate(range(0, len(data), _PART), 1):
                piece = view[start : start + _PART]
                await self._access.run(partial(rows.add_part, draft=draft, part=part, data=piece), seal)
            is_kept = await self._access.run(lambda connection: rows.publish(connection, draft, row), seal)
        except BaseException:
            self._access.database.post(drop)
            raise
        self._wrote(row)
        if not is_kept:
            raise StoreFailed("a value was removed while it was written", file=str(self._access.database.path))

    async def _opened(self, find: "Callable[[Connection, int], list[Row]]") -> list[Entry]:
        async def attempt(seal: Seal | None) -> list[Row]:
            found = self._access.run(lambda connection: find(connection, number_of(seal)), seal, writes=False)
            return await self._access.open_labels(await found, seal)

        return [_entry(row) for row in await self._access.sealed(attempt)]

    def _wrote(self, row: Row) -> None:
        """Look after the bounds when enough was written since the last time."""
        self._written[row.kind] += row.room
        is_full = self._written.total() > self._max_bytes // SLACK
        bound = self._bounds.get(row.kind)
        if bound is not None:
            is_full = is_full or self._written[row.kind] > bound // SLACK
        self._sweep_if_due(self._clock(), is_full=is_full)

    def _sweep_if_due(self, now: float, *, is_full: bool = False) -> None:
        if is_full or now >= self._sweep_at:
            self._sweep_at = now + _SWEEP
            self._written.clear()
            bounds = dict(self._bounds)
            self._access.database.post(lambda connection: rows.sweep(connection, now, self._max_bytes, bounds))


def _read(connection: "Connection", name: Name, now: float) -> tuple[Row, bytes] | None:
    row = rows.find(connection, name, now)
    return None if row is None else (row, rows.read_body(connection, row))


def _entry(row: Row) -> Entry:
    return Entry(row.handle, row.principal, row.size, row.created, row.expires, row.room, row.used, row.label)
