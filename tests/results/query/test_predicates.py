"""What each operator of `where` holds for: the table of `recall`'s documentation, value by value (issue 5, queries)."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.results.errors import Meter, QueryRefused
from mcpbridge.results.json_path import Place
from mcpbridge.results.query.predicates import comparison, operator_named
from mcpbridge.results.query.terms import parse_term
from mcpbridge.results.query.where import where_of


def holds(where: Any, row: Any) -> bool:
    return where_of(where).test(Place(None, "h", row), Meter())


ORDERED = {"<": (True, False, False), "<=": (True, True, False), ">": (False, False, True), ">=": (False, True, True),
           "==": (False, True, False), "!=": (True, False, True)}  # fmt: skip
"""Whether it holds where the left side is less, the same, more."""

PAIRS = [
    (1, 2), (-5, 3), (2, 1000), (Decimal("1.5"), 2), (0, Decimal("0.001")), (10**30, 10**30 + 1), (9, "10"), ("9", 10),
    ("a", "b"), ("", "a"), ("10", "9"), ("2026-01-31", "2026-02-01"), (-Decimal("2.5"), "-2"),
]  # fmt: skip
"""The first is less than the second: numbers as numbers, texts as texts, a text that says a number as that number."""


@pytest.mark.parametrize(("less", "more"), PAIRS)
@pytest.mark.parametrize("operator", ORDERED)
def test_an_order_holds_for_less_the_same_and_more(operator: str, less: Any, more: Any) -> None:
    is_less, is_same, is_more = ORDERED[operator]
    assert holds({"v": {operator: more}}, {"v": less}) is is_less
    assert holds({"v": {operator: less}}, {"v": less}) is is_same
    assert holds({"v": {operator: less}}, {"v": more}) is is_more
    assert holds(f"a {operator} b", {"a": less, "b": more}) is is_less
    assert holds(f"a {operator} b", {"a": more, "b": more}) is is_same
    assert holds(f"a {operator} b", {"a": more, "b": less}) is is_more


@given(st.integers(-100, 100), st.integers(-100, 100))
def test_integers_are_ordered_as_python_orders_them(one: int, other: int) -> None:
    row = {"v": one}
    expected = {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other, "==": one == other}
    assert {operator: holds({"v": {operator: other}}, row) for operator in expected} == expected


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("one", "other"),
    [(None, 1), (1, None), ("x", 1), (1, "x"), (True, 1), (1, False), ([1], 1), ({}, "a"), (None, None)],
)
def test_what_has_no_order_is_neither_less_nor_more_nor_equal(operator: str, one: Any, other: Any) -> None:
    assert not holds({"v": {operator: other}}, {"v": one})


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_a_missing_field_is_neither_less_nor_more(operator: str) -> None:
    assert not holds({"v": {operator: 0}}, {})


NAMES: list[list[Any]] = [["bug"], ["debug", "bugs"], ["ui", "bug"], [], ["BUG"], [None], ["b", "ug"]]


@pytest.mark.parametrize("names", NAMES)
def test_many_values_equal_one_only_if_one_of_them_is_it(names: list[Any]) -> None:
    """`==` is no `contains`: a value that only has the text somewhere is not it, and the list is not its member."""
    row = {"tags": [{"name": name} for name in names], "plain": names}
    has = "bug" in names
    assert holds('tags[].name == "bug"', row) is has
    assert holds('tags[].name != "bug"', row) is not has
    assert holds({"tags[].name": {"in": ["x", "bug"]}}, row) is has
    assert holds({"tags[].name": {"nin": ["x", "bug"]}}, row) is not has
    assert holds('plain == "bug"', row) is False
    assert holds('plain[] == "bug"', row) is has


@pytest.mark.parametrize("names", NAMES)
def test_many_values_contain_a_text_if_one_is_it_or_has_it(names: list[Any]) -> None:
    row = {"tags": [{"name": name} for name in names]}
    assert holds('tags[].name contains "bug"', row) is any("bug" in (name or "") for name in names)


def test_many_numbers_contain_the_one_that_is_there() -> None:
    row = {"tags": [{"id": 12}, {"id": 3}]}
    assert holds("tags[].id contains 3", row)
    assert not holds("tags[].id contains 1", row)
    assert not holds("tags[].id == 1", row)


def test_many_values_are_compared_with_each_of_many() -> None:
    row = {"a": [{"v": 1}, {"v": 2}], "b": [{"v": 2}, {"v": 3}], "c": [{"v": 9}]}
    assert holds("a[].v == b[].v", row)
    assert not holds("a[].v == c[].v", row)
    assert holds("a[].v < c[].v", row)
    assert not holds("a[].v > c[].v", row)
    assert not holds("a[].v > b[].v", row), "the largest of one is the smallest of the other"


@pytest.mark.parametrize(
    ("operator", "value", "text", "expected"),
    [
        ("startswith", "alphabet", "alpha", True),
        ("startswith", "alphabet", "bet", False),
        ("startswith", 12345, "12", True),
        ("startswith", None, "None", False),
        ("startswith", None, "", False),
        ("startswith", "null", None, False),
        ("endswith", "alphabet", "bet", True),
        ("endswith", "alphabet", "alpha", False),
        ("endswith", 12345, "45", True),
        ("endswith", None, "None", False),
        ("endswith", None, "", False),
        ("endswith", "null", None, False),
        ("endswith", True, "ue", True),
        ("contains", "alphabet", "phab", True),
        ("contains", "alphabet", "", True),
        ("contains", None, "", False),
        ("contains", "null", None, False),
        ("contains", [1, None], None, True),
        ("contains", {"name": 1}, "name", True),
        ("contains", {"name": "x"}, "x", False),
        ("contains", 12345, "34", True),
        ("contains", True, "ru", False),
        ("in", "a", ["b", "a"], True),
        ("in", "a", ["b"], False),
        ("in", 1, ["1"], True),
        ("in", "a", [], False),
        ("in", None, [None], True),
    ],
)
def test_an_operator_on_texts_and_lists(operator: str, value: Any, text: Any, expected: bool) -> None:
    assert holds({"v": {operator: text}}, {"v": value}) is expected


def test_what_a_value_is_in_may_be_a_text_or_another_value() -> None:
    """`where` as an object needs a list; an expression may name a text, a number or a field."""
    assert holds('v in "one two"', {"v": "two"})
    assert not holds('v in "one two"', {"v": "three"})
    assert holds("v in 3", {"v": 3})
    assert not holds("v in 3", {"v": 4})
    assert holds("v in other", {"v": "k", "other": {"k": 1}})
    assert not holds("v in other", {"v": 1, "other": {"k": 1}})


@pytest.mark.parametrize(
    ("where", "row", "expected"),
    [
        ({"v": {"exists": True}}, {"v": 0}, True),
        ({"v": {"exists": True}}, {"v": None}, False),
        ({"v": {"exists": True}}, {}, False),
        ({"v": {"exists": False}}, {"v": 0}, False),
        ({"v": {"exists": False}}, {"v": None}, True),
        ({"v": {"exists": False}}, {}, True),
        ({"v": {"exists": None}}, {"v": 1}, True),
        ({"t[].v": {"exists": True}}, {"t": [{"v": None}, {"v": 1}]}, True),
        ({"t[].v": {"exists": True}}, {"t": [{"v": None}]}, False),
        ({"t[].v": {"exists": False}}, {"t": []}, True),
        ("1 exists", {}, True),
        ("null exists", {}, False),
    ],
)
def test_a_field_exists_if_it_has_a_value(where: Any, row: Any, expected: bool) -> None:
    assert holds(where, row) is expected


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ("^a+$", "aaa", True),
        ("^a+$", "aab", False),
        ("b", "abc", True),
        ("^12", 123, True),
        ("None|null", None, False),
        ("", None, False),
        ("", "", True),
        ("true", True, True),
    ],
)
def test_a_pattern_is_searched_in_the_text_of_a_value(pattern: str, value: Any, expected: bool) -> None:
    assert holds({"v": {"matches": pattern}}, {"v": value}) is expected
    assert holds({"t[].v": {"matches": pattern}}, {"t": [{"v": None}, {"v": value}]}) is expected


@pytest.mark.parametrize("pattern", [1, None, ["a"], True])
def test_a_pattern_is_a_text(pattern: Any) -> None:
    with pytest.raises(QueryRefused, match="matches needs a quoted pattern"):
        where_of({"v": {"matches": pattern}})


def test_a_pattern_is_no_field() -> None:
    with pytest.raises(QueryRefused, match="matches needs a quoted pattern"):
        comparison(parse_term("v"), "matches", parse_term("w"))


def test_all_or_one_of_several_hold() -> None:
    row = {"a": 1, "b": 2}
    for first in (1, 9):
        for second in (2, 9):
            parts = [{"a": first}, {"b": second}]
            assert holds({"and": parts}, row) is (first == 1 and second == 2)
            assert holds({"or": parts}, row) is (first == 1 or second == 2)
            assert holds({"not": {"and": parts}}, row) is not (first == 1 and second == 2)


@pytest.mark.parametrize(
    ("names", "operator"),
    [
        ("== = === eq $eq EQ equals is", "=="),
        ("!= !== <> ne $ne neq", "!="),
        ("< lt $lt LT", "<"),
        ("<= lte $lte le", "<="),
        ("> gt $gt", ">"),
        (">= gte $gte ge", ">="),
        ("in $in", "in"),
        ("nin $nin not_in", "not in"),
        ("contains includes has $contains", "contains"),
        ("startswith starts_with $startswith", "startswith"),
        ("endswith ends_with $endswith", "endswith"),
        ("matches regex $regex =~ match ~", "matches"),
        ("exists $exists", "exists"),
    ],
)
def test_every_spelling_of_an_operator_is_that_operator(names: str, operator: str) -> None:
    assert {operator_named(name) for name in names.split()} == {operator}


def test_an_unknown_operator_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(QueryRefused, match=r"^here: no operator 'like'; there are: == != < <= > >= in, not in"):
        operator_named("like", "here: ")


def test_a_value_may_stand_on_the_left() -> None:
    row = {"v": "b", "n": 3}
    assert holds('"abc" contains "b"', row)
    assert not holds('"abc" contains "d"', row)
    assert holds('"abc" contains v', row)
    assert holds("3 == n", row)
    assert not holds("4 == n", row)


def test_a_path_to_many_that_leads_nowhere_has_no_value_and_a_plain_one_is_null() -> None:
    row = {"tags": [], "other": [{}]}
    assert not holds("tags[].name == null", row)
    assert not holds("other[].name == null", row)
    assert holds("missing == null", row)
    assert holds("tags[].name != null", row), "none of them is null"


def test_whether_a_field_exists_is_asked_for_unless_it_is_said_not_to() -> None:
    """What stands on the right is false or it is not; a field there says nothing."""
    test = comparison(parse_term("v"), "exists", parse_term("w"))
    assert test(Place(None, "h", {"v": 1}), Meter())
    assert not test(Place(None, "h", {"w": False}), Meter())
