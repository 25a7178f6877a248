"""A server that sends notifications as fast as they are read costs the others nothing (issue 18)."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.harness import Place, eventually, python_server, undisturbed
from support.rpc import HttpClient

SERVERS = {"bad": python_server("flooding"), "healthy": python_server("plain")}


@pytest.mark.parametrize(
    "method", ["notifications/message", "notifications/progress", "notifications/resources/updated"]
)
async def test_a_flood_is_read_with_pauses_and_the_answers_behind_it_arrive(place: Place, method: str) -> None:
    async with place.http_bridge(SERVERS) as client:
        await client.initialize()
        await client.tools_with("bad__flood")
        assert (await client.call("bad__flood", method=method)).text == "begun"

        async def braked() -> str:
            return json.loads((await place.run("status", "--json")).out)["bridges"][0]["servers"][0]["braked"]

        assert await eventually(braked, bool, within=60) == "messages"
        assert client.command
        await client.command.logged("server sends more than can be handled")
        async with undisturbed(client, within=30):
            for number in range(3):
                assert (await client.call("bad__echo", text=str(number), within=60)).text == str(number)
        metrics = await scraped(client)
        assert 'mcpbridge_server_braked{server="bad",backend="stdio"} 1' in metrics
        assert 'mcpbridge_server_braked{server="healthy",backend="stdio"} 0' in metrics
        assert int((await client.call("bad__stop", within=60)).text) > 0
        await eventually(braked, lambda told: not told, within=60)
        calls = [client.call("bad__echo", text=str(number), within=60) for number in range(20)]
        assert [reply.text for reply in await asyncio.gather(*calls)] == [str(number) for number in range(20)]


async def scraped(client: HttpClient) -> str:
    response = await client.http.get(client.url.replace("/mcp", "/metrics"))
    return response.text


FRONTS = Path(__file__).parent.parent / "servers" / "flooding_fronts.py"


@asynccontextmanager
async def front(kind: str) -> AsyncIterator[dict[str, str]]:
    """The settings of a server that floods over this transport."""
    process = await asyncio.create_subprocess_exec(sys.executable, str(FRONTS), kind, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        url = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        yield {"url": url, **({"transport": "sse"} if kind == "sse" else {})}
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("kind", ["http", "sse", "ws"])
async def test_a_flood_over_a_network_is_read_with_pauses_too(place: Place, kind: str) -> None:
    async with front(kind) as bad, place.http_bridge({"bad": bad, "healthy": SERVERS["healthy"]}) as client:
        await client.initialize()
        await client.tools_with("bad__flood")
        assert (await client.call("bad__flood", method="notifications/message", within=60)).text == "begun"

        async def braked() -> str:
            return json.loads((await place.run("status", "--json")).out)["bridges"][0]["servers"][0]["braked"]

        assert await eventually(braked, bool, within=60) == "messages"
        async with undisturbed(client, within=30):
            assert (await client.call("bad__echo", text="behind it", within=60)).text == "behind it"
        assert int((await client.call("bad__stop", within=60)).text) > 0
        await eventually(braked, lambda told: not told, within=60)
