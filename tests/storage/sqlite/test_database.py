"""The thread that works on a file: its transactions, its order, and its end."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection, connect
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.sqlite import database as module
from mcpbridge.storage.sqlite.database import Database, Schema, SharedFile

SCHEMA = Schema(7, [["CREATE TABLE fact (name TEXT UNIQUE)"]])


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "a.db", SCHEMA)
    yield database
    with anyio.fail_after(10):
        await database.close()


def adding(name: str) -> Any:
    return lambda connection: connection.execute("INSERT INTO fact VALUES (?)", (name,)) and None


def names(connection: Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM fact ORDER BY rowid")]


class Turnstile:
    """Keeps the thread busy until it is let go on."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, connection: Connection) -> None:
        self.reached.set()
        assert self.go.wait(10)


async def busy(database: Database) -> Turnstile:
    turnstile = Turnstile()
    database.post(turnstile)
    assert await asyncio.to_thread(turnstile.reached.wait, 10)
    return turnstile


async def test_what_waits_is_done_in_order_in_one_transaction(database: Database) -> None:
    turnstile = await busy(database)
    transactions = list[str]()

    def count(connection: Connection) -> None:
        connection.set_trace_callback(lambda text: transactions.append(text) if text.startswith("BEGIN") else None)

    database.post(count)
    for number in range(20):
        database.post(adding(str(number)))
    found = database.run(names, writes=False)
    turnstile.go.set()
    assert await found == [str(number) for number in range(20)]
    assert transactions == []  # that in which the counting began is the only one


async def test_one_that_fails_does_not_spoil_the_others(database: Database) -> None:
    turnstile = await busy(database)
    errors = list[Exception | None]()
    database.post(adding("one"), errors.append)
    database.post(adding("one"), errors.append)  # is there already
    database.post(lambda connection: 1 // 0, errors.append)
    database.post(adding("two"), errors.append)
    turnstile.go.set()
    assert await database.run(names) == ["one", "two"]
    assert errors[0] is errors[3] is None
    assert isinstance(errors[1], StoreFailed)
    assert isinstance(errors[2], ZeroDivisionError)


async def test_an_error_reaches_who_waits(database: Database) -> None:
    await database.run(adding("one"))
    with pytest.raises(StoreFailed, match=r"a\.db: UNIQUE constraint failed"):
        await database.run(adding("one"))
    with pytest.raises(ZeroDivisionError):
        await database.run(lambda connection: 1 // 0)


async def test_what_is_cancelled_before_its_turn_is_not_done(database: Database) -> None:
    turnstile = await busy(database)
    with anyio.move_on_after(0):
        await database.run(adding("unwanted"))
    turnstile.go.set()
    assert await database.run(names) == []


async def test_a_file_that_another_holds_is_waited_for_once(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Review of issue 5: each write waited five seconds anew."""
    monkeypatch.setattr(module, "_SHORT_WAIT", 0.0)
    monkeypatch.setattr(module, "_LOCKED_SECONDS", 600.0)
    waits: list[int] = []

    def look(connection: Connection) -> None:
        waits.append(connection.execute("PRAGMA busy_timeout").fetchone()[0])

    await database.run(lambda connection: look(connection) or connection.execute("PRAGMA busy_timeout = 20"))
    with closing(connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for name in "ab":
            with pytest.raises(StoreFailed, match="locked"):
                await database.run(adding(name))
        await database.run(look, writes=False)
        other.execute("COMMIT")
    await database.run(adding("c"))
    assert waits == [5000, 0]
    assert await database.run(names, writes=False) == ["c"]


async def test_a_file_that_was_held_is_waited_for_again_later(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOCKED_SECONDS", 0.0)
    await database.run(lambda connection: connection.execute("PRAGMA busy_timeout = 20") and None)
    with closing(connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed, match="locked"):
            await database.run(adding("a"))
        other.execute("COMMIT")
    wait = await database.run(lambda connection: connection.execute("PRAGMA busy_timeout").fetchone()[0])
    assert wait == 5000


async def test_what_was_handed_over_before_the_end_is_done(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", SCHEMA)
    for number in range(3000):
        database.post(adding(str(number)))
    await database.close(60)
    errors = list[Exception | None]()
    database.post(adding("late"), errors.append)
    assert [type(error) for error in errors] == [StoreFailed]
    again = Database(tmp_path / "a.db", SCHEMA)
    assert len(await again.run(names)) == 3000
    await again.close()


async def test_the_end_does_not_wait_for_ever(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", SCHEMA)
    turnstile = await busy(database)
    with capture_logs() as logs, anyio.fail_after(10):
        await database.close(0.01)
    assert [line["event"] for line in logs] == ["a database was not closed in time; its last entries may be missing"]
    turnstile.go.set()


def test_a_loop_that_has_ended_is_no_trouble(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", SCHEMA)
    turnstile = Turnstile()

    async def leave() -> None:
        database.post(turnstile)
        database.post(adding("one"))

    asyncio.run(leave())
    turnstile.go.set()

    async def look() -> None:
        assert await database.run(names) == ["one"]
        await database.close()

    asyncio.run(look())


def test_a_later_version_adds_its_steps_to_an_older_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    file = SharedFile(path, SCHEMA)
    connection = file.connection()
    assert isinstance(connection, Connection)
    connection.execute("INSERT INTO fact VALUES ('kept')")
    file.close()
    newer = Schema(7, [*SCHEMA.steps, ["ALTER TABLE fact ADD COLUMN weight", "UPDATE fact SET weight = 3"]])
    file = SharedFile(path, newer)
    connection = file.connection()
    assert isinstance(connection, Connection)
    assert connection.execute("SELECT name, weight FROM fact").fetchall() == [("kept", 3)]
    file.close()
    older = SharedFile(path, SCHEMA).connection()
    assert isinstance(older, StoreFailed)
    assert older.what == "a newer mcpbridge made it"


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    file = SharedFile(path, SCHEMA)
    file.connection()
    file.close()
    broken = Schema(7, [*SCHEMA.steps, ["ALTER TABLE fact ADD COLUMN weight", "UPDATE nonsense SET weight = 3"]])
    failed = SharedFile(path, broken).connection()
    assert isinstance(failed, StoreFailed)
    file = SharedFile(path, SCHEMA)
    connection = file.connection()
    assert isinstance(connection, Connection)
    assert [row[1] for row in connection.execute("PRAGMA table_info(fact)")] == ["name"]
    file.close()


class _Ends(BaseException):
    """Neither an error nor one of those that Python has."""


@pytest.mark.parametrize(
    "failure",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        _Ends("strange"),
        StopIteration(),
        MemoryError(),
        RecursionError(),
        ValueError("x"),
        OSError(28, "No space left on device"),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_nothing_that_work_raises_ends_the_thread(database: Database, failure: BaseException) -> None:
    """Who waits hears of it, those beside it are served, and so is who comes later (issue 18)."""
    turnstile = await busy(database)

    def fail(connection: Connection) -> None:
        connection.execute("INSERT INTO fact VALUES ('half')")
        raise failure

    posted: list[Exception | None] = []
    beside = database.run(adding("beside"))
    failing = database.run(fail)
    database.post(fail, posted.append)
    database.post(adding("last"))
    turnstile.go.set()
    with anyio.fail_after(30):
        await beside
        with pytest.raises(Exception):  # noqa: B017, PT011 - which one depends on the case
            await failing
        assert await database.run(names, writes=False) == ["beside", "last"]
    assert [type(error) for error in posted] == [type(failing.exception())]  # pyright: ignore


@pytest.mark.parametrize("path", ["a\0b.db", "\0", "dir\0/x.db", "x" * 5000])
async def test_a_path_that_no_file_can_have_is_told_to_everybody(tmp_path: Path, path: str) -> None:
    database = Database(tmp_path / path, SCHEMA)
    with anyio.fail_after(30):
        for _ in range(3):
            with pytest.raises(StoreFailed):
                await database.run(adding("x"))
        await database.close()


async def test_without_a_thread_it_fails_until_there_is_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with anyio.fail_after(30):
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", no_thread)
            for _ in range(2):
                with pytest.raises(StoreFailed, match="new thread"):
                    await database.run(adding("lost"))
        await database.run(adding("kept"))
        assert await database.run(names, writes=False) == ["kept"]


async def test_a_file_that_fails_in_an_unexpected_way_is_opened_anew(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.run(adding("before"))
    real = SharedFile.connection
    failures = [RuntimeError("nobody expected this"), _Ends(), SystemExit(3)]

    def connection(self: SharedFile) -> Any:
        if failures:
            raise failures.pop()
        return real(self)

    monkeypatch.setattr(SharedFile, "connection", connection)
    with anyio.fail_after(30):
        for _ in range(3):
            with pytest.raises((StoreFailed, RuntimeError)):
                await database.run(adding("lost"))
        await database.run(adding("after"))
        assert await database.run(names, writes=False) == ["before", "after"]


async def test_one_who_fails_to_hear_of_it_keeps_nobody_else_from_it(database: Database) -> None:
    turnstile = await busy(database)

    def deaf(_: Exception | None) -> None:
        raise RuntimeError("deaf")

    database.post(adding("a"), deaf)
    waiting = database.run(adding("b"))
    turnstile.go.set()
    with anyio.fail_after(30):
        await waiting
