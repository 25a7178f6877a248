"""The way to a store's file: the thread that has it, the seal that belongs to it, and what is wrong in it, said once.

The seal is made of the configured secret and the file's salt, so it has to be another one when the file was removed and
made anew. Every piece of work looks whether it still is the right one, and is done again with the new one if not.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mcpbridge.errors import StoreFailed
from mcpbridge.logs import get_logger
from mcpbridge.storage.database import Database, Work
from mcpbridge.storage.packing import OtherKey, Unreadable, Workers, is_worth_packing
from mcpbridge.storage.sealing import Seal, Seals
from mcpbridge.storage.sqlite_rows import SCHEMA, Name, Row, count_foreign, salt_of
from mcpbridge.storage.wrapping import is_plain, number_of, open_label, unwrap, wrap, wrap_label

if TYPE_CHECKING:  # the standard library's; loaded with the first file
    from sqlite3 import Connection

__all__ = ["Access"]

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

    async def wrap(self, name: Name, body: bytes, label: bytes, seal: Seal | None) -> tuple[Row, bytes]:
        """See `wrapping.wrap`; in a thread if it may take long."""
        if seal is None and not is_worth_packing(body):
            return wrap(name, body, label, seal)
        return await self._workers.run(wrap, name, body, label, seal, size=len(body))

    async def wrap_label(self, name: Name, label: bytes, seal: Seal | None) -> bytes:
        """See `wrapping.wrap_label`."""
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
