"""The call log: what it keeps of a call, what it never keeps, and what happens to it in bad times (issue 4)."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.storage.call_log import log as call_log
from mcpbridge.storage.call_log.budget import Budget
from mcpbridge.storage.call_log.format import CallRecord
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.call_log.reader import Filter, read_calls
from mcpbridge.storage.call_log.timeline import read_events
from mcpbridge.storage.settings import CallLogSettings, StoreSettings, call_log_path

NOW = 1_800_000_000.0
ALL = Filter()
RECORD = CallRecord(
    at=NOW,
    seconds=0.25,
    method="tools/call",
    server="files",
    tool="files/read",
    client="ear",
    principal="",
    session="s1",
    run="r1",
    outcome="ok",
    error="",
    arguments=b'{"path": "a.txt", "deep": 1}',
    result=b'{"content":[]}',
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "calls.db"


@asynccontextmanager
async def logging(
    path: Path, redact: Callable[[str], str] = str, now: float = NOW, **keys: Any
) -> AsyncIterator[CallLog]:
    log = CallLog(lambda: path, CallLogSettings(**keys), redact=redact, clock=lambda: now)
    try:
        yield log
    finally:
        with anyio.fail_after(10):
            await log.close()


async def test_a_call_is_kept_by_size_and_digest(path: Path) -> None:
    async with logging(path) as log:
        log.append(RECORD)
        log.append(replace(RECORD, outcome="refused", error="NotPermitted", result=b"", facts={"retries": 2}))
    first, second = read_calls(path, ALL, limit=10)
    assert first == {
        "id": 1,
        "at": "2027-01-15T08:00:00.000Z",
        "seconds": 0.25,
        "method": "tools/call",
        "server": "files",
        "tool": "files/read",
        "client": "ear",
        "session": "s1",
        "run": "r1",
        "outcome": "ok",
        "arguments": {"size": 28, "sha256": sha256(b'{"deep":1,"path":"a.txt"}').hexdigest()},
        "result": {"size": 14, "sha256": sha256(RECORD.result).hexdigest()},
    }
    assert (second["outcome"], second["error"], second["facts"]) == ("refused", "NotPermitted", {"retries": 2})
    assert b"a.txt" not in path.read_bytes()
    assert read_calls(path, ALL, limit=10, content=True) == [first, second]


async def test_equal_arguments_have_equal_digests_however_they_are_written(path: Path) -> None:
    async with logging(path) as log:
        log.append(replace(RECORD, arguments=b'{"a":1,"b":2}'))
        log.append(replace(RECORD, arguments=b'{ "b": 2, "a": 1 }'))
        log.append_event("granted", {"arguments": b'{"b":2,"a":1}'})
    one, two = read_calls(path, ALL, limit=10)
    [event] = read_events(path, ALL, limit=10)
    assert one["arguments"]["sha256"] == two["arguments"]["sha256"] == event["arguments"]["sha256"]


async def test_content_is_kept_where_it_is_asked_for_without_secrets_and_cut(path: Path) -> None:
    redact = Redactor(["hunter2hunter2"])
    async with logging(path, redact, max_content=100) as log:
        log.append(replace(RECORD, arguments=b'{"password": "hunter2hunter2"}', result=b"x" * 500, keeps_content=True))
        straddling = b"y" * 95 + b"hunter2hunter2"
        log.append(replace(RECORD, result=straddling, keeps_content=True))
    one, two = read_calls(path, ALL, limit=10, content=True)
    assert one["arguments"]["content"] == '{"password": "[redacted]"}'
    assert (one["result"]["content"], one["result"]["size"]) == ("x" * 100, 500)
    assert two["result"]["content"] == "y" * 95 + "[reda"
    assert "content" not in read_calls(path, ALL, limit=10)[0]["arguments"]


async def test_secrets_are_masked_in_names_errors_and_facts_and_numbers_stay_numbers(path: Path) -> None:
    redact = Redactor(["hunter2hunter2", "123456"])
    async with logging(path, redact) as log:
        log.append(
            replace(
                RECORD,
                tool="https://host/?key=hunter2hunter2",
                error="no hunter2hunter2 here",
                client="hunter2hunter2",
                facts={"why": ["hunter2hunter2"], "count": 123456, "deep": {"x": (1, None, 2.5)}},
            )
        )
        log.append_event("denied", {"detail": "hunter2hunter2", "more": "hunter2hunter2"})
    [call] = read_calls(path, ALL, limit=10)
    assert call["tool"] == "https://host/?key=[redacted]"
    assert call["facts"] == {"why": ["[redacted]"], "count": 123456, "deep": {"x": [1, None, 2.5]}}
    assert b"hunter2hunter2" not in path.read_bytes()


async def test_whatever_clients_and_hooks_say_costs_no_row(path: Path) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    loop: list[object] = []
    loop.append(loop)
    odd_facts: list[dict[str, object]] = [{"odd": Odd()}, {"loop": loop}, {"set": {1}}, {"big": "x" * 99_999}]
    async with logging(path) as log:
        log.append(replace(RECORD, client="a\ud800b", error="\udfff" * 9999, run="é" * 5000))
        for facts in odd_facts:
            log.append(replace(RECORD, facts=facts))
    calls = read_calls(path, ALL, limit=10)
    assert len(calls) == 5
    assert calls[0]["client"] == "a?b"
    assert len(calls[0]["run"]) == 1000
    assert [call.get("facts") for call in calls[1:]] == [None, None, {"set": [1]}, {"left_out": ["big"]}]


async def test_events_have_their_own_columns(path: Path) -> None:
    async with logging(path) as log:
        log.append_event(
            "granted",
            {
                "tool": "files/delete",
                "client": "ear",
                "principal": "ann",
                "who": "terminal",
                "detail": "once",
                "approval": "x1",
            },
        )
        log.append_event("expired", {"tool": "files/delete", "at": NOW - 60})
    granted, expired = read_events(path, ALL, limit=10)
    assert granted == {
        "id": 1,
        "at": "2027-01-15T08:00:00.000Z",
        "event": "granted",
        "tool": "files/delete",
        "client": "ear",
        "principal": "ann",
        "who": "terminal",
        "detail": "once",
        "facts": {"approval": "x1"},
    }
    assert expired["at"] == "2027-01-15T07:59:00.000Z"
    assert read_calls(path, ALL, limit=10) == []


async def test_a_log_that_nothing_is_written_to_makes_no_file(path: Path) -> None:
    async with logging(path):
        pass
    assert not path.parent.exists()


# -- reading


async def test_what_is_read_can_be_narrowed(path: Path) -> None:
    async with logging(path) as log:
        log.append(replace(RECORD, tool="files/read_file", at=NOW - 100))
        log.append(replace(RECORD, tool="files/delete_file", outcome="refused"))
        log.append(replace(RECORD, server="web", tool="web/read_page", client="other", principal="ann"))
    everything = [call["tool"] for call in read_calls(path, ALL, limit=10)]
    assert everything == ["files/read_file", "files/delete_file", "web/read_page"]

    def read(limit: int = 10, **which: Any) -> list[str]:
        return [call["tool"] for call in read_calls(path, Filter(**which), limit=limit)]

    assert read(tool="read_*") == ["files/read_file", "web/read_page"]
    assert read(tool="files/*") == ["files/read_file", "files/delete_file"]
    assert read(server="web") == read(client="o*") == read(principal="ann") == ["web/read_page"]
    assert read(principal="") == ["files/read_file", "files/delete_file"]
    assert read(outcome="refused") == ["files/delete_file"]
    assert read(since=NOW - 50) == ["files/delete_file", "web/read_page"]
    assert read(limit=2) == ["files/delete_file", "web/read_page"]
    assert [call["id"] for call in read_calls(path, ALL, limit=10, after=2)] == [3]


async def test_it_is_read_while_it_is_written(path: Path) -> None:
    async with logging(path) as log:
        for number in range(3):
            log.append(replace(RECORD, session=str(number)))
            await until(lambda wanted=number + 1: len(read_calls_if_any(path)) == wanted)


def read_calls_if_any(path: Path) -> list[dict[str, Any]]:
    try:
        return read_calls(path, ALL, limit=100_000)
    except StoreFailed:  # it is being made
        return []


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.02)


@pytest.mark.parametrize("content", [b"", b"this was a database once. " * 100])
def test_a_file_that_is_no_call_log_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "calls.db"
    path.write_bytes(content)
    with pytest.raises(StoreFailed, match=r"calls\.db: .*(no call log|not a database)"):
        read_calls(path, ALL, limit=1)
    with pytest.raises(StoreFailed):
        read_calls(tmp_path / "none.db", ALL, limit=1)
    assert not (tmp_path / "none.db").exists()


# -- keeping


async def test_rows_can_be_neither_changed_nor_removed(path: Path) -> None:
    async with logging(path) as log:
        log.append(RECORD)
        log.append_event("granted", {})
    with closing(sqlite3.connect(path)) as connection:
        for statement in (
            "UPDATE call SET tool = 'innocent'",
            "DELETE FROM call",
            "UPDATE event SET who = 'somebody else'",
            "DELETE FROM event WHERE id = 1",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


async def test_what_is_too_old_or_too_much_is_forgotten(path: Path) -> None:
    async with logging(path, now=NOW - 15 * 86400) as log:  # when none of it is too old yet
        for age in (40, 31, 29, 2, 1):
            log.append(replace(RECORD, at=NOW - age * 86400, session=f"{age} days"))
            log.append_event("granted", {"at": NOW - age * 86400})

    def kept() -> list[str]:
        return [call["session"] for call in read_calls(path, ALL, limit=10)]

    assert kept() == ["40 days", "31 days", "29 days", "2 days", "1 days"]
    async with logging(path) as log:
        log.append(replace(RECORD, session="today"))
        await until(lambda: kept() == ["29 days", "2 days", "1 days", "today"])
        await until(lambda: len(read_events(path, ALL, limit=10)) == 3)
    async with logging(path, max_rows=2) as log:
        log.append(replace(RECORD, session="new"))
        await until(lambda: kept() == ["today", "new"])
        await until(lambda: len(read_events(path, ALL, limit=10)) == 2)
    async with logging(path, now=NOW + 100 * 86400) as log:
        log.append_event("granted", {})
        await until(lambda: kept() == [])


async def test_retention_goes_in_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others want to write meanwhile."""
    monkeypatch.setattr("mcpbridge.storage.call_log.retention._AT_ONCE", 10)
    async with logging(path) as log:
        for _ in range(95):
            log.append(RECORD)
    async with logging(path, max_rows=5) as log:
        log.append(RECORD)
        await until(lambda: len(read_calls(path, ALL, limit=1000)) == 5)
    assert read_calls(path, ALL, limit=1)[0]["id"] == 96


async def test_several_bridges_share_one_log(path: Path) -> None:
    async with logging(path) as one, logging(path) as two:
        for number in range(50):
            one.append(replace(RECORD, session=f"one {number}"))
            two.append(replace(RECORD, session=f"two {number}"))
            await asyncio.sleep(0)
    sessions = [call["session"] for call in read_calls(path, ALL, limit=1000)]
    for who in ("one", "two"):
        assert [session for session in sessions if session.startswith(who)] == [f"{who} {n}" for n in range(50)]


async def test_a_log_that_is_removed_while_it_is_written_begins_anew(path: Path) -> None:
    async with logging(path) as log:
        log.append(replace(RECORD, session="old"))
        await until(lambda: len(read_calls_if_any(path)) == 1)
        for _ in range(2):  # what begins with the first row (old ones are dropped) is done then, and nothing is written
            await log._database.run(lambda _: None, writes=False)
        for file in path.parent.iterdir():
            file.unlink()
        log.append(replace(RECORD, session="new"))
        await until(lambda: [call["session"] for call in read_calls_if_any(path)] == ["new"])
        log.append(replace(RECORD, session="newer"))
    assert [call["session"] for call in read_calls(path, ALL, limit=10)] == ["new", "newer"]
    assert log.dropped == 0


# -- bad times


async def test_a_file_that_is_mended_is_written_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.storage.sqlite.database._TRY_AGAIN", 0)
    path.parent.mkdir()
    path.mkdir()
    async with logging(path) as log:
        log.append(RECORD)
        await until(lambda: log.dropped == 1)
        path.rmdir()
        log.append(replace(RECORD, session="written"))
    assert [call["session"] for call in read_calls(path, ALL, limit=10)] == ["written"]


async def test_a_full_disk_costs_what_does_not_fit(path: Path) -> None:
    """Here the disk is full at so many pages; what was written stays, and what fits is written again."""
    async with logging(path) as log:
        log.append(replace(RECORD, session="before"))
        await until(lambda: len(read_calls_if_any(path)) == 1)
        await log._database.run(lambda connection: connection.execute("PRAGMA max_page_count = 40"), writes=False)
        for _ in range(10):
            log.append(replace(RECORD, arguments=b'"%b"' % (b"x" * 60_000), keeps_content=True))
        await until(lambda: log.dropped == 10)
        log.append(replace(RECORD, session="after"))
    assert [call["session"] for call in read_calls(path, ALL, limit=100)] == ["before", "after"]


async def test_a_file_that_cannot_be_written_costs_records_and_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    path.write_bytes(b"this was a database once. " * 100)
    with capture_logs() as logs:
        async with logging(path) as log:
            log.append(RECORD)
            log.append_event("granted", {})
            await until(lambda: log.dropped == 2)
            log.append(RECORD)
            await until(lambda: log.dropped == 3)
    [line] = [line for line in logs if line["log_level"] == "warning"]
    assert line["file"] == str(path)
    assert line["reason"] == "file is not a database"


async def test_a_disk_that_cannot_follow_costs_records_but_no_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_log, "_MOST_WAITING", 50)
    monkeypatch.setattr(call_log, "_MOST_BYTES", 10_000)
    async with logging(path) as log:
        with capture_logs() as logs:
            for _ in range(70):
                log.append(RECORD)
        assert log.dropped == 20
        assert len(logs) == 1
    assert len(read_calls(path, ALL, limit=1000)) == 50
    async with logging(path) as log:
        for _ in range(3):
            log.append(replace(RECORD, result=bytes(6_000)))  # two do not fit, but one always does
        assert log.dropped == 2


async def test_after_the_end_records_are_dropped(path: Path) -> None:
    async with logging(path) as log:
        pass
    log.append(RECORD)
    log.append_event("granted", {})
    assert log.dropped == 2


async def test_many_records_are_few_transactions(path: Path) -> None:
    """What one call costs is an append; the rest is done together, elsewhere."""
    async with logging(path) as log:
        for _ in range(3000):
            log.append(RECORD)
        assert not path.exists()
    assert len(read_calls(path, ALL, limit=100_000)) == 3000


async def test_calls_that_keep_coming_share_a_transaction_and_whoever_looks_does_not_wait_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history (`budget`) writes a call that comes alone soon; of those after it, many at a time."""
    monkeypatch.setattr(call_log, "_GATHER_STEADY", 3600.0)
    monkeypatch.setattr(call_log, "_GATHER", 0.01)
    async with logging(path) as log:
        log.budget = Budget()
        log.append(RECORD)
        with anyio.fail_after(30):
            while not log.calls_written:
                await anyio.sleep(0.01)
        for _ in range(3):
            log.append(RECORD)
        await anyio.sleep(0.1)  # ten times as long as a single call waits
        assert (log.waiting, log.calls_written) == (3, 1)
        with anyio.fail_after(30):
            while log.calls_written < 4:
                log.write_soon()
                await anyio.sleep(0.01)
        assert log.waiting == 0


APPEND_MANY = """
import sys, asyncio
from msgspec.structs import replace
from pathlib import Path
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.settings import CallLogSettings
from mcpbridge.storage.call_log.format import CallRecord

async def main():
    log = CallLog(lambda: Path(sys.argv[1]), CallLogSettings())
    record = CallRecord(0, 0, "tools/call", "s", "s/t", "", "", "", "", "ok", "", b"{}", b"x" * 2000)
    for number in range(1, 9001):  # as many as may wait for a disk that stands still: none is dropped
        log.append(replace(record, session=str(number), at=1.9e9))
        if number % 100 == 0:
            await asyncio.sleep(0.005)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_bridge_costs_the_last_moment_and_never_the_file(path: Path) -> None:
    for round_ in range(2):
        before = read_calls_if_any(path)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", APPEND_MANY, str(path))
        try:
            await until(lambda before=before: len(read_calls_if_any(path)) >= len(before) + 1000)
        finally:
            process.kill()
            await process.wait()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        calls = [int(call["session"]) for call in read_calls(path, ALL, limit=1_000_000)]
        assert calls[len(before) :] == list(range(1, len(calls) - len(before) + 1))  # none is missing but the last
        assert round_ == 0 or len(before) > 0


def test_where_the_file_is() -> None:
    store = StoreSettings(path="/x/store.db")
    assert call_log_path(CallLogSettings(), store) == Path("/x/calls.db")
    assert call_log_path(CallLogSettings(), StoreSettings(), {"XDG_STATE_HOME": "/y"}) == Path("/y/mcpbridge/calls.db")
    assert call_log_path(CallLogSettings(path="~/c.db"), store) == Path.home() / "c.db"


def test_settings_as_people_write_them() -> None:
    settings = CallLogSettings.model_validate(json.loads('{"enabled": true, "keep": "7d", "max_content": "1 KiB"}'))
    assert (settings.keep, settings.max_content) == (7 * 86400, 1024)


async def test_events_that_a_disk_cannot_follow_are_bounded_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Approvals that are asked for without end must not fill the memory."""
    monkeypatch.setattr("mcpbridge.storage.call_log.log._MOST_WAITING", 10)
    async with logging(path) as log:
        for number in range(25):
            log.append_event("asked", {"tool": f"t{number}"})
        assert log.dropped == 15
        assert "15 entries are missing" in log.problems()[0]

        def taken() -> bool:
            before = log.dropped
            log.append_event("asked", {"tool": "later"})
            return log.dropped == before

        await until(taken)
