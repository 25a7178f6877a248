"""A subscriber is answered when the server tells of the resource, not before: a change in between would be lost."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from mcpbridge.upstream.connection import backoff as lifecycle
from mcpbridge.upstream.session import subscriptions as wanted
from support.upstreams.scripted_upstream import (
    LEGACY_SERVER,
    MODERN_SERVER,
    SILENCE,
    Line,
    ScriptedTransport,
    supervised,
)

ABLE = {"resources": {"subscribe": True}}
SERVERS: dict[str, dict[str, Any]] = {
    "legacy": {**LEGACY_SERVER, "initialize": {**LEGACY_SERVER["initialize"], "capabilities": ABLE}},
    "modern": {**MODERN_SERVER, "server/discover": {**MODERN_SERVER["server/discover"], "capabilities": ABLE}},
}
NO_RESOURCES = {**MODERN_SERVER["server/discover"], "capabilities": {"tools": {"listChanged": True}}}
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
    """Of the first resource, and of one more, when the server tells of the first already."""
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        at_last()
        for number, uri in enumerate(("memo://1", "memo://2"), 1):
            upstream.wanted.subscribe(uri)
            await upstream.wanted.follows(uri)
            takes(transport, await transport.hears(SUBSCRIBING[era], times=number))
            await watcher.until(lambda number=number: len(watcher.updated) >= number)
            assert watcher.updated[number - 1 :] == [{"uri": uri}], "it may have changed: look again"


async def test_what_changes_while_a_listen_stream_follows_one_that_ended_is_told() -> None:
    """The one before it did not stay until it was open: nobody listened in between."""
    lists = {"resources/list": {"resources": []}, "resources/templates/list": {"resourceTemplates": []}}
    transport = ScriptedTransport({**SERVERS["modern"], **lists})
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        upstream.wanted.subscribe("memo://1")
        first = await transport.hears("subscriptions/listen")
        takes(transport, first)
        upstream.wanted.subscribe("memo://2")
        second = await transport.hears("subscriptions/listen", times=2)
        transport.line.gives({"jsonrpc": "2.0", "id": first["id"], "result": {"resultType": "complete"}})
        await asyncio.sleep(0)
        takes(transport, second)
        await upstream.wanted.follows("memo://2")
        assert watcher.updated == [{"uri": "memo://1"}]


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


async def test_what_changes_until_the_next_instance_has_taken_over_is_told(
    transport: ScriptedTransport, era: str
) -> None:
    """Also if that one tells of other resources already."""
    async with supervised(transport) as (heir, heirs_watcher):
        await heirs_watcher.reaches("ready")
        heir.wanted.subscribe("memo://0")
        takes(transport, await transport.hears(SUBSCRIBING[era]))
        await heir.wanted.follows("memo://0")
        line = transport.line
        async with supervised(transport) as (upstream, watcher):
            await watcher.reaches("ready")
            upstream.wanted.subscribe("memo://1")
            takes(transport, await transport.hears(SUBSCRIBING[era], times=2))
            await upstream.wanted.follows("memo://1")
            upstream.wanted.hand_over(heir.wanted)
            await line_hears(transport, line, SUBSCRIBING[era], times=2)
        transport.lines.remove(transport.line)  # of the one that is no more
        takes(transport, line.asked(SUBSCRIBING[era])[1])
        await heirs_watcher.until(lambda: heirs_watcher.updated)
        assert heirs_watcher.updated == [{"uri": "memo://1"}]


async def test_nobody_waits_for_what_nobody_wants_any_more(transport: ScriptedTransport) -> None:
    async with supervised(transport) as (upstream, watcher):
        await watcher.reaches("ready")
        for end in (lambda: upstream.wanted.unsubscribe("memo://1"), upstream.wanted.forget):
            upstream.wanted.subscribe("memo://1")
            waiting = asyncio.ensure_future(upstream.wanted.follows("memo://1"))
            await asyncio.sleep(0)
            assert not waiting.done()
            end()
            await waiting


async def test_nobody_waits_for_a_server_that_never_tells(era: str) -> None:
    """It declares no subscriptions, which is known once it runs."""
    silent = {"legacy": LEGACY_SERVER, "modern": {**MODERN_SERVER, "server/discover": NO_RESOURCES}}[era]
    transport = ScriptedTransport(silent)
    async with supervised(transport) as (upstream, watcher):
        upstream.wanted.subscribe("memo://1")
        await upstream.wanted.follows("memo://1")
        assert watcher.states == ["starting", "ready"]
    assert not transport.asked("resources/subscribe")


async def line_hears(transport: ScriptedTransport, line: Line, method: str, times: int) -> None:
    """Return when this connection has heard the method so many times."""
    with anyio.fail_after(30):
        while len(line.asked(method)) < times:
            await transport.hears(method, times=len(transport.asked(method)) + 1)
