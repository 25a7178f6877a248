"""A `Store` in an SQLite file, which all bridges of one user share.

Every change is one transaction that takes the file's write lock first, so that of several takers, in whatever process,
one gets the value. Expired values are never given out; they are removed at the first use and every ten minutes of use.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mcpbridge.errors import ValueTooLarge
from mcpbridge.storage.database import Database
from mcpbridge.storage.handles import new_handle
from mcpbridge.storage.sqlite_file import Schema, give_back_room
from mcpbridge.storage.store import Entry

if TYPE_CHECKING:  # the standard library's; loaded with the first file
    from sqlite3 import Connection

__all__ = ["SCHEMA", "SqliteStore"]

SCHEMA = Schema(
    0x6D637073,  # "mcps"
    [
        [
            # A handle names a value of one principal: nobody can replace, or hide, what is another's.
            """
            CREATE TABLE value (
                kind TEXT NOT NULL, handle TEXT NOT NULL, principal TEXT NOT NULL,
                size INTEGER NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, body BLOB NOT NULL,
                UNIQUE (kind, principal, handle)
            )
            """,
            "CREATE INDEX value_kind ON value (kind)",  # each entry ends with the row's number: the order of arrival
            "CREATE INDEX value_expires ON value (expires)",
        ]
    ],
)

_MAX_BYTES = 1024**3
_SWEEP = 600.0
"""Seconds between two sweeps."""
_SLACK = 16
"""The bound is looked after when this part of it was written anew, and leaves as much room."""


class SqliteStore:
    """Values in the file `path`, which is opened at the first use. See `Store` for the methods' promises."""

    def __init__(self, path: Path, *, max_bytes: int = _MAX_BYTES, clock: Callable[[], float] = time.time) -> None:
        """`max_bytes`: of all values; beyond it the oldest of the kind that takes the most room go first."""
        self._database = Database(path, SCHEMA)
        self._max_bytes = max_bytes
        self._clock = clock
        self._sweep_at = 0.0
        self._written = 0

    async def put(self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str = "") -> str:
        """Keep a value."""
        if len(body) > self._max_bytes - self._max_bytes // _SLACK:
            raise ValueTooLarge(len(body), self._max_bytes)
        handle, now = handle or new_handle(), self._clock()
        row = (kind, handle, principal, len(body), now, now + expires_in, body)

        def keep(connection: "Connection") -> None:
            connection.execute("INSERT OR REPLACE INTO value VALUES (?, ?, ?, ?, ?, ?, ?)", row)

        kept = self._database.run(keep)
        self._written += len(body)
        self._sweep_if_due(now, is_full=self._written > self._max_bytes // _SLACK)
        await kept
        return handle

    async def get(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, if there is one."""
        name, now = (kind, principal, handle), self._clock()
        self._sweep_if_due(now)
        return await self._database.run(lambda connection: _body(connection, name, now), writes=False)

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """The value, once."""
        name, now = (kind, principal, handle), self._clock()
        self._sweep_if_due(now)

        def take(connection: "Connection") -> bytes | None:
            body = _body(connection, name, now)
            if body is not None:
                connection.execute(_DELETE, name)
            return body

        return await self._database.run(take)

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        """Forget a value."""
        name, now = (kind, principal, handle), self._clock()
        self._sweep_if_due(now)

        def drop(connection: "Connection") -> bool:
            found = connection.execute(_LOOK, (*name, now)).fetchone()
            connection.execute(_DELETE, name)
            return found is not None

        return await self._database.run(drop)

    async def entries(self, kind: str, *, principal: str | None) -> list[Entry]:
        """What there is of a kind, oldest first."""
        now = self._clock()
        self._sweep_if_due(now)
        return await self._database.run(lambda connection: _entries(connection, kind, principal, now), writes=False)

    async def close(self) -> None:
        """Finish what is under way, within seconds, and close the file."""
        await self._database.close()

    def _sweep_if_due(self, now: float, *, is_full: bool = False) -> None:
        if is_full or now >= self._sweep_at:
            self._sweep_at, self._written = now + _SWEEP, 0
            self._database.post(lambda connection: _sweep(connection, now, self._max_bytes))


_SELECT = "SELECT body FROM value WHERE kind = ? AND principal = ? AND handle = ? AND expires > ?"
_LOOK = "SELECT 1 FROM value WHERE kind = ? AND principal = ? AND handle = ? AND expires > ?"
_DELETE = "DELETE FROM value WHERE kind = ? AND principal = ? AND handle = ?"


def _body(connection: "Connection", name: tuple[str, str, str], now: float) -> bytes | None:
    row: tuple[bytes] | None = connection.execute(_SELECT, (*name, now)).fetchone()
    return None if row is None else row[0]


def _entries(connection: "Connection", kind: str, principal: str | None, now: float) -> list[Entry]:
    query = (
        "SELECT handle, principal, size, created, expires FROM value"
        " WHERE kind = ? AND expires > ? AND (? IS NULL OR principal = ?) ORDER BY rowid"
    )
    return [Entry(*row) for row in connection.execute(query, (kind, now, principal, principal))]


def _sweep(connection: "Connection", now: float, max_bytes: int) -> None:
    """Remove what has expired, and what is beyond the bound."""
    connection.execute("DELETE FROM value WHERE expires <= ?", (now,))
    by_kind = dict[str, int](connection.execute("SELECT kind, sum(size) FROM value GROUP BY kind").fetchall())
    surplus = sum(by_kind.values()) - (max_bytes - max_bytes // _SLACK)
    while surplus > 0:
        kind = max(by_kind, key=by_kind.__getitem__)
        oldest = "SELECT rowid, size FROM value WHERE kind = ? ORDER BY rowid LIMIT 1"
        number, size = connection.execute(oldest, (kind,)).fetchone()
        connection.execute("DELETE FROM value WHERE rowid = ?", (number,))
        by_kind[kind] -= size
        surplus -= size
    give_back_room(connection)
