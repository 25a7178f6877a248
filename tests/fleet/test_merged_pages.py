"""Pages of the calls of several bridges: each call is on one page, in the order of its bridge (issue 24)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.fleet.pages import Place, merged_pages, read_place
from mcpbridge.fleet.call_logs import Said, one_for_each_file
from mcpbridge.fleet.records import Member

BRIDGES = st.lists(st.lists(st.integers(0, 50), max_size=12), min_size=1, max_size=4)
"""When the calls of each bridge began, in the order of its file."""


def member(number: int) -> Member:
    return Member(f"id{number}", "127.0.0.1:1", f"r{number}", "1", "s", float(number))


def rows_of(times: Sequence[int]) -> list[dict[str, Any]]:
    """The calls of a bridge, newest first."""
    found = [{"id": n + 1, "at": datetime.fromtimestamp(at, UTC).isoformat()} for n, at in enumerate(times)]
    return found[::-1]


def answer(number: int, times: Sequence[int], before: int, limit: int) -> Said:
    """What a bridge says when it is asked for the calls below a number."""
    rows = [row for row in rows_of(times) if not before or row["id"] < before]
    end = rows[limit - 1]["id"] if len(rows) > limit else 0
    page = {"rows": rows[:limit], "before": end, "after": len(times)}
    return Said(member(number), [page], file=f"file {number}")


@given(BRIDGES, st.integers(1, 5))
def test_pages_have_every_call_once(bridges: list[list[int]], limit: int) -> None:
    seen: list[tuple[str, int]] = []
    place: Place | None = None
    for _ in range(100):
        before = place.numbers if place is not None else {}
        asked = [answer(n, times, before.get(f"id{n}", 0), limit) for n, times in enumerate(bridges)]
        page = merged_pages(asked, limit, place, None)
        assert len(page.rows) <= limit
        seen += [(row["bridge"], row["id"]) for row in page.rows]
        if page.before is None:
            break
        assert len(page.rows) == limit
        place = read_place(str(page.before))
        assert str(place) == str(page.before)
    assert sorted(seen) == sorted((f"r{n}", row["id"]) for n, times in enumerate(bridges) for row in rows_of(times))
    for number in range(len(bridges)):
        own = [id_ for bridge, id_ in seen if bridge == f"r{number}"]
        assert own == sorted(own, reverse=True)


def test_bridges_of_one_file_are_one_and_who_is_missing_is_in_the_place() -> None:
    shared = [Said(member(n), answer(0, [1, 2], 0, 5).rows, file="one") for n in range(2)]
    silent = Said(member(2), problem="it does not answer")
    page = merged_pages(one_for_each_file([*shared, silent]), 5, None, None)
    assert [(row["bridge"], row["id"]) for row in page.rows] == [("r0, r1", 2), ("r0, r1", 1)]
    assert str(page.after) == str(Place({"id0": 2, "id1": 2}, missing=["r2"]))
    assert page.missing == [{"bridge": "r2", "reason": "it does not answer"}]


@pytest.mark.parametrize("text", ["", "7", "é", "x" * 30_000, "WzFd", "bnVsbA", "W1tdLDAsW11d"])
def test_what_is_no_place_is_none(text: str) -> None:
    assert read_place(text) is None


@given(st.text(max_size=60))
def test_no_text_of_an_address_is_an_error(text: str) -> None:
    place = read_place(text)
    assert place is None or all(number >= 0 for number in place.numbers.values())
