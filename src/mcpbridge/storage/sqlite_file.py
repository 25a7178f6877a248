"""Opens an SQLite file that several processes share: private to its user, in WAL mode, with the tables it should have.

Everything here waits for the disk and for other processes: to be called on the thread that owns the connection.
"""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcpbridge.errors import StoreFailed

if TYPE_CHECKING:  # the standard library's; loaded with the first file, since most starts open none
    from sqlite3 import Connection

from msgspec import Struct

__all__ = ["BUSY_SECONDS", "Schema", "SharedFile", "give_back_room", "may_exist", "open_file"]

BUSY_SECONDS = 5.0
"""How long to wait for another process that writes."""

_LARGEST_JOURNAL = 16 * 1024**2
"""Bytes that the write-ahead log keeps between two checkpoints."""

_TRY_AGAIN = 30.0
"""Seconds before a file that could not be opened is tried again."""

_PAGES = 2000
"""Pages that are given back in one go."""

_making = threading.Lock()
"""Held while a file is made. Closing any descriptor of a file drops all locks that the process holds on it (POSIX),
also those of a connection of another `Database` of this process: nobody must have opened the file by then."""


class Schema(Struct, frozen=True):
    """The tables of a file, as the steps that led to them: the first makes them, each later one changes them."""

    id: int
    """Marks the file as ours, and of this kind (`PRAGMA application_id`)."""
    steps: Sequence[Sequence[str]]
    """The statements of each version. A step that was released is never changed again."""


def may_exist(path: Path) -> bool:
    """False if there certainly is no such file; opening one makes it."""
    try:
        return path.exists()
    except OSError:  # no right to look; to open it says so
        return True


class SharedFile:
    """The file as one thread has it: open, not yet, or out of order."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self._path, self._schema = path, schema
        self._connection: Connection | None = None
        self._failed: StoreFailed | None = None
        self._try_again_at = 0.0
        self._identity = (0, 0)

    def connection(self) -> "Connection | StoreFailed":
        """The connection, or why there is none. A file that was removed meanwhile is made anew."""
        if self._connection is not None and self._identify() != self._identity:
            self.close()
        if self._connection is None and (self._failed is None or time.monotonic() >= self._try_again_at):
            try:
                self._connection, self._failed = open_file(self._path, self._schema), None
                self._identity = self._identify()
            except StoreFailed as error:
                self._failed, self._try_again_at = error, time.monotonic() + _TRY_AGAIN
        return self._connection or self._failed or StoreFailed("is not open", file=str(self._path))

    def close(self) -> None:
        """Close it, if it is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _identify(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino


def open_file(path: Path, schema: Schema) -> "Connection":
    """A connection in autocommit mode to a file that has all tables; makes file and directory where there are none.

    Raises:
        StoreFailed: it cannot be used: no rights, damaged, not a database, another program's, or a newer version's.
    """
    try:
        import sqlite3
    except ImportError as error:  # a Python that was built without it
        raise StoreFailed("this Python has no sqlite3", file=str(path)) from error
    connection: Connection | None = None
    try:
        _make_private(path)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        _set_up(connection, schema)
    except (sqlite3.Error, OSError, _NotOurs) as error:
        if connection is not None:
            connection.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreFailed(reason or type(error).__name__, file=str(path)) from error
    return connection


def give_back_room(connection: "Connection") -> None:
    """Return some of what deleted rows took to the file system."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(free, _PAGES)):
        connection.execute("PRAGMA incremental_vacuum(1)")  # Python's `execute` does one step, of one page, anyway


class _NotOurs(Exception):
    """The file holds something else."""


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _making:
        if not path.exists():
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            try:
                os.close(os.open(path, flags, 0o600))  # SQLite gives its other files the same mode
            except FileExistsError:
                pass  # another process made it meanwhile
    found = path.stat()
    if not hasattr(os, "getuid"):  # pragma: no cover - Windows: the user's profile has its own protection
        return
    if found.st_uid != os.getuid():
        raise _NotOurs("it belongs to another user")
    if found.st_mode & 0o077:
        path.chmod(0o600)


def _set_up(connection: "Connection", schema: Schema) -> None:
    # The tables first: whoever makes them at this moment writes the other two with them.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # fails if this is no database
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if tables and kind != schema.id:
        raise _NotOurs("it is a database of something else")
    if version > len(schema.steps):
        raise _NotOurs("a newer mcpbridge made it")
    if not tables:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only possible before there are tables
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = NORMAL")  # a lost power supply costs the last moment, never the file
    connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_JOURNAL}")
    if version < len(schema.steps):
        _bring_up_to_date(connection, schema)


def _use_wal(connection: "Connection") -> None:
    """Switch to the write-ahead log. It does not wait by itself for another process that does the same."""
    import sqlite3

    give_up_at = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.02)
        else:
            return


def _bring_up_to_date(connection: "Connection", schema: Schema) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()  # another process may have been quicker
        for step in schema.steps[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {schema.id}")
        connection.execute(f"PRAGMA user_version = {max(version, len(schema.steps))}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
