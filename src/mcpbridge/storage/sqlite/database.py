"""One SQLite file that several processes share, and the thread that works on it.

`open_file` makes it private to its user, in WAL mode, with the tables it should have. A `Database` owns the thread:
the event loop never waits for the disk. Work that comes while the thread is busy, or between two turns of the loop,
becomes one transaction. File and thread start with the first piece of work, so storing nothing costs nothing.
"""

import asyncio
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from msgspec import Struct

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger

if TYPE_CHECKING:
    from sqlite3 import Connection


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
    except (sqlite3.Error, OSError, ValueError, _NotOurs) as error:  # ValueError: a NUL in the path
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


log = get_logger("mcpbridge.storage")

CLOSE_SECONDS = 2.0
"""How long the end waits for what is still to be written."""

_LARGEST_BATCH = 1000
"""Pieces of work in one transaction; others want to write too."""

_LOCKED_SECONDS = 5.0
"""How long a file that could not be written counts as one that others hold."""
_SHORT_WAIT = 0.1
"""Seconds to wait for them meanwhile."""

_T = TypeVar("_T")

Work = Callable[["Connection"], _T]
"""Done on the database's thread, inside a transaction. It may be done again if another piece of the same transaction
failed, so it has no effect but on the file."""

Done = Callable[[Exception | None], object]
"""Called on the loop when a posted piece of work is on disk, or with why it is not."""


class _End(Struct, frozen=True, eq=False):
    """The last that is handed over; the future is done when the file is closed."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


class _Job(Struct, frozen=True, eq=False):
    work: Work[Any]
    writes: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any] | None
    done: Done | None


class Database:
    """A file that processes share. For one event loop at a time; `close` at the end."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path = path
        self._schema = schema
        self._queue: queue.SimpleQueue[_Job | _End] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """It was used: there is a thread, and a file unless that cannot be opened."""
        return self._thread is not None

    def run(self, work: Work[_T], *, writes: bool = True) -> Awaitable[_T]:
        """Do `work` and return what it returns. One that is cancelled before its turn is not done.

        Raises:
            StoreFailed: the file cannot be used, or not now.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._hand_over(_Job(work, writes, loop, future, None))
        return future

    def post(self, work: Work[object], done: Done | None = None) -> None:
        """Schedule `work`, and return at once."""
        self._hand_over(_Job(work, True, asyncio.get_running_loop(), None, done))  # noqa: FBT003 - it writes

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Finish what was handed over, within so many seconds, and close the file."""
        was_closed, self._is_closed = self._is_closed, True
        if self._thread is None or was_closed:
            return
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        self._queue.put(_End(loop, ended))
        with anyio.move_on_after(seconds, shield=True):
            await ended
        if ended.cancelled():  # the thread is a daemon: if the disk hangs, the process can end all the same
            log.warning("a database was not closed in time; its last entries may be missing", file=str(self.path))

    def _hand_over(self, job: _Job) -> None:
        if self._is_closed:
            _finish([(job, None, StoreFailed("is closed", file=str(self.path)))])
            return
        if self._thread is None:
            thread = threading.Thread(target=self._serve, daemon=True, name=f"database {self.path.name}")
            try:
                thread.start()
            except RuntimeError as error:  # a limit of the system, which may give way
                _finish([(job, None, StoreFailed(f"has no thread: {error}", file=str(self.path)))])
                return
            self._thread = thread
        self._queue.put(job)

    # -- on the thread

    def _serve(self) -> None:
        file = SharedFile(self.path, self._schema)
        patience = _Patience()
        while True:
            jobs, end = self._next()
            if jobs:
                outcomes = self._outcomes(file, jobs, patience)
                for loop in {job.loop for job in jobs}:  # one, unless an earlier one ended before its work was done
                    _tell(loop, partial(_finish, [outcome for outcome in outcomes if outcome[0].loop is loop]))
            if end is not None:
                with suppress(Exception):  # whatever is wrong with the file, somebody waits for its end
                    file.close()
                _tell(end.loop, partial(_resolve, end.future))
                return

    def _outcomes(self, file: SharedFile, jobs: "list[_Job]", patience: "_Patience") -> "list[_Outcome]":
        """Do the jobs. Whatever goes wrong is their outcome: were the thread to end, who waits would wait for ever."""
        try:
            connection = file.connection()
            if isinstance(connection, StoreFailed):
                return [(job, None, connection) for job in jobs]
            patience.apply(connection)
            return _done(connection, jobs, str(self.path), patience)
        except BaseException as error:
            log.exception("the thread of a database failed unexpectedly", file=str(self.path))
            with suppress(Exception):  # the next work opens it anew
                file.close()
            failed = _as_ours(error, str(self.path))
            return [(job, None, failed) for job in jobs]

    def _next(self) -> tuple[list[_Job], _End | None]:
        """All that waits, and the end if that is next."""
        jobs: list[_Job] = []
        while True:
            job = self._queue.get()
            if isinstance(job, _End):
                return jobs, job
            jobs.append(job)
            if self._queue.empty() or len(jobs) == _LARGEST_BATCH:
                return jobs, None


_Outcome = tuple[_Job, Any, Exception | None]


class _Patience:
    """How long to wait for others that write: after one wait in vain, not as long again for each piece of work."""

    def __init__(self) -> None:
        self._is_short = False
        self._ends_at = 0.0

    def apply(self, connection: "Connection") -> None:
        """Have the connection wait as long as is right at the moment."""
        if self._is_short:
            is_over = time.monotonic() >= self._ends_at
            connection.execute(f"PRAGMA busy_timeout = {int(1000 * (BUSY_SECONDS if is_over else _SHORT_WAIT))}")
            self._is_short = not is_over

    def waited_in_vain(self) -> None:
        """A transaction could not begin."""
        if not self._is_short:
            self._is_short, self._ends_at = True, time.monotonic() + _LOCKED_SECONDS


def _done(connection: "Connection", jobs: Sequence[_Job], file: str, patience: _Patience) -> list[_Outcome]:
    """Do the jobs in one transaction; if that fails, each in its own, so that one cannot spoil the others."""
    jobs = [job for job in jobs if job.future is None or not job.future.cancelled()]
    if not jobs:
        return []
    try:
        values = _together(connection, jobs)
    except _Unavailable as error:
        patience.waited_in_vain()
        failed = StoreFailed(str(error), file=file)
        return [(job, None, failed) for job in jobs]
    except BaseException as error:  # noqa: BLE001 - it goes to who handed the work over; here nobody else would hear it
        if len(jobs) == 1:
            return [(jobs[0], None, _as_ours(error, file))]
        return [outcome for job in jobs for outcome in _done(connection, [job], file, patience)]
    return [(job, value, None) for job, value in zip(jobs, values, strict=True)]


class _Unavailable(Exception):
    """No transaction can begin, so there is no use in trying the jobs one by one."""


def _together(connection: "Connection", jobs: Sequence[_Job]) -> list[Any]:
    from sqlite3 import Error

    try:
        connection.execute("BEGIN IMMEDIATE" if any(job.writes for job in jobs) else "BEGIN")
    except Error as error:
        raise _Unavailable(str(error)) from error
    try:
        values = [job.work(connection) for job in jobs]
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors, such as a full disk, have rolled it back already
            connection.execute("ROLLBACK")
        raise
    return values


def _as_ours(error: BaseException, file: str) -> Exception:
    """What a future can hold: errors of SQLite, and what would end the thread or the program, as `StoreFailed`."""
    from sqlite3 import Error

    if isinstance(error, Exception) and not isinstance(error, Error | StopIteration):
        return error
    failed = StoreFailed(str(error) or type(error).__name__, file=file)
    failed.__cause__ = error
    return failed


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    """Have `what` called on the loop."""
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        pass  # the loop has ended, and with it everybody who waited


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _finish(outcomes: Sequence[_Outcome]) -> None:
    for job, value, error in outcomes:
        if job.future is not None and not job.future.done():
            if error is None:
                job.future.set_result(value)
            else:
                job.future.set_exception(error)
        elif job.done is not None:
            try:
                job.done(error)
            except Exception as failure:  # those behind it wait, too
                log.exception("an operation on a database failed", exc_info=failure)
