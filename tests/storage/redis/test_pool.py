"""Connections to the server are shared by the parts of a bridge, and given up when nobody uses them (issue 24)."""

import asyncio
import random
import signal
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from mcpbridge.base.errors import StoreFailed
from mcpbridge.fleet.records import FleetRecords, Member
from mcpbridge.fleet.servers.leases import ServerLeases
from mcpbridge.storage.redis import pool
from mcpbridge.storage.redis.connections import Connections
from mcpbridge.storage.redis.epochs import SharedEpochs
from mcpbridge.storage.redis.shared_secrets import SharedRows
from mcpbridge.storage.settings import redis_address
from support.redis_server import Server, needs_redis

pytestmark = [needs_redis, pytest.mark.anyio]

ME = Member("a" * 10, "127.0.0.1:1", "one", "1", "s", 0.0)


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    found = Server(tmp_path / "redis").start()
    yield found
    found.kill()


def connected(server: Server) -> int:
    return len(server.cli("CLIENT", "LIST").splitlines()) - 1  # without redis-cli


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not is_so():
            await anyio.sleep(0.02)


async def test_the_parts_of_a_bridge_use_the_same_connection_one_after_the_other(server: Server) -> None:
    address = redis_address(server.settings())
    store, epochs, rows = server.store(), SharedEpochs(address, "p"), SharedRows(address, "p")
    records, leases = FleetRecords(address, "p"), ServerLeases(address, "p")
    for _ in range(2):
        await store.put("result", b"x", principal="ann", expires_in=60)
        await epochs.current("x")
        await rows.salt()
        await records.beat(ME, 30)
        await leases.acquire("x", ME.id, 0, may_take=True)
    assert connected(server) == 1
    for part in (store, epochs, rows, records):
        await part.close()
    assert connected(server) == 1
    await leases.renew("x", ME.id, 1)
    await leases.close()
    await until(lambda: connected(server) == 0)
    assert await leases.renew("x", ME.id, 1), "who closes may still have to say something"
    await leases.close()


async def test_connections_that_nobody_uses_are_closed_while_others_are_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.5)
    store, records = server.store(), FleetRecords(redis_address(server.settings()), "p")
    handle = await store.put("result", b"x", principal="ann", expires_in=600)
    server.signal(signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(lambda: store.get("result", handle, principal="ann"))
        await anyio.wait_all_tasks_blocked()
        server.signal(signal.SIGCONT)
    assert connected(server) > 8, "as many as commands at once"
    with anyio.fail_after(60):
        while connected(server) > 1:
            await records.beat(ME, 30)
            await anyio.sleep(0.05)
    await until(lambda: connected(server) == 0)
    assert await store.get("result", handle, principal="ann") == b"x"
    await store.close()
    await records.close()


async def test_no_part_gets_the_reply_of_another_whose_command_was_cancelled(server: Server) -> None:
    store, epochs = server.store(), SharedEpochs(redis_address(server.settings()), "p")
    expected = {name: await epochs.current(name) for name in "abcdefgh"}
    handles = [await store.put("result", b"%d" % n * 5000, principal="ann", expires_in=600) for n in range(8)]

    async def read_in_part() -> None:
        for _ in range(60):
            with anyio.move_on_after(random.random() / 200):
                await store.get("result", random.choice(handles), principal="ann")

    async def compare() -> None:
        for _ in range(60):
            name = random.choice("abcdefgh")
            assert await epochs.current(name) == expected[name]
            number = random.randrange(8)
            assert await store.get("result", handles[number], principal="ann") == b"%d" % number * 5000

    await asyncio.gather(*(work() for _ in range(4) for work in (read_in_part, compare)))
    await store.close()
    await epochs.close()


async def test_a_part_with_less_time_takes_none_from_another(server: Server) -> None:
    """Each has its own time and its own count of failures, whatever connections they share."""
    hasty, patient = server.store(seconds=0.1), server.store(seconds=120)
    handle = await patient.put("result", b"x", principal="ann", expires_in=600)
    await hasty.get("result", handle, principal="ann")
    server.signal(signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert await patient.get("result", handle, principal="ann") == b"x"

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        for _ in range(5):
            with pytest.raises(StoreFailed):
                await hasty.get("result", handle, principal="ann")
        assert "failing" in repr(hasty)
        assert "working" in repr(patient)
        server.signal(signal.SIGCONT)
    with anyio.fail_after(60):
        while "failing" in repr(hasty):
            with suppress(StoreFailed):
                await hasty.get("result", handle, principal="ann")
            await anyio.sleep(0.02)
    await hasty.close()
    await patient.close()


async def test_a_command_that_had_a_connection_for_a_moment_only_says_nothing_of_the_server(server: Server) -> None:
    """Sixteen commands at once are the bridge's own limit: the breaker is for servers that are slow."""
    connections = Connections(redis_address(server.settings()), seconds=6)
    refused = list[str]()

    async def wait(*, is_first: bool) -> None:
        try:
            await connections.call("BLPOP", "nothing", 4)
            assert is_first
        except StoreFailed as error:
            refused.append(str(error))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(partial(wait, is_first=number < 16))
    assert len(refused) == 4
    assert all("all 16 connections to it were in use" in reason for reason in refused)
    assert "working" in repr(connections)
    assert await connections.call("PING")
    await connections.close()
