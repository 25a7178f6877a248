"""When to dial and when to wait; time is an argument."""

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.upstream.lifecycle import (
    FAILED_RETRY,
    FAILURES_IN_WINDOW,
    LONGEST_DELAY,
    OPEN_AFTER,
    OPEN_AT_MOST,
    OPEN_FOR,
    STABLE_AFTER,
    WINDOW,
    Breaker,
    Lifecycle,
)


def test_waits_double_with_full_jitter() -> None:
    """Full jitter: the wait is uniform below a bound that doubles."""
    lifecycle = Lifecycle()
    bounds = [lifecycle.lost(now=number * WINDOW, chance=1.0).seconds for number in range(4)]
    assert bounds == [0.5, 1, 2, 4]
    assert Lifecycle().lost(now=0, chance=0.5).seconds == 0.25


def test_too_many_failures_in_the_window_give_up_for_long() -> None:
    lifecycle = Lifecycle()
    waits = [lifecycle.lost(now=float(number), chance=0.5) for number in range(FAILURES_IN_WINDOW)]
    assert [wait.given_up for wait in waits] == [False] * (FAILURES_IN_WINDOW - 1) + [True]
    assert waits[-1].seconds == FAILED_RETRY


def test_a_stable_time_forgets_failures() -> None:
    lifecycle = Lifecycle()
    for number in range(FAILURES_IN_WINDOW - 1):
        lifecycle.lost(now=float(number), chance=1.0)
    lifecycle.ready(now=10.0)
    assert lifecycle.lost(now=10.0 + STABLE_AFTER, chance=1.0).seconds == 0.5


def test_a_short_life_does_not_forget_them() -> None:
    lifecycle = Lifecycle()
    lifecycle.lost(now=0, chance=1.0)
    lifecycle.ready(now=1.0)
    assert lifecycle.lost(now=2.0, chance=1.0).seconds == 1.0


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1, exclude_max=True)), max_size=60))
def test_no_wait_is_negative_or_beyond_its_bound(steps: list[tuple[float, float]]) -> None:
    lifecycle, now = Lifecycle(), 0.0
    for pause, chance in steps:
        now += pause
        wait = lifecycle.lost(now, chance)
        assert 0 <= wait.seconds <= (FAILED_RETRY if wait.given_up else LONGEST_DELAY)


def test_the_breaker_opens_after_failures_in_a_row_and_lets_one_call_find_out() -> None:
    breaker = Breaker()
    for _ in range(OPEN_AFTER - 1):
        breaker.failed(now=0)
        assert breaker.retry_in(now=0) == 0
    breaker.failed(now=0)
    assert breaker.retry_in(now=1) == OPEN_FOR - 1
    assert breaker.retry_in(now=OPEN_FOR) == 0  # the probe
    assert breaker.retry_in(now=OPEN_FOR) > 0  # others wait for it
    breaker.succeeded()
    assert breaker.retry_in(now=OPEN_FOR) == 0


def test_the_breaker_stays_open_longer_each_time_up_to_its_bound() -> None:
    breaker, now = Breaker(), 0.0
    for _ in range(OPEN_AFTER):
        breaker.failed(now)
    waits: list[float] = []
    for _ in range(40):
        waits.append(breaker.retry_in(now))
        now += waits[-1]
        assert breaker.retry_in(now) == 0
        breaker.failed(now)
    assert waits[:3] == [OPEN_FOR, 2 * OPEN_FOR, 3 * OPEN_FOR]
    assert max(waits) == OPEN_AT_MOST


def test_a_success_between_failures_keeps_the_breaker_closed() -> None:
    breaker = Breaker()
    for _ in range(OPEN_AFTER * 3):
        breaker.failed(now=0)
        breaker.succeeded()
    assert breaker.retry_in(now=0) == 0


def test_a_withdrawn_probe_lets_the_next_call_be_the_probe() -> None:
    breaker = Breaker()
    for _ in range(OPEN_AFTER):
        breaker.failed(now=0)
    assert breaker.retry_in(now=OPEN_FOR) == 0
    breaker.withdrawn()
    assert breaker.retry_in(now=OPEN_FOR) == 0
