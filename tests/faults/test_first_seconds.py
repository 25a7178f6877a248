"""While servers start, only who asks for something of a slow one waits for it (issue 2, Supervision)."""

import asyncio
import json

from support.harness import Place, python_server
from support.in_process_bridge import Ear, bridged
from support.rpc import Message
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport

ASKED: dict[str, Message] = {
    "tools/list": {},
    "tools/call": {"name": "rich__echo", "arguments": {"text": "at once"}},
    "prompts/get": {"name": "rich__greet", "arguments": {"who": "Ada"}},
    "resources/read": {"uri": "memo://one"},
}
"""What the client asks for in one breath, by id."""


async def test_what_a_ready_server_has_is_had_while_another_is_still_starting(place: Place) -> None:
    """The list waits for the silent server as long as the bridge waits for any; the rest has come by then."""
    servers = {"silent": python_server("stubborn", "mute"), "rich": python_server("rich")}
    async with place.bridge(servers, bridge={"startup_wait": 8}) as client:
        await client.initialize()
        order: list[str] = []
        answers = {method: client.expect(method) for method in ASKED}
        for method, answer in answers.items():
            answer.add_done_callback(lambda _, method=method: order.append(method))
        requests = [{"jsonrpc": "2.0", "id": method, "method": method, "params": ASKED[method]} for method in ASKED]
        await client.write(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
        async with asyncio.timeout(60):
            replies = {method: await answer for method, answer in answers.items()}
        assert order[-1] == "tools/list", order
        assert replies["tools/call"].text == "at once"
        assert replies["prompts/get"].result["messages"][0]["content"]["text"] == "Greet Ada."
        assert replies["resources/read"].result["contents"][0]["text"] == "content of memo://one"
        assert "rich__echo" in [tool["name"] for tool in replies["tools/list"].result["tools"]]


async def test_a_tool_that_has_just_been_listed_is_called_while_another_server_is_still_starting() -> None:
    """Changes of the catalog are gathered for a moment: a call that comes in it waits for no other server."""
    servers = {
        "ready": ScriptedTransport(LEGACY_SERVER),
        "silent": ScriptedTransport(LEGACY_SERVER, **{"server/discover": SILENCE, "initialize": SILENCE}),
    }
    async with bridged(servers, settle=False, bridge={"startup_wait": 60}) as bridge:
        bridge.catalog._settle = 3600.0
        ear = Ear(bridge.server)
        await ear.initialize()
        while bridge.pool.upstreams["ready"].status.state != "ready":
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert (await ear.ask("tools/call", {"name": "ready__echo"}))["result"]["content"]
        assert bridge.pool.upstreams["silent"].status.state == "starting"
