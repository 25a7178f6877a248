"""The address of the list of calls says which are wanted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from mcpbridge.app.console.pages.calls.filters import FAILURES, NAMES, number_of, read_filters
from mcpbridge.storage.call_log.reader import Filter

NOW = 1_785_000_000.0


def read(query: str) -> Filter:
    found = read_filters(QueryParams(query), NOW)
    assert found.problems == {}
    return found.which


@pytest.mark.parametrize(
    ("query", "which"),
    [
        ("", Filter()),
        (
            "server=git&tool=read_*&client=claude&text=no+such",
            Filter(server="git", tool="read_*", client="claude", text="no such"),
        ),
        ("server=&tool=+", Filter()),
        ("principal=ann", Filter(principal="ann")),
        ("principal=%27%27", Filter(principal="")),
        ("outcome=failed", Filter(outcome=("failed",))),
        ("outcome=failed&outcome=refused", Filter(outcome=("failed", "refused"))),
        ("outcome=failures", Filter(outcome=FAILURES)),
        ("since=1h&until=30s", Filter(since=NOW - 3600, until=NOW - 30)),
        ("min=500ms&max=2+min", Filter(min_seconds=0.5, max_seconds=120)),
        (
            "session=s&run=r&parent=6615b82bfc9eb9d0&method=prompts/get",
            Filter(session="s", run="r", parent="6615b82bfc9eb9d0", method="prompts/get"),
        ),
        ("before=7&live=off&unknown=x", Filter()),
    ],
)
def test_each_parameter_is_a_part_of_the_filter(query: str, which: Filter) -> None:
    assert read(query) == which


@pytest.mark.parametrize(
    ("query", "name", "words"),
    [
        ("since=yesterday", "since", "expected a time span"),
        ("min=fast", "min", "expected a time"),
        ("max=-1", "max", "expected a time"),
        ("outcome=good", "outcome", "there is no outcome 'good'"),
        ("text=" + "x" * 501, "text", "longer than 500"),
    ],
)
def test_what_cannot_be_understood_filters_nothing_and_says_why(query: str, name: str, words: str) -> None:
    found = read_filters(QueryParams(f"server=git&{query}"), NOW)
    assert found.which == Filter(server="git")
    assert words in found.problems[name]
    assert found.value(name)  # stays in its box, to be mended


def test_what_has_no_box_is_a_mark_that_can_be_taken_off() -> None:
    found = read_filters(QueryParams("session=s&server=git&run=r"), NOW)
    assert [(name, value) for name, value, _ in found.marks] == [("session", "s"), ("run", "r")]
    assert read(found.marks[0][2]) == Filter(server="git", run="r")


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("", 0), ("-7", 0), ("٣", 0), ("9" * 30, 0), ("x", 0)])
def test_the_number_of_a_record(text: str, number: int) -> None:
    assert number_of(QueryParams({"before": text}), "before") == number


TEXTS = st.dictionaries(st.sampled_from([*NAMES, "before", "x"]), st.text(max_size=30))


@given(TEXTS)
def test_the_same_filters_come_out_of_the_address_that_they_make(values: dict[str, str]) -> None:
    """The address is the whole state of the page."""
    found = read_filters(QueryParams(values), NOW)
    again = read_filters(QueryParams(found.query()), NOW)
    assert (again.which, again.given, again.problems) == (found.which, found.given, found.problems)
