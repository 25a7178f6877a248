"""How many calls one conversation, and one run of it, may make."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import BudgetSpent, Overloaded, UpstreamUnavailable
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.context import Session
from mcpbridge.core.model import Call
from mcpbridge.pipeline.stages.call_budget import CallBudget, Chain
from mcpbridge.protocol.body import Body
from support.upstreams.scripted_upstream import call_of

TOOL: Any = object()


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Someone:
    """A caller."""

    principal = name = version = ""

    def __init__(self) -> None:
        self.session = Session()


class Calls:
    """Makes calls through the stage of some settings; `sent` reached the server."""

    def __init__(self, clock: Clock | None = None, **settings: object) -> None:
        budgets = CallBudget(CallDefaults.model_validate(settings), clock or Clock())
        stage = budgets.stage(TOOL, CallOptions())
        assert stage is not None
        self.stage = stage
        self.sent = 0
        self.fails: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def deliver(self, call: Call) -> Body:
        self.sent += 1
        if self.fails is not None:
            raise self.fails
        await self.open.wait()
        return Body()

    async def make(self, caller: Someone, run: str = "", **more: Any) -> str:
        """What became of a call: the refusal's text, or nothing."""
        meta = Body(json.dumps({"mcpbridge/run": run}).encode()) if run else None
        try:
            await self.stage(call_of(caller=caller, meta=meta, **more), self.deliver)
        except BudgetSpent as error:
            return error.full_message()
        return ""


def test_without_budgets_there_is_no_stage_nor_for_what_is_no_tool() -> None:
    assert CallBudget(CallDefaults()).stage(TOOL, CallOptions()) is None
    assert CallBudget(CallDefaults(max_calls=1, max_chain=1)).stage(None, CallOptions()) is None


async def test_a_conversation_makes_so_many_calls_and_no_more() -> None:
    calls, ann, bob = Calls(max_calls=3), Someone(), Someone()
    assert [bool(await calls.make(ann)) for _ in range(5)] == [False] * 3 + [True] * 2
    assert "has made as many calls as it may: 3 (`calls.max_calls`)" in await calls.make(ann)
    assert not await calls.make(bob)
    assert calls.sent == 4


async def test_what_found_no_place_was_not_made_but_what_failed_was() -> None:
    calls, ann = Calls(max_calls=2), Someone()
    calls.fails = Overloaded("busy")
    for _ in range(5):
        with pytest.raises(Overloaded, match="busy"):
            await calls.make(ann)
    calls.fails = UpstreamUnavailable("up", "gone")
    for _ in range(2):
        with pytest.raises(UpstreamUnavailable):
            await calls.make(ann)
    assert await calls.make(ann)


async def test_later_rounds_of_a_call_are_no_calls_of_their_own() -> None:
    calls, ann = Calls(max_calls=1, max_chain=1), Someone()
    assert not await calls.make(ann)
    assert not await calls.make(ann, continues=True)
    assert await calls.make(ann)


async def test_so_many_calls_follow_one_another_until_the_conversation_pauses() -> None:
    clock = Clock()
    calls, ann = Calls(clock, max_chain=2, chain_pause=60), Someone()
    assert [bool(await calls.make(ann)) for _ in range(3)] == [False, False, True]
    clock.now += 59
    told = await calls.make(ann)
    assert told == (
        "As many calls have followed one another in this run as may: 2 (`calls.max_chain`). Nothing was sent. Continue "
        "without further calls, or tell the user that the limit is reached. A new run begins after 1m without a call."
    )
    clock.now += 59  # not 60: whoever goes on asking does not pause
    assert await calls.make(ann)
    clock.now += 60
    assert not await calls.make(ann)
    assert not await calls.make(Someone())


async def test_a_run_that_has_a_name_does_not_begin_anew() -> None:
    clock = Clock()
    calls, ann = Calls(clock, max_chain=1, chain_pause=1), Someone()
    assert not await calls.make(ann, "first")
    clock.now += 1000
    told = await calls.make(ann, "first")
    assert "in this run as may: 1" in told
    assert "new run" not in told
    assert not await calls.make(ann, "second")
    assert not await calls.make(Someone(), "first")


async def test_calls_side_by_side_do_not_follow_one_another() -> None:
    calls, ann = Calls(max_chain=2), Someone()
    for _ in range(2):
        calls.open.clear()
        running = [asyncio.ensure_future(calls.make(ann)) for _ in range(10)]
        await asyncio.sleep(0)
        calls.open.set()
        assert await asyncio.gather(*running) == [""] * 10
    assert calls.sent == 20
    assert await calls.make(ann)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=80), st.integers(1, 6))
def test_a_chain_is_as_long_as_the_longest_row_of_calls_one_after_another(
    steps: list[tuple[bool, int]], most: int
) -> None:
    """Against the definition: a call's place is one more than the largest of those that had ended before it began."""
    chain = Chain()
    running: list[tuple[int, int]] = []
    ended: list[int] = []
    for now, (begins, which) in enumerate(steps):
        if begins:
            expected = max(ended, default=0) + 1
            place = chain.begin(now, most=most, pause=0)
            assert place == (expected if expected <= most else 0)
            if place:
                running.append((now, place))
        elif running:
            _, place = running.pop(which % len(running))
            chain.end(now, place)
            ended.append(place)


def test_a_call_that_runs_keeps_its_run_however_long_it_takes() -> None:
    """The pause counts from its end: a slow call is no pause."""
    chain = Chain()
    assert chain.begin(0, most=2, pause=60) == 1
    assert chain.begin(100, most=2, pause=60) == 1, "it began before the first was over"
    chain.end(200, 1)
    assert chain.begin(259, most=2, pause=60) == 2
    chain.end(300, 2)
    chain.end(301, 1)
    assert chain.begin(360, most=2, pause=60) == 0, "both came less than a pause ago"
    assert chain.begin(419, most=2, pause=60) == 0, "who asks all the time stays in the same run"
    assert chain.begin(479, most=2, pause=60) == 1
    assert chain.begin(10**6, most=2, pause=0) == 1


async def test_refused_calls_put_the_end_of_a_run_off() -> None:
    clock = Clock()
    calls, ann = Calls(clock, max_chain=1, chain_pause=60), Someone()
    assert not await calls.make(ann)
    for _ in range(5):
        clock.now += 59
        assert await calls.make(ann)
    clock.now += 60
    assert not await calls.make(ann)
