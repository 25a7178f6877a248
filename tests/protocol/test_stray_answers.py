"""Answers that name no request which waits: a late one is no fault, another ends the only call it can be for."""

import asyncio
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import UpstreamGarbled, UpstreamTimeout
from mcpbridge.protocol import peer as module
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport, call_of, supervised

pytestmark = pytest.mark.anyio
DONE: Any = {"content": []}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STRAY_SECONDS", 0.0)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("ends", ["timeout", "cancel"])
async def test_a_late_answer_ends_no_other_call(ends: str) -> None:
    up = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with supervised(up, call_timeout=0.05 if ends == "timeout" else 60) as (upstream, watcher):
        await watcher.reaches("ready")
        first = asyncio.ensure_future(upstream.request(call_of()))
        late = await up.hears("tools/call")
        if ends == "cancel":
            first.cancel()
        with pytest.raises(UpstreamTimeout if ends == "timeout" else asyncio.CancelledError):
            await first
        second = asyncio.ensure_future(upstream.request(call_of()))
        asked = await up.hears("tools/call", times=2)
        up.line.gives({"jsonrpc": "2.0", "id": late["id"], "result": DONE})
        await turns()
        up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": DONE})
        with anyio.fail_after(30):
            await second


@pytest.mark.parametrize("id_", [999, "abc", -1, 1.5, 1, {"n": 1}, [1], True])
async def test_an_answer_to_nothing_ends_the_only_call_that_waits(id_: Any) -> None:
    """1 has been answered in the handshake."""
    up = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with supervised(up) as (upstream, watcher):
        await watcher.reaches("ready")
        call = asyncio.ensure_future(upstream.request(call_of()))
        await up.hears("tools/call")
        up.line.gives({"jsonrpc": "2.0", "id": id_, "result": DONE})
        with anyio.fail_after(30), pytest.raises(UpstreamGarbled, match="which no request has that waits"):
            await call


@pytest.mark.parametrize("message", [{"id": 999, "result": DONE}, {"id": 7, "level": "info"}, {"result": 1}])
async def test_a_line_of_a_log_ends_no_call(message: Any) -> None:
    up = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with supervised(up) as (upstream, watcher):
        await watcher.reaches("ready")
        call = asyncio.ensure_future(upstream.request(call_of()))
        asked = await up.hears("tools/call")
        up.line.gives(message)
        await turns()
        up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": DONE})
        with anyio.fail_after(30):
            await call


async def test_with_two_calls_under_way_nobody_knows_whose_answer_it_was() -> None:
    up = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with supervised(up) as (upstream, watcher):
        await watcher.reaches("ready")
        calls = [asyncio.ensure_future(upstream.request(call_of())) for _ in range(2)]
        await up.hears("tools/call", times=2)
        up.line.gives({"jsonrpc": "2.0", "id": 999, "result": DONE})
        await turns()
        for asked in up.asked("tools/call"):
            up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": DONE})
        with anyio.fail_after(30):
            await asyncio.gather(*calls)
