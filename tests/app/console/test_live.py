"""What open pages hear: nothing that changes after they were made is missed."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from mcpbridge import Bridge
from mcpbridge.app.console.live import LiveFeed
from mcpbridge.library.access import take_role
from support.console_app import visible, visit
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport

pytestmark = pytest.mark.anyio

PATIENCE = 120


async def topics(stream: AsyncGenerator[bytes]) -> list[str]:
    """Those of the next event."""
    while True:
        for line in (await anext(stream)).decode().splitlines():
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))["topics"]


async def test_a_call_that_begins_while_the_first_look_is_slow_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page asks for its parts at the first event. A call that begins right after that is no part of them."""
    transport = ScriptedTransport({**LEGACY_SERVER, "tools/call": SILENCE})
    async with asyncio.timeout(PATIENCE), bridged({"a": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        looks, may_look, pending = asyncio.Event(), asyncio.Event(), bridge.approvals.pending

        async def slow_pending() -> Any:
            looks.set()
            await may_look.wait()
            return await pending()

        monkeypatch.setattr(bridge.approvals, "pending", slow_pending)
        feed = LiveFeed(bridge)
        stream = feed.stream()
        first = asyncio.ensure_future(topics(stream))
        await looks.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        if not first.done():
            may_look.set()
        assert "running" in await first
        call = asyncio.ensure_future(ear.ask("tools/call", {"name": "a__echo", "arguments": {}}))
        while not bridge.running_calls():
            await asyncio.sleep(0)
        may_look.set()
        while "running" not in await topics(stream):
            pass
        call.cancel()
        await asyncio.wait([call])
        await stream.aclose()


async def test_what_changed_between_a_page_and_its_first_event_is_shown() -> None:
    """Nobody listened when it changed, so that nothing is announced: the parts that are asked for at first have it."""
    async with (
        asyncio.timeout(PATIENCE),
        bridged({"a": ScriptedTransport(LEGACY_SERVER)}) as bridge,
        visit(bridge) as one,
    ):
        assert "ready" in visible(await one.get("servers"))
        assert bridge.pool.upstreams["a"].stop()
        stream = one.console.live.stream()
        await topics(stream)
        assert "idle" in visible(await one.get("servers"))
        await stream.aclose()


async def test_a_look_that_fails_keeps_no_page_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(PATIENCE), bridged({"a": ScriptedTransport(LEGACY_SERVER)}) as bridge:

        async def pending() -> Any:
            raise OSError("the disk is full")

        monkeypatch.setattr(bridge.approvals, "pending", pending)
        stream = LiveFeed(bridge).stream()
        assert "running" in await topics(stream)
        await stream.aclose()


async def test_a_bridge_that_ends_lets_go_of_a_page_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(PATIENCE), bridged({"a": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        looks = asyncio.Event()

        async def pending() -> Any:
            looks.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(bridge.approvals, "pending", pending)
        feed = LiveFeed(bridge)
        events = asyncio.ensure_future(_all(feed.stream()))
        await looks.wait()
        feed.end()
        await events


async def test_nothing_is_announced_to_who_is_signed_out_and_the_stream_says_so() -> None:
    async with asyncio.timeout(PATIENCE), bridged({"a": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        feed, is_in = LiveFeed(bridge), True
        stream = feed.stream(lambda: is_in)
        await topics(stream)
        is_in = False
        feed.announce("calls")
        assert await _all(stream) == [b"event: signed-out\ndata: {}\n\n"]
        assert feed.listeners == 0
        never = await _all(feed.stream(lambda: False))
        assert never == [b"event: signed-out\ndata: {}\n\n"]


async def test_who_is_signed_out_while_nothing_happens_hears_it_too() -> None:
    async with asyncio.timeout(PATIENCE), bridged({"a": ScriptedTransport(LEGACY_SERVER)}) as bridge:
        is_in = True
        stream = LiveFeed(bridge).stream(lambda: is_in)
        await topics(stream)
        rest = asyncio.ensure_future(_all(stream))
        await asyncio.sleep(0)
        is_in = False
        assert (await rest)[-1].startswith(b"event: signed-out")


async def test_open_pages_show_an_emergency_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 23, break-glass: who has taken which role, why, and until when."""
    role = {"name": "oncall", "principals": "*", "servers": "*", "break_glass": True}
    async with (
        asyncio.timeout(PATIENCE),
        Bridge.open({"roles": [role]}, remember=False) as bridge,
        visit(bridge) as one,
    ):
        stream = one.console.live.stream()
        await topics(stream)
        assert "Emergency" not in await one.get("parts/banner")
        take_role(bridge, "ann", "oncall", "the <b>site</b> is down", 600, "cli")
        while "config" not in await topics(stream):
            pass
        shown = await one.get("parts/banner")
        assert "ann has the role oncall until" in visible(shown)
        assert "the &lt;b&gt;site&lt;/b&gt; is down" in shown
        later = time.time() + 601
        monkeypatch.setattr(time, "time", lambda: later)
        while "config" not in await topics(stream):
            pass
        assert "Emergency" not in await one.get("parts/banner")
        await stream.aclose()


async def _all(stream: AsyncGenerator[bytes]) -> list[bytes]:
    return [piece async for piece in stream]
