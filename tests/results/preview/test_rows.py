"""Rows in a preview: what is tried is weighed before it is written, and weighs what it does when it is."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.results.preview.facts import cost_of
from mcpbridge.results.preview.preview import sections_of

WORDS = st.sampled_from(
    [
        "open",
        "a b",
        " led",
        "trail ",
        "x,",
        "(a)",
        "…",
        "é",
        "漢字",
        "https://e.com/a",
        "2026-01-02",
        "a | b",
        "a\nb",
        "",
        "+",
    ]
)
VALUES = WORDS | st.text(max_size=12) | st.integers(-5, 5000) | st.none() | st.booleans() | st.lists(WORDS, max_size=3)
NAMES = ["id", "name", "state", "x y", "é", "a.b", "count"]


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
    rows = draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, VALUES)), min_size=1, max_size=30))
    numbered = draw(st.booleans())
    return [{**row, "number": place} if numbered else row for place, row in enumerate(rows)]


@settings(deadline=None, max_examples=300)
@given(tables(), st.booleans())
def test_the_size_of_rows_is_known_before_they_are_written(rows: list[dict[str, Any]], is_map: bool) -> None:
    value: Any = {f"2026-01-{place:02d}": row for place, row in enumerate(rows)} if is_map else rows
    for section in sections_of(value):
        if section.rows is None:
            continue
        ends = section.rows.ends(600, 3)
        for width in range(1, min(9, len(section.rows.columns)) + 1):
            for count in range(1, section.rows.count + 1):
                text = section.rows._render(width, count, ends)
                assert section.rows._size(width, count, ends) == (len(text), cost_of(text)), text


@settings(deadline=None)
@given(tables(), st.integers(0, 2000), st.integers(0, 800))
def test_rows_asked_for_again_are_the_same(rows: list[dict[str, Any]], room: int, before: int) -> None:
    """What was worked out for one room serves for others."""
    for first, other in zip(sections_of(rows), sections_of(rows), strict=True):
        if first.rows is not None and other.rows is not None:
            ends = first.rows.ends(room // 3, 3)
            first.rows.text(room // 2, before, ends)
            assert first.rows.text(room, before, ends) == other.rows.text(room, before, ends)
