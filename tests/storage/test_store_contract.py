"""What every `Store` promises, and what the one in a file promises beyond that (issue 4)."""

import asyncio
import atexit
import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mcpbridge.base.directories import state_directory
from mcpbridge.base.errors import StoreFailed, ValueTooLarge
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings, store_path
from mcpbridge.storage.sqlite.store import SqliteStore
from mcpbridge.storage.store import Store
from support.redis_groups import Cluster, Sentinels
from support.redis_server import PROGRAM, VALKEY, needs_redis, needs_valkey, shared_server

BOUND = 4 * 1024**2
KEY = "5a" * 32
NOISE = os.urandom(200_000)
"""What cannot be compressed, so that it takes the room of its size."""


class Clock:
    """Time that passes when a test says so."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def lazy(path: Path, clock: Clock) -> Store:
    return LazyStore(StoreSettings(path=str(path), max_bytes=BOUND), clock=clock)


def lazy_without_file(path: Path, clock: Clock) -> Store:
    """Its file is a directory, so everything is in memory."""
    path.mkdir()
    return LazyStore(StoreSettings(path=str(path)), clock=clock)


def prefix(path: Path) -> str:
    """Its keys are those of this path alone."""
    return hashlib.sha1(str(path).encode()).hexdigest()


def redis(path: Path, clock: Clock, key: str | None = None) -> Store:
    return shared_server().store(prefix=prefix(path), max_bytes=BOUND, key=key, clock=clock)


@cache
def shared_cluster() -> Cluster:
    """One for all tests of this process."""
    directory = tempfile.TemporaryDirectory(prefix="cluster-")
    found = Cluster(Path(directory.name))
    atexit.register(directory.cleanup)
    atexit.register(found.end)
    return found


@cache
def shared_sentinels() -> Sentinels:
    """The same behind Sentinels, whose server has a replica."""
    directory = tempfile.TemporaryDirectory(prefix="sentinels-")
    found = Sentinels(Path(directory.name))
    atexit.register(directory.cleanup)
    atexit.register(found.end)
    return found


def valkey(path: Path, clock: Clock) -> Store:
    return shared_server(VALKEY).store(prefix=prefix(path), max_bytes=BOUND, clock=clock)


def redis_cluster(path: Path, clock: Clock) -> Store:
    return shared_cluster().store(prefix=prefix(path), max_bytes=BOUND, clock=clock)


def redis_sentinels(path: Path, clock: Clock) -> Store:
    return shared_sentinels().store(prefix=prefix(path), max_bytes=BOUND, clock=clock)


def lazy_redis(path: Path, clock: Clock) -> Store:
    return LazyStore(shared_server().settings(prefix=prefix(path), max_bytes=BOUND), clock=clock)


STORES: dict[str, Callable[[Path, Clock], Store]] = {
    "memory": lambda path, clock: MemoryStore(max_bytes=BOUND, clock=clock),
    "sqlite": lambda path, clock: SqliteStore(path, max_bytes=BOUND, clock=clock),
    "sqlite with a key": lambda path, clock: SqliteStore(path, max_bytes=BOUND, key=KEY, clock=clock),
    "lazy": lazy,
    "lazy without its file": lazy_without_file,
    "redis": redis,
    "redis with a key": lambda path, clock: redis(path, clock, KEY),
    "redis cluster": redis_cluster,
    "redis behind sentinels": redis_sentinels,
    "lazy redis": lazy_redis,
    "valkey": valkey,
}
"""Every implementation; a new one is one more line."""
REDIS = [name for name in STORES if ("redis" in name and PROGRAM) or (name == "valkey" and VALKEY)]
"""Those of them that need a server, if there is one."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


MARKS = {"redis": needs_redis, "valkey": needs_valkey}


@pytest.fixture(params=[pytest.param(n, marks=[m for word, m in MARKS.items() if word in n]) for n in STORES])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    store = STORES[request.param](tmp_path / "a.db", clock)
    yield store
    await store.close()


# -- every store


async def test_what_is_put_is_got_until_it_is_dropped(store: Store) -> None:
    handle = await store.put("result", b"a value", principal="ann", expires_in=60)
    assert await store.get("result", handle, principal="ann") == b"a value"
    assert await store.get("result", handle, principal="ann") == b"a value"
    assert await store.drop("result", handle, principal="ann")
    assert await store.get("result", handle, principal="ann") is None
    assert not await store.drop("result", handle, principal="ann")


async def test_other_principals_and_kinds_find_nothing(store: Store) -> None:
    handle = await store.put("result", b"ann's", principal="ann", expires_in=60)
    for principal in ("bob", ""):
        assert await store.get("result", handle, principal=principal) is None
        assert await store.take("result", handle, principal=principal) is None
        assert not await store.drop("result", handle, principal=principal)
        assert await store.entries("result", principal=principal) == []
    assert await store.get("grant", handle, principal="ann") is None
    assert await store.get("result", handle, principal="ann") == b"ann's"


async def test_a_given_handle_replaces_what_it_named_but_never_what_is_anothers(store: Store) -> None:
    assert await store.put("grant", b"old", principal="ann", expires_in=60, handle="mine") == "mine"
    assert await store.put("grant", b"bob's", principal="bob", expires_in=60, handle="mine") == "mine"
    assert await store.put("grant", b"new", principal="ann", expires_in=60, handle="mine") == "mine"
    assert await store.get("grant", "mine", principal="ann") == b"new"
    assert await store.get("grant", "mine", principal="bob") == b"bob's"
    assert [entry.size for entry in await store.entries("grant", principal="ann")] == [3]


async def test_values_expire(store: Store, clock: Clock) -> None:
    handle = await store.put("result", b"short", principal="", expires_in=10)
    lasting = await store.put("result", b"long", principal="", expires_in=1000)
    clock.now += 9.9
    assert await store.get("result", handle, principal="") == b"short"
    clock.now += 0.1
    assert await store.get("result", handle, principal="") is None
    assert await store.take("result", handle, principal="") is None
    assert not await store.drop("result", handle, principal="")
    assert [entry.handle for entry in await store.entries("result", principal="")] == [lasting]


async def test_what_has_expired_makes_room_before_what_lives(store: Store, clock: Clock) -> None:
    lasting = await store.put("result", NOISE, principal="", expires_in=9000)
    for _ in range(14):
        await store.put("result", NOISE, principal="", expires_in=10)
    clock.now += 700
    newer = [await store.put("result", NOISE, principal="", expires_in=9000) for _ in range(14)]
    kept = {entry.handle for entry in await store.entries("result", principal="")}
    assert kept == {lasting, *newer}


async def test_what_is_taken_is_gone(store: Store) -> None:
    handle = await store.put("grant", b"once", principal="ann", expires_in=60)
    assert await store.take("grant", handle, principal="ann") == b"once"
    assert await store.take("grant", handle, principal="ann") is None
    assert await store.get("grant", handle, principal="ann") is None


async def test_of_many_who_take_at_once_one_gets_it(store: Store) -> None:
    handle = await store.put("grant", b"once", principal="ann", expires_in=60)
    taken = await asyncio.gather(*(store.take("grant", handle, principal="ann") for _ in range(20)))
    assert sorted(taken, key=bool) == [None] * 19 + [b"once"]


async def test_entries_tell_oldest_first_of_one_or_of_everybody(store: Store, clock: Clock) -> None:
    first = await store.put("approval", b"12345", principal="ann", expires_in=60)
    clock.now += 1
    second = await store.put("approval", b"1", principal="bob", expires_in=30)
    await store.put("other", b"1", principal="ann", expires_in=30)
    clock.now += 1
    third = await store.put("approval", b"", principal="ann", expires_in=60)
    entries = await store.entries("approval", principal=None)
    assert [entry.handle for entry in entries] == [first, second, third]
    assert [entry.principal for entry in entries] == ["ann", "bob", "ann"]
    assert [entry.size for entry in entries] == [5, 1, 0]
    assert (entries[1].created, entries[1].expires) == (1_000_001.0, 1_000_031.0)
    assert [entry.handle for entry in await store.entries("approval", principal="ann")] == [first, third]


async def test_a_label_is_told_without_the_value(store: Store) -> None:
    handle = await store.put("result", b"x" * 5000, principal="ann", expires_in=60, label=b'{"tool":"a/b"}')
    bare = await store.put("result", b"y", principal="bob", expires_in=60)
    first, second = await store.entries("result", principal=None)
    assert (first.handle, first.label, first.size) == (handle, b'{"tool":"a/b"}', 5000)
    assert (second.handle, second.label) == (bare, b"")
    assert 0 < first.room < 5000  # compressed
    assert await store.entry("result", handle, principal="ann") == first
    assert await store.entry("result", handle, principal="bob") is None
    assert await store.entry("grant", handle, principal="ann") is None


async def test_a_listing_can_be_bounded_at_either_end(store: Store, clock: Clock) -> None:
    handles: list[str] = []
    for number in range(5):
        handles.append(await store.put("result", b"%d" % number, principal="ann", expires_in=60))
        clock.now += 1
    await store.put("result", b"bob's", principal="bob", expires_in=60)

    async def listed(**how: Any) -> list[str]:
        return [entry.handle for entry in await store.entries("result", principal="ann", **how)]

    assert await listed() == handles
    assert await listed(limit=2) == handles[:2]
    assert await listed(newest_first=True) == handles[::-1]
    assert await listed(limit=2, newest_first=True) == handles[:2:-1]
    assert await listed(limit=0) == []


async def test_a_use_makes_a_value_live_longer_and_looking_does_not(store: Store, clock: Clock) -> None:
    used, seen = [await store.put("result", b"v", principal="ann", expires_in=100) for _ in range(2)]
    clock.now += 90
    assert await store.get("result", used, principal="ann", renew=100) == b"v"
    assert await store.get("result", seen, principal="ann") == b"v"
    clock.now += 20
    assert await store.get("result", used, principal="ann") == b"v"
    assert await store.get("result", seen, principal="ann") is None
    entry = await store.entry("result", used, principal="ann")
    assert entry
    assert (entry.created, entry.used, entry.expires) == (1_000_000.0, 1_000_090.0, 1_000_190.0)


async def test_a_use_never_shortens_a_life(store: Store, clock: Clock) -> None:
    handle = await store.put("result", b"v", principal="ann", expires_in=1000)
    clock.now += 61
    assert await store.get("result", handle, principal="ann", renew=10)
    assert await store.renew("result", handle, principal="ann", expires_in=10)
    clock.now += 900
    assert await store.get("result", handle, principal="ann") == b"v"


async def test_a_renewed_value_is_as_new(store: Store, clock: Clock) -> None:
    old, other = [
        await store.put("result", b"v" * 2000, principal="ann", expires_in=100, label=b"before") for _ in range(2)
    ]
    clock.now += 50
    assert await store.renew("result", old, principal="ann", expires_in=100, label=b"after")
    assert not await store.renew("result", old, principal="bob", expires_in=100, label=b"bob's")
    assert not await store.renew("result", "none", principal="ann", expires_in=100)
    one, two = await store.entries("result", principal="ann", newest_first=True)
    assert (one.handle, one.label, one.created, one.expires) == (old, b"after", 1_000_050.0, 1_000_150.0)
    assert (two.handle, two.label) == (other, b"before")
    assert await store.renew("result", other, principal="ann", expires_in=100)
    clock.now += 60
    assert [entry.label for entry in await store.entries("result", principal="ann")] == [b"after", b"before"]
    assert await store.get("result", old, principal="ann") == b"v" * 2000
    clock.now += 60
    assert not await store.renew("result", old, principal="ann", expires_in=100)  # it has expired


async def test_what_is_there_already_stays(store: Store, clock: Clock) -> None:
    async def settle(body: bytes) -> bytes:
        return await store.put_if_absent("secret", body, principal="", expires_in=60, handle="one")

    found = await asyncio.gather(*(settle(b"%d" % number) for number in range(10)))
    assert len(set(found)) == 1
    assert await store.get("secret", "one", principal="") == found[0]
    clock.now += 60
    assert await settle(b"new") == b"new"


async def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, clock: Clock) -> None:
    for kind in ("memory", "sqlite", "sqlite with a key", "lazy", *REDIS):
        store = STORES[kind](tmp_path / f"{kind}.db", clock)
        first, second, *_ = [await store.put("result", NOISE, principal="", expires_in=9999) for _ in range(10)]
        clock.now += 100
        assert await store.get("result", first, principal="", renew=9999) == NOISE
        clock.now += 100
        for _ in range(15):
            await store.put("result", NOISE, principal="", expires_in=9999)
        left = [entry.handle for entry in await store.entries("result", principal="")]
        assert first in left
        assert second not in left
        await store.close()


async def test_a_kind_can_have_a_bound_of_its_own(tmp_path: Path, clock: Clock) -> None:
    for kind in ("memory", "sqlite", "lazy", "lazy without its file", *REDIS):
        store = STORES[kind](tmp_path / f"{kind}.db", clock)
        store.bound("result", 1024**2)
        other = [await store.put("other", NOISE, principal="", expires_in=60) for _ in range(10)]
        handles = [await store.put("result", NOISE, principal="", expires_in=60) for _ in range(10)]
        left = [entry.handle for entry in await store.entries("result", principal="")]
        assert 3 <= len(left) <= 5
        assert left == handles[-len(left) :]
        assert [entry.handle for entry in await store.entries("other", principal="")] == other
        with pytest.raises(ValueTooLarge):
            await store.put("result", NOISE * 6, principal="", expires_in=60)
        await store.put("result", bytes(2 * 1024**2), principal="", expires_in=60)  # what counts is what it takes
        store.bound("other", 500_000)
        await store.put("other", NOISE, principal="", expires_in=60)
        assert len(await store.entries("other", principal="")) == 2
        await store.close()


async def test_numbers_add_up(store: Store) -> None:
    day, next_day = "1970-01-12", "1970-01-13"  # by the clock of these tests
    await store.count("tokens", {(day, "a", "b"): [1, 2], (day, "a", "c"): [5]})
    await store.count("tokens", {(day, "a", "b"): [10, 20, -30], (next_day,): [2**70]})
    await store.count("other", {(day, "a", "b"): [7]})
    assert await store.read_counts("tokens") == {
        (day, "a", "b"): [11, 22, -30],
        (day, "a", "c"): [5],
        (next_day,): [2**70],
    }
    assert await store.read_counts("tokens", since=next_day) == {(next_day,): [2**70]}
    assert await store.read_counts("none") == {}


async def test_old_numbers_are_forgotten(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("store", "memory_store"):
        monkeypatch.setattr(f"mcpbridge.storage.{module}.MAX_COUNTS", 20)
    await store.count("tokens", {("1970-01-12",): [1], ("1971-01-12",): [2]})
    clock.now += 401 * 86400
    await store.count("tokens", {("1971-02-20", str(number)): [1] for number in range(10)})
    assert ("1970-01-12",) not in await store.read_counts("tokens")
    clock.now += 700
    await store.count("tokens", {("1971-02-21", str(number)): [1] for number in range(18)})
    clock.now += 700
    await store.count("tokens", {("1971-02-21", "0"): [1]})
    found = await store.read_counts("tokens")
    assert len(found) <= 20
    assert all(found[("1971-02-21", str(number))] for number in range(18))


async def test_handles_are_128_random_bits_in_one_plain_word(store: Store) -> None:
    handles = {await store.put("result", b"", principal="", expires_in=60) for _ in range(50)}
    assert len(handles) == 50
    for handle in handles:
        assert len(handle) * 5 >= 128
        assert handle.isalnum()


async def test_beyond_the_bound_the_oldest_of_the_largest_kind_go(tmp_path: Path, clock: Clock) -> None:
    """A flood of results does not wash away who was allowed what."""
    for kind in ("memory", "sqlite", "lazy", *REDIS):
        store = STORES[kind](tmp_path / f"{kind}.db", clock)
        grant = await store.put("grant", b"small and old", principal="ann", expires_in=60)
        handles = [await store.put("result", NOISE, principal="ann", expires_in=60) for _ in range(40)]
        left = [entry.handle for entry in await store.entries("result", principal="ann")]
        assert 10 < len(left) <= BOUND // 200_000
        assert left == handles[-len(left) :]
        assert await store.get("grant", grant, principal="ann") == b"small and old"
        with pytest.raises(ValueTooLarge):
            await store.put("result", os.urandom(BOUND + 1), principal="ann", expires_in=60)
        await store.close()


BODIES = st.builds(lambda part, times: part * times, st.binary(max_size=50), st.integers(0, 10_000))
"""Those that are worth to be compressed."""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=3000) | BODIES, kind=st.text(max_size=20), handle=st.text(min_size=1, max_size=50))
@pytest.mark.parametrize("name", ["memory", "sqlite", "sqlite with a key", *REDIS])
def test_bytes_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, name: str, body: bytes, kind: str, handle: str
) -> None:
    async def round_trip() -> None:
        store = STORES[name](tmp_path_factory.getbasetemp() / f"{name}.db", Clock())
        handle_ = handle.encode(errors="ignore").decode() or "x"  # no lone surrogates: no header or JSON brings them
        kind_ = kind.encode(errors="ignore").decode()
        await store.put(kind_, body, principal=kind_, expires_in=60, handle=handle_)
        assert await store.get(kind_, handle_, principal=kind_) == body
        assert await store.take(kind_, handle_, principal=kind_) == body
        await store.close()

    anyio.run(round_trip)


# -- a file


async def test_a_file_is_shared_and_outlives_who_made_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state" / "a.db"
    one, two = SqliteStore(path), SqliteStore(path)
    handle = await one.put("result", b"shared", principal="ann", expires_in=60)
    assert await two.get("result", handle, principal="ann") == b"shared"
    await one.close()
    await two.close()
    third = SqliteStore(path)
    assert await third.take("result", handle, principal="ann") == b"shared"
    await third.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["a.db"]  # nothing of SQLite's own is left


TAKE_ALL = """
import sys, json, asyncio
from functools import cache
from pathlib import Path
from mcpbridge.storage.sqlite.store import SqliteStore

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    assert await store.get("grant", "g0", principal="ann") == b"grant 0"
    print("ready", flush=True)
    sys.stdin.readline()
    names = [f"g{n}" for n in range(200)]
    taken = []
    for name in names:
        if await store.take("grant", name, principal="ann") is not None:
            taken.append(name)
    await store.close()
    print(json.dumps(taken))

asyncio.run(main())
"""


async def test_of_two_processes_that_take_at_once_exactly_one_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    for number in range(200):
        await store.put("grant", b"grant %d" % number, principal="ann", expires_in=600, handle=f"g{number}")
    with anyio.fail_after(90):
        processes = [await start(TAKE_ALL, str(path)) for _ in range(2)]
        for process in processes:
            assert process.stdout
            assert await process.stdout.readline() == b"ready\n"
        for process in processes:
            assert process.stdin
            process.stdin.write(b"go\n")
        outs = [(await process.communicate())[0] for process in processes]
    taken: list[str] = [name for out in outs for name in json.loads(out)]
    assert sorted(taken) == sorted(f"g{number}" for number in range(200))
    assert await store.entries("grant", principal=None) == []
    await store.close()


async def start(program: str, *args: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-c", program, *args, stdin=pipe, stdout=pipe)


async def test_two_bridges_can_make_the_file_at_once(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "a.db") for _ in range(8)]
    handles = await asyncio.gather(*(store.put("k", b"v", principal="", expires_in=600) for store in stores))
    assert len(await stores[0].entries("k", principal=None)) == len(set(handles)) == 8
    for store in stores:
        await store.close()


async def test_expired_values_are_removed_from_the_file(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path, clock=clock)
    await store.put("result", os.urandom(3_000_000), principal="", expires_in=10)
    await store.close()
    large = path.stat().st_size
    clock.now += 11
    store = SqliteStore(path, clock=clock)
    assert await store.get("result", "any", principal="") is None
    await store.close()
    assert path.stat().st_size < large / 10


async def test_a_file_that_is_too_large_shrinks_by_all_its_kinds(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path, max_bytes=64_000_000, clock=clock)
    kinds = ("grant", "result", "event")
    for kind in kinds:
        for _ in range(20):
            await store.put(kind, NOISE, principal="", expires_in=9000)
    await store.close()
    store = SqliteStore(path, max_bytes=BOUND, clock=clock)
    assert await store.get("result", "any", principal="") is None
    left = [len(await store.entries(kind, principal="")) for kind in kinds]
    assert min(left) >= 3, left
    assert sum(left) * len(NOISE) <= BOUND, left
    await store.close()


async def test_a_bridge_that_stores_nothing_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "a.db"
    store = LazyStore(StoreSettings(path=str(path)))
    assert await store.get("grant", "any", principal="") is None
    assert await store.take("grant", "any", principal="") is None
    assert not await store.drop("grant", "any", principal="")
    assert await store.entries("grant", principal=None) == []
    await store.close()
    assert not path.parent.exists()


async def test_what_another_process_keeps_later_is_found(tmp_path: Path) -> None:
    """A lazy store that found no file looks again."""
    path = tmp_path / "a.db"
    store = LazyStore(StoreSettings(path=str(path)))
    assert await store.get("grant", "a", principal="") is None
    other = SqliteStore(path)
    await other.put("grant", b"v", principal="", expires_in=60, handle="a")
    assert await store.get("grant", "a", principal="") == b"v"
    await store.close()
    await other.close()


async def test_what_was_kept_in_memory_meanwhile_is_found_when_the_file_works_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpbridge.storage.sqlite.database._TRY_AGAIN", 0)
    path = tmp_path / "a.db"
    path.mkdir()
    store = LazyStore(StoreSettings(path=str(path)), clock=clock)
    await store.put("grant", b"in memory", principal="", expires_in=60, handle="a")
    await store.put("grant", b"in memory", principal="", expires_in=60, handle="b")
    path.rmdir()
    clock.now += 1
    await store.put("grant", b"in the file", principal="", expires_in=60, handle="b")
    await store.put("grant", b"in the file", principal="", expires_in=60, handle="c")
    assert [entry.handle for entry in await store.entries("grant", principal=None)] == ["a", "b", "c"]
    assert await store.get("grant", "a", principal="") == b"in memory"
    assert await store.take("grant", "b", principal="") == b"in the file"
    assert await store.take("grant", "b", principal="") is None
    await store.close()


async def test_a_store_in_memory_makes_no_file(tmp_path: Path) -> None:
    store = LazyStore(StoreSettings(kind="memory", path=str(tmp_path / "a.db")))
    handle = await store.put("k", b"v", principal="", expires_in=9)
    assert await store.get("k", handle, principal="") == b"v"
    await store.close()
    assert list(tmp_path.iterdir()) == []


def damaged(path: Path) -> None:
    path.write_bytes(b"this was a database once. " * 100)


def foreign(path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE songs (title)")


def from_the_future(path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (damaged, "not a database"),
        (foreign, "something else"),
        (from_the_future, "newer mcpbridge"),
        (Path.mkdir, "unable to open"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named_with_the_reason_and_memory_stands_in(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    path = tmp_path / "a.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    store = LazyStore(StoreSettings(path=str(path)))
    with capture_logs() as logs:
        handle = await store.put("grant", b"v", principal="", expires_in=60)
        assert await store.get("grant", handle, principal="") == b"v"
        assert await store.get("grant", "none", principal="") is None
        assert await store.take("grant", handle, principal="") == b"v"
        assert await store.entries("grant", principal="") == []
    [line] = logs  # said once
    assert line["log_level"] == "warning"
    assert line["file"] == str(path)
    assert reason in line["reason"]
    await store.close()
    assert (path.read_bytes() if path.is_file() else None) == before  # not touched: a person may want to look


async def test_on_a_full_disk_values_are_kept_in_memory(tmp_path: Path) -> None:
    """Here the disk is full at so many pages."""
    store = LazyStore(StoreSettings(path=str(tmp_path / "a.db")))
    first = await store.put("result", b"first", principal="", expires_in=60)
    assert isinstance(store._file, SqliteStore)
    await store._file._access.database.run(
        lambda connection: connection.execute("PRAGMA max_page_count = 30"), writes=False
    )
    with capture_logs() as logs:
        second = await store.put("result", NOISE, principal="", expires_in=60)
    assert logs[0]["reason"] == "database or disk is full"
    assert await store.get("result", first, principal="") == b"first"
    assert await store.take("result", second, principal="") == NOISE
    await store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_directory_without_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    store = SqliteStore(tmp_path / "a.db")
    with pytest.raises(StoreFailed, match="Permission denied"):
        await store.put("k", b"v", principal="", expires_in=9)
    await store.close()
    tmp_path.chmod(0o700)


async def test_a_file_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch(0o644)
    store = SqliteStore(path)
    await store.put("k", b"v", principal="", expires_in=9)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in tmp_path.iterdir())
    await store.close()


async def test_after_the_end_nothing_is_kept_and_nobody_waits(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    await store.put("k", b"v", principal="", expires_in=9)
    await store.close()
    await store.close()
    with anyio.fail_after(30), pytest.raises(StoreFailed, match="is closed"):
        await store.get("k", "v", principal="")


def test_where_the_file_is(tmp_path: Path) -> None:
    assert state_directory({"XDG_STATE_HOME": "/x"}) == Path("/x/mcpbridge")
    assert state_directory({}).name == "mcpbridge"
    assert store_path(StoreSettings(), {"XDG_STATE_HOME": "/x"}) == Path("/x/mcpbridge/store.db")
    assert store_path(StoreSettings(path="~/a.db"), {}) == Path.home() / "a.db"
