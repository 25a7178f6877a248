"""Reading calls a page at a time, by whatever people look for, and one call whole (issue 20, Calls)."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.base.errors import StoreFailed
from mcpbridge.core.recording import uid_text
from mcpbridge.storage.call_log.format import CallRecord
from mcpbridge.storage.call_log.reader import Filter, count_calls, read_call, read_calls, read_page
from mcpbridge.storage.sqlite.database import may_exist
from support.call_records import NOW, record, writing

ALL = Filter()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


async def write(path: Path, *records: CallRecord) -> None:
    async with writing(path, max_rows=1_000_000) as log:
        for one in records:
            log.append(one)


async def test_all_calls_are_met_once_from_page_to_page(path: Path) -> None:
    await write(path, *(record(number) for number in range(25)))
    met: list[int] = []
    before = 0
    while True:
        page = read_page(path, ALL, limit=10, before=before)
        met += [row["id"] for row in page.rows]
        before = page.before
        if not before:
            break
    assert met == list(range(25, 0, -1))


async def test_a_page_says_where_newer_calls_come_after(path: Path) -> None:
    await write(path, *(record(number) for number in range(3)))
    page = read_page(path, ALL, limit=2)
    assert page.after == 3
    assert read_page(path, ALL, after=page.after).rows == []
    assert read_page(path, ALL, after=page.after).after == 3
    await write(path, record(9), record(10, outcome="failed"))
    assert [row["id"] for row in read_page(path, ALL, after=page.after).rows] == [5, 4]
    only = read_page(path, Filter(outcome="failed"), after=page.after)
    assert ([row["id"] for row in only.rows], only.after) == ([5], 5)


FOUND: Mapping[str, tuple[Filter, set[int]]] = {
    "server": (Filter(server="web"), {2, 3}),
    "server glob": (Filter(server="w*"), {2, 3}),
    "tool": (Filter(tool="web/get"), {2}),
    "own name of a tool": (Filter(tool="get"), {2}),
    "own name, glob": (Filter(tool="g?t"), {2}),
    "client": (Filter(client="mouth"), {3}),
    "principal": (Filter(principal="ann"), {4}),
    "the local user": (Filter(principal=""), {1, 2, 3, 5}),
    "one outcome": (Filter(outcome="failed"), {2}),
    "outcomes": (Filter(outcome=("failed", "refused")), {2, 3}),
    "session": (Filter(session="s2"), {5}),
    "since": (Filter(since=NOW + 4), {4, 5}),
    "until": (Filter(until=NOW + 2), {1}),
    "slow": (Filter(min_seconds=1), {4}),
    "fast": (Filter(max_seconds=0.005), {5}),
    "method": (Filter(method="prompts/get"), {3}),
    "run": (Filter(run="r"), {1}),
    "text in the tool": (Filter(text="WEB/"), {2, 3}),
    "text in the error": (Filter(text="timeout"), {2}),
    "text in the arguments": (Filter(text="needle_1"), {1}),
    "text as it was sent": (Filter(text="as sent"), {4}),
    "text in the result": (Filter(text="50% of"), {5}),
    "no wildcards": (Filter(text="needle%1"), set()),
    "together": (Filter(server="web", outcome="failed", client="ear"), {2}),
    "nothing": (Filter(server="web", session="s2"), set()),
}


@pytest.mark.parametrize(("which", "ids"), FOUND.values(), ids=FOUND)
async def test_calls_are_found_by(path: Path, which: Filter, ids: set[int]) -> None:
    await write(
        path,
        record(1, arguments=b'{"q":"needle_1"}', run="r"),
        record(2, server="web", tool="web/get", outcome="failed", error="UpstreamTimeout"),
        record(3, server="web", tool="web/put", outcome="refused", client="mouth", method="prompts/get"),
        record(4, principal="ann", seconds=2.0, asked=b'{"q":"as sent"}'),
        record(5, session="s2", seconds=0.001, result=b'{"content":"50% of it"}'),
    )
    page = read_page(path, which)
    assert {row["id"] for row in page.rows} == ids
    assert count_calls(path, which) == len(ids)
    assert {row["id"] for row in read_calls(path, which, limit=10)} == ids


async def test_a_search_that_finds_nothing_for_long_says_where_to_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpbridge.storage.call_log.reader._SEARCHED", 10)
    await write(path, record(0, arguments=b'{"q":"needle"}'), *(record(number) for number in range(1, 35)))
    which, before, pages = Filter(text="needle"), 0, 0
    while True:
        page = read_page(path, which, before=before)
        pages, before = pages + 1, page.before
        if page.rows or not before:
            break
    assert [row["id"] for row in page.rows] == [1]
    assert 3 <= pages <= 5


async def test_one_call_is_read_whole_with_the_calls_around_it(path: Path) -> None:
    program = record(1, tool="mcpbridge/run_code", server="mcpbridge")
    inner = [record(number, parent=program.uid, tool="files/read") for number in (2, 3)]
    deep = record(4, parent=inner[0].uid)
    told = record(
        5,
        parent=program.uid,
        asked=b'{"path": "a.txt "}',
        revision="2025-11-25",
        stages=[("server", 0.002, 0.009), ("check arguments", 0.001, 0.01)],
        tokens=5,
        original_size=90_000,
        original_tokens=28_125,
        facts={"kept": "r-abc", "coerced": ["path"]},
    )
    await write(path, deep, *inner, told, program)
    call = read_call(path, uid_text(told.uid))
    assert call is not None
    assert call["asked"] == {"size": 18, "content": '{"path": "a.txt "}'}
    assert call["arguments"]["content"] == '{"path":"a.txt"}'
    assert (call["result"]["content"], call["result"]["tokens"]) == ('{"content":[]}', 5)
    assert call["original"] == {"size": 90_000, "tokens": 28_125, "handle": "r-abc"}
    assert call["stages"] == [["check arguments", 1.0, 10.0], ["server", 2.0, 9.0]]
    assert call["revision"] == "2025-11-25"
    assert call["parent_call"]["tool"] == "mcpbridge/run_code"
    whole = read_call(path, call["parent"])
    assert whole is not None
    assert [child["uid"] for child in whole["children"]] == [uid_text(one.uid) for one in (*inner, told)]
    assert [child["uid"] for child in whole["children"][0]["children"]] == [uid_text(deep.uid)]
    assert read_page(path, Filter(parent=uid_text(program.uid))).rows[0]["uid"] == call["uid"]
    assert "stages" not in read_page(path, ALL).rows[0]
    assert "content" not in read_page(path, ALL).rows[0]["arguments"]


async def test_an_old_record_is_read_by_its_number_and_an_unknown_call_is_none(path: Path) -> None:
    await write(path, record(1, uid=0))
    old = read_call(path, "1")
    assert old is not None
    assert "uid" not in old
    for unknown in ("2", "0" * 16, "f" * 16, "not a uid", ""):
        assert read_call(path, unknown) is None


async def test_calls_that_began_in_one_moment_are_told_apart(path: Path) -> None:
    await write(path, *(record(1) for _ in range(50)))
    uids = [row["uid"] for row in read_page(path, ALL).rows]
    assert len(set(uids)) == 50
    assert sorted((read_call(path, uid) or {})["id"] for uid in uids) == list(range(1, 51))


async def test_a_page_of_many_calls_reads_no_content(path: Path) -> None:
    """Whatever calls carry, a page takes the same time: content is in a table of its own."""
    await write(path, *(record(number, result=b"x" * 50_000) for number in range(20)))
    with closing(sqlite3.connect(path)) as connection:
        (longest,) = connection.execute("SELECT max(length(coalesce(result, ''))) FROM call").fetchone()
        (kept,) = connection.execute("SELECT max(length(result)) FROM content").fetchone()
    assert (longest, kept) == (0, 50_000)


async def test_nothing_in_the_file_can_be_changed_or_taken_out_one_by_one(path: Path) -> None:
    await write(path, record(1))
    with closing(sqlite3.connect(path)) as connection:
        for statement in ("UPDATE content SET result = 'x'", "DELETE FROM content", "DELETE FROM call"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


async def test_a_file_that_is_not_there_is_no_page(path: Path) -> None:
    assert not may_exist(path)
    with pytest.raises(StoreFailed):
        read_page(path, ALL)


@pytest.mark.parametrize("made_before", [1, 2, 3, 4])
async def test_a_file_that_is_made_while_it_is_opened_is_a_call_log(
    made_before: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process makes it between any two statements of the reader, which a real one would hit by luck alone."""
    await write(path, record(1))
    new, statements = path.with_name("new.db"), 0
    new.touch()

    class Watched(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            nonlocal statements
            statements += 1
            if statements == made_before:
                with closing(sqlite3.Connection(path)) as made, closing(sqlite3.Connection(new)) as here:
                    made.backup(here)
            return super().execute(*args)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
    assert [call["id"] for call in read_calls(new, ALL, limit=9)] == [1]
    assert statements >= made_before


def test_what_is_not_known_is_left_out() -> None:
    from mcpbridge.storage.call_log.reader import call_row

    row: dict[str, Any] = {
        "id": 1,
        "at": NOW,
        "seconds": 1.0,
        "method": "m",
        "server": "s",
        "tool": "t",
        "client": "",
        "outcome": "ok",
        "principal": "",
        "session": "",
        "run": "",
        "error": "",
        "arguments_size": 1,
        "arguments_digest": b"a",
        "result_size": 1,
        "result_digest": b"b",
        "arguments": None,
        "result": None,
        "facts": None,
    }
    assert set(call_row(row)) == {
        *("id", "at", "seconds", "method", "server", "tool", "client", "outcome", "arguments", "result")
    }
