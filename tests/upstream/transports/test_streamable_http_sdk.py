"""The streamable HTTP transport against the official SDK's server, in both eras, over real sockets."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from mcpbridge.base.errors import SessionExpired
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.upstream.transports.streamable_http import StreamableHttpTransport
from support.upstreams.scripted_http import Failed, Recorder, request

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
INITIALIZED = request(0, "notifications/initialized")


@asynccontextmanager
async def sdk_server(**options: Any) -> AsyncIterator[str]:
    """The URL of an SDK server with one tool."""
    server = MCPServer("sdk")

    @server.tool()
    async def shout(text: str, ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        return text.upper()

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # whoever connects before the server runs waits for it
        config = uvicorn.Config(server.streamable_http_app(**options), log_config=None, timeout_graceful_shutdown=1)
        web = uvicorn.Server(config)
        task = asyncio.ensure_future(web.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            web.should_exit = True
            await task


@pytest.mark.parametrize("json_response", [False, True])
async def test_a_legacy_session_is_opened_used_and_ended(json_response: bool) -> None:
    got = Recorder()
    async with sdk_server(json_response=json_response) as url:
        with anyio.fail_after(60):
            async with StreamableHttpTransport("sdk", url, headers={}).connect(got) as channel:
                channel.send(request(1, "initialize", params=INITIALIZE))
                assert isinstance(await got.outcome(b"1"), Frame)
                channel.negotiated("2025-11-25")
                channel.send(INITIALIZED)
                params = {"name": "shout", "arguments": {"text": "hey"}, "_meta": {"progressToken": 2}}
                channel.send(request(2, params=params))
                outcome = await got.outcome(b"2")
                assert isinstance(outcome, Frame)
                assert json.loads(bytes(outcome.result))["content"][0]["text"] == "HEY"
                progress = [via for frame, via in got.messages if frame.method == "notifications/progress"]
                assert progress == ([] if json_response else [b"2"])


async def test_a_session_that_the_server_forgot_is_reported_as_such() -> None:
    got = Recorder()
    async with sdk_server() as url:
        with anyio.fail_after(60):
            async with StreamableHttpTransport("sdk", url, headers={}).connect(got) as channel:
                channel.send(request(1, "initialize", params=INITIALIZE))
                await got.outcome(b"1")
                channel._requests.session = b"another"  # type: ignore[attr-defined]
                channel.negotiated("2025-11-25")
                channel.send(request(2, "tools/list"))
                outcome = await got.outcome(b"2")
                assert isinstance(outcome, Failed)
                assert isinstance(outcome.error, SessionExpired)


async def test_the_modern_era_needs_no_handshake() -> None:
    got = Recorder()
    async with sdk_server() as url:
        with anyio.fail_after(60):
            async with StreamableHttpTransport("sdk", url, headers={}).connect(got) as channel:
                channel.send(request(1, "server/discover", params={"_meta": META}))
                outcome = await got.outcome(b"1")
                assert isinstance(outcome, Frame)
                assert "2026-07-28" in json.loads(bytes(outcome.result))["supportedVersions"]
                channel.negotiated("2026-07-28")
                params = {"name": "shout", "arguments": {"text": "hey"}, "_meta": {**META, "progressToken": "p"}}
                channel.send(request(2, name="shout", params=params))
                outcome = await got.outcome(b"2")
                assert isinstance(outcome, Frame)
                assert json.loads(bytes(outcome.result))["content"][0]["text"] == "HEY"
                assert [via for frame, via in got.messages if frame.method == "notifications/progress"] == [b"2"]
                # A name that contradicts the body is refused with a JSON-RPC error under 400: an answer.
                channel.send(request(3, name="whisper", params=params))
                outcome = await got.outcome(b"3")
                assert isinstance(outcome, Frame)
                assert json.loads(bytes(outcome.error))["code"] == -32020
