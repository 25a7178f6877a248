"""An address of which nobody said what it speaks (MCP 2025-03-26, Transports, Backwards Compatibility)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports.factory import TransportMaker
from support.upstreams.scripted_http import (
    Ask,
    HttpServer,
    Script,
    answer_to,
    chunk,
    event,
    events_head,
    http_server,
    reply,
)
from support.upstreams.scripted_upstream import Watcher

INITIALIZED = {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}


class OldServer:
    """Speaks HTTP+SSE; to a POST at its address it says `status`."""

    def __init__(self, status: int = 405) -> None:
        self.status = status
        self.speaks_sse = True
        self.stream: Ask

    async def script(self, ask: Ask) -> bytes | None:
        if ask.path == "/mcp":
            if ask.method == "POST" or not self.speaks_sse:
                return reply(b"nope", status=self.status)
            self.stream = ask
            await ask.say(events_head(), chunk(b"event: endpoint\ndata: /messages\n\n"))
            await ask.gone()
            return None
        if ask.message.get("method") == "initialize":
            await self.stream.say(event({"jsonrpc": "2.0", "id": ask.id, "result": INITIALIZED}, type="message"))
        return reply(status=202)


@asynccontextmanager
async def supervised(script: Script, **settings: Any) -> AsyncIterator[tuple[Upstream, Watcher, HttpServer]]:
    maker = TransportMaker(max_bytes=1 << 20, redact=lambda text: text)
    watcher = Watcher()
    with anyio.fail_after(60):
        async with http_server(script) as server, anyio.create_task_group() as tasks:
            how = ServerSettings.model_validate({"url": server.url, **settings})
            info = {"name": "mcpbridge", "version": "1"}
            upstream = Upstream("up", how, maker("up", how), watcher, client_info=info)
            tasks.start_soon(upstream.run)
            yield upstream, watcher, server
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_server_that_refuses_the_newer_transport_is_asked_for_the_older_one(status: int, era: str) -> None:
    old = OldServer(status)
    async with supervised(old.script, era=era) as (upstream, watcher, server):
        await watcher.reaches("ready")
        assert upstream.transport.kind == "sse"
        assert upstream.session is not None
        assert upstream.session.version == "2024-11-05"
        posts = [ask.message["method"] for ask in server.seen("POST") if ask.path == "/mcp"]
        assert posts == (["server/discover", "initialize"] if era == "auto" else ["initialize"])
        assert "retrying" not in watcher.states, "it is no failure"


async def test_what_was_found_out_is_remembered() -> None:
    old = OldServer()
    async with supervised(old.script) as (_, watcher, server):
        await watcher.reaches("ready")
        old.stream.writer.transport.abort()
        await watcher.reaches("ready", 2)
        assert len([ask for ask in server.seen("POST") if ask.path == "/mcp"]) == 2
        assert len(server.seen("GET")) == 2


async def test_a_server_that_speaks_neither_is_told_with_both_reasons() -> None:
    old = OldServer(404)
    old.speaks_sse = False
    async with supervised(old.script) as (upstream, watcher, server):
        await watcher.reaches("retrying")
        reason = upstream.status.reason
        assert reason.startswith("HTTP 404 Not Found: nope (nor does it speak SSE: HTTP 404")
        assert upstream.transport.kind == "streamable-http", "it may be mended: next time from the beginning"
        assert len(server.seen("GET")) == 1


@pytest.mark.parametrize(
    ("status", "settings"),
    [
        (401, {}),
        (503, {}),
        (405, {"transport": "streamable-http"}),
        (405, {"era": "modern"}),
    ],
)
async def test_other_refusals_and_what_people_said_are_taken_as_they_are(status: int, settings: dict[str, Any]) -> None:
    old = OldServer(status)
    async with supervised(old.script, **settings) as (upstream, watcher, server):
        await watcher.reaches("retrying")
        assert f"HTTP {status}" in upstream.status.reason
        assert not server.seen("GET")


async def test_a_stated_transport_is_used_at_once() -> None:
    old = OldServer()
    async with supervised(old.script, transport="sse") as (upstream, watcher, server):
        await watcher.reaches("ready")
        assert [ask.path for ask in server.seen("POST")][:1] == ["/messages"]
        assert not upstream.modern


async def test_a_newer_server_is_never_asked_for_the_older_transport() -> None:
    async def script(ask: Ask) -> bytes | None:
        if ask.method == "POST" and ask.message.get("method") == "initialize":
            result = {**INITIALIZED, "protocolVersion": "2025-06-18"}
            return reply({"jsonrpc": "2.0", "id": ask.id, "result": result})
        if ask.method == "POST" and ask.message.get("method") == "server/discover":
            return reply(b"unknown method", status=400)
        return answer_to(ask)

    async with supervised(script) as (upstream, watcher, _):
        await watcher.reaches("ready")
        assert upstream.transport.kind == "streamable-http"
