"""What the history of calls may take: a share of the bridge's own time, whatever the number of calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.storage.call_log.budget import Budget


class Clock:
    """Time, and the CPU time that the process took, as a test says."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0

    def budget(self) -> Budget:
        return Budget(lambda: self.now, lambda: self.cpu)

    def passes(self, seconds: float, *, busy: float = 1.0) -> None:
        self.now += seconds
        self.cpu += seconds * busy


@pytest.mark.parametrize("busy", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("record", [30e-6, 200e-6])
def test_a_flood_is_recorded_in_part_so_that_recording_takes_some_hundredths_of_its_time(
    busy: float, record: float
) -> None:
    """`record`: what writing one takes, which the budget finds out."""
    clock = Clock()
    budget = clock.budget()
    waiting = recorded = written = 0
    for _ in range(600):  # a minute
        while budget.calls.left > 0 and waiting < 2000:
            budget.calls.left -= 1
            waiting += 1
            recorded += 1
        if budget.writing.left > 0 and waiting:
            count = min(20, waiting)
            waiting -= count
            written += count
            clock.cpu += count * record
            budget.wrote(count * record, count)
        clock.passes(0.1, busy=busy)
        budget.fill()
    assert 0.005 < recorded * record * 1.25 / (60 * busy) < 0.035
    assert written > recorded / 2


def test_calls_at_an_ordinary_rate_are_all_recorded() -> None:
    clock = Clock()
    budget = clock.budget()
    for _ in range(100):  # ten seconds of 500 calls a second
        for _ in range(50):
            assert budget.calls.left > 0
            budget.calls.left -= 1
        clock.passes(0.1, busy=0.06)
        budget.fill()


def test_writing_waits_while_the_bridge_works_and_catches_up_when_it_rests() -> None:
    clock = Clock()
    budget = clock.budget()
    budget.wrote(0.05, 100)
    clock.passes(1.0, busy=0.9)
    budget.fill()
    assert budget.writing.left <= 0
    clock.passes(1.0, busy=0.05)
    budget.fill()
    assert budget.writing.left > 0


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1), st.floats(0, 2), st.integers(0, 50)), max_size=30))
def test_no_more_is_ever_saved_up_or_owed_than_is_allowed(steps: list[tuple[float, float, float, int]]) -> None:
    """However long a rest or large a result was: it is over in seconds."""
    clock = Clock()
    budget = clock.budget()
    for seconds, busy, cost, records in steps:
        clock.passes(seconds, busy=busy)
        budget.wrote(cost, records)
        budget.fill()
        assert -0.11 <= budget.writing.left <= 0.00101
        assert budget.calls.left <= 64
