"""When calls stop for a while and when one finds out; time is an argument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.upstream.connection.circuit_breaker import JITTER, CircuitBreaker
from mcpbridge.upstream.settings import BreakerSettings

SETTINGS = BreakerSettings()
AFTER, FOR, AT_MOST = SETTINGS.failures, SETTINGS.open, SETTINGS.max_open


def opened(settings: BreakerSettings = SETTINGS, chance: float = 0.0) -> CircuitBreaker:
    """A breaker that so many failures have just opened, at 0."""
    breaker = CircuitBreaker(settings)
    for _ in range(settings.failures):
        breaker.failed(0, chance)
    return breaker


def test_the_breaker_opens_after_failures_in_a_row_and_lets_one_call_find_out() -> None:
    breaker = CircuitBreaker(SETTINGS)
    for _ in range(AFTER - 1):
        breaker.failed(0, 0)
        assert breaker.retry_in(now=0) == 0
        assert breaker.state(now=0) == "closed"
    breaker.failed(0, 0)
    assert breaker.state(now=1) == "open"
    assert breaker.retry_in(now=1) == FOR - 1
    assert breaker.state(now=FOR) == "half-open"
    assert breaker.retry_in(now=FOR) == 0  # the probe
    assert breaker.retry_in(now=FOR) > 0  # others wait for it
    assert breaker.state(now=FOR) == "half-open"
    breaker.succeeded()
    assert breaker.retry_in(now=FOR) == 0
    assert breaker.state(now=FOR) == "closed"


def test_the_breaker_stays_open_longer_each_time_up_to_its_bound() -> None:
    breaker, now = opened(), 0.0
    waits: list[float] = []
    for _ in range(40):
        waits.append(breaker.retry_in(now))
        now += waits[-1]
        assert breaker.retry_in(now) == 0
        breaker.failed(now, 0)
    assert waits[:3] == [FOR, 2 * FOR, 3 * FOR]
    assert max(waits) == AT_MOST


@given(
    st.builds(
        BreakerSettings,
        failures=st.integers(1, 9),
        open=st.floats(0.1, 100),
        max_open=st.floats(0.1, 100),
    ),
    st.floats(0, 1, exclude_max=True),
)
def test_chance_makes_an_open_time_shorter_within_its_bounds(settings: BreakerSettings, chance: float) -> None:
    wait, whole = opened(settings, chance).retry_in(now=0), min(settings.open, settings.max_open)
    assert whole * (1 - JITTER) <= wait <= whole


@given(st.lists(st.sampled_from(["enter", "succeed", "fail", "withdraw", "wait"]), max_size=60))
def test_while_it_is_not_closed_at_most_one_call_passes_at_a_time(steps: list[str]) -> None:
    breaker, now, is_out = opened(), 0.0, False
    for step in steps:
        if step == "wait":
            now += FOR / 3
        elif step == "enter" and not breaker.retry_in(now):
            if breaker.state(now) == "closed":
                return
            assert not is_out
            is_out = True
        elif is_out and step != "enter":
            is_out = False
            if step == "fail":
                breaker.failed(now, 0)
            else:
                breaker.succeeded() if step == "succeed" else breaker.withdrawn()


def test_a_success_between_failures_keeps_the_breaker_closed() -> None:
    breaker = CircuitBreaker(SETTINGS)
    for _ in range(AFTER * 3):
        breaker.failed(0, 0)
        breaker.succeeded()
    assert breaker.retry_in(now=0) == 0


def test_a_burst_that_fails_together_opens_it_once() -> None:
    breaker = opened()
    for _ in range(20):
        breaker.failed(1, 0)
    assert breaker.retry_in(now=1) == FOR - 1


def test_a_withdrawn_probe_lets_the_next_call_be_the_probe() -> None:
    breaker = opened()
    assert breaker.retry_in(now=FOR) == 0
    breaker.withdrawn()
    assert breaker.retry_in(now=FOR) == 0


def test_without_a_number_of_failures_it_never_opens() -> None:
    breaker = CircuitBreaker(BreakerSettings(failures=0))
    for _ in range(100):
        breaker.failed(0, 0)
    assert breaker.retry_in(now=0) == 0
    assert breaker.state(now=0) == "closed"


@pytest.mark.parametrize(("chance", "share"), [(0.0, 1.0), (0.5, 0.9), (1.0, 0.8)])
def test_an_open_time_is_shorter_by_a_fifth_at_most(chance: float, share: float) -> None:
    """So that bridges of one server do not all come at once."""
    assert opened(chance=chance).retry_in(now=0) == pytest.approx(FOR * share)


def test_it_is_troubled_from_the_first_failure_to_the_next_answer() -> None:
    breaker = CircuitBreaker(SETTINGS)
    assert not breaker.is_troubled
    breaker.succeeded()
    assert not breaker.is_troubled
    breaker.failed(0, 0)
    assert breaker.is_troubled
    breaker.succeeded()
    assert not breaker.is_troubled
    assert opened().is_troubled


def test_an_answer_in_between_begins_the_row_anew() -> None:
    breaker = CircuitBreaker(SETTINGS)
    for _ in range(3):
        for _ in range(AFTER - 1):
            breaker.failed(0, 0)
        breaker.succeeded()
    assert breaker.state(now=0) == "closed"
    assert repr(breaker) == "<CircuitBreaker 0 failures in a row>"
    assert repr(opened()) == f"<CircuitBreaker {AFTER} failures in a row, tripped>"


def test_failures_of_the_burst_that_opened_it_do_not_keep_it_open() -> None:
    breaker = opened()
    for number in range(10):
        breaker.failed(number / 100, 0)
    assert breaker.retry_in(now=0) == FOR
    assert breaker.state(now=FOR) == "half-open"


def test_a_probe_that_fails_opens_it_for_longer_and_one_that_is_withdrawn_is_tried_again() -> None:
    breaker = opened()
    assert breaker.retry_in(now=FOR) == 0
    assert breaker.retry_in(now=FOR) == 1.0
    breaker.withdrawn()
    assert breaker.retry_in(now=FOR) == 0
    breaker.failed(FOR, 0)
    assert breaker.state(now=FOR) == "open"
    assert breaker.retry_in(now=FOR) == min(2 * FOR, AT_MOST)


def test_a_breaker_that_was_warned_opens_after_one_failure_and_a_success_ends_that() -> None:
    warned, calm = CircuitBreaker(SETTINGS), CircuitBreaker(SETTINGS)
    for breaker in (warned, calm):
        breaker.warn()
        assert breaker.state(0) == "closed"
        assert breaker.retry_in(0) == 0
        assert breaker.is_troubled, "the next outcome counts"
    calm.succeeded()
    for breaker, state in ((warned, "open"), (calm, "closed")):
        breaker.failed(0, 0.0)
        assert breaker.state(0) == state


def test_a_warning_changes_nothing_where_a_breaker_is_off_or_open() -> None:
    off = CircuitBreaker(BreakerSettings(failures=0))
    off.warn()
    assert not off.is_troubled
    tripped = opened()
    tripped.warn()
    assert tripped.retry_in(0) == FOR
