"""A subscriber is answered when the server tells of the resource, not before: a change in between would be lost."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mcpbridge.upstream import lifecycle, wanted
from scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, ScriptedTransport, supervised

ABLE = {"resources": {"subscribe": True}}
SERVERS: dict[str, dict[str, Any]] = {
    "legacy": {**LEGACY_SERVER, "initialize": {**LEGACY_SERVER["initialize"], "capabilities": ABLE}},
    "modern": {**MODERN_SERVER, "server/discover": {**MODERN_SERVER["server/discover"], "capabilities": ABLE}},
}
SUBSCRIBING = {"legacy": "resources/subscribe", "modern": "subscriptions/listen"}


@pytest.fixture(params=list(SERVERS))
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def transport(era: str) -> ScriptedTransport:
    """A server that takes subscriptions only when the test says so (`takes`)."""
    lists = {"resources/list": {"resources": []}, "resources/templates/list": {"resourceTemplates": []}}
    return ScriptedTransport({**SERVERS[era], **lists, SUBSCRIBING[era]: SILENCE, "resources/unsubscribe": {}})


def takes(transport: ScriptedTransport, subscribing: Any) -> None:
    """The server takes this subscription."""
    if subscribing["method"] == "resources/subscribe":
        transport.line.gives({"jsonrpc": "2.0", "id": subscribing["id"], "result": {}})
    else:
        stamp = {"io.modelcontextprotocol/subscriptionId": subscribing["id"]}
        transport.line.says("notifications/subscriptions/acknowledged", notifications={}, _meta=stamp)


@pytest.fixture
def at_last(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nobody waits for long, from here on."""
    return lambda: monkeypatch.setattr(wanted, "FOLLOW_SECONDS", 0.01)


@pytest.fixture(autouse=True)
def never_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "FOLLOW_SECONDS", 3600.0)


async def test_a_subscriber_waits_until_the_server_has_taken_the_subscription(
    transport: ScriptedTransport, era: str
) -> None:
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        waiting = [asyncio.ensure_future(upstream.wanted.follows("memo://1")) for _ in range(2)]
        asked = await transport.hears(SUBSCRIBING[era])
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        takes(transport, asked)
        await asyncio.gather(*waiting)
        await upstream.wanted.follows("memo://1")  # the next one need not wait
        assert watcher.updated == [], "nothing was missed"
        assert len(transport.asked(SUBSCRIBING[era])) == 1


async def test_a_subscriber_waits_for_no_more_than_its_own_resource(transport: ScriptedTransport, era: str) -> None:
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        takes(transport, await transport.hears(SUBSCRIBING[era]))
        await upstream.wanted.follows("memo://1")
        upstream.wanted.subscribe("memo://2")
        waiting = asyncio.ensure_future(upstream.wanted.follows("memo://2"))
        asked = await transport.hears(SUBSCRIBING[era], times=2)
        await upstream.wanted.follows("memo://1")
        assert not waiting.done()
        takes(transport, asked)
        await waiting


async def test_what_changes_before_a_slow_server_has_taken_the_subscription_is_told_when_it_has(
    transport: ScriptedTransport, era: str, at_last: Callable[[], None]
) -> None:
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        at_last()
        upstream.wanted.subscribe("memo://1")
        await upstream.wanted.follows("memo://1")
        takes(transport, await transport.hears(SUBSCRIBING[era]))
        await watcher.until(lambda: watcher.updated)
        assert watcher.updated == [{"uri": "memo://1"}], "it may have changed: look again"


async def test_a_resource_that_nobody_wanted_for_a_moment_is_followed_still(
    transport: ScriptedTransport, era: str
) -> None:
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        takes(transport, await transport.hears(SUBSCRIBING[era]))
        await upstream.wanted.follows("memo://1")
        upstream.wanted.unsubscribe("memo://1")
        upstream.wanted.subscribe("memo://1")  # before the server has heard that nobody wants it
        await upstream.wanted.follows("memo://1")
        assert not transport.asked("resources/unsubscribe")
        assert len(transport.asked(SUBSCRIBING[era])) == 1


async def test_a_subscriber_waits_for_the_server_that_comes_back(
    transport: ScriptedTransport, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_DELAY", 0.001)
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        transport.line.ends("crashed")
        upstream.wanted.subscribe("memo://1")
        waiting = asyncio.ensure_future(upstream.wanted.follows("memo://1"))
        takes(transport, await transport.hears(SUBSCRIBING[era]))
        await waiting


async def test_a_subscriber_of_an_instance_that_is_replaced_waits_for_the_next_one(
    transport: ScriptedTransport, era: str
) -> None:
    async with supervised(transport) as (upstream, watcher), supervised(transport) as (heir, heirs_watcher):
        await watcher.reaches("ready")
        await heirs_watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        waiting = asyncio.ensure_future(upstream.wanted.follows("memo://1"))
        await transport.hears(SUBSCRIBING[era])
        upstream.wanted.hand_over(heir.wanted)
        second = await transport.hears(SUBSCRIBING[era], times=2)
        assert not waiting.done()
        takes(transport, second)
        await waiting
