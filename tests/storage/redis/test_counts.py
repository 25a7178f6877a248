"""What is counted on a Redis server counts once, also where the answer gets lost (issue 24)."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.redis import counts
from mcpbridge.storage.redis.scripts import SET_COUNTS
from mcpbridge.storage.redis.store import RedisStore
from mcpbridge.storage.settings import StoreSettings, redis_address
from support.redis_server import Server, needs_redis

pytestmark = needs_redis
ROW = ("2999-01-01", "client")


@pytest.fixture
def redis(tmp_path: Path) -> Generator[Server]:
    found = Server(tmp_path / "redis").start()
    yield found
    found.kill()


class Cutting:
    """Between a store and the server: lets the next additions take effect, or not, and loses what the server says."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.settings = StoreSettings(kind="redis", url=f"unix://{directory}/between.sock", prefix="p")
        self._server, self._at = server, directory / "between.sock"
        self.lose = 0
        """Answers that get lost from now on."""
        self.lost = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with await asyncio.start_unix_server(self._connected, self._at):
            yield

    async def _connected(self, asks: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        answers, ask = await asyncio.open_unix_connection(str(self._server.socket))
        is_cut = asyncio.Event()

        async def back() -> None:
            while data := await answers.read(1 << 20):
                if is_cut.is_set():  # the server has done it
                    self.lost += 1
                    answer.close()
                    return
                answer.write(data)

        async with asyncio.TaskGroup() as group:
            group.create_task(back())
            while data := await asks.read(1 << 20):
                if SET_COUNTS.digest.encode() in data and self.lose:
                    self.lose -= 1
                    is_cut.set()
                ask.write(data)
            ask.close()
            answer.close()


@pytest.fixture
def between(redis: Server, tmp_path: Path) -> Cutting:
    return Cutting(redis, tmp_path)


async def test_an_addition_whose_answer_got_lost_counts_once(redis: Server, between: Cutting) -> None:
    """Seen by this bridge, which could have it in memory as well, and by another one."""
    here, there = LazyStore(between.settings), LazyStore(redis.settings(prefix="p"))
    try:
        with anyio.fail_after(60):
            async with between.running():
                await here.count("calls", {ROW: [1]})
                between.lose = 2
                await here.count("calls", {ROW: [10]})
                assert await here.read_counts("calls") == {}, "sent once more, and the answer gets lost, too"
                assert await here.read_counts("calls") == {ROW: [11]}
                await here.count("calls", {ROW: [100]})
                assert await here.read_counts("calls") == {ROW: [111]}
                assert between.lost == 2
                assert await there.read_counts("calls") == {ROW: [111]}
    finally:
        await here.close()
        await there.close()


async def test_what_another_bridge_counts_meanwhile_changes_nothing_of_that(redis: Server, between: Cutting) -> None:
    here, there = RedisStore(redis_address(between.settings), prefix="p"), redis.store(prefix="p")
    try:
        with anyio.fail_after(60):
            async with between.running():
                await here.count("calls", {ROW: [1]})
                between.lose = 1
                await here.count("calls", {ROW: [10]})
                await there.count("calls", {ROW: [5]})
                await here.close()  # which clears up
                assert await there.read_counts("calls") == {ROW: [16]}
    finally:
        await here.close()
        await there.close()


async def test_what_cannot_be_counted_is_not_counted_later_either(redis: Server) -> None:
    store = redis.store(prefix="p")
    try:
        await store.count("calls", {ROW: [1]})
        redis.kill()
        with pytest.raises(StoreFailed):
            await store.count("calls", {ROW: [10]})
        redis.start()
        with anyio.fail_after(60):
            while True:
                try:
                    await store.count("calls", {ROW: [100]})
                    break
                except StoreFailed:
                    await anyio.sleep(0.05)
        assert await store.read_counts("calls") == {ROW: [100]}, "the server had lost the first one"
    finally:
        await store.close()


async def test_counts_can_be_read_while_the_memory_of_the_server_is_full(redis: Server) -> None:
    """What it refused was surely not counted."""
    store = redis.store(prefix="p")
    try:
        await store.count("calls", {ROW: [1]})
        redis.cli("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreFailed, match="memory is full"):
            await store.count("calls", {ROW: [10]})
        assert await store.read_counts("calls") == {ROW: [1]}
        redis.cli("CONFIG", "SET", "maxmemory", "0")
        await store.count("calls", {ROW: [100]})
        assert await store.read_counts("calls") == {ROW: [101]}
    finally:
        await store.close()


async def test_an_addition_that_the_server_no_longer_knows_is_not_made_again(
    redis: Server, between: Cutting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "_KNOWN_SECONDS", 2)
    store = RedisStore(redis_address(between.settings), prefix="p")
    try:
        with anyio.fail_after(60):
            async with between.running():
                await store.count("calls", {ROW: [1]})
                between.lose = 1
                await store.count("calls", {ROW: [10]})
                while redis.cli("KEYS", "p:{v1/#counts}:a:*"):
                    await anyio.sleep(0.05)
                assert await store.read_counts("calls") == {ROW: [11]}
    finally:
        await store.close()
