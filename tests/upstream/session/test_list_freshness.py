"""Lists that stay fresh for a time, and lists whose changes nobody announces (MCP 2026-07-28, Caching)."""

from typing import Any

import pytest

from mcpbridge.upstream.session import keepalive as polling
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, ScriptedTransport, supervised


def listing(**hints: Any) -> Any:
    return {"tools": [], **hints}


@pytest.mark.parametrize(
    ("hint", "expected"),
    [({"ttlMs": 5000}, {"tools": 5000}), ({}, {}), ({"ttlMs": 0}, {"tools": 0}), ({"ttlMs": "soon"}, {}),
     ({"ttlMs": -1}, {"tools": 0}), ({"ttlMs": 1.5}, {}), ({"ttlMs": None}, {})],
)  # fmt: skip
async def test_what_a_server_says_of_its_list_is_known(hint: Any, expected: dict[str, int]) -> None:
    """A hint that cannot be read is none, and the list is as good as before."""
    async with supervised(ScriptedTransport(MODERN_SERVER, **{"tools/list": listing(**hint)})) as (upstream, watcher):
        await watcher.reaches("ready")
        assert upstream.listings.ttl_ms == expected
        assert watcher.offers[-1]["tools"] == ()


async def test_a_list_is_as_fresh_as_its_least_fresh_page() -> None:
    def page(params: dict[str, Any]) -> Any:
        return listing(ttlMs=10) if "cursor" in params else listing(ttlMs=900, nextCursor="2")

    async with supervised(ScriptedTransport(MODERN_SERVER, **{"tools/list": page})) as (upstream, watcher):
        await watcher.reaches("ready")
        assert upstream.listings.ttl_ms == {"tools": 10}


async def test_a_list_whose_changes_are_not_announced_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "SHORTEST", 0.01)
    transport = ScriptedTransport(MODERN_SERVER, **{"resources/list": {"resources": [], "ttlMs": 1}})
    async with supervised(transport) as (_, watcher):
        await watcher.reaches("ready")
        await transport.hears("resources/list", times=3)
        transport.script["resources/list"] = {"resources": [{"uri": "x:y", "name": "n"}], "ttlMs": 1}
        await watcher.until(lambda: watcher.offers[-1]["resources"])
        assert len(transport.asked("tools/list")) == 1, "the server announces changes of this one"


async def test_a_list_whose_changes_the_server_would_not_promise_is_looked_at_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What counts is what it acknowledged when it was listened to."""
    monkeypatch.setattr(polling, "SHORTEST", 0.01)
    promise = {"notifications": {"toolsListChanged": False}}
    transport = ScriptedTransport(MODERN_SERVER, **{"tools/list": listing(ttlMs=1)})
    async with supervised(transport) as (_, watcher):
        await watcher.reaches("ready")
        first = await transport.hears("subscriptions/listen")
        stamp = {"io.modelcontextprotocol/subscriptionId": first["id"]}
        transport.line.says("notifications/subscriptions/acknowledged", **promise, _meta=stamp)
        await transport.hears("tools/list", times=4)


async def test_a_server_of_the_handshake_era_is_not_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no hints; what it does not announce stays as it is until it comes anew."""
    monkeypatch.setattr(polling, "UNSAID", 0.01)
    quiet: Any = {**LEGACY_SERVER["initialize"], "capabilities": {"tools": {}}}
    transport = ScriptedTransport(LEGACY_SERVER, initialize=quiet)
    async with supervised(transport, ping_interval=0.02) as (_, watcher):
        await watcher.reaches("ready")
        await transport.hears("ping", times=3)
        assert len(transport.asked("tools/list")) == 1
