"""Events, sessions and minutes, as the console reads them (issue 20)."""

from pathlib import Path
from typing import Any

import pytest

from mcpbridge.storage.call_log.format import MinuteRecord
from mcpbridge.storage.call_log.reader import Filter
from mcpbridge.storage.call_log.timeline import read_events, read_minutes, read_session, read_sessions
from support.call_records import NOW, record, writing

ALL = Filter()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


def minute(at: int, **changes: Any) -> MinuteRecord:
    counts: dict[str, Any] = {
        "server": "files",
        "tool": "files/read",
        "client": "ear",
        "calls": 2,
        "errors": 1,
        "refused": 0,
        "cancelled": 0,
        "seconds": 0.5,
        "upstream_seconds": 0.4,
        "bytes_in": 10,
        "bytes_out": 100,
        "retries": 0,
        "cache_hits": 0,
        "buckets": [1, 0, 1],
        **changes,
    }
    return MinuteRecord(at=at, **counts)


async def test_events_are_found_by_kind_server_session_and_time(path: Path) -> None:
    async with writing(path) as log:
        log.append_later("server.ready", {"server": "files", "at": NOW})
        log.append_later("server.failed", {"server": "web", "at": NOW + 1, "detail": "exit code 3"})
        log.append_later("session.began", {"session": "s1", "client": "ear", "at": NOW + 2})
        log.append_event("granted", {"tool": "web/get", "at": NOW + 3})

    def kinds(which: Filter = ALL, **more: Any) -> list[str]:
        return [event["event"] for event in read_events(path, which, limit=10, **more)]

    assert sorted(kinds()) == ["granted", "server.failed", "server.ready", "session.began"]
    assert kinds(kinds=["server."]) == ["server.ready", "server.failed"]
    assert sorted(kinds(kinds=["server.ready", "granted"])) == ["granted", "server.ready"]
    assert sorted(kinds(Filter(server="web"))) == ["granted", "server.failed"]
    assert kinds(Filter(session="s1")) == ["session.began"]
    assert sorted(kinds(Filter(since=NOW + 1, until=NOW + 3))) == ["server.failed", "session.began"]
    [failed] = read_events(path, Filter(), limit=10, kinds=["server.failed"])
    assert (failed["server"], failed["detail"]) == ("web", "exit code 3")
    ids = [event["id"] for event in read_events(path, Filter(), limit=10)]
    assert [event["id"] for event in read_events(path, Filter(), limit=2, before=ids[2])] == ids[:2]


async def test_a_session_is_told_by_its_events_and_its_calls(path: Path) -> None:
    async with writing(path) as log:
        facts = {"session": "s1", "client": "ear", "principal": "ann"}
        log.append_later("session.began", {**facts, "version": "1", "revision": "2025-11-25", "front": "stdio"})
        log.append_later("session.listed", {**facts, "tools": 3})
        log.append_later("session.listed", {**facts, "tools": 7})
        log.append_later("session.began", {"session": "s2", "client": "mouth"})
        log.append(record(1))
        log.append(record(2, outcome="refused"))
        log.append(record(3, session="s2"))
        log.append_later("session.ended", {**facts, "detail": "its client left"})
    first = read_session(path, "s1")
    assert first is not None
    assert {name: first[name] for name in ("client", "principal", "version", "revision", "front", "tools", "why")} == {
        "client": "ear",
        "principal": "ann",
        "version": "1",
        "revision": "2025-11-25",
        "front": "stdio",
        "tools": 7,
        "why": "its client left",
    }
    assert (first["calls"], first["errors"]) == (2, 1)
    assert "ended" in first
    second, again = read_sessions(path)
    assert again == first
    assert (second["session"], second["calls"], "ended" in second) == ("s2", 1, False)
    assert read_sessions(path, before=second["id"]) == [first]
    assert read_sessions(path, client="mouth") == [second]
    assert read_session(path, "s3") is None


async def test_minutes_are_sums_over_whatever_is_not_told_apart(path: Path) -> None:
    async with writing(path) as log:
        log.append_minutes([minute(600), minute(600, client="mouth"), minute(660, buckets=[2])])
        log.append_minutes([minute(600, server="web", tool="web/get", calls=5)])
    by_server = read_minutes(path, 0)
    assert [(row["at"], row["server"], row["calls"]) for row in by_server] == [
        *((600, "files", 4), (600, "web", 5), (660, "files", 2)),
    ]
    assert by_server[0]["buckets"] == [2, 0, 2]
    assert by_server[0]["seconds"] == 1.0
    assert [row["calls"] for row in read_minutes(path, 0, by=())] == [9, 2]
    assert [(row["client"], row["calls"]) for row in read_minutes(path, 0, 660, by=("client",), server="files")] == [
        *(("ear", 2), ("mouth", 2)),
    ]
    [hour] = read_minutes(path, 0, by=(), step=3600)
    assert (hour["at"], hour["calls"], hour["buckets"]) == (0, 11, [5, 0, 3])
    assert read_minutes(path, 661, step=1) == []
