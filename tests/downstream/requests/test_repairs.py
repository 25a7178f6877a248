"""Errors that belong to the hop between bridge and server are mended there, once.

MCP 2026-07-28, Streamable HTTP, Client Behavior, and Versioning and Compatibility, Protocol Version Negotiation.
"""

import json
from typing import Any

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_http import Ask, http_server, reply, result_of
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, Refusal, ScriptedTransport


def settings_of(url: str) -> Settings:
    return Settings.model_validate({"servers": {"up": {"url": url}}})


def other_revision(*supported: str) -> Refusal:
    return Refusal(-32022, "Unsupported protocol version", {"supported": list(supported), "requested": "2026-07-28"})


async def test_a_server_that_changed_its_revisions_is_agreed_with_anew() -> None:
    """It was updated under a running connection, say: the call was refused unseen, so it is sent again."""
    answers: list[Any] = [other_revision("2031-01-01"), {"content": []}]
    transport = ScriptedTransport(MODERN_SERVER, **{"tools/call": lambda _: answers.pop(0)})
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert (await ear.ask("tools/call", {"name": "echo"}))["result"] == {"content": []}
        assert len(transport.asked("server/discover")) == 2
        assert answers == []


async def test_a_server_that_contradicts_itself_is_not_asked_again() -> None:
    transport = ScriptedTransport(MODERN_SERVER, **{"tools/call": other_revision("2026-07-28")})
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        error = (await ear.ask("tools/call", {"name": "echo"}))["error"]
        assert error["code"] == -32603
        assert len(transport.asked("tools/call")) == 1
        assert len(transport.asked("server/discover")) == 1


async def test_a_legacy_server_that_uses_a_code_of_the_modern_era_runs_a_call_once() -> None:
    """There the code means whatever the server wants it to, and the call may have taken effect."""
    for code, data in ((-32020, None), (-32022, {"supported": ["2031-01-01"]})):
        transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": Refusal(code, "own meaning", data)})
        async with bridged({"up": transport}) as bridge:
            ear = Ear(bridge.server)
            await ear.initialize()
            assert "error" in await ear.ask("tools/call", {"name": "echo"})
            assert len(transport.asked("tools/call")) == 1
            assert len(transport.asked("initialize")) == 1


async def test_a_call_is_repeated_with_the_headers_that_the_server_wants_now() -> None:
    """It marks another argument since the bridge listed its tools, and refuses what lacks the header."""
    marked = {"header": "Old"}
    called: list[dict[str, str]] = []

    def tools() -> list[dict[str, Any]]:
        place = {"type": "string", "x-mcp-header": marked["header"]}
        return [{"name": "t", "inputSchema": {"type": "object", "properties": {"place": place}}}]

    async def serve(ask: Ask) -> bytes:
        method = ask.message["method"]
        if method == "server/discover":
            info = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            return reply(result_of(ask, {"resultType": "complete", **info}))
        if method == "tools/list":
            return reply(result_of(ask, {"resultType": "complete", "tools": tools()}))
        called.append(ask.headers)
        if f"mcp-param-{marked['header'].lower()}" in ask.headers:
            return reply(result_of(ask, {"resultType": "complete", "content": []}))
        error = {"code": -32020, "message": "Header mismatch"}
        return reply({"jsonrpc": "2.0", "id": ask.id, "error": error}, 400)

    async with http_server(serve) as server, Bridge(settings_of(server.url)) as bridge:
        assert await bridge.settled(30)
        ear = Ear(bridge.server)
        await ear.initialize()
        call = {"name": "t", "arguments": {"place": "here"}}
        assert (await ear.ask("tools/call", call))["result"] == {"content": []}
        marked["header"] = "New"
        assert (await ear.ask("tools/call", call))["result"] == {"content": []}
        assert len(called) == 3
        assert called[-1]["mcp-param-new"] == "here"
        marked["header"] = "new name"  # not one that a header may have: the tool cannot be called any more
        error = (await ear.ask("tools/call", call))["error"]
        assert error["code"] == -32603
        assert json.dumps(error).count("-32020") == 0
