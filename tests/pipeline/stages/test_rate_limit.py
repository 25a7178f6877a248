"""Token buckets, and who is refused by which."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import RETRY_AFTER, RateLimited
from mcpbridge.base.token_bucket import Bucket
from mcpbridge.base.units import Rate, parse_rate
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.context import Session
from mcpbridge.core.model import Call
from mcpbridge.pipeline.per_client import Recent
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.stages.rate_limit import Buckets, RateLimit
from mcpbridge.protocol.body import Body
from support.upstreams.scripted_upstream import call_of

RATES = st.builds(Rate, st.integers(1, 40), st.floats(0.05, 4000))
STARTS = st.floats(0, 1e7)
STEPS = st.lists(st.floats(0, 300), max_size=200)


# -- the bucket


def passing(rate: Rate, start: float, steps: list[float]) -> list[float]:
    """The times at which a call passed, of a client that comes after each of these steps."""
    bucket, now, passed = Bucket(rate), start, list[float]()
    for step in steps:
        now += step * rate.seconds / 100
        if not bucket.wait(now):
            bucket.take(now)
            passed.append(now)
    return passed


@given(RATES, STARTS, STEPS)
def test_no_span_of_time_sees_more_than_a_full_bucket_and_what_flows_in_meanwhile(
    rate: Rate, start: float, steps: list[float]
) -> None:
    """The bound that the module claims, over every span that begins and ends with a call."""
    passed = passing(rate, start, steps)
    for first, began in enumerate(passed):
        for last in range(first, len(passed)):
            grain = 2e-6 + (last - first) * abs(passed[last]) * 1e-15  # due within the grain of the clock
            allowed = rate.times + (passed[last] - began + grain) * rate.times / rate.seconds
            assert last - first + 1 <= allowed


@given(RATES, STARTS)
def test_after_a_pause_as_many_calls_as_the_rate_names_pass_at_once(rate: Rate, start: float) -> None:
    assert len(passing(rate, start, [0.0] * (rate.times + 5))) == rate.times


@given(RATES, STARTS, STEPS)
def test_who_comes_back_when_told_passes_and_not_much_earlier(rate: Rate, start: float, steps: list[float]) -> None:
    bucket, now = Bucket(rate), start
    for step in steps:
        now += step * rate.seconds / 1000
        wait = bucket.wait(now)
        assert 0 <= wait <= rate.seconds / rate.times * (1 + 1e-9) + 1e-5
        if wait:
            assert bucket.wait(now + wait / 2) > 0 or wait < 1e-5
            now += wait
            assert bucket.wait(now) == 0
        bucket.take(now)


@given(RATES, STARTS)
def test_whoever_keeps_to_the_rate_is_never_refused(rate: Rate, start: float) -> None:
    steps = [100 / rate.times * 1.0001] * 100
    assert len(passing(rate, start, steps)) == 100


# -- what is counted for whom


class Someone:
    """A caller."""

    name = version = ""

    def __init__(self, principal: str = "") -> None:
        self.principal = principal
        self.session = Session(principal)


class ToolNamed:
    """A tool without more than its id."""

    definition, hints, headers = b"{}", None, dict[tuple[str, ...], str]()

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.server, _, self.name = id_.partition("/")
        self.wire = f"{self.server}__{self.name}"


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def tool(id_: str) -> Any:
    return ToolNamed(id_)


async def passes(stage: Stage | None, call: Call) -> bool:
    """Whether a stage lets a call through."""
    assert stage is not None
    reached: list[Call] = []

    async def deliver(call: Call) -> Body:
        reached.append(call)
        return Body()

    try:
        await stage(call, deliver)
    except RateLimited:
        assert not reached
        return False
    return True


async def test_without_rates_there_is_no_stage() -> None:
    rates = RateLimit(None, {})
    assert rates.stage(None, CallOptions()) is None
    assert rates.stage(tool("a/b"), CallOptions()) is None


async def test_a_refusal_says_what_is_limited_and_when_to_come_back() -> None:
    clock = Clock()
    stage = RateLimit(None, {}, clock).stage(tool("a/b"), CallOptions(rate_limit=parse_rate("2/min")))
    assert await passes(stage, call_of())
    assert await passes(stage, call_of())
    clock.now += 10
    assert stage is not None
    with pytest.raises(RateLimited) as refused:
        await stage(call_of(), lambda call: pytest.fail("it was sent"))
    assert str(refused.value) == "Tool 'a/b' is limited to 2/min"
    assert refused.value.retry_after == pytest.approx(20)
    assert refused.value.facts == {RETRY_AFTER: 20}
    assert refused.value.advice == "Nothing was sent. Try again in 20 s."
    clock.now += refused.value.retry_after
    assert await passes(stage, call_of())
    assert not await passes(stage, call_of())


async def test_a_refused_call_takes_nothing_from_other_buckets() -> None:
    clock = Clock()
    server = parse_rate("3/min")
    rates = RateLimit(parse_rate("100/min"), {"a": server}, clock)
    busy = rates.stage(tool("a/busy"), CallOptions(rate_limit=parse_rate("1/min"), server_rate_limit=server))
    other = rates.stage(tool("a/other"), CallOptions(server_rate_limit=server))
    assert [await passes(busy, call_of()) for _ in range(50)] == [True] + [False] * 49
    assert [await passes(other, call_of()) for _ in range(3)] == [True, True, False]


async def test_the_longest_wait_is_told() -> None:
    clock = Clock()
    rates = RateLimit(parse_rate("1/h"), {}, clock)
    stage = rates.stage(tool("a/b"), CallOptions(rate_limit=parse_rate("1/min"), server_rate_limit=parse_rate("1/s")))
    assert stage is not None
    assert await passes(stage, call_of())
    with pytest.raises(RateLimited, match=r"This client is limited to 1/h") as refused:
        await stage(call_of(), lambda call: pytest.fail("it was sent"))
    assert refused.value.retry_after == 3600


async def test_each_client_has_its_own_rate_and_a_principal_the_same_in_all_its_sessions() -> None:
    rates = RateLimit(parse_rate("1/min"), {}, Clock())
    stage = rates.stage(tool("a/b"), CallOptions())
    local, other = Someone(), Someone()
    assert [await passes(stage, call_of(caller=who)) for who in (local, local, other)] == [True, False, True]
    assert [await passes(stage, call_of(caller=Someone(who))) for who in ("ann", "ann", "bob")] == [True, False, True]


async def test_a_later_round_of_a_call_takes_no_token() -> None:
    stage = RateLimit(parse_rate("2/min"), {}, Clock()).stage(tool("a/b"), CallOptions())
    assert [await passes(stage, call_of(continues=True)) for _ in range(5)] == [True] * 5
    assert [await passes(stage, call_of()) for _ in range(3)] == [True, True, False]


async def test_prompts_and_resources_count_for_client_and_server_and_nothing_else_does() -> None:
    rates = RateLimit(None, {"up": parse_rate("2/min")}, Clock())
    stage = rates.stage(None, CallOptions())
    methods = ["tasks/get", "prompts/get", "completion/complete", "resources/read", "prompts/get", "tasks/get"]
    calls = [Call(method, "up", "x", Body()) for method in methods]
    assert [await passes(stage, call) for call in calls] == [True, True, True, True, False, True]
    elsewhere = Call("prompts/get", "free", "x", Body())
    assert [await passes(stage, elsewhere) for _ in range(5)] == [True] * 5
    of_tools = rates.stage(tool("up/x"), CallOptions(server_rate_limit=parse_rate("2/min")))
    assert not await passes(of_tools, call_of())  # it is one bucket


async def test_a_tool_that_is_listed_anew_has_the_bucket_it_had() -> None:
    rates, limit = RateLimit(None, {}, Clock()), CallOptions(rate_limit=parse_rate("1/min"))
    assert await passes(rates.stage(tool("a/b"), limit), call_of())
    assert not await passes(rates.stage(tool("a/b"), limit), call_of())


def test_only_so_many_clients_are_remembered_and_those_heard_of_last() -> None:
    recent = Recent[list[int]](list, most=3)
    for name in "abcd":
        recent.of(name).append(1)
        recent.of("a").append(1)
    assert len(recent) == 3
    assert len(recent.of("a")) == 5
    assert recent.of("b") == []


async def test_a_rate_that_stays_the_same_is_counted_on_under_other_settings() -> None:
    clock, buckets, who = Clock(), Buckets(), Someone("ann")
    limit = CallOptions(rate_limit=parse_rate("3/h"))

    def stage_of(client: str) -> Stage | None:
        return RateLimit(parse_rate(client), {}, clock, buckets=buckets).stage(tool("a/b"), limit)

    assert await passes(stage_of("2/h"), call_of(caller=who))
    assert [await passes(stage_of("2/h"), call_of(caller=who)) for _ in range(2)] == [True, False]
    assert [await passes(stage_of("5/h"), call_of(caller=who)) for _ in range(2)] == [True, False], "that of the tool"


def test_the_buckets_of_clients_are_the_same_as_long_as_the_rate_is() -> None:
    """A reload that changes something else gives nobody new tokens, nor is there one bucket for each stage."""
    buckets, rate = Buckets(), parse_rate("2/min")
    first = buckets.by_clients(rate)
    first.of("ann").take(0)
    assert buckets.by_clients(parse_rate("2/min")) is first
    other = buckets.by_clients(parse_rate("3/min"))
    assert other is not first
    assert buckets.by_clients(parse_rate("3/min")) is other
    assert buckets.shared("s", rate) is buckets.shared("s", parse_rate("2/min"))
    assert buckets.shared("s", rate) is not buckets.shared("t", rate)
