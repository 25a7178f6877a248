"""Slots and queue of one upstream."""

import asyncio

import anyio
import pytest

from mcpbridge.base.errors import Overloaded
from mcpbridge.upstream.concurrency import ConcurrencyLimiter, WaitingRoom
from support.upstreams.scripted_upstream import call_of

pytestmark = pytest.mark.anyio


async def test_calls_beyond_the_slots_wait_in_order() -> None:
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=5, patience=5)
    order: list[int] = []

    async def call(number: int) -> None:
        if not gate.try_enter():
            await gate.enter()
        order.append(number)
        await asyncio.sleep(0)
        gate.leave()

    with anyio.fail_after(30):
        await asyncio.gather(*(call(number) for number in range(4)))
    assert order == [0, 1, 2, 3]
    assert not gate.is_busy


async def test_a_full_queue_refuses_at_once_and_says_why() -> None:
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=0, patience=5)
    assert gate.try_enter()
    with pytest.raises(Overloaded, match="Server 'up' is busy: 1 call runs and 0 wait"):
        await gate.enter()


async def test_a_wait_that_takes_too_long_is_refused_unsent() -> None:
    """The queue has a time-out of its own, as HAProxy's has (`timeout queue`)."""
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=1, patience=0.01)
    assert gate.try_enter()
    with anyio.fail_after(30), pytest.raises(Overloaded, match="busy for"):
        await gate.enter()
    gate.leave()
    assert gate.try_enter()


async def test_a_call_that_waits_for_a_person_lends_out_its_one_slot_however_much_is_asked() -> None:
    gate, call = ConcurrencyLimiter("Server 'up'", slots=1, places=5, patience=5), call_of()
    assert gate.try_enter()
    first, second = gate.rest(call), gate.rest(call)
    with first:
        second.__enter__()
        assert gate.try_enter()
        assert not gate.try_enter()
        gate.leave()
    assert gate.try_enter()  # the second question still waits
    gate.leave()
    second.__exit__(None, None, None)
    assert gate.is_busy
    gate.leave()
    assert gate.try_enter()
    assert not gate.try_enter()


async def test_a_cancelled_wait_gives_its_turn_to_the_next() -> None:
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=5, patience=5)
    assert gate.try_enter()
    first, second = asyncio.ensure_future(gate.enter()), asyncio.ensure_future(gate.enter())
    await asyncio.sleep(0)
    first.cancel()
    gate.leave()
    with anyio.fail_after(30):
        await second
    assert gate.is_busy
    gate.leave()
    assert not gate.is_busy


async def test_a_wait_cancelled_in_the_turn_it_was_let_in_gives_the_slot_back() -> None:
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=5, patience=5)
    assert gate.try_enter()
    waiting = asyncio.ensure_future(gate.enter())
    await asyncio.sleep(0)
    gate.leave()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not gate.is_busy


async def test_a_waiting_room_refuses_whoever_finds_it_full() -> None:
    room = WaitingRoom("Server 'up' is starting", places=1)
    async with room:
        with pytest.raises(Overloaded, match="Server 'up' is starting: 1 calls wait for it, more are not taken"):
            async with room:
                pass
    async with room:
        pass


async def test_a_call_that_comes_with_the_cancelling_of_others_finds_their_place() -> None:
    """Both may stand in one chunk of input; the others leave only when their tasks get their turn."""
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=1, patience=5)
    assert gate.try_enter()
    waiting = asyncio.ensure_future(gate.enter())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(waiting.cancel)
    coming = asyncio.ensure_future(gate.enter())
    await asyncio.wait([waiting])
    gate.leave()
    with anyio.fail_after(30):
        await coming


async def test_a_call_that_comes_with_the_cancelling_of_all_that_run_gets_a_slot() -> None:
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=0, patience=5)

    async def call() -> None:
        assert gate.try_enter()
        try:
            await asyncio.Event().wait()
        finally:
            gate.leave()

    running = asyncio.ensure_future(call())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(running.cancel)
    with anyio.fail_after(30):
        await asyncio.ensure_future(gate.enter())
    assert gate.is_busy


async def test_who_comes_with_the_cancelling_of_others_finds_their_place_in_the_waiting_room() -> None:
    room = WaitingRoom("Server 'up' is starting", places=1)

    async def wait(ends: asyncio.Event) -> None:
        async with room:
            await ends.wait()

    first, ends = asyncio.ensure_future(wait(asyncio.Event())), asyncio.Event()
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(first.cancel)
    second = asyncio.ensure_future(wait(ends))
    await asyncio.wait([first])
    ends.set()
    with anyio.fail_after(30):
        await second
