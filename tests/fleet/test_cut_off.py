"""When a bridge that cannot renew its lease takes itself for cut off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.fleet.sessions.lapses import Absence, OtherLease, is_cut_off

FRESH, OLD, SETTLING = OtherLease(0.4, False), OtherLease(3.5, False), OtherLease(0.4, True)
SILENT, GONE = Absence.SILENT, Absence.GONE


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([FRESH], True),
        ([OLD, FRESH], True),
        ([SILENT, FRESH], True),
        ([OLD], False),
        ([OLD, SILENT], False),
        ([OLD, GONE], False),
        ([SETTLING], False),
        ([SILENT], True),
        ([SILENT, SILENT], True),
        ([SILENT, GONE], True),
        ([GONE, GONE], False),
        ([], False),
    ],
)
def test_who_is_cut_off(others: list[OtherLease | Absence], expected: bool) -> None:
    assert is_cut_off(3.1, others) is expected


@given(
    st.floats(0, 1.05),
    st.floats(0, 1.05),
    st.floats(0, 30),
)
def test_records_that_are_away_for_all_cut_off_nobody(mine: float, theirs: float, since: float) -> None:
    """Each member renewed its lease at most a beat before they went away."""
    assert not is_cut_off(since + mine, [OtherLease(since + theirs, False)])


@given(st.floats(2.75, 60), st.floats(0, 1.05))
def test_who_alone_cannot_reach_the_records_is_cut_off(mine: float, theirs: float) -> None:
    assert is_cut_off(mine, [OtherLease(theirs, False)])
