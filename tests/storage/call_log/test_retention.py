"""What is removed of the call log: by age, number and size, oldest first."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio

from mcpbridge.storage.call_log.format import MinuteRecord
from mcpbridge.storage.call_log.reader import Filter, read_calls
from mcpbridge.storage.call_log.retention import Limits, forget
from mcpbridge.storage.call_log.timeline import read_minutes
from support.call_records import NOW, record, writing


async def test_a_file_that_grew_too_large_loses_its_oldest_calls(tmp_path: Path) -> None:
    """Promise of `call_log.max_size`."""
    path, most = tmp_path / "calls.db", 1024**2
    async with writing(path, max_size=most) as log:
        for number in range(300):
            log.append(record(number, result=b'{"text":"%b"}' % (b"x%d" % number * 2500)))
        with anyio.fail_after(60):
            while len(ids := _ids(path)) == 300 or ids[-1:] != [300] or _bytes(path) > most:
                await anyio.sleep(0.05)
    assert ids == list(range(ids[0], 301)), "the oldest go first"
    assert len(ids) > 20


async def test_of_calls_of_one_size_so_many_are_left_as_the_size_allows(tmp_path: Path) -> None:
    """And a twentieth less, so that there is room for a while."""
    path = tmp_path / "calls.db"
    async with writing(path) as log:
        for number in range(40):
            log.append(record(number, result=b'{"text":"%b"}' % (b"x%d" % number * 2500)))
    used = _bytes(path)
    for share, left in ((1.0, 40), (0.999, 37), (0.52, 19)):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("BEGIN")
            limits = Limits(before=0, max_rows=1000, max_bytes=int(used * share), minutes_before=0)
            assert not forget(connection, limits)
            (count,) = connection.execute("SELECT count(*) FROM call").fetchone()
            connection.rollback()
        assert count == left


def _ids(path: Path) -> list[int]:
    return [row["id"] for row in read_calls(path, Filter(), limit=1000)] if path.exists() else []


def _bytes(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        used = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count")]
        return (used[0] - used[1]) * connection.execute("PRAGMA page_size").fetchone()[0]


async def test_minutes_are_kept_for_longer_than_calls(tmp_path: Path) -> None:
    path, day = tmp_path / "calls.db", 86400
    ages = (100, 40, 1)
    async with writing(path) as log:
        for age in ages:
            log.append(record(-age * day))
            log.append_minutes([_minute(int(NOW) - age * day)])
    async with writing(path) as log:  # with the first work retention begins
        log.append(record())
        with anyio.fail_after(60):
            while len(read_minutes(path, 0)) > 2 or len(read_calls(path, Filter(), limit=9)) > 2:
                await anyio.sleep(0.05)
    assert len(read_minutes(path, 0)) == 2
    assert [row["id"] for row in read_calls(path, Filter(), limit=9)] == [3, 4]


def _minute(at: int) -> MinuteRecord:
    return MinuteRecord(at, "files", "files/read", "ear", 1, 0, 0, 0, 0.1, 0.1, 1, 1, 0, 0, [1])
