"""How often a list is looked at whose changes nobody announces (MCP 2026-07-28, Caching)."""

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.upstream.session.keepalive import LONGEST, SHORTEST, UNSAID, wait_before_looking


def test_the_server_says_how_long_its_list_stays_fresh() -> None:
    assert wait_before_looking(600_000, 0) == 600
    assert 600 < wait_before_looking(600_000, 0.5) < wait_before_looking(600_000, 1) <= 750


def test_nothing_said_and_stale_at_once_are_no_time_to_go_by() -> None:
    assert wait_before_looking(None, 0) == wait_before_looking(0, 0) == UNSAID


@given(st.none() | st.integers(0, 10**30), st.floats(0, 1))
def test_the_wait_is_bounded_whatever_is_said(ttl_ms: int | None, chance: float) -> None:
    assert SHORTEST <= wait_before_looking(ttl_ms, chance) <= LONGEST * 1.25
