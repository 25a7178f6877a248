"""Subscriptions of clients: answered when the server has taken them, gone with the request, the session, the end."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mcpbridge.upstream.connection import backoff as lifecycle
from mcpbridge.upstream.session import subscriptions as wanted
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport

SERVER = {
    **LEGACY_SERVER,
    "initialize": {**LEGACY_SERVER["initialize"], "capabilities": {"resources": {"subscribe": True}, "tools": {}}},
    "resources/list": {"resources": [{"uri": "memo://1", "name": "1"}, {"uri": "memo://2", "name": "2"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/subscribe": SILENCE,
    "resources/unsubscribe": {},
}
ONE = {"uri": "memo://1"}
LISTENING = {"notifications": {"resourceSubscriptions": ["memo://1"]}}


@pytest.fixture(autouse=True)
def never_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "FOLLOW_SECONDS", 3600.0)


@pytest.fixture
def transport() -> ScriptedTransport:
    """A server that takes subscriptions only when the test says so (`takes`)."""
    return ScriptedTransport(SERVER)


@pytest.fixture
async def bridge(transport: ScriptedTransport) -> AsyncIterator[BridgeToScripts]:
    async with bridged({"up": transport}) as bridge:
        yield bridge


async def takes(transport: ScriptedTransport, times: int = 1) -> None:
    asked = await transport.hears("resources/subscribe", times=times)
    transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {}})


async def turns() -> None:
    """Let everything happen that can happen."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_session_is_answered_when_the_server_has_taken_its_subscription(
    bridge: BridgeToScripts, transport: ScriptedTransport
) -> None:
    """Also the one who asks for the same while that is on its way."""
    ear = Ear(bridge.server)
    await ear.initialize()
    first = asyncio.ensure_future(ear.ask("resources/subscribe", ONE, b"1"))
    await transport.hears("resources/subscribe")
    second = asyncio.ensure_future(ear.ask("resources/subscribe", ONE, b"2"))
    await turns()
    assert not first.done()
    assert not second.done()
    await takes(transport)
    assert (await first)["result"] == (await second)["result"] == {}
    assert len(transport.asked("resources/subscribe")) == 1


async def test_a_listen_stream_is_acknowledged_when_the_server_has_taken_its_subscription(
    bridge: BridgeToScripts, transport: ScriptedTransport
) -> None:
    ear = Ear(bridge.server)
    listening = asyncio.ensure_future(ear.ask_modern("subscriptions/listen", LISTENING, b"7"))
    await transport.hears("resources/subscribe")
    await turns()
    assert ear.meanwhile == []
    await takes(transport)
    acknowledged = await ear.hears("notifications/subscriptions/acknowledged")
    assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": ["memo://1"]}
    bridge.server.end()
    assert (await listening)["result"]["resultType"] == "complete"


async def test_a_listen_stream_that_is_acknowledged_after_the_end_ends(
    bridge: BridgeToScripts, transport: ScriptedTransport
) -> None:
    ear = Ear(bridge.server)
    listening = asyncio.ensure_future(ear.ask_modern("subscriptions/listen", LISTENING, b"7"))
    await transport.hears("resources/subscribe")
    bridge.server.end()
    await takes(transport)
    assert (await listening)["result"]["resultType"] == "complete"


async def test_a_subscription_whose_request_is_withdrawn_is_none(
    bridge: BridgeToScripts, transport: ScriptedTransport
) -> None:
    ear = Ear(bridge.server)
    await ear.initialize()
    first = asyncio.ensure_future(ear.ask("resources/subscribe", ONE, b"1"))
    await transport.hears("resources/subscribe")
    ear.tell("notifications/cancelled", {"requestId": 1})
    assert await first == {}, "nothing is said to it"
    assert not ear.client.subscriptions
    await takes(transport)
    await transport.hears("resources/unsubscribe")


async def test_a_subscription_that_another_request_counts_on_stays(
    bridge: BridgeToScripts, transport: ScriptedTransport
) -> None:
    """One that waits, and one that was answered."""
    ear = Ear(bridge.server)
    await ear.initialize()
    first = asyncio.ensure_future(ear.ask("resources/subscribe", ONE, b"1"))
    await transport.hears("resources/subscribe")
    second = asyncio.ensure_future(ear.ask("resources/subscribe", ONE, b"2"))
    await turns()
    ear.tell("notifications/cancelled", {"requestId": 1})
    assert await first == {}
    await takes(transport)
    assert (await second)["result"] == {}
    assert set(ear.client.subscriptions) == {"memo://1"}
    ear.tell("notifications/cancelled", {"requestId": 2})
    await turns()
    transport.line.says("notifications/resources/updated", uri="memo://1")
    await ear.hears("notifications/resources/updated")


async def test_who_unsubscribes_or_leaves_while_it_waits_leaves_nothing(
    bridge: BridgeToScripts, transport: ScriptedTransport
) -> None:
    ear = Ear(bridge.server)
    await ear.initialize()
    first = asyncio.ensure_future(ear.ask("resources/subscribe", ONE, b"1"))
    await transport.hears("resources/subscribe")
    await ear.ask("resources/unsubscribe", ONE, b"2")
    assert (await first)["result"] == {}
    second = asyncio.ensure_future(ear.ask("resources/subscribe", {"uri": "memo://2"}, b"3"))
    await takes(transport)
    await transport.hears("resources/subscribe", times=2)
    ear.leave()
    with pytest.raises(asyncio.CancelledError):
        await second
    await takes(transport, times=2)
    await transport.hears("resources/unsubscribe", times=2)


async def test_nobody_waits_for_a_server_that_is_away(
    bridge: BridgeToScripts, transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has may have changed when it is back: that is told."""
    monkeypatch.setattr(lifecycle, "FIRST_DELAY", 3600.0)
    monkeypatch.setattr(lifecycle, "LONGEST_DELAY", 3600.0)
    upstream = bridge.pool.upstreams["up"]
    ear = Ear(bridge.server)
    await ear.initialize()
    await ear.ask("resources/list", {})
    transport.line.ends("crashed")
    while upstream.status.state != "retrying":
        await asyncio.sleep(0)
    assert (await ear.ask("resources/subscribe", ONE, b"2"))["result"] == {}
    upstream.connection.poke()
    await takes(transport)
    assert (await ear.hears("notifications/resources/updated"))["params"]["uri"] == "memo://1"


async def test_who_listens_is_told_of_changed_lists_though_nobody_was_listed_anything_here(
    transport: ScriptedTransport,
) -> None:
    """It may know a list from before the bridge was started anew."""
    async with bridged({"up": transport}, settle=False) as bridge:
        ear = Ear(bridge.server)
        listening = {"notifications": {"toolsListChanged": True}}
        stream = asyncio.ensure_future(ear.ask_modern("subscriptions/listen", listening, b"7"))
        await ear.hears("notifications/subscriptions/acknowledged")
        await ear.hears("notifications/tools/list_changed")  # the server is there
        transport.script["tools/list"] = {"tools": [{"name": "grown", "inputSchema": {"type": "object"}}]}
        transport.line.says("notifications/tools/list_changed")
        await ear.hears("notifications/tools/list_changed", times=2)
        bridge.server.end()
        await stream
