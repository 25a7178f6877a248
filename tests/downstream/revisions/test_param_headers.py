"""Arguments that modern clients repeat in `Mcp-Param-*` headers: what is published is checked.

MCP 2026-07-28, Streamable HTTP, Server Behavior for Custom Headers.
"""

from typing import Any

import pytest

from mcpbridge.downstream.revisions.request_meta import modern_client
from support.in_process_bridge import Ear, bridged, envelope, frame_of
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, ScriptedTransport

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "free": {"type": "string"},
    },
}
TOOLS: dict[str, Any] = {"tools/list": {"tools": [{"name": "t", "inputSchema": SCHEMA}]}}


async def called(ear: Ear, arguments: dict[str, Any], headers: dict[str, str] | None) -> Any:
    frame = frame_of("tools/call", {"name": "up__t", "arguments": arguments, "_meta": envelope()})
    client = modern_client(frame)
    client.param_headers = headers
    answer = await ear.server.answer(client, frame, ear.hear)
    return answer.code


@pytest.mark.parametrize("script", [LEGACY_SERVER, MODERN_SERVER], ids=["legacy", "modern"])
async def test_headers_and_arguments_must_agree(script: dict[str, Any]) -> None:
    transport = ScriptedTransport(script, **TOOLS)
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        [tool] = (await ear.ask_modern("tools/list"))["result"]["tools"]
        assert tool["inputSchema"] == SCHEMA
        assert await called(ear, {"region": "eu", "free": "x"}, {"mcp-param-region": "eu"}) == 0
        assert await called(ear, {"region": "größe"}, {"mcp-param-region": "=?base64?Z3LDtsOfZQ==?="}) == 0
        assert await called(ear, {"count": 42}, {"mcp-param-count": "42.0"}) == 0
        assert await called(ear, {}, {"mcp-param-unknown": "x"}) == 0
        assert await called(ear, {"region": "eu"}, None) == 0, "a channel without headers has nothing to check"
        before = len(transport.asked("tools/call"))
        for arguments, headers in [
            ({"region": "eu"}, {}),
            ({"region": "eu"}, {"mcp-param-region": "us"}),
            ({"region": "eu"}, {"mcp-param-region": "=?base64?!?="}),
            ({}, {"mcp-param-region": "eu"}),
            ({"count": 42}, {"mcp-param-count": "43"}),
        ]:
            assert await called(ear, arguments, headers) == -32020
        assert len(transport.asked("tools/call")) == before, "a proxy may have routed by them: nothing runs"


async def test_legacy_clients_do_not_see_them_and_need_none() -> None:
    async with bridged({"up": ScriptedTransport(MODERN_SERVER, **TOOLS)}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        [tool] = (await ear.ask("tools/list"))["result"]["tools"]
        assert "x-mcp-header" not in str(tool)
        assert "result" in await ear.ask("tools/call", {"name": "up__t", "arguments": {"region": "eu"}})
