"""Calls under way in the call log: what is left of them when a bridge is killed (issue 18)."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.call_log.format import CallRecord, SentCall
from mcpbridge.storage.call_log.journal import Journal, left_behind
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.call_log.reader import Filter, read_calls, read_running
from mcpbridge.storage.call_log.schema import SCHEMA
from mcpbridge.storage.settings import CallLogSettings
from mcpbridge.storage.sqlite.database import Schema, open_file

ALL = Filter()
RECORD = CallRecord(
    1.8e9, 0, "tools/call", "files", "files/write", "ear", "ann", "s1", "r1", "interrupted", "", b'{"a":1}', b""
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


def log_in(path: Path) -> CallLog:
    return CallLog(lambda: path, CallLogSettings())


async def begun(log: CallLog, record: CallRecord = RECORD) -> int:
    """Begin a call, and wait until it is in the file."""
    written = asyncio.Event()
    number = log.begin(record, written.set)
    with anyio.fail_after(60):
        await written.wait()
    return number


def running(path: Path, **which: Any) -> list[tuple[str, str]]:
    return [(row["tool"], row["outcome"]) for row in read_running(path, Filter(**which), limit=100)]


def ended(path: Path) -> list[tuple[str, str]]:
    return [(row["tool"], row["outcome"]) for row in read_calls(path, ALL, limit=100)]


def ended_if_any(path: Path) -> list[tuple[str, str]]:
    try:
        return ended(path)
    except StoreFailed:  # it is being made
        return []


def owner_files(path: Path) -> list[Path]:
    return list(path.parent.glob("*.running"))


async def test_a_call_is_under_way_until_its_record_is_written(path: Path) -> None:
    log = log_in(path)
    number = await begun(log)
    assert running(path) == [("files/write", "running")]
    assert running(path, outcome="interrupted") == running(path, tool="x") == ended(path) == []
    log.ended(number)
    log.append(replace(RECORD, outcome="ok", running=number))
    await log.close()
    assert running(path) == []
    assert ended(path) == [("files/write", "ok")]
    assert owner_files(path) == [], "a bridge that ended in order leaves nothing beside the log"


async def test_a_call_without_a_record_of_its_own_is_over_at_the_end(path: Path) -> None:
    """Calls that several clients share run as another one, of which there is no record."""
    log = log_in(path)
    log.ended(await begun(log))
    again = await begun(log, replace(RECORD, tool="files/again"))
    log.ended(again)
    log.resumed(again)
    await log.close()
    assert running(path) == [("files/again", "interrupted")], "this one was sent again, and not over"


async def test_a_bridge_leaves_the_calls_of_living_ones_alone(path: Path) -> None:
    one, two = log_in(path), log_in(path)
    await begun(one)
    two.recover()
    two.append(replace(RECORD, tool="files/other", outcome="ok"))
    await two.close()
    assert running(path) == [("files/write", "running")]
    assert ended(path) == [("files/other", "ok")]
    await one.close()
    three = log_in(path)
    three.recover()
    await three.close()
    assert running(path) == []
    assert ended(path) == [("files/other", "ok"), ("files/write", "interrupted")]


async def test_a_call_that_ends_at_once_has_no_row_if_it_need_not_wait_for_one(path: Path) -> None:
    log = log_in(path)
    short, lasting = log.begin(RECORD), log.begin(replace(RECORD, tool="files/search"))
    log.ended(short)
    log.append(replace(RECORD, outcome="ok", running=short))
    with anyio.fail_after(60):
        while not ended_if_any(path):
            await anyio.sleep(0.02)
    assert running(path) == [("files/search", "running")]
    log.append(replace(RECORD, tool="files/search", outcome="ok", running=lasting))
    await log.close()
    assert ended(path) == [("files/write", "ok"), ("files/search", "ok")]
    assert running(path) == []


async def test_a_log_that_is_not_there_is_not_made_by_looking_for_interrupted_calls(path: Path) -> None:
    log = log_in(path)
    log.recover()
    await log.close()
    assert not path.exists()


BEGIN_AND_WAIT = """
import sys, asyncio
from pathlib import Path
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.call_log.format import CallRecord
from mcpbridge.storage.settings import CallLogSettings

async def main():
    log = CallLog(lambda: Path(sys.argv[1]), CallLogSettings())
    for number in range(3):
        written = asyncio.Event()
        record = CallRecord(1.8e9, 0, "tools/call", "s", f"s/{number}", "", "", "", "", "interrupted", "", b"", b"")
        log.begin(record, written.set)
        await written.wait()
    print("written", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_calls_of_a_killed_process_are_interrupted_even_before_a_bridge_makes_records_of_them(path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BEGIN_AND_WAIT, str(path), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout
        assert (await process.stdout.readline()).strip() == b"written"
        assert running(path) == [(f"s/{number}", "running") for number in range(3)]
    finally:
        process.kill()
        await process.wait()
    expected = [(f"s/{number}", "interrupted") for number in range(3)]
    assert running(path) == running(path, outcome="interrupted") == expected
    log = log_in(path)
    log.recover()
    await log.close()
    assert ended(path) == expected
    assert running(path) == []
    assert owner_files(path) == []
    [first, *_] = read_calls(path, ALL, limit=10)
    assert "seconds" not in first, "nobody knows how long it took"
    assert "result" not in first


async def test_a_file_of_an_older_version_is_read_and_then_brought_up_to_date(path: Path) -> None:
    with closing(open_file(path, Schema(SCHEMA.id, SCHEMA.steps[:1]))) as connection:
        connection.execute(
            "INSERT INTO call VALUES (7, 1.8e9, 0.5, 'tools/call', 'old', 'old/tool', '', '', '', '', 'ok', '',"
            " 0, x'', 0, x'', NULL, NULL, NULL)"
        )
    assert ended(path) == [("old/tool", "ok")]
    assert running(path) == []
    log = log_in(path)
    number = await begun(log)
    log.append(replace(RECORD, outcome="ok", running=number))
    await log.close()
    assert ended(path) == [("old/tool", "ok"), ("files/write", "ok")]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(SCHEMA.steps),)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute("DELETE FROM call")


async def test_a_log_that_cannot_be_written_lets_calls_pass(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    path.write_bytes(b"this was a database once. " * 100)
    log = log_in(path)
    assert await begun(log) == 1
    await log.close()
    assert log.begin(RECORD, lambda: None) == 0


async def test_calls_that_begin_faster_than_the_disk_takes_them_are_bounded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpbridge.storage.call_log.log._MOST_WAITING", 5)
    log = log_in(path)
    assert [log.begin(RECORD, lambda: None) for _ in range(7)] == [1, 2, 3, 4, 5, 0, 0]
    await log.close()
    assert len(running(path)) == 5


# -- the journal


def sent(record: CallRecord, uid: int) -> SentCall:
    """What the journal has of this call."""
    names = (record.method, record.server, record.tool, record.client, record.principal, record.session, "", "")
    digest = sha256(record.arguments).digest()
    return SentCall(record.at + uid / 1000, uid, 0, len(record.arguments), 0, digest, names)


def journals(path: Path) -> list[Path]:
    return list(path.parent.glob("*.sent"))


async def test_a_call_in_the_journal_has_one_record_when_it_is_over(path: Path) -> None:
    log = log_in(path)
    number = log.write_ahead(sent(RECORD, 1), lambda: RECORD)
    assert number
    log.append(replace(RECORD, outcome="ok", running=number))
    await log.close()
    assert ended(path) == [("files/write", "ok")]
    assert running(path) == journals(path) == []


def left_by(path: Path, *calls: SentCall) -> None:
    """The journal of a process that was killed after it had sent these calls."""
    journal = Journal(path)
    for call in calls:
        assert journal.add(call, lambda text: text)
    [file] = journals(path)
    data = file.read_bytes()
    journal.close()
    file.write_bytes(data)


async def test_an_entry_of_an_earlier_version_is_read_and_one_of_this_says_who_called(path: Path) -> None:
    log = log_in(path)
    log.append(replace(RECORD, outcome="ok", uid=9))
    await log.close()
    old, new = sent(RECORD, 1), sent(RECORD, 2)
    who = ("Ann", "192.0.2.1", "7.1", "", "staff", "`roles`: staff")
    left_by(path, old, replace(new, names=(*new.names, *who)))
    before, after = read_running(path, ALL, limit=9)
    names = ("user", "address", "client_version", "oauth_client", "role", "rule")
    assert [before.get(name) for name in names] == [None] * 6
    assert [after.get(name, "") for name in names] == [*who]
    log = log_in(path)
    log.recover()
    await log.close()
    rows = [row for row in read_calls(path, ALL, limit=9) if row["outcome"] == "interrupted"]
    assert [row.get("role") for row in rows] == [None, "staff"]


async def test_a_call_in_the_journal_has_a_row_soon_if_it_lasts(path: Path) -> None:
    log = log_in(path)
    lasting = log.write_ahead(sent(RECORD, 1), lambda: RECORD)
    with anyio.fail_after(60):
        while not path.exists() or not running(path):
            await anyio.sleep(0.02)
    assert running(path) == [("files/write", "running")]
    log.ended(lasting)
    log.append(replace(RECORD, outcome="ok", running=lasting))
    await log.close()
    assert running(path) == []
    assert ended(path) == [("files/write", "ok")]


async def test_an_entry_that_is_taken_back_leaves_nothing(path: Path) -> None:
    log = log_in(path)
    first = log.write_ahead(sent(RECORD, 1), lambda: RECORD)
    log.take_back(log.write_ahead(sent(RECORD, 2), lambda: RECORD))
    log.append(replace(RECORD, outcome="ok", running=first))
    await log.close()
    assert ended(path) == [("files/write", "ok")]
    assert running(path) == []


async def test_a_full_journal_takes_no_more_until_rows_are_written(path: Path) -> None:
    log = log_in(path)
    long = replace(RECORD, tool="files/" + "x" * 900)
    numbers: list[int] = []
    while number := log.write_ahead(sent(long, len(numbers) + 1), lambda: long):
        numbers.append(number)
        log.append(replace(long, outcome="ok", running=number))
    with anyio.fail_after(60):
        while not log.write_ahead(sent(RECORD, 0), lambda: RECORD):
            await anyio.sleep(0.02)
    await log.close()
    assert len(numbers) > 100
    assert len(read_calls(path, ALL, limit=len(numbers) + 10)) == len(numbers)


async def test_without_a_journal_calls_have_rows_as_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mcpbridge.storage.call_log.journal._reserve", full)
    log = log_in(path)
    assert log.write_ahead(sent(RECORD, 1), lambda: RECORD) == 0
    assert await begun(log) == 1
    await log.close()
    assert journals(path) == []


SEND_AND_DIE = """
import sys, asyncio, os, signal
from pathlib import Path
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.call_log.format import CallRecord
from mcpbridge.storage.call_log.format import SentCall
from mcpbridge.storage.settings import CallLogSettings

def record(number):
    tool = f"s/{number}"
    return CallRecord(1.8e9 + number, 0, "tools/call", "s", tool, "", "", "", "", "interrupted", "", b"{}", b"")

async def main():
    log = CallLog(lambda: Path(sys.argv[1]), CallLogSettings(), redact=lambda text: text.replace("hush", "***"))
    def send(number):
        names = ("tools/call", "s", f"s/{number}", "hush", "", "", "", "")
        sent = SentCall(1.8e9 + number, number, 0, 2, 0, b"d" * 32, names, {"note": "hush"})
        return log.write_ahead(sent, lambda: record(number))
    written = log.calls_written
    first = send(1)
    from msgspec.structs import replace
    log.append(replace(record(1), outcome="ok", running=first, uid=1))
    while log.calls_written == written:
        await asyncio.sleep(0.01)
    send(2)
    send(3)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_calls_that_were_sent_in_the_moment_of_the_kill_are_interrupted(path: Path) -> None:
    """Promise of the bridge: of each call that a server may have got there is a record (issue 18)."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SEND_AND_DIE, str(path))
    await process.wait()
    [journal] = journals(path)
    assert b"hush" not in journal.read_bytes(), "secrets are masked there too"
    expected = [("s/2", "interrupted"), ("s/3", "interrupted")]
    assert running(path) == running(path, outcome="interrupted") == expected
    assert running(path, tool="s/3") == [("s/3", "interrupted")]
    for _ in range(2):  # more than one bridge looks
        log = log_in(path)
        log.recover()
        await log.close()
        assert ended(path) == [("s/1", "ok"), *expected]
    assert running(path) == journals(path) == []
    *_, last = read_calls(path, ALL, limit=10)
    assert (last["client"], last["facts"]) == ("***", {"note": "***"})


@given(st.binary(max_size=400), st.integers(0, 400))
def test_a_journal_that_was_not_written_to_its_end_is_read_as_far_as_it_is_whole(noise: bytes, cut: int) -> None:
    with TemporaryDirectory() as folder, closing(open_file(Path(folder) / "calls.db", SCHEMA)) as connection:
        log = Path(folder) / "calls.db"
        journal = Journal(log)
        for uid in (1, 2):
            assert journal.add(sent(RECORD, uid), str)
        [file] = journals(log)
        data = file.read_bytes()
        journal.close()
        (Path(folder) / "calls.db.dead.sent").write_bytes(data[:cut] + noise + data[cut + len(noise) :])
        rows, [_] = left_behind(connection, log)
        assert {row["uid"] for row in rows} <= {1, 2}


@pytest.mark.parametrize("name", ["a\0b.db", "dir\0/x.db"])
def test_a_journal_that_no_file_can_hold_fails_as_files_do(tmp_path: Path, name: str) -> None:
    """`OSError` is what costs a call nothing: it then waits for its row."""
    with pytest.raises(OSError, match="Invalid argument"):
        Journal(tmp_path / name)
