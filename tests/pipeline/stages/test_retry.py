"""What is tried again, when, and how often; the pure rules, and the stage with a server that fails as told."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import (
    BridgeError,
    Overloaded,
    SignInNeeded,
    UpstreamAnswered,
    UpstreamError,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamResting,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.call_settings import RetrySettings
from mcpbridge.core.model import Call
from mcpbridge.pipeline.stages.retry import AT_LEAST, SHARE, WINDOW, Retry, RetryBudget, pause, why_again
from mcpbridge.protocol.body import Body
from support.upstreams.scripted_upstream import call_of

LOOK = ToolRef("up", "look", "up__look", "up/look", b"{}", b"{}", b"{}", {})
QUICK = RetrySettings(tries=3, backoff=0.001, max_backoff=0.001)


def _not_again(error: UpstreamUnavailable) -> UpstreamUnavailable:
    error.is_tried_again = False
    return error


SAFE = [
    UpstreamUnavailable("up", "retrying in 1 s"),
    UpstreamHttpError("up", 429, "HTTP 429", retry_after=0),
    UpstreamHttpError("up", 503, "HTTP 503", retry_after=0),
]
HARMLESS = [
    UpstreamGone("up", "exit code 1"),
    UpstreamHttpError("up", 502, "HTTP 502"),
    UpstreamHttpError("up", 503, "HTTP 503"),
    UpstreamHttpError("up", 429, "HTTP 429"),
]
NEVER = [
    UpstreamTimeout("up", 60),
    UpstreamGarbled("up", "truncated"),
    UpstreamAnswered("up", b"{}"),
    UpstreamHttpError("up", 404, "HTTP 404"),
    UpstreamHttpError("up", 501, "HTTP 501"),
    UpstreamResting("up", 5, is_probed=False),
    _not_again(UpstreamUnavailable("up", "not sent: its bridge does not answer")),
    SignInNeeded("up"),
]


def again(error: UpstreamError, *, idempotent: bool, call: Call | None = None) -> bool:
    return bool(why_again(call or call_of(), error, is_idempotent=idempotent))


# -- what


@pytest.mark.parametrize("error", SAFE, ids=str)
def test_what_the_server_certainly_did_not_run_is_tried_again_whatever_the_tool_does(error: UpstreamError) -> None:
    assert again(error, idempotent=False)
    assert again(error, idempotent=True)


@pytest.mark.parametrize("error", HARMLESS, ids=str)
def test_what_may_have_run_is_tried_again_only_where_twice_is_once(error: UpstreamError) -> None:
    assert not again(error, idempotent=False)
    assert again(error, idempotent=True)


@pytest.mark.parametrize("error", NEVER, ids=str)
def test_an_answer_a_timeout_and_what_needs_a_person_are_never_tried_again(error: UpstreamError) -> None:
    assert not again(error, idempotent=True)


@pytest.mark.parametrize("error", [*SAFE, *HARMLESS], ids=str)
@pytest.mark.parametrize("begun", ["questions", "task"])
def test_a_call_that_asked_back_or_became_a_task_is_never_tried_again(error: UpstreamError, begun: Any) -> None:
    call = call_of()
    call.begun = begun
    assert not again(error, idempotent=True, call=call)


def test_a_later_round_and_a_call_that_may_become_a_task_are_tried_again_only_unsent() -> None:
    round_two, task = call_of(), call_of()
    round_two.params.put("requestState", "sealed")
    task.takes_task = True
    for call in (round_two, task):
        assert not again(HARMLESS[0], idempotent=True, call=call)
        assert again(SAFE[0], idempotent=False, call=call)


# -- when


@given(
    st.builds(RetrySettings, backoff=st.floats(0, 100), max_backoff=st.floats(0, 100)),
    st.integers(1, 5000),
    st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_random_below_a_bound_that_doubles_up_to_its_own(
    settings: RetrySettings, failures: int, chance: float
) -> None:
    """Full jitter."""
    bound = min(settings.max_backoff, settings.backoff * 2.0 ** min(failures - 1, 60))
    assert pause(settings, failures, chance) == chance * bound <= settings.max_backoff


# -- how often


def test_a_budget_allows_a_share_of_the_calls_and_a_few_more() -> None:
    budget = RetryBudget()
    for _ in range(100):
        budget.called(1.0)
    granted = sum(budget.may_retry(1.0) for _ in range(100))
    assert granted == AT_LEAST + SHARE * 100


def test_a_budget_forgets_what_is_long_ago() -> None:
    budget = RetryBudget()
    assert [budget.may_retry(0.0) for _ in range(AT_LEAST + 1)] == [True] * AT_LEAST + [False]
    assert not budget.may_retry(WINDOW / 2)
    assert budget.may_retry(WINDOW + 1)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 20)), max_size=200))
def test_no_window_ever_holds_more_retries_than_its_calls_allow(steps: list[tuple[bool, float]]) -> None:
    """The parts of the window are counted as wholes, so the calls of one more part may count."""
    budget, now = RetryBudget(), 0.0
    calls: list[float] = []
    retries: list[float] = []
    for is_call, wait in steps:
        now += wait
        if is_call:
            budget.called(now)
            calls.append(now)
        elif budget.may_retry(now):
            retries.append(now)
            recent = [at for at in calls if at > now - WINDOW - WINDOW / 6]
            window = [at for at in retries if at > now - WINDOW + WINDOW / 6]
            assert len(window) <= AT_LEAST + SHARE * len(recent) + 1


# -- the stage


class Server:
    """Fails as it is told, then answers."""

    def __init__(self, *errors: BridgeError) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self, call: Call) -> Body:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return Body(b'{"content":[]}')


def stage(
    settings: RetrySettings = QUICK, *, idempotent: bool = False, reads: bool = False, retry: Retry | None = None
) -> Any:
    effect = "read" if reads else "unknown"
    return (retry or Retry()).stage(LOOK, CallOptions(retry=settings, is_idempotent=idempotent or reads, effect=effect))


async def test_a_call_succeeds_after_failures_that_may_pass_and_says_how_many_there_were() -> None:
    server, call = Server(SAFE[0], UpstreamUnavailable("up", "still")), call_of()
    result = await stage()(call, server)
    assert result.data == b'{"content":[]}'
    assert server.calls == 3
    assert call.facts == {"retries": 2}


async def test_the_last_error_says_how_often_it_was_tried() -> None:
    server = Server(*(UpstreamUnavailable("up", "down") for _ in range(9)))
    with pytest.raises(UpstreamUnavailable) as failed:
        await stage()(call_of(), server)
    assert server.calls == 3
    assert "down (tried 3 times). Nothing was sent" in failed.value.full_message()


@pytest.mark.parametrize(
    "last",
    [
        UpstreamUnavailable("up", "failed, next try in 300 s"),
        UpstreamResting("up", 5, is_probed=False),
        Overloaded("Server 'up' is busy"),
        UpstreamHttpError("up", 503, "HTTP 503", retry_after=1),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_once_a_try_was_sent_nobody_is_told_that_nothing_was(last: BridgeError) -> None:
    """The kind of the error, by which programs decide, does not say so either."""
    server = Server(HARMLESS[0], last)
    with pytest.raises(BridgeError) as failed:
        await stage(RetrySettings(tries=2, backoff=0), idempotent=True)(call_of(), server)
    assert server.calls == 2
    told = failed.value.full_message()
    assert "It may have taken effect" in told
    assert "Nothing was sent" not in told
    assert "(tried 2 times)" in told
    assert told.count("Server 'up'") == 1
    assert not isinstance(failed.value, UpstreamUnavailable | Overloaded)
    assert failed.value.facts == last.facts


async def test_of_what_only_reads_nobody_is_told_to_look_for_an_effect() -> None:
    for last, kind in ((UpstreamHttpError("up", 500, "HTTP 500"), UpstreamHttpError), (SAFE[0], UpstreamGone)):
        server = Server(UpstreamHttpError("up", 502, "HTTP 502"), last)
        with pytest.raises(kind) as failed:
            await stage(RetrySettings(tries=2, backoff=0), reads=True)(call_of(), server)
        told = failed.value.full_message()
        assert "effect" not in told
        assert "Nothing was sent" not in told


async def test_of_what_only_reads_an_error_that_no_later_try_mends_keeps_its_advice() -> None:
    """That the server's fault may pass is said of statuses after which it may; others have advice of their own."""
    for status, is_passing in ((500, True), (502, True), (504, True), (404, False), (403, False), (501, False)):
        last = UpstreamHttpError("up", status, f"HTTP {status}")
        last.advice = "Look at the address."
        server = Server(UpstreamHttpError("up", 502, "HTTP 502"), last)
        with pytest.raises(UpstreamHttpError) as failed:
            await stage(RetrySettings(tries=2, backoff=0), reads=True)(call_of(), server)
        assert ("Try again later" in failed.value.full_message()) is is_passing
        assert ("Look at the address" in failed.value.full_message()) is not is_passing


async def test_tries_of_which_none_was_sent_say_so() -> None:
    server = Server(UpstreamUnavailable("up", "down"), SAFE[0], UpstreamUnavailable("up", "down"))
    with pytest.raises(UpstreamUnavailable, match="down") as failed:
        await stage(idempotent=True)(call_of(), server)
    assert "Nothing was sent" in failed.value.full_message()


async def test_a_refusal_of_our_own_is_not_tried_again() -> None:
    server = Server(Overloaded("busy"))
    with pytest.raises(Overloaded):
        await stage(idempotent=True)(call_of(), server)
    assert server.calls == 1


async def test_nothing_is_tried_again_beyond_the_deadline_of_the_call() -> None:
    """The server says to come back in 5 s, and the call has 1 s."""
    server, call = Server(UpstreamHttpError("up", 503, "HTTP 503", retry_after=5)), call_of()
    call.deadline = asyncio.get_running_loop().time() + 1
    with pytest.raises(UpstreamHttpError) as failed:
        await stage()(call, server)
    assert server.calls == 1
    assert "tried" not in failed.value.full_message()


async def test_the_calls_of_a_server_share_one_budget() -> None:
    retry, tries = Retry(), 0
    for _ in range(10):
        server = Server(UpstreamUnavailable("up", "down"), UpstreamUnavailable("up", "down"))
        with pytest.raises(UpstreamUnavailable):
            await stage(RetrySettings(tries=2, backoff=0), retry=retry)(call_of(), server)
        tries += server.calls
    assert tries == 10 + AT_LEAST + SHARE * 10


def test_a_tool_with_one_try_has_no_stage() -> None:
    assert Retry().stage(LOOK, CallOptions()) is None
    assert Retry().stage(None, CallOptions(retry=QUICK)) is None
