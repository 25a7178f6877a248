"""The stages of a call as bars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.console.pages.calls.waterfall import WIDTH, waterfall


def test_a_stage_has_the_time_that_its_inner_stages_leave_it() -> None:
    bars = waterfall([["shorten", 0, 100], ["check", 10, 60], ["server", 20, 50]], 0.1)
    assert [(bar.name, bar.depth) for bar in bars] == [("shorten", 0), ("check", 1), ("server", 2)]
    assert [round(bar.own * 1000) for bar in bars] == [50, 20, 30]
    assert [(piece.x, piece.width) for piece in bars[0].pieces] == [(0, 100), (600, 400)]
    assert [(piece.x, piece.width) for piece in bars[2].pieces] == [(200, 300)]


def test_a_call_that_is_tried_again_has_each_try() -> None:
    bars = waterfall([["retry", 0, 100], ["server", 0, 30], ["server", 60, 100]], 0.1)
    assert [bar.depth for bar in bars] == [0, 1, 1]
    assert round(bars[0].own * 1000) == 30
    assert [(piece.x, piece.width) for piece in bars[0].pieces] == [(300, 300)]


@pytest.mark.parametrize("stages", [None, "x", [], [["a"]], [["a", "b", "c"]], [None, 3, {}]])
def test_what_is_no_stage_is_left_out(stages: object) -> None:
    assert waterfall(stages, 1.0) == []


MOMENTS = st.floats(-10, 1e6, allow_nan=False)


@given(st.lists(st.tuples(st.text(max_size=5), MOMENTS, MOMENTS), max_size=32), st.floats(0, 1e4))
def test_bars_lie_within_the_picture(stages: list[tuple[str, float, float]], seconds: float) -> None:
    for bar in waterfall([list(one) for one in stages], seconds):
        for piece in (bar.span, *bar.pieces):
            assert 0 <= piece.x <= WIDTH
            assert 0 < piece.width <= WIDTH
            assert piece.x + piece.width <= WIDTH + 0.2
        assert bar.own <= bar.seconds + 1e-9
