"""Paths into values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.results.errors import Meter, QueryRefused
from mcpbridge.results.json_path import Place, parse_path

ISSUES = {
    "total": 3,
    "items": [
        {"id": 1, "user": {"login": "ann"}, "labels": [{"name": "bug"}, {"name": "ui"}]},
        {"id": 2, "user": {"login": "bob"}, "labels": []},
        {"id": 3, "user": {"login": "ann"}, "labels": [{"name": "bug"}], "odd key": {"a.b": "dotted"}},
    ],
}


def found(path: str, value: Any = ISSUES) -> list[Any]:
    return [place.value for place in parse_path(path).resolve(Place(None, "h", value), Meter())]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("", [ISSUES]),
        ("$", [ISSUES]),
        (".", [ISSUES]),
        ("total", [3]),
        ("$.total", [3]),
        (".total", [3]),
        ("items[0].id", [1]),
        ("items[-1].id", [3]),
        ("items[1:].id", [2, 3]),
        ("items[:1].id", [1]),
        ("items[::2].id", [1, 3]),
        ("items[].user.login", ["ann", "bob", "ann"]),
        ("items[*].user.login", ["ann", "bob", "ann"]),
        ("items.*.id", [1, 2, 3]),
        ("items.user.login", ["ann", "bob", "ann"]),
        ("items.1.id", [2]),
        ("items.length", [3]),
        ("/items/2/id", [3]),
        ("/items/2/odd key/a.b", ["dotted"]),
        ('items[2]["odd key"]["a.b"]', ["dotted"]),
        ("items[2]['odd key']['a.b']", ["dotted"]),
        ("items[2].odd key['a.b']", ["dotted"]),
        ("..name", ["bug", "ui", "bug"]),
        ("**.name", ["bug", "ui", "bug"]),
        ("items[0]..name", ["bug", "ui"]),
        ("items[].labels[].name", ["bug", "ui", "bug"]),
        ("..labels[0].name", ["bug", "bug"]),
    ],
)
def test_a_path_leads_to_values(path: str, values: list[Any]) -> None:
    assert found(path) == values


def test_every_value_comes_with_the_value_itself_first() -> None:
    assert found("**", {"a": [1]}) == [{"a": [1]}, [1], 1]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("itmes", "no member 'itmes' at $; there are: items, total"),
        ("items[0].usr", "no member 'usr' at items[0]; there are: user, id, labels"),
        ("items[].usr", "no member 'usr' at items[0] and its like"),
        ("items[7]", "no [7] at items: it has 3 elements"),
        ("total.x", "no member 'x': total is a number"),
        ("total[]", "nothing to go through: total is a number"),
        ("[0]", "no [0]: $ is an object; its members: total, items"),
        ("items[?(@.id>1)]", "filters belong into `where`"),
        ("items[", "a bracket without end"),
        ("items[x]", "expected [0]"),
        ("items..a..b", "at most one"),
        ("a.", "path 'a.'"),
        ("x" * 3000, "more than 2000 characters"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_is_there(path: str, told: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        found(path)
    assert told in str(refused.value)


def test_errors_stay_short_however_many_members_there_are() -> None:
    with pytest.raises(QueryRefused) as refused:
        found("nothing", {f"member {number} {'x' * 500}": 0 for number in range(5000)})
    assert len(str(refused.value)) < 1500


def test_a_list_without_elements_is_no_mistake() -> None:
    assert found("items[].id", {"items": []}) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=4),
    max_leaves=15,
)


@given(json_values)
def test_the_path_of_each_value_leads_back_to_it(value: Any) -> None:
    for place in parse_path("**").places(Place(None, "h", value), Meter()):
        back = list(parse_path(place.path).places(Place(None, "h", value), Meter()))
        assert len(back) == 1
        assert back[0].value is place.value


@given(st.text(alphabet="ab.[]*:'\"\\/$@0-?( ", max_size=15), json_values)
def test_any_text_is_a_path_or_refused(text: str, value: Any) -> None:
    """What a path leads to stands in the value."""
    try:
        there = found(text, value)
    except QueryRefused:
        return
    everything = [value, *(place.value for place in parse_path("**").places(Place(None, "h", value), Meter()))]
    for one in there:
        assert any(one is other for other in everything)


def test_work_is_bounded() -> None:
    deep: Any = 0
    for _ in range(500):
        deep = [deep, deep]
    with pytest.raises(QueryRefused, match="too much work"):
        for _ in parse_path("**").places(Place(None, "h", deep), Meter(100_000)):
            pass
