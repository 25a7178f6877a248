"""Cached results of several bridges: a write by way of one makes those of all stale (issue 24)."""

import json
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from support.harness import python_server
from support.in_process_bridge import Ear
from support.redis_server import Server, needs_redis

pytestmark = [needs_redis, pytest.mark.anyio]
SERVER = python_server("counting", tool={name: {"cache": "10min"} for name in ("get_count", "get_held")})


class User:
    """A client of one bridge."""

    def __init__(self, ear: Ear) -> None:
        self.ear, self._ids = ear, count(1)

    async def call(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """The text of the result, and whether it was kept."""
        params = {"name": f"c__{tool}", "arguments": arguments}
        result = (await self.ear.ask("tools/call", params, b"%d" % next(self._ids)))["result"]
        return result["content"][0]["text"], '"mcpbridge/cache"' in json.dumps(result)


@asynccontextmanager
async def two_bridges(folder: Path) -> AsyncGenerator[tuple[User, User, Server]]:
    server = Server(folder / "redis").start()
    how = {
        "servers": {"c": SERVER},
        "results": {"strategy": "off"},
        "store": {"kind": "redis", "url": server.url},
    }
    try:
        with anyio.fail_after(120):
            async with AsyncExitStack() as stack:
                users: list[User] = []
                for _ in range(2):
                    bridge = await stack.enter_async_context(Bridge(Settings.model_validate(how)))
                    assert await bridge.settled(30)
                    ear = Ear(bridge.server)
                    await ear.initialize()
                    users.append(User(ear))
                yield users[0], users[1], server
    finally:
        server.kill()


async def test_a_write_on_one_bridge_leaves_no_stale_result_on_another(tmp_path: Path) -> None:
    async with two_bridges(tmp_path) as (one, other, _):
        for user in (one, other):
            assert await user.call("get_count", of="a") == ("get_count 1", False)
            assert await user.call("get_count", of="a") == ("get_count 1", True)
        await one.call("set_mark", of="a")
        assert await other.call("get_count", of="a") == ("get_count 2", False)
        assert await other.call("get_count", of="a") == ("get_count 2", True)
        assert await one.call("get_count", of="a") == ("get_count 2", False)


async def test_what_was_read_beside_a_write_on_another_bridge_is_not_kept(tmp_path: Path) -> None:
    """The read begins before the write and ends after it."""
    async with two_bridges(tmp_path) as (one, other, _), anyio.create_task_group() as tasks:
        tasks.start_soon(other.call, "get_held")
        while (await other.call("get_waiting"))[0] != "1":
            await anyio.sleep(0.01)
        await one.call("set_mark", of="a")
        await other.call("get_released")
        while (await other.call("get_waiting"))[0] != "0":
            await anyio.sleep(0.01)
        tasks.start_soon(other.call, "get_held")
        while (await other.call("get_waiting"))[0] != "1":  # it is asked again
            await anyio.sleep(0.01)
        await other.call("get_released")


async def test_a_write_that_is_under_way_makes_results_stale_too(tmp_path: Path) -> None:
    async with two_bridges(tmp_path) as (one, other, _), anyio.create_task_group() as tasks:
        assert await other.call("get_count", of="a") == ("get_count 1", False)
        tasks.start_soon(one.call, "set_held")
        while (await one.call("get_waiting"))[0] != "1":
            await anyio.sleep(0.01)
        assert await other.call("get_count", of="a") == ("get_count 2", False)
        assert await other.call("get_count", of="a") == ("get_count 2", True)
        await one.call("get_released")
        while (await one.call("get_waiting"))[0] != "0":
            await anyio.sleep(0.01)
        assert await other.call("get_count", of="a") == ("get_count 3", False)


async def test_while_nobody_knows_of_writes_no_kept_result_is_used(tmp_path: Path) -> None:
    """Calls are made all the same; and a write that the others could not learn of counts once they can."""
    async with two_bridges(tmp_path) as (one, other, server):
        for user in (one, other):
            await user.call("get_count", of="a")
        server.signal(signal.SIGSTOP)
        assert await other.call("get_count", of="a") == ("get_count 2", False)
        await one.call("set_mark", of="a")
        server.signal(signal.SIGCONT)
        while not (await one.call("get_count", of="b"))[1]:
            await anyio.sleep(0.05)
        assert await other.call("get_count", of="a") == ("get_count 3", False)


async def test_a_server_that_lost_its_data_makes_results_stale(tmp_path: Path) -> None:
    async with two_bridges(tmp_path) as (one, other, server):
        assert await one.call("get_count", of="a") == ("get_count 1", False)
        assert await one.call("get_count", of="a") == ("get_count 1", True)
        server.cli("FLUSHALL")
        assert await one.call("get_count", of="a") == ("get_count 2", False)
        await other.call("set_mark", of="a")
        assert await one.call("get_count", of="a") == ("get_count 3", False)
