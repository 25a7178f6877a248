"""The file of vectors: shared, bounded, and never a reason to fail."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mcpbridge.catalog.search.embeddings.embedder import VectorCache, cache_path, key_of
from support.virtual_time import standing_time

DAY = 86400.0


class Clock:
    now = 1000 * DAY

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(path: Path, *, max_bytes: int = 1 << 20, clock: Clock | None = None) -> AsyncIterator[VectorCache]:
    cache = VectorCache(path, max_bytes=max_bytes, clock=clock or Clock())
    with standing_time():  # the disk may take as long as it likes
        try:
            yield cache
        finally:
            await cache.close()


def keys(count: int) -> list[bytes]:
    return [key_of("model", str(number)) for number in range(count)]


async def test_what_was_kept_is_there_in_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "a" / "vectors.db"
    one, other, third = keys(3)
    async with opened(path) as cache:
        assert await cache.get([one]) == {}
        await cache.put({one: b"\1\2", other: b"\3\4"})
    async with opened(path) as cache, opened(path) as second:
        assert await cache.get([one, other, third]) == {one: b"\1\2", other: b"\3\4"}
        await second.put({third: b"\5", one: b"\6\7"})
        assert await cache.get([one, third]) == {one: b"\6\7", third: b"\5"}


async def test_the_file_is_private_and_holds_no_texts(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    async with opened(path) as cache:
        await cache.put({key_of("model", "a secret tool"): b"\1\2"})
    assert path.stat().st_mode & 0o077 == 0
    assert b"secret" not in path.read_bytes()


def test_vectors_of_different_models_and_texts_have_different_keys() -> None:
    assert len({key_of(model, text) for model in ("a", "b") for text in ("x", "y", "\ud800")}) == 6


async def test_many_are_read_and_written(tmp_path: Path) -> None:
    async with opened(tmp_path / "vectors.db") as cache:
        vectors = dict.fromkeys(keys(1200), b"\1" * 8)
        await cache.put(vectors)
        assert await cache.get(list(vectors)) == vectors


async def test_those_that_were_not_used_for_longest_go_first(tmp_path: Path) -> None:
    clock = Clock()
    some = keys(60)
    async with opened(tmp_path / "vectors.db", max_bytes=50 * 500, clock=clock) as cache:
        for number, key in enumerate(some[:40]):
            await cache.put({key: bytes([number]) * 400})
        clock.now += DAY
        await cache.get(some[:5])
        clock.now += DAY
        for number, key in enumerate(some[40:]):
            await cache.put({key: bytes([number]) * 400})
        kept = await cache.get(some)
    assert set(some[:5]) <= kept.keys()
    assert set(some[40:]) <= kept.keys()
    assert some[5] not in kept
    assert 40 <= len(kept) <= 53


@pytest.mark.parametrize("content", [b"no database at all" * 1000, b"SQLite format 3\0" + b"\xff" * 20_000])
async def test_a_damaged_file_is_begun_anew_with_a_warning(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vectors.db"
    path.write_bytes(content)
    [one] = keys(1)
    with capture_logs() as logs:
        async with opened(path) as cache:
            assert await cache.get([one]) == {}
            await cache.put({one: b"\1\2"})
            assert await cache.get([one]) == {one: b"\1\2"}
    assert [entry["event"] for entry in logs] == ["the vector cache was damaged; starting with an empty one"]


async def test_damage_that_is_met_later_is_seen_to_as_well(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    some = keys(500)
    async with opened(path) as cache:
        await cache.put(dict.fromkeys(some, b"\1" * 100))
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xff" * (len(damaged) - 4096)
    path.write_bytes(damaged)
    with capture_logs() as logs:
        async with opened(path) as cache:
            await cache.get(some)
            await cache.put({some[0]: b"\2"})
            await cache.put({some[0]: b"\2"})
            assert await cache.get(some[:1]) == {some[0]: b"\2"}
    assert "the vector cache was damaged; starting with an empty one" in [entry["event"] for entry in logs]


async def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE precious (x)")
    connection.close()
    before = path.read_bytes()
    with capture_logs() as logs:
        async with opened(path) as cache:
            for _ in range(2):
                await cache.put({keys(1)[0]: b"\1"})
                assert await cache.get(keys(1)) == {}
    assert path.read_bytes() == before
    assert [entry["event"] for entry in logs] == ["vectors cannot be stored; they are computed at each start"]


def test_the_file_lies_in_the_users_cache(tmp_path: Path) -> None:
    assert cache_path({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "mcpbridge" / "vectors.db"
    assert cache_path({}).name == "vectors.db"
