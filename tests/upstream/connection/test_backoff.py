"""When to dial and when to wait; time is an argument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.upstream.connection.backoff import (
    FAILED_RETRY,
    FAILURES_IN_WINDOW,
    LONGEST_DELAY,
    STABLE_AFTER,
    WINDOW,
    RestartBackoff,
    Wait,
)


def test_waits_double_with_full_jitter() -> None:
    """Full jitter: the wait is uniform below a bound that doubles."""
    backoff = RestartBackoff()
    bounds = [backoff.lost(now=number * WINDOW, chance=1.0).seconds for number in range(4)]
    assert bounds == [0.5, 1, 2, 4]
    assert RestartBackoff().lost(now=0, chance=0.5).seconds == 0.25


def test_too_many_failures_in_the_window_give_up_for_long() -> None:
    backoff = RestartBackoff()
    waits = [backoff.lost(now=float(number), chance=0.5) for number in range(FAILURES_IN_WINDOW)]
    assert [wait.given_up for wait in waits] == [False] * (FAILURES_IN_WINDOW - 1) + [True]
    assert waits[-1].seconds == FAILED_RETRY == 300


def test_a_stable_time_forgets_failures() -> None:
    backoff = RestartBackoff()
    for number in range(FAILURES_IN_WINDOW - 1):
        backoff.lost(now=float(number), chance=1.0)
    backoff.ready(now=10.0)
    assert backoff.lost(now=10.0 + STABLE_AFTER, chance=1.0).seconds == 0.5


def test_a_short_life_does_not_forget_them() -> None:
    backoff = RestartBackoff()
    backoff.lost(now=0, chance=1.0)
    backoff.ready(now=1.0)
    assert backoff.lost(now=2.0, chance=1.0).seconds == 1.0


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1, exclude_max=True)), max_size=60))
def test_no_wait_is_negative_or_beyond_its_bound(steps: list[tuple[float, float]]) -> None:
    backoff, now = RestartBackoff(), 0.0
    for pause, chance in steps:
        now += pause
        wait = backoff.lost(now, chance)
        assert 0 <= wait.seconds <= (FAILED_RETRY if wait.given_up else LONGEST_DELAY)


@pytest.mark.parametrize(
    ("times", "given_up"),
    [
        ((0, 1, 2, 3, 60.0), True),
        ((0, 1, 2, 3, 60.5), False),
        ((0, 1, 2, 3, 4), True),
        ((0, 15, 30, 45, 60), True),
        ((0, 16, 31, 46, 61), False),
        ((0, 100, 101, 102, 103), False),
        ((0, 100, 101, 102, 103, 104), True),
        ((0, 1, 2, 3), False),
    ],
)
def test_five_failures_within_a_minute_are_too_many(times: tuple[float, ...], given_up: bool) -> None:
    """Numbers as systemd has them; the sixth failure counts the last five."""
    backoff = RestartBackoff()
    waits = [backoff.lost(now=now, chance=0.5) for now in times]
    assert [wait.given_up for wait in waits] == [False] * (len(times) - 1) + [given_up]


@pytest.mark.parametrize(("now", "may"), [(5, False), (9.99, False), (9, False), (10, True), (11, True), (1000, True)])
def test_a_call_may_cause_an_attempt_some_time_after_the_last_one(now: float, may: bool) -> None:
    backoff = RestartBackoff()
    assert backoff.may_dial_on_demand(0) is True, "there was none yet"
    backoff.dialling(0)
    assert backoff.may_dial_on_demand(now) is may
    assert backoff.on_demand_in(now) == 10 - now
    backoff.dialling(now)
    assert backoff.may_dial_on_demand(now) is False


@pytest.mark.parametrize(("ready_for", "seconds"), [(60, 0.5), (59, 4.0), (61, 0.5)])
def test_a_minute_of_being_ready_makes_it_good(ready_for: float, seconds: float) -> None:
    backoff = RestartBackoff()
    for number in range(3):
        backoff.lost(now=float(number), chance=1.0)
    backoff.ready(now=10.0)
    assert backoff.lost(now=10.0 + ready_for, chance=1.0).seconds == seconds
    assert backoff.lost(now=200.0 + ready_for, chance=1.0).seconds == 2 * seconds, "it was not ready since"


def test_the_bound_of_a_wait_stops_at_a_minute() -> None:
    backoff = RestartBackoff()
    bounds = [backoff.lost(now=100.0 * number, chance=1.0).seconds for number in range(40)]
    assert bounds[:9] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert set(bounds[9:]) == {60}


def test_a_server_gets_the_wait_that_it_asks_for() -> None:
    """It is not tried sooner for a call either; nor is it waited for longer than for one that failed often."""
    backoff = RestartBackoff()
    backoff.dialling(0)
    assert backoff.lost(1, 0.5, retry_after=40) == Wait(40, given_up=False)
    assert backoff.on_demand_in(1) == 40
    backoff.dialling(41)
    assert backoff.lost(42, 0.5, retry_after=3600) == Wait(FAILED_RETRY, given_up=False)
    backoff.dialling(400)
    assert backoff.lost(401, 0.5) == Wait(1.0, given_up=False)
