"""The official SDK's client at the HTTP front, with the real bridge behind it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcpbridge.config.schema import Settings
from mcpbridge.downstream.http.server import bind_port, serve_http
from mcpbridge.library.bridge import Bridge
from support.harness import eventually

SERVERS = Path(__file__).parents[2] / "servers"
LARGE = 3_000_000


@asynccontextmanager
async def bridged(server: str = "plain", **http: object) -> AsyncIterator[str]:
    """A bridge with one server, on a free port."""
    program = {"command": sys.executable, "args": ["-ES", str(SERVERS / f"{server}.py")]}
    how = {"servers": {"up": program}, "http": http, "results": {"strategy": "off"}}
    settings = Settings.model_validate(how)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with bind_port(settings.http, host="127.0.0.1", port=0, no_auth=True) as at:
        async with asyncio.timeout(60), Bridge(settings) as bridge:
            await bridge.settled(10)
            front = asyncio.create_task(serve_http(bridge, settings.http, at, on_ready=ready.set_result))
            try:
                yield await ready
            finally:
                front.cancel()
                await asyncio.wait([front])


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28", "auto"])
async def test_it_lists_and_calls_in_either_era(mode: str) -> None:
    async with bridged() as url, Client(url, mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "up__echo" in names
        calls = [client.call_tool("up__echo", {"text": str(number)}) for number in range(20)]
        for number, result in enumerate(await asyncio.gather(*calls)):
            assert result.content[0].text == str(number)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_cancelling_a_call_leaves_the_others_alone(mode: str) -> None:
    async with bridged() as url, Client(url, mode=mode) as client:
        held = asyncio.create_task(client.call_tool("up__hold", {}))

        async def journal() -> str:
            return (await client.call_tool("up__journal", {})).content[0].text

        await eventually(journal, lambda text: '"hold"' in text)
        await client.call_tool("up__echo", {"text": "meanwhile"})
        held.cancel()
        await asyncio.wait([held])
        await eventually(journal, lambda text: '"notifications/cancelled"' in text)


async def test_two_clients_of_both_eras_share_the_bridge() -> None:
    async with bridged() as url, Client(url, mode="legacy") as old, Client(url, mode="2026-07-28") as new:
        assert (await old.list_tools()).tools[0].name == (await new.list_tools()).tools[0].name


def hears(heard: list[float]) -> Any:
    async def progress(value: float, _total: float | None, _message: str | None) -> None:
        heard.append(value)

    return progress


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_answer_too_large_for_an_event_is_an_error_that_says_what_to_do(mode: str) -> None:
    """SDK clients give up a stream with an event over 1 MiB: without an error the caller would wait in vain."""
    heard: list[float] = []
    async with bridged("large") as url, Client(url, mode=mode) as client:
        result = await client.call_tool("up__large", {"size": LARGE, "steps": 3}, progress_callback=hears(heard))
        assert result.is_error
        assert "2.9 MiB" in result.content[0].text
        assert "ask for less" in result.content[0].text
        assert heard == [1, 2, 3]
        fitting = await client.call_tool("up__large", {"size": 900_000, "steps": 3}, progress_callback=hears(heard))
        assert len(fitting.content[0].text) == 900_000
        whole = await client.call_tool("up__large", {"size": LARGE, "steps": 0})
        assert len(whole.content[0].text) == LARGE, "with nothing before it the answer is JSON, of any size"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_that_takes_larger_events_gets_the_answer_whole(mode: str) -> None:
    async with bridged("large", max_event=0) as url:
        transport = streamable_http_client(url, max_sse_event_size=None)
        async with Client(transport, mode=mode) as client:
            heard: list[float] = []
            result = await client.call_tool("up__large", {"size": LARGE, "steps": 3}, progress_callback=hears(heard))
            assert len(result.content[0].text) == LARGE
            assert heard == [1, 2, 3]
