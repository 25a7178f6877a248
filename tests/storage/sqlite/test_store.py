"""What the file of the store promises beyond every store: old files, damage, several processes, large values."""

import asyncio
import json
import os
import sqlite3
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from mcpbridge.storage import compression as packing
from mcpbridge.storage.compression import pack, unpack
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings
from mcpbridge.storage.sqlite.schema import SCHEMA
from mcpbridge.storage.sqlite.store import SqliteStore

TEXT = json.dumps([{"name": f"row {number}", "value": number} for number in range(500)]).encode()


def make_old_file(path: Path, values: Sequence[tuple[str, str, str, bytes]]) -> None:
    """As the first version made it. Times: created at 5, 6, …, in the order given; all expire in the far future."""
    with closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA auto_vacuum = INCREMENTAL")
        old.execute("PRAGMA journal_mode = WAL")
        for statement in SCHEMA.steps[0]:
            old.execute(statement)
        old.execute(f"PRAGMA application_id = {SCHEMA.id}")
        old.execute("PRAGMA user_version = 1")
        for number, (kind, principal, handle, body) in enumerate(values):
            row = (kind, handle, principal, len(body), 5.0 + number, 9e9, body)
            old.execute("INSERT INTO value VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        old.commit()


@pytest.mark.parametrize("key", [None, "5a" * 32])
async def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path: Path, key: str | None) -> None:
    path = tmp_path / "a.db"
    make_old_file(
        path,
        [("result", "ann", "b", TEXT), ("result", "ann", "a", b""), ("grant", "", "session-x", b"{}")],
    )
    stores = [SqliteStore(path, key=key) for _ in range(3)]  # whoever is first
    found = await asyncio.gather(*(store.get("result", "b", principal="ann") for store in stores))
    assert found == [TEXT] * 3
    one, two = await stores[0].entries("result", principal=None)
    assert (one.handle, one.size, one.created, one.used, one.expires, one.label) == ("b", len(TEXT), 5, 5, 9e9, b"")
    assert (two.handle, two.size, two.created) == ("a", 0, 6)
    assert one.room >= one.size
    assert await stores[1].get("result", "a", principal="ann") == b""
    assert await stores[1].take("grant", "session-x", principal="") == b"{}"
    assert await stores[2].get("grant", "session-x", principal="") is None
    assert await stores[0].renew("result", "b", principal="ann", expires_in=60)
    assert await stores[0].get("result", "b", principal="ann", renew=60) == TEXT
    await stores[0].put("result", b"new", principal="ann", expires_in=60, handle="b")
    assert await stores[1].get("result", "b", principal="ann") == b"new"
    for store in stores:
        await store.close()


async def test_what_was_used_is_remembered_by_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    now = 1_000_000.0
    store = SqliteStore(path, clock=lambda: now)
    handle = await store.put("result", TEXT, principal="ann", expires_in=100, label=b"label")
    now += 70
    assert await store.get("result", handle, principal="ann", renew=2000) == TEXT
    await store.close()
    store = SqliteStore(path, clock=lambda: now)
    entry = await store.entry("result", handle, principal="ann")
    assert entry
    assert (entry.used, entry.expires, entry.label) == (now, now + 2000, b"label")
    now += 30
    assert await store.get("result", handle, principal="ann", renew=2000) == TEXT
    again = await store.entry("result", handle, principal="ann")
    assert again == entry  # less than a minute later nothing is written
    await store.close()


async def test_compressed_values_take_less_room_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    body = TEXT * 50
    store = SqliteStore(path)
    handle = await store.put("result", body, principal="", expires_in=60)
    noise = await store.put("result", os.urandom(2000), principal="", expires_in=60)
    one, two = await store.entries("result", principal="")
    assert one.size == len(body) > 5 * one.room
    assert two.room >= two.size == 2000
    assert await store.get("result", handle, principal="") == body
    assert len(await store.get("result", noise, principal="") or b"") == 2000
    await store.close()
    assert path.stat().st_size < len(body) / 2


async def spoil(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(statement, values)
        other.commit()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE body SET data = substr(data, 1, 100)", "damaged"),
        ("UPDATE body SET data = x'00ff'", "damaged"),
        ("UPDATE body SET data = 'some text that is no blob'", "damaged"),
        ("DELETE FROM body", "damaged"),
        ("UPDATE entry SET size = size - 1", "size"),
        ("UPDATE entry SET size = 1099511627776", "size"),
        ("UPDATE entry SET size = -1", "size"),
        ("UPDATE entry SET form = 99", "unknown form"),
        ("UPDATE entry SET form = 0", "size"),
    ],
)
async def test_a_damaged_value_counts_as_missing_and_is_told_once(tmp_path: Path, statement: str, reason: str) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    await store.put("result", TEXT, principal="", expires_in=60, handle="a")
    await spoil(path, statement)
    with capture_logs() as logs:
        assert await store.get("result", "a", principal="") is None
        assert await store.get("result", "a", principal="", renew=60) is None
        assert await store.put_if_absent("result", b"new", principal="", expires_in=60, handle="a") == b"new"
    [line] = logs
    assert line["log_level"] == "warning"
    assert reason in line["reason"]
    assert line["file"] == str(path)
    assert await store.get("result", "a", principal="") == b"new"
    await store.close()


async def test_damaged_numbers_count_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    await store.count("tokens", {("2999-01-01", "a"): [1]})
    for numbers in ("[", "17", '["a", 3]', "x" * 10_000):
        await spoil(path, "UPDATE tally SET numbers = ?", numbers)
        await store.read_counts("tokens")
        await store.count("tokens", {("2999-01-01", "a"): [1]})
    assert await store.read_counts("tokens") == {("2999-01-01", "a"): [1]}
    await spoil(path, "UPDATE tally SET key = '{}'")
    assert await store.read_counts("tokens") == {("2999-01-01",): [1]}
    await store.close()


def test_zstd_is_used_where_python_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values say how they are written, so a file may hold both. Here zlib plays the part of zstd."""
    import types
    import zlib

    class Decompressor:
        def decompress(self, data: bytes, most: int) -> bytes:
            return zlib.decompressobj().decompress(data, most)

    zstd = types.SimpleNamespace(ZstdCompressor=zlib.compressobj, ZstdDecompressor=Decompressor, ZstdError=zlib.error)
    form, plain_zlib = pack(TEXT)
    monkeypatch.setattr(packing, "_zstd", lambda: zstd)
    other, data = pack(TEXT)
    assert form != other
    assert unpack(other, data, len(TEXT)) == unpack(form, plain_zlib, len(TEXT)) == TEXT
    with pytest.raises(Exception, match="damaged"):
        unpack(other, b"x" + data, len(TEXT))
    monkeypatch.setattr(packing, "_zstd", lambda: None)
    with pytest.raises(Exception, match=r"3\.14"):
        unpack(other, data, len(TEXT))


# -- several processes

COUNT = """
import sys, asyncio
from pathlib import Path
from mcpbridge.storage.sqlite import database as sqlite_file
from mcpbridge.storage.sqlite.store import SqliteStore

sqlite_file.BUSY_SECONDS = 60.0  # another may be stopped by the system at any moment, also in a transaction

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    secret = await store.put_if_absent("secret", sys.argv[2].encode(), principal="", expires_in=600, handle="one")
    for number in range(100):
        await store.count("tokens", {("2999-01-01", "tool", str(number % 3)): [1, number]})
        await store.put("result", b"v" * 2000, principal="", expires_in=600, label=b"label", handle=f"h{number % 10}")
    await store.close()
    print(secret.decode())

asyncio.run(main())
"""


async def test_processes_add_up_and_agree_on_one_secret(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with anyio.fail_after(60):
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", COUNT, str(path), f"secret {number}", stdout=asyncio.subprocess.PIPE
            )
            for number in range(3)
        ]
        said = [(await process.communicate())[0] for process in processes]
    assert len(set(said)) == 1
    assert said[0].startswith(b"secret ")
    store = SqliteStore(path)
    found = await store.read_counts("tokens")
    assert sum(numbers[0] for numbers in found.values()) == 300
    assert sum(numbers[1] for numbers in found.values()) == 3 * sum(range(100))
    assert len(await store.entries("result", principal="")) == 10
    await store.close()


LARGE = """
import asyncio, json, resource, sys
from pathlib import Path
from mcpbridge.storage.sqlite.store import SqliteStore

async def main():
    key = sys.argv[2] or None
    store = SqliteStore(Path(sys.argv[1]), key=key)
    handle = await store.put("result", b"small" * 1000, principal="", expires_in=60)
    await store.get("result", handle, principal="")
    row = b",".join(b'{"id": %d, "name": "row %d", "size": %d}' % (n, n * 7, n * n) for n in range(20_000))
    body = row * (100_000_000 // len(row) + 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    handle = await store.put("result", body, principal="", expires_in=60)
    put = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert await store.get("result", handle, principal="") == body
    got = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await store.close()
    print(json.dumps([len(body) / 2**20, (put - before) / 1024, (got - before) / 1024]))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss is the system's")
@pytest.mark.parametrize("key", ["", "5a" * 32])
async def test_a_value_of_100_megabytes_is_not_copied_again_and_again(tmp_path: Path, key: str) -> None:
    with anyio.fail_after(60):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LARGE, str(tmp_path / "a.db"), key, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
    size, for_put, for_get = json.loads(out)
    assert for_put < size  # what is written is a part of it
    assert for_get < 2.5 * size  # the value itself, and what was read in several forms


@types.coroutine
def in_steps(work: Coroutine[Any, Any, object], pause: Callable[[], Awaitable[object]]) -> Generator[Any, Any, None]:
    """Do the work, with a pause after everything that it has waited for."""
    try:
        while True:
            yield work.send(None)
            yield from pause().__await__()
    except StopIteration:
        return


@pytest.mark.parametrize("key", [None, "5a" * 32])
async def test_a_large_value_keeps_nobody_waiting(tmp_path: Path, key: str | None) -> None:
    """It is compressed beside the thread of the file, and written in parts: others come in between."""
    path = tmp_path / "a.db"
    store = SqliteStore(path, key=key)
    await store.put("grant", b"v", principal="", expires_in=60, handle="a")
    body = os.urandom(30_000_000)
    times = 0

    async def others_read() -> None:
        assert await store.get("grant", "a", principal="") == b"v"
        assert await store.get("result", "l", principal="") in (None, body)  # whole or not at all

    async def others_come() -> None:
        nonlocal times
        await others_read()
        times += 1

    async def put() -> None:
        work = store.put("result", body, principal="", expires_in=60, handle="l", label=b"large")
        await in_steps(work, others_come)

    large = asyncio.create_task(put())
    with anyio.fail_after(60):
        while not large.done():
            await others_read()
        await large
    assert times > 14
    [entry] = await store.entries("result", principal="")
    assert (entry.handle, entry.size, entry.label) == ("l", len(body), b"large")
    assert await store.get("result", "l", principal="") == body
    await store.put("result", body[:20_000_000], principal="", expires_in=60, handle="l")
    assert await store.get("result", "l", principal="") == body[:20_000_000]
    assert await store.drop("result", "l", principal="")
    await store.close()
    assert rows_of(path) == {"entry": 1, "body": 1}


def rows_of(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as other:
        return {name: other.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("entry", "body")}


async def test_a_large_value_that_is_not_written_to_its_end_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    now = 1_000_000.0
    store = SqliteStore(path, clock=lambda: now)
    await store.put("result", b"v", principal="", expires_in=9e6, handle="l")
    body = os.urandom(30_000_000)
    large = asyncio.create_task(store.put("result", body, principal="", expires_in=60, handle="l"))
    with anyio.fail_after(60):
        while rows_of(path)["body"] < 4:
            await asyncio.sleep(0)
        large.cancel()
        await asyncio.wait([large])
    assert await store.get("result", "l", principal="") == b"v"
    assert rows_of(path) == {"entry": 1, "body": 1}
    # What a killed process leaves expires.
    draft = (
        "INSERT INTO entry SELECT 77, '(draft)', '', 'x', size, room, created, used, ?, form, seal, label FROM entry"
    )
    await spoil(path, draft, now + 3600)
    await spoil(path, "INSERT INTO body VALUES (77, 1, x'00')")
    now += 3601
    await store.get("result", "l", principal="")
    await store.close()
    assert rows_of(path) == {"entry": 1, "body": 1}


async def test_a_large_value_whose_draft_is_removed_is_not_kept_in_part(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = LazyStore(StoreSettings(path=str(path)))
    await store.put("result", b"v", principal="", expires_in=60)
    body = os.urandom(30_000_000)
    large = asyncio.create_task(store.put("result", body, principal="", expires_in=60))
    with anyio.fail_after(60), capture_logs() as logs:
        while rows_of(path)["body"] < 4:
            await asyncio.sleep(0)
        await spoil(path, "DELETE FROM entry WHERE kind = '(draft)'")
        handle = await large
    assert "removed while it was written" in logs[0]["reason"]
    assert rows_of(path) == {"entry": 1, "body": 1}
    assert await store.get("result", handle, principal="") == body  # in memory
    await store.close()


async def test_a_large_value_that_is_being_written_is_not_what_makes_room(tmp_path: Path) -> None:
    """Review of issue 5: ten large values at once, near the bound, and the sweep took those that were not finished."""
    path, now = tmp_path / "a.db", 1_000_000.0
    store = SqliteStore(path, max_bytes=20_000_000, clock=lambda: now)
    for _ in range(12):
        await store.put("result", os.urandom(700_000), principal="", expires_in=9e6)
    body = os.urandom(13_000_000)
    large = asyncio.create_task(store.put("result", body, principal="", expires_in=9e6, handle="l"))
    with anyio.fail_after(60):
        while rows_of(path)["body"] < 14:
            await asyncio.sleep(0)
        now += 601  # a sweep is due
        assert await store.get("result", "absent", principal="") is None
        assert await large == "l"
    assert await store.get("result", "l", principal="") == body
    assert rows_of(path)["entry"] < 13
    await store.close()


async def test_drafts_without_end_do_not_wash_away_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path, max_bytes=4_000_000)
    await store.put("grant", b"v" * 600, principal="", expires_in=60, handle="g")
    draft = (
        "INSERT INTO entry SELECT ?, '(draft)', '', ?, size, 900000, created, used, expires, form, seal, label"
        " FROM entry WHERE kind = 'grant'"
    )
    for number in range(100, 120):
        await spoil(path, draft, number, str(number))
    await store.put("result", os.urandom(300_000), principal="", expires_in=60)
    await store.close()
    assert 1 <= rows_of(path)["entry"] - 1 <= 5
    store = SqliteStore(path)
    assert await store.get("grant", "g", principal="") == b"v" * 600
    await store.close()


async def test_a_value_counts_with_512_bytes_besides_its_own(tmp_path: Path) -> None:
    """So many empty ones are bounded, and no fewer are kept than the bound says."""
    store = SqliteStore(tmp_path / "a.db")
    store.bound("small", 100 * 512)
    for at in range(150):
        await store.put("small", b"", principal="", expires_in=600, handle=f"h{at}")
    kept = await store.entries("small", principal="")
    assert 90 <= len(kept) <= 107
    assert kept[-1].handle == "h149"
    await store.close()
