"""How a server is slowed down that sends more than the bridge should spend its time on (issue 18)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.flood_brake import BURST, LONGEST_PAUSE, SHARE, SHOWN_SECONDS, FloodBrake


def test_a_burst_is_read_at_once_and_what_follows_has_a_fifth_of_the_time() -> None:
    brake = FloodBrake()
    assert brake.took(100.0, BURST) == 0
    assert not brake.is_on(100.0)
    assert brake.took(100.0, 0.01) == pytest.approx(0.01 / SHARE)
    assert brake.is_on(100.0)
    assert not brake.is_on(100.0 + SHOWN_SECONDS)
    assert brake.took(200.0, BURST) == 0, "it has earned a burst again"


@given(st.lists(st.floats(0.0001, 0.05), min_size=1, max_size=300))
def test_a_server_that_sends_without_end_never_gets_more_than_its_share(chunks: list[float]) -> None:
    """Whatever the size of its messages is."""
    brake, now, busy = FloodBrake(), 0.0, 0.0
    for seconds in chunks:
        now += seconds
        busy += seconds
        pause = brake.took(now, seconds)
        assert 0 <= pause <= LONGEST_PAUSE
        now += pause
    assert busy <= BURST + SHARE * now + 0.05


@given(st.lists(st.tuples(st.floats(0.0, 0.01), st.floats(0.0, 0.002)), max_size=300))
def test_a_server_within_its_share_is_never_paused(chunks: list[tuple[float, float]]) -> None:
    brake, now = FloodBrake(), 0.0
    for idle, seconds in chunks:
        now += idle + seconds / SHARE
        assert brake.took(now, seconds) == 0
    assert brake.pauses == 0
