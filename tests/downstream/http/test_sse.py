"""What only the HTTP+SSE front of 2024-11-05 has: the endpoint event, POSTs beside the stream, its session."""

import asyncio
import hashlib
import json
import re
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client

from mcpbridge.downstream.settings import HttpSettings, TokenSettings
from support.front_clients import SseClient, http_server, open_front
from support.http_front import JSON, ScriptedBridge, ScriptedCore, request
from support.in_process_bridge import bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport


async def test_the_first_event_names_an_endpoint_that_nobody_can_guess(tmp_path: Path) -> None:
    async with open_front("sse", ScriptedBridge(ScriptedCore()), tmp_path) as front:
        endpoint = await front.client.endpoint
        assert re.fullmatch(r"/sse\?session=[0-9a-f]{32}", endpoint.raw_path.decode())


async def test_the_sdk_speaks_with_it() -> None:
    up = ScriptedTransport(LEGACY_SERVER)
    async with (
        bridged({"up": up}) as bridge,
        http_server(bridge, HttpSettings()) as at,
        sse_client(at.origin + "/sse") as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        assert [tool.name for tool in (await session.list_tools()).tools] == ["up__echo"]
        result = await session.call_tool("up__echo", {})
        assert not result.is_error


async def test_a_post_without_a_session_is_told_to_open_a_stream_first() -> None:
    """A client that tries streamable HTTP first falls back to GET on this answer (spec, backwards compatibility)."""
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings()) as at,
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        response = await http.post(at.origin + "/sse", json=request("initialize"), headers=JSON)
        assert response.status_code == 405
        assert response.headers["allow"] == "GET"
        assert (await http.put(at.origin + "/sse")).status_code == 405


async def test_a_session_ends_with_its_stream(tmp_path: Path) -> None:
    core = ScriptedCore()
    async with open_front("sse", ScriptedBridge(core), tmp_path) as front:
        await front.client.initialize()
        await front.leave()
        with anyio.fail_after(30):
            while core.closed != core.clients:
                await anyio.sleep(0.01)
        assert (await front.client.post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')).status_code == 404


async def test_a_session_is_its_openers_and_no_other_endpoints(tmp_path: Path) -> None:
    tokens = [
        TokenSettings(name=name, sha256=hashlib.sha256(f"key of {name}".encode()).hexdigest())
        for name in ("ann", "bob")
    ]
    ann, bob = ({"authorization": f"Bearer key of {token.name}"} for token in tokens)
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings(tokens=tokens)) as at,
        httpx2.AsyncClient(trust_env=False, headers=ann, timeout=60) as http,
    ):
        url = httpx2.URL(at.origin + "/sse")
        async with http.stream("GET", url) as response:
            client = SseClient(http, url)
            reading = asyncio.create_task(client.read(response))
            await client.initialize()
            ping = json.dumps(request("ping", 9)).encode()
            endpoint = await client.endpoint
            kind = {"content-type": "application/json"}
            assert (await http.post(endpoint, content=ping, headers=kind)).status_code == 202
            assert (await http.post(endpoint, content=ping, headers=kind | bob)).status_code == 404
            query = endpoint.query.decode()
            elsewhere = f"{at.origin}/servers/files/sse?{query}"
            assert (await http.post(elsewhere, content=ping, headers=kind)).status_code == 404
            named = kind | {"mcp-session-id": query.removeprefix("session=")}
            assert (await http.post(at.origin + "/mcp", content=ping, headers=named)).status_code == 404
            reading.cancel()
            await asyncio.wait([reading])


async def test_an_answer_that_no_event_can_hold_becomes_an_error_that_says_so(tmp_path: Path) -> None:
    async with open_front("sse", ScriptedBridge(ScriptedCore()), tmp_path, max_event=2000) as front:
        await front.client.initialize()
        answer = await front.client.request("tools/call", {"name": "x" * 3000})
        assert answer.failed
        assert "http.max_event" in answer.text


async def test_it_can_be_turned_off() -> None:
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings(sse=False)) as at,
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        assert (await http.get(at.origin + "/sse")).status_code == 404


async def test_a_silent_stream_carries_comments() -> None:
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings(keep_alive=0.02)) as at,
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
        http.stream("GET", at.origin + "/sse") as response,
        asyncio.timeout(30),
    ):
        async for line in response.aiter_lines():
            if line == ": keep-alive":
                return


async def test_when_the_bridge_stops_open_requests_are_answered_and_the_stream_ends() -> None:
    core = ScriptedCore()
    async with http_server(ScriptedBridge(core), HttpSettings()) as at, asyncio.timeout(15):
        url = httpx2.URL(at.origin + "/sse")
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http, http.stream("GET", url) as response:
            client = SseClient(http, url)
            reading = asyncio.create_task(client.read(response))
            await client.initialize()
            answer = client.expect("last")
            await client.send(json.dumps(request("hold", "last")).encode())
            await core.held.get()
            at.serving.cancel()
            await asyncio.sleep(0)
            core.release.set()
            assert (await answer).message["id"] == "last"
            await reading
            await asyncio.wait([at.serving])


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"jsonrpc":"2.0"}'])
async def test_a_body_that_is_no_message_is_refused(body: bytes, tmp_path: Path) -> None:
    async with open_front("sse", ScriptedBridge(ScriptedCore()), tmp_path) as front:
        response = await front.client.post(body)
        if body == b"[]":  # a batch, if an empty one: its revision decides, on the stream
            assert response.status_code == 202
            assert (await front.client.stray())["error"]["code"] == -32600
        else:
            assert response.status_code == 400
            assert response.json()["error"]["code"] in (-32600, -32700)
