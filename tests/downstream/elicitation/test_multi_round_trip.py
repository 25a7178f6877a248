"""Questions of a modern server that pass through to a modern client, with nothing kept between the rounds."""

from typing import Any

from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import MODERN_SERVER, ScriptedTransport

ABLE = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


async def test_a_call_may_be_put_off_more_often_than_a_client_may_be_asked() -> None:
    """MCP 2026-07-28, Multi Round-Trip Requests: a state without questions means "later", and is no round of them."""
    told = 0

    def run(params: Any) -> Any:
        nonlocal told
        assert params.get("requestState") == (f"s{told}" if told else None)
        told += 1
        if told <= 15:
            return {"resultType": "input_required", "requestState": f"s{told}"}
        return {"resultType": "complete", "content": []}

    async with bridged({"up": ScriptedTransport(MODERN_SERVER, **{"tools/call": run})}) as bridge:
        ear = Ear(bridge.server)
        params: dict[str, Any] = {"name": "echo"}
        for _ in range(15):
            result = (await ear.ask_modern("tools/call", params, **ABLE))["result"]
            assert (result["resultType"], "inputRequests" in result) == ("input_required", False)
            params = {"name": "echo", "requestState": result["requestState"]}
        assert (await ear.ask_modern("tools/call", params, **ABLE))["result"]["content"] == []
