"""What a call waits for, before it is sent, counts against its time."""

import asyncio

import anyio
import pytest

from mcpbridge.base.errors import Overloaded, UpstreamTimeout, UpstreamUnavailable
from mcpbridge.protocol.deadlines import Timeouts
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport, call_of, supervised

SILENT = {**LEGACY_SERVER, "tools/call": SILENCE}


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_call_that_waited_elsewhere_has_what_is_left_of_its_time() -> None:
    transport = ScriptedTransport(SILENT)
    async with supervised(transport, call_timeout=60) as (upstream, watcher):
        await watcher.reaches("ready")
        call = call_of()
        call.deadline = now() + 0.5
        with anyio.fail_after(30), pytest.raises(UpstreamTimeout, match="no answer within 60 s"):
            await upstream.request(call)
        assert len(transport.asked("tools/call")) == 1


async def test_a_call_without_time_left_is_refused_unsent_and_says_why() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport, call_timeout=60) as (upstream, watcher):
        await watcher.reaches("ready")
        call = call_of()
        call.deadline = now() - 1
        with pytest.raises(Overloaded, match="The call has 60 s, which it waited to be sent to server 'up'"):
            await upstream.request(call)
        assert not transport.asked("tools/call")


async def test_waiting_for_a_slot_counts() -> None:
    transport = ScriptedTransport(SILENT)
    async with supervised(transport, call_timeout=60, max_concurrent=1) as (upstream, watcher):
        await watcher.reaches("ready")
        first = asyncio.ensure_future(upstream.request(call_of()))
        await transport.hears("tools/call")
        call, began = call_of(), now()
        second = asyncio.ensure_future(upstream.request(call))
        await asyncio.sleep(0)
        assert began + 60 <= call.deadline <= now() + 60, "counted from when it began to wait"
        first.cancel()
        await transport.hears("tools/call", times=2)
        second.cancel()
        await asyncio.wait([first, second])


async def test_a_call_waits_for_a_slot_only_as_long_as_it_has_time() -> None:
    transport = ScriptedTransport(SILENT)
    async with supervised(transport, max_concurrent=1, queue_timeout=60) as (upstream, watcher):
        await watcher.reaches("ready")
        first = asyncio.ensure_future(upstream.request(call_of()))
        await transport.hears("tools/call")
        call = call_of()
        call.timeouts = Timeouts(0.05, 60)
        with (
            anyio.fail_after(30),
            pytest.raises(Overloaded, match=r"Server 'up' was busy for 0.05 s with another call"),
        ):
            await upstream.request(call)
        assert call.facts
        first.cancel()
        await asyncio.wait([first])
        assert len(transport.asked("tools/call")) == 1


async def test_a_call_waits_for_a_start_only_as_long_as_it_has_time() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"server/discover": SILENCE, "initialize": SILENCE})
    async with supervised(transport, queue_timeout=60) as (upstream, watcher):
        await watcher.reaches("starting")
        call = call_of()
        call.timeouts = Timeouts(0.05, 60)
        with (
            anyio.fail_after(30),
            pytest.raises(UpstreamUnavailable, match=r"starting \(the call waited 0.05 s for it\)"),
        ):
            await upstream.request(call)


async def test_a_call_that_waits_for_nothing_has_no_deadline_to_look_at() -> None:
    """The usual call pays nothing for it."""
    async with supervised(ScriptedTransport(LEGACY_SERVER)) as (upstream, watcher):
        await watcher.reaches("ready")
        call = call_of()
        await upstream.request(call)
        assert call.deadline == 0
