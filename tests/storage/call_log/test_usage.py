"""Sums of calls by user, server, tool, client, role and day: `mcpbridge usage` (issue 23)."""

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.storage.call_log.reader import Filter, read_page
from mcpbridge.storage.call_log.schema import SCHEMA
from mcpbridge.storage.call_log.usage import USAGE_BY, UsageBy, Whose, read_gaps, read_usage
from mcpbridge.storage.sqlite.database import open_file
from support.call_records import NOW, record, writing

pytestmark = pytest.mark.anyio

ANN, BOB = "https://login.example.com#ann", "https://login.example.com#bob"
DAY = 86400


async def calls_in(path: Path) -> None:
    """Five calls of two people and the local user."""
    async with writing(path, now=NOW + 3 * DAY) as log:
        ann: dict[str, Any] = {
            "principal": ANN,
            "user": "ann@example.com",
            "role": "engineering",
            "address": "10.0.0.1",
        }
        log.append(record(0, **ann, tokens=10, original_size=900, original_tokens=110, seconds=1.0))
        log.append(record(1, **ann, outcome="failed", error="UpstreamGone", seconds=2.0))
        log.append(record(2, **ann, outcome="refused", server="github", tool="github/x", tokens=1))
        log.append(record(DAY, principal=BOB, user="bob@example.com", role="support", client="other", tokens=7))
        log.append(record(2 * DAY, tokens=5))


def rows(path: Path, *by: UsageBy, **which: Any) -> list[tuple[Any, ...]]:
    found = read_usage(path, Filter(**which), by=by)
    return [(*(row[one] for one in by), row["calls"]) for row in found]


async def test_calls_are_summed_up_by_whatever_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    await calls_in(path)
    assert rows(path, "user") == [(ANN, 3), ("", 1), (BOB, 1)]
    assert rows(path, "role") == [("engineering", 3), ("", 1), ("support", 1)] == rows(path, "team")
    assert rows(path, "day") == [("2027-01-15", 3), ("2027-01-16", 1), ("2027-01-17", 1)]
    assert set(rows(path, "server", "client")) == {("files", "ear", 3), ("files", "other", 1), ("github", "ear", 1)}
    assert rows(path, "user", since=NOW + 3) == [("", 1), (BOB, 1)]
    assert rows(path, "user", until=NOW + 3) == [(ANN, 3)]
    [ann] = read_usage(path, Filter(principal=ANN), by=["user"])
    assert ann == {
        "user": ANN,
        "name": "ann@example.com",
        "calls": 3,
        "failures": 1,
        "needed_sign_in": 0,
        "refused": 1,
        "cancelled": 0,
        "bytes_in": 48,
        "tokens_out": 11,
        "tokens_saved": 100,
        "seconds": 3.01,
    }


async def test_a_user_is_found_by_principal_and_by_name(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    await calls_in(path)
    for name in (ANN, "ann@example.com", "ann@*", "*#ann"):
        assert rows(path, "user", principal=name) == [(ANN, 3)], name
    assert rows(path, "user", principal="") == [("", 1)]


async def test_nobody_sees_more_than_their_own_calls_and_those_of_their_team(tmp_path: Path) -> None:
    """Issue 23: what belongs to a person is shown to its owner and to administrators alone."""
    path = tmp_path / "calls.db"
    await calls_in(path)

    def seen(whose: Whose, **which: Any) -> dict[str, int]:
        return {row["user"]: row["calls"] for row in read_usage(path, Filter(**which), by=["user"], whose=whose)}

    assert seen(Whose([ANN])) == {ANN: 3}
    assert seen(Whose([BOB], ["engineering"])) == {ANN: 3, BOB: 1}
    assert seen(Whose([BOB]), principal=ANN) == {}
    assert seen(Whose([BOB]), principal="*") == {BOB: 1}
    assert seen(Whose([])) == {}


async def test_rounds_of_one_call_are_one_call_and_inner_results_are_nobodys_tokens(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    async with writing(path) as log:
        log.append(record(0, outcome="asked", tokens=3))
        outer = record(1, tool="mcpbridge/run_code", server="mcpbridge", tokens=4)
        log.append(outer)
        log.append(record(2, parent=outer.uid, tokens=1000, original_tokens=9000, original_size=1))
    [row] = read_usage(path, Filter(), by=["user"])
    assert (row["calls"], row["tokens_out"], row["tokens_saved"]) == (2, 7, 0)


async def test_what_was_only_counted_is_named(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    async with writing(path) as log:
        log.append(record(0))
        log.append_event("calls.not_recorded", {"calls": 40})
        log.append_event("calls.not_recorded", {"calls": 2})
    assert read_gaps(path, Filter(since=NOW - 1)) == (NOW, 42)
    assert read_gaps(path, Filter(since=NOW + 1)) == (NOW, 0)


@pytest.mark.parametrize("version", range(1, len(SCHEMA.steps)))
def test_a_file_of_an_older_version_is_read(tmp_path: Path, version: int) -> None:
    """A new column is no reason to lose what was recorded before."""
    path = tmp_path / "calls.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {SCHEMA.id}")
        for step in SCHEMA.steps[:version]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(
            "INSERT INTO call (at, seconds, method, server, tool, client, principal, session, run, outcome, error,"
            " arguments_size, arguments_digest, result_size, result_digest)"
            " VALUES (?, 1, 'tools/call', 's', 's/t', 'c', 'p', '', '', 'ok', '', 32, x'00', 4, x'00')",
            (NOW,),
        )
    connection.close()

    def read() -> None:
        for by in USAGE_BY:
            [row] = read_usage(path, Filter(principal="p"), by=[by])
            assert (row["calls"], row["bytes_in"], row["seconds"]) == (1, 32, 1.0)
        assert read_usage(path, Filter(), by=["user"], whose=Whose(["q"], ["r"])) == []
        assert len(read_page(path, Filter()).rows) == 1

    read()
    open_file(path, SCHEMA).close()  # a bridge of this version goes on with it
    read()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", ANN, BOB]), st.sampled_from(["a", "b"]), st.sampled_from(["ok", "failed", "refused"])
        ),
        max_size=30,
    )
)
async def test_every_call_is_in_one_row(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str, str]]
) -> None:
    path = tmp_path_factory.mktemp("usage") / "calls.db"
    async with writing(path) as log:
        for number, (principal, server, outcome) in enumerate(calls):
            log.append(record(number, principal=principal, server=server, tool=f"{server}/t", outcome=outcome))
        log.append_event("bridge.started", {})
    found = read_usage(path, Filter(), by=["user", "server"])
    assert Counter({(row["user"], row["server"]): row["calls"] for row in found}) == Counter(one[:2] for one in calls)
    assert sum(row["failures"] for row in found) == sum(one[2] == "failed" for one in calls)
