"""What the servers of a fleet offer: the same bytes from each bridge, and from one that has just begun (issue 24)."""

import json
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.fleet.catalog import FleetCatalog, shared_catalog
from mcpbridge.fleet.settings import FleetSettings
from mcpbridge.upstream.manifest import Known, Manifest
from mcpbridge.upstream.settings import ServerSettings
from support.redis_server import Server
from support.replicas import TOKEN, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet

HEADERS = {
    "authorization": f"Bearer {TOKEN}",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}
PROGRAM = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
if os.path.exists(sys.argv[2]):
    time.sleep(3600)  # as one that does not start
from rich import Rich
Rich().run()
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


@pytest.fixture
def redis(tmp_path: Path) -> Generator[Server]:
    server = Server(tmp_path / "redis").start()
    yield server
    server.kill()


def ask(replica: Replica, method: str, **params: Any) -> bytes:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    headers = {**HEADERS, "mcp-protocol-version": "2026-07-28", "mcp-method": method}
    answer = httpx2.post(replica.url, json=body, headers=headers, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.content


def names(listed: bytes) -> list[str]:
    return [tool["name"] for tool in json.loads(listed)["result"]["tools"]]


def test_all_bridges_show_the_same_bytes_and_one_that_starts_what_the_others_know(
    tmp_path: Path, redis: Server
) -> None:
    """The servers of the third bridge do not start: it lists what the fleet knows of them all the same."""
    stuck, program = tmp_path / "stuck", tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    arguments = json.dumps([str(program), str(Path(__file__).parents[1] / "servers"), str(stuck)])
    servers = f'[servers.one]\ncommand = "{sys.executable}"\nargs = {arguments}\n'
    with fleet(tmp_path, redis, size=2, servers=servers) as found:
        first, second = found.replicas
        until(lambda: len(names(ask(first, "tools/list"))) > 0, "the first has listed")
        listed = ask(first, "tools/list")
        until(lambda: ask(second, "tools/list") == listed, "the second shows the same bytes")
        until(lambda: "fleet-catalog" in redis.cli("--scan"), "it is written down for the others")
        stuck.touch()
        third = found.add().start()
        assert ask(third, "tools/list") == listed
        for method in ("prompts/list", "resources/list", "resources/templates/list"):
            assert len({ask(one, method) for one in found.replicas}) == 1, method


FLEET = FleetSettings(listen="127.0.0.1:1", key="the key of the fleet of these tests")
KIND = "fleet-catalog"


async def test_it_keeps_to_the_room_that_the_store_has(redis: Server, tmp_path: Path) -> None:
    """What does not fit is left out, and the rest is there for the others."""
    store = redis.settings(max_bytes=1 << 20)
    one, other = Manifest(tmp_path / "one"), Manifest(tmp_path / "other")
    async with shared_catalog(FLEET, store, one):
        assert one.shared is not None
        await one.shared.keep({b"large": os.urandom(2 << 20), b"small": b"what it offers"})
    async with shared_catalog(FLEET, store, other):
        assert other.shared is not None
        assert (other.shared.known(b"large"), other.shared.known(b"small")) == (None, b"what it offers")


async def test_it_has_a_bound_of_its_own_and_leaves_other_values_alone(redis: Server) -> None:
    store, own = redis.store(), redis.store()
    catalog = FleetCatalog(own, "key of the fleet", room=1 << 20)
    try:
        await store.put("result", os.urandom(4 << 20), principal="ann", expires_in=600, handle="large")
        for number in range(30):
            await catalog.keep({b"server %d" % number: os.urandom(100_000)})
        entries = await store.entries(KIND, principal="")
        assert sum(entry.room for entry in entries) <= 1 << 20
        assert catalog.known(b"server 29") is not None
        assert await store.entry("result", "large", principal="ann") is not None
    finally:
        await store.close()
        await catalog.close()


@asynccontextmanager
async def remembering(redis: Server, directory: Path) -> AsyncGenerator[Manifest]:
    """The manifest of a bridge that starts."""
    manifest, tasks = Manifest(directory), OwnedTasks()
    async with shared_catalog(FLEET, redis.settings(), manifest), tasks.running():
        tasks.spawn(manifest.run())
        yield manifest


@pytest.mark.parametrize("starts_anew", [False, True])
async def test_what_the_redis_server_has_lost_is_written_down_again(
    redis: Server, tmp_path: Path, starts_anew: bool
) -> None:
    """When the server is seen again as it was, also by a bridge that has only its own file to know that from."""
    settings, store = ServerSettings.model_validate({"command": "x"}), redis.store()
    known = Known({"tools": (b'{"name":"a"}',)}, {}, False, "2025-11-25", {})

    async def is_there() -> None:
        with anyio.fail_after(60):
            while not await store.entries(KIND, principal=""):
                await anyio.sleep(0.01)

    try:
        async with remembering(redis, tmp_path) as manifest:
            memory = manifest.of("up", settings)
            memory.keep(known)
            await is_there()
            redis.cli("FLUSHALL")
            if not starts_anew:
                memory.keep(known)
                await is_there()
        if starts_anew:
            async with remembering(redis, tmp_path) as manifest:
                memory = manifest.of("up", settings)
                assert memory.known == known
                memory.keep(known)
                await is_there()
    finally:
        await store.close()
