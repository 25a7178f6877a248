"""When to dial and when to wait; time is an argument."""

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.upstream.connection.backoff import (
    FAILED_RETRY,
    FAILURES_IN_WINDOW,
    LONGEST_DELAY,
    STABLE_AFTER,
    WINDOW,
    RestartBackoff,
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
    assert waits[-1].seconds == FAILED_RETRY


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
