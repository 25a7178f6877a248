"""The bridge in front of the SDK's server over every transport, by the commands that people type."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from support.harness import Place

SERVERS = Path(__file__).parents[2] / "servers"


@asynccontextmanager
async def running(script: str, *args: str) -> AsyncIterator[str]:
    """The URL of a server in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SERVERS / script),
        *args,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout
        async with asyncio.timeout(60):
            url = (await process.stdout.readline()).decode().strip()
        yield url
    finally:
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[dict[str, dict[str, object]]]:
    async with AsyncExitStack() as stack:
        sse, http, ws = await asyncio.gather(
            *(
                stack.enter_async_context(running(*command))
                for command in (("sse_upstream.py",), ("sse_upstream.py", "http"), ("ws_upstream.py",))
            )
        )
        yield {
            "pipe": {"command": sys.executable, "args": [str(SERVERS / "sdk_tools.py")]},
            "http": {"url": http},
            "sse": {"url": sse, "transport": "sse"},
            "unsaid": {"url": sse},
            "ws": {"url": ws},
            "oldws": {"url": ws, "era": "legacy"},
        }


async def test_tools_are_listed_and_called_over_every_transport(
    place: Place, servers: dict[str, dict[str, object]]
) -> None:
    config = str(place.config(servers))
    listed = await place.run("list", "--json", "--config", config, within=60)
    assert listed.code == 0, listed.err
    for name in servers:
        assert f"{name}__shout" in listed.out, listed.err
    for name in servers:
        called = await place.run("call", f"{name}/shout", "text=hey", "--config", config, within=60)
        assert (called.code, called.out.strip()) == (0, "HEY"), called.err


async def test_progress_and_long_answers_cross_every_transport(
    place: Place, servers: dict[str, dict[str, object]]
) -> None:
    async with place.bridge(servers) as client:
        await client.initialize()
        for name in servers:
            await client.tools_with(f"{name}__shout", within=30)
        for name in servers:
            said = await client.call(f"{name}__shout", text="hey", meta={"progressToken": name}, within=20)
            assert said.text == "HEY"
            await client.notice("notifications/progress", lambda params, name=name: params["progressToken"] == name)
            long = await client.call(f"{name}__long", size=1_000_000, within=20)
            assert long.text == "x" * 1_000_000


async def test_the_status_names_transport_and_era(place: Place, servers: dict[str, dict[str, object]]) -> None:
    async with place.bridge(servers) as client:
        await client.initialize()
        for name in servers:
            await client.tools_with(f"{name}__shout", within=30)
        [bridge] = json.loads((await place.run("status", "--json")).out)["bridges"]
        found = {server["name"]: (server["transport"], server["era"]) for server in bridge["servers"]}
    assert found == {
        "pipe": ("stdio", "modern"),
        "http": ("streamable-http", "modern"),
        "sse": ("sse", "legacy"),
        "unsaid": ("sse", "legacy"),
        "ws": ("websocket", "modern"),
        "oldws": ("websocket", "legacy"),
    }
