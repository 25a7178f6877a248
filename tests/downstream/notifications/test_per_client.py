"""What concerns which client: at the endpoint of one server, on one channel, in one handshake."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.core.elicitation import ELICIT, Question, QuestionRefused
from mcpbridge.downstream.elicitation.ask import LegacyElicitor
from mcpbridge.downstream.notifications import subscriptions as watching
from mcpbridge.downstream.revisions.request_meta import modern_client
from mcpbridge.protocol.jsonrpc import Frame, decode_frame
from support.in_process_bridge import BridgeToScripts, Ear, bridged, envelope, frame_of
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, ScriptedTransport

ROOTS: dict[str, Any] = {"roots": {"listChanged": True}}
ASKED = Question("up", ELICIT, Raw(json.dumps({"message": "Who?", "requestedSchema": {}}).encode()))


async def initialize(ear: Ear, capabilities: dict[str, Any]) -> None:
    """The handshake of a client that can be asked this."""
    version = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "ear", "version": "1"}}
    assert "result" in await ear.ask("initialize", {**version, "capabilities": capabilities})
    ear.tell("notifications/initialized")


# -- the endpoint of one server


async def test_the_roots_of_a_client_are_told_to_the_servers_that_its_endpoint_shows() -> None:
    transports = {name: ScriptedTransport(LEGACY_SERVER) for name in ("files", "mail")}
    async with bridged(transports, settle=False) as bridge:
        ear = Ear(bridge.server)
        ear.client.view = "mail"
        await initialize(ear, ROOTS)
        assert await bridge.settled(30)
        for name, transport in transports.items():
            transport.line.gives({"jsonrpc": "2.0", "id": f"roots of {name}", "method": "roots/list"})
        asked = await ear.hears("roots/list")
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [{"uri": "file:///secret"}]}}
        bridge.server.answered(ear.client, decode_frame(json.dumps(answer).encode()))
        assert (await transports["mail"].answer("roots of mail"))["result"]["roots"]
        assert "error" in await transports["files"].answer("roots of files")
        ear.tell("notifications/roots/list_changed")
        await transports["mail"].hears("notifications/roots/list_changed")
        assert not transports["files"].asked("notifications/roots/list_changed")
        assert len([message for message in ear.told if message["method"] == "roots/list"]) == 1
        declared = {name: transport.asked("initialize")[-1] for name, transport in transports.items()}
        assert "roots" in declared["mail"]["params"]["capabilities"]
        assert "roots" not in declared["files"]["params"]["capabilities"]


# -- one channel


def listening(bridge: BridgeToScripts, ear: Ear, number: int) -> "asyncio.Task[dict[str, Any]]":
    params = {"notifications": {"toolsListChanged": True}, "_meta": envelope()}
    frame: Frame = frame_of("subscriptions/listen", params, b"%d" % number)

    async def listen() -> dict[str, Any]:
        answer = await bridge.server.answer(modern_client(frame), frame, ear.hear, cancel_as=ear.client)
        return json.loads(answer.data or b"{}")

    return asyncio.ensure_future(listen())


async def test_only_so_many_listen_streams_are_open_on_one_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs memory, and a stream to each server whose tasks it names."""
    monkeypatch.setattr(watching, "MAX_OPEN", 3)
    async with bridged({"up": ScriptedTransport(MODERN_SERVER)}) as bridge:
        ear, other = Ear(bridge.server), Ear(bridge.server)
        streams = [listening(bridge, ear, number) for number in range(1, 4)]
        await ear.hears("notifications/subscriptions/acknowledged", times=3)
        refused = await listening(bridge, ear, 4)
        assert "3 streams of this client are open" in refused["error"]["message"]
        streams[0].cancel()
        await asyncio.wait(streams[:1])
        streams += [listening(bridge, ear, 5), listening(bridge, other, 1)]
        await ear.hears("notifications/subscriptions/acknowledged", times=4)
        await other.hears("notifications/subscriptions/acknowledged")
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams)


async def test_a_call_that_waits_for_an_answer_ends_with_its_channel() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    async with bridged({"up": transport}) as bridge:
        ear = Ear(bridge.server)
        call = asyncio.ensure_future(ear.ask_modern("tools/call", {"name": "echo"}, **able))
        await transport.hears("tools/call")
        line = transport.line
        line.gives({"jsonrpc": "2.0", "id": "q", "method": ELICIT, "params": json.loads(bytes(ASKED.params))})
        assert (await call)["result"]["resultType"] == "input_required"
        ear.leave()
        assert (await transport.answer("q"))["result"] == {"action": "cancel"}
        await transport.hears("notifications/cancelled")


# -- one handshake


async def test_what_a_client_was_asked_before_it_began_anew_gets_no_answer() -> None:
    """Its answer could not be told from one to a later question; nobody waits for it."""
    async with bridged({}) as bridge:
        ear = Ear(bridge.server)
        await initialize(ear, {"elicitation": {}})
        assert ear.client.requests is not None
        waits = asyncio.ensure_future(LegacyElicitor(ear.client, ear.client.requests, ear.hear).ask(ASKED))
        await ear.hears(ELICIT)
        await initialize(ear, {"elicitation": {}})
        with anyio.fail_after(30), pytest.raises(QuestionRefused):
            await waits
