"""Slots and queue of one upstream."""

import asyncio
from collections import deque
from heapq import heappop, heappush
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import Overloaded
from mcpbridge.upstream.concurrency import ConcurrencyLimiter, LearnedSlots, WaitingRoom
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


# -- how long one waits, and how many slots a server gets


async def test_whoever_has_less_patience_is_refused_first_and_the_others_keep_their_place() -> None:
    """One timer serves the whole queue: it must follow whoever has the least time left, not whoever came first."""
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=5, patience=600)
    assert gate.try_enter()
    patient = asyncio.ensure_future(gate.enter())
    hasty = asyncio.ensure_future(gate.enter(0.01))
    hastier = asyncio.ensure_future(gate.enter(0))
    with anyio.fail_after(30):
        for refused in (hastier, hasty):
            with pytest.raises(Overloaded, match="busy for"):
                await refused
    assert not patient.done()
    gate.leave()
    with anyio.fail_after(30):
        await patient


async def test_one_timer_serves_all_who_wait() -> None:
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=100, patience=600)
    assert gate.try_enter()
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def counting(when: float, *args: Any, **how: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *args, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_at", counting)
        waiting = [asyncio.ensure_future(gate.enter()) for _ in range(100)]
        await asyncio.sleep(0)
        assert len(gate.queue) == 100
    assert len(timers) == 1
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)


class SimulatedServer:
    """Calls that keep a server busy for some time, by a clock of its own. `workers` of them run side by side."""

    def __init__(self, *, workers: int, durations: list[float]) -> None:
        self.slots, self.workers, self.durations = LearnedSlots.FEWEST, workers, durations
        self.best: dict[float, float] = {}

    def run(self, calls: int) -> int:
        """The slots after so many calls, of which there are always more waiting."""
        pipe: deque[tuple[int, float]] = deque()  # number and when it was sent, not yet begun
        running: list[tuple[float, int, float]] = []  # when it ends, number, when it was sent
        now, sent = 0.0, 0
        for _ in range(calls):
            while len(pipe) + len(running) < self.slots:
                pipe.append((sent, now))
                sent += 1
            while pipe and len(running) < self.workers:
                number, since = pipe.popleft()
                heappush(running, (now + self.durations[number % len(self.durations)], number, since))
            now, number, since = heappop(running)
            in_flight = sorted([number, *(other for _, other, _ in running), *(other for other, _ in pipe)])
            overtook = number not in in_flight[: 1 + len(in_flight) // 4]
            kind = self.durations[number % len(self.durations)]  # each is another tool
            best = self.best[kind] = min(now - since, self.best.get(kind, now - since))
            self.slots += LearnedSlots.change(self.slots, now - since, best, overtook=overtook)
        return self.slots


@pytest.mark.parametrize("durations", [[0.05], [5.0], [0.01, 5.0], [2.0, 3.0, 9.0]])
def test_a_server_that_answers_side_by_side_is_given_as_many_calls_as_there_are(durations: list[float]) -> None:
    assert SimulatedServer(workers=10_000, durations=durations).run(3000) == LearnedSlots.MOST


@pytest.mark.parametrize("seconds", [1.0, 5.0])
def test_a_slow_server_that_answers_one_after_the_other_keeps_its_pipe_short(seconds: float) -> None:
    """What waits here can be refused unsent; what waits in its pipe times out, and may have taken effect."""
    assert SimulatedServer(workers=1, durations=[seconds]).run(3000) <= 2 * LearnedSlots.FEWEST


def test_a_quick_server_that_answers_one_after_the_other_holds_no_call_for_longer_than_half_a_second() -> None:
    slots = SimulatedServer(workers=1, durations=[0.01]).run(3000)
    assert LearnedSlots.FEWEST <= slots <= 0.5 / 0.01


def test_a_server_that_becomes_slow_is_given_less_again() -> None:
    slots = 100
    for _ in range(200):
        slots += LearnedSlots.change(slots, 20, 0.2, overtook=False)
    assert slots == LearnedSlots.FEWEST


async def test_a_configured_number_of_slots_is_kept() -> None:
    gate = ConcurrencyLimiter("Server 'up'", slots=1, places=5, patience=600)
    assert gate.try_enter()
    waiting = [asyncio.ensure_future(gate.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    gate.answered("tool", 0.001, overtook=True)
    with anyio.fail_after(30):
        await waiting[0]
    assert gate.slots == 1
    assert len(gate.queue) == 2
    for one in waiting[1:]:
        one.cancel()
    await asyncio.wait(waiting)


@pytest.mark.parametrize(
    ("slots", "seconds", "best", "overtook", "change"),
    [
        (16, 0.9, 0.4, True, 1),
        (16, 0.8, 0.4, False, 1),
        (16, 0.81, 0.4, False, 0),
        (17, 1.1, 0.4, False, -1),
        (16, LearnedSlots.QUICK, 0.0, False, 1),
        (16, LearnedSlots.SLOW, 0.0, False, 0),
        (17, LearnedSlots.SLOW + 0.01, 0.0, False, -1),
        (LearnedSlots.FEWEST, LearnedSlots.SLOW + 1, 0.0, False, 0),
        (LearnedSlots.FEWEST + 1, LearnedSlots.SLOW + 1, 0.0, False, -1),
        (LearnedSlots.MOST, 0.0, 0.0, False, 0),
        (LearnedSlots.MOST, 99.0, 0.0, True, 0),
        (LearnedSlots.MOST - 1, 99.0, 0.0, True, 1),
    ],
)
def test_how_a_server_answers_changes_its_slots_one_by_one(
    slots: int, seconds: float, best: float, overtook: bool, change: int
) -> None:
    """Twice the best time is no wait in a pipe; only what is slow takes one away."""
    assert LearnedSlots.change(slots, seconds, best, overtook=overtook) == change


async def test_a_waiting_room_has_as_many_places_as_before_when_all_have_left() -> None:
    room = WaitingRoom("Server 'up'", places=2)
    for _ in range(3):
        async with room, room:
            with pytest.raises(Overloaded, match="2 calls wait for it"):
                await room.__aenter__()
        assert repr(room).endswith("0 of 2 places taken>")
