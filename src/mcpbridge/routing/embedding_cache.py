"""Vectors on disk, by what they are of: a model reads each text once, however often bridges start.

The file holds digests of texts, no texts. It is a cache: it may be removed at any time, one that is damaged is begun
anew, and where it cannot be used vectors are made again.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mcpbridge.errors import StoreFailed
from mcpbridge.logs import get_logger
from mcpbridge.routing.embedding import Vector
from mcpbridge.storage.database import Database
from mcpbridge.storage.sqlite_file import Schema, give_back_room

if TYPE_CHECKING:  # the standard library's; loaded with the first file
    from sqlite3 import Connection

__all__ = ["VectorCache", "cache_path", "key_of"]

log = get_logger("mcpbridge.routing")

_SCHEMA = Schema(
    0x6D637076,  # "mcpv"
    [
        [
            "CREATE TABLE vector (key BLOB PRIMARY KEY, used INTEGER NOT NULL, body BLOB NOT NULL)",
            "CREATE INDEX vector_by_use ON vector (used)",
        ]
    ],
)
_MAX_BYTES = 128 * 1024**2
_ROOM = 100
"""Bytes that a vector takes besides its own, about."""
_SLACK = 16
"""Room is looked after when so much of all of it was written since the last time, and one part is made free beyond."""
_AT_ONCE = 500
"""Vectors that are read or written in one transaction."""
_DAY = 86400
_DAMAGED = (11, 26)
"""SQLite's codes for a file that is malformed, or no database at all."""


def cache_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The file of this user's bridges. It may not exist yet."""
    asked = environ.get("XDG_CACHE_HOME")
    if asked:
        return Path(asked) / "mcpbridge" / "vectors.db"
    if sys.platform.startswith("linux"):  # as it says there, without the 10 ms that asking takes
        return Path.home() / ".cache" / "mcpbridge" / "vectors.db"
    from platformdirs import user_cache_path

    return user_cache_path("mcpbridge", appauthor=False) / "vectors.db"


def key_of(model: str, text: str) -> bytes:
    """What a vector is kept under: who made it (`Embedder.name`), and of what."""
    return sha256(f"{model}\0{text}".encode("utf-8", "replace")).digest()


class VectorCache:
    """One file, which processes share; made when there is something to keep. For one event loop."""

    def __init__(self, path: Path, *, max_bytes: int = _MAX_BYTES, clock: Callable[[], float] = time.time) -> None:
        """`max_bytes`: of all vectors; beyond that those go that were not used for longest, by days."""
        self._path, self._max_bytes, self._clock = path, max_bytes, clock
        self._database = Database(path, _SCHEMA)
        self._written = max_bytes  # so the first that is written looks how much there is
        self._has_complained = False

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Those that there are."""
        found: dict[bytes, Vector] = {}
        today = int(self._clock() // _DAY)
        for some in _parts(keys):
            try:
                found |= await self._database.run(lambda connection, some=some: _read(connection, some, today))
            except StoreFailed as error:
                await self._failed(error)
                break
        return found

    async def put(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors. They are lost if the file cannot be used, which is said once."""
        today = int(self._clock() // _DAY)
        self._written += sum(map(len, vectors.values())) + _ROOM * len(vectors)
        limit = self._max_bytes if self._written > self._max_bytes // _SLACK else None
        try:
            for some in _parts(list(vectors)):
                rows = [(key, today, vectors[key]) for key in some]
                await self._database.run(lambda connection, rows=rows: _write(connection, rows))
            if limit is not None:
                self._written = 0
                await self._database.run(lambda connection: _make_room(connection, limit))
        except StoreFailed as error:
            await self._failed(error)

    async def close(self) -> None:
        """Finish what is under way, within seconds, and close the file."""
        await self._database.close()

    async def _failed(self, error: StoreFailed) -> None:
        if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            log.warning("the cache of vectors was damaged and is begun anew", file=str(self._path))
            await self._database.close()
            for path in (self._path, *(self._path.with_name(self._path.name + end) for end in ("-wal", "-shm"))):
                try:
                    path.unlink(missing_ok=True)
                except OSError:
                    pass  # then it goes on without a cache, which is said below the next time
            self._database = Database(self._path, _SCHEMA)
        elif not self._has_complained:
            self._has_complained = True
            log.warning("vectors cannot be kept; they are made anew at each start", file=error.file, reason=error.what)


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(keys), _AT_ONCE):
        yield keys[first : first + _AT_ONCE]


def _read(connection: "Connection", keys: Sequence[bytes], today: int) -> dict[bytes, Vector]:
    marks = ",".join("?" * len(keys))
    rows = connection.execute(f"SELECT key, body, used FROM vector WHERE key IN ({marks})", keys).fetchall()  # noqa: S608 - only marks
    stale = [(today, key) for key, _, used in rows if used != today]
    connection.executemany("UPDATE vector SET used = ? WHERE key = ?", stale)
    return {bytes(key): bytes(body) for key, body, _ in rows if isinstance(body, bytes)}


def _write(connection: "Connection", rows: Sequence[tuple[bytes, int, Vector]]) -> None:
    connection.executemany("INSERT OR REPLACE INTO vector (key, used, body) VALUES (?, ?, ?)", rows)


def _make_room(connection: "Connection", max_bytes: int) -> None:
    count, size = connection.execute("SELECT count(*), total(length(body)) FROM vector").fetchone()
    room = size + _ROOM * count
    if room > max_bytes:
        kept = int(count * (max_bytes - max_bytes // _SLACK) / room)
        connection.execute(
            "DELETE FROM vector WHERE rowid IN (SELECT rowid FROM vector ORDER BY used, rowid LIMIT ?)",
            (count - kept,),
        )
        give_back_room(connection)
