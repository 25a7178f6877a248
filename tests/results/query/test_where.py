"""Conditions on rows, written as expressions and as objects."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.results.errors import Meter, QueryRefused
from mcpbridge.results.json_path import Place
from mcpbridge.results.query.where import where_of

ROW = {
    "state": "open",
    "comments": 3,
    "price": Decimal("19.90"),
    "code": "504",
    "id": 12345678901234567890123,
    "at": "2026-03-01T00:00:00Z",
    "draft": False,
    "closed": None,
    "labels": ["bug", "ui"],
    "tags": [{"name": "red"}, {"name": "blue"}],
    "user": {"login": "ann", "odd key": 1},
    "title": "Fix: the Door",
    "empty": "",
    "not-plain": 7,
}


def holds(where: Any, row: Any = ROW) -> bool:
    return where_of(where).test(Place(None, "h", row), Meter())


TRUE = [
    'state == "open"',
    "state = 'open'",
    'state === "open"',
    'state == "open" and comments > 2',
    'state == "open" && comments >= 3',
    'state == "closed" || comments < 4',
    'state == "closed" OR comments <= 3',
    'not state == "closed"',
    '!(state == "closed")',
    'state != "closed"',
    'state <> "closed"',
    "comments != 4",
    "price == 19.9",
    "price > 19.89 and price < 19.91",
    "code == 504",
    "code >= 500 and code < 600",
    "id == 12345678901234567890123",
    "id > 12345678901234567890122",
    'at >= "2026-02-28"',
    "draft == false",
    "not draft",
    "closed == null",
    "closed is null",
    "state is not null",
    "missing == null",
    "not exists(missing)",
    "exists(state)",
    "state exists",
    "closed not exists",
    'state in ["open", "closed"]',
    'state in ("open", "closed")',
    'state not in ["done"]',
    "comments in [1, 2, 3]",
    'labels contains "bug"',
    '"bug" in labels',
    'labels not contains "x"',
    'tags contains "red"',
    'tags[].name == "blue"',
    'tags.name == "blue"',
    'tags[].name startswith "bl"',
    'not tags[].name == "green"',
    'tags[].name != "green"',
    'title contains "Door"',
    'title startswith "Fix"',
    'title endswith "Door"',
    'title.includes("Door")',
    'title.startsWith("Fix")',
    'contains(title, "Door")',
    'lower(title) contains "door"',
    r'title matches "^Fix: .* D\\w+$"',
    'title =~ "(?i)door"',
    "len(labels) == 2",
    "len(title) > 5",
    "length(missing) == 0",
    "max(labels) == 'ui'",
    "count(tags[].name) == 2",
    'user.login == "ann"',
    'user["odd key"] == 1',
    "`not-plain` == 7",
    "not-plain == 7",
    '$.state == "open"',
    '@.state == "open"',
    "state",
    "labels",
    "3 < 4",
    "-1 < comments",
    '"5" > comments',
    '(state == "open" and (comments > 100 or (draft == false)))',
]

FALSE = [
    'state == "closed"',
    "comments > 3",
    "comments == true",
    "draft",
    "closed",
    "empty",
    "missing > 1",
    "missing < 1",
    "state > 1",
    "state == 1",
    "closed exists",
    'tags[].name == "green"',
    'title contains "door"',
    'labels == "bug"',
    "id == 12345678901234567890124",
    "price == 19.90000000000000000000001",
]


@pytest.mark.parametrize("where", TRUE)
def test_a_condition_holds(where: str) -> None:
    assert holds(where)


@pytest.mark.parametrize("where", FALSE)
def test_a_condition_does_not_hold(where: str) -> None:
    assert not holds(where)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"state": "open"}, True),
        ({"state": "open", "comments": {"gt": 3}}, False),
        ({"comments": {"gte": 3, "lt": 4}}, True),
        ({"comments": {"$gte": 3, "$lt": 3}}, False),
        ({"state": ["open", "closed"]}, True),
        ({"state": {"in": ["closed"]}}, False),
        ({"state": {"$nin": ["closed"]}}, True),
        ({"state": {"ne": "open"}}, False),
        ({"title": {"contains": "Door", "startswith": "Fix", "endswith": "r"}}, True),
        ({"title": {"regex": "^fix"}}, False),
        ({"closed": {"exists": False}}, True),
        ({"state": {"exists": True}}, True),
        ({"closed": None}, True),
        ({"user.login": "ann"}, True),
        ({"tags[].name": "red"}, True),
        ({"len(labels)": {"gt": 1}}, True),
        ({"$or": [{"state": "closed"}, {"comments": 3}]}, True),
        ({"and": ["state == 'open'", {"comments": 4}]}, False),
        ({"not": {"state": "open"}}, False),
        ({"comments": {"not": {"gt": 5}}}, True),
        (["state == 'open'", {"comments": 3}], True),
    ],
)
def test_objects_say_the_same(where: Any, expected: bool) -> None:
    assert holds(where) is expected


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ('state == "open', "character 10, at '\"open': a text without end"),
        ("state ==", "where: at its end: expected a field"),
        ("state == 'open' comments", "character 17, at 'comments': expected an operator, and, or"),
        ("(state == 'open'", "expected )"),
        ("state ~~ 1", "expected a field"),
        ("foo(state) == 1", "no function 'foo'"),
        ("title matches comments", "matches needs a quoted pattern"),
        ("title matches '('", "missing )"),
        ("title matches '(?=x)'", "RE2"),
        (r"title matches '(a)\\1'", "RE2"),
        ("state in [open]", "lists hold texts"),
        ("", "expected a field"),
        ("x == " + "1" * 5000, "longer than 4000"),
        ("(" * 100 + "a" + ")" * 100, "nested too deep"),
        ("not " * 100 + "a", "nested too deep"),
        ({"comments": {"above": 3}}, "where.comments: no operator 'above'"),
        ({}, "an empty object"),
        ([], "an empty list"),
        (7, "expected an expression"),
        ({"state": {"in": "open"}}, "needs a list"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(where: Any, told: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        where_of(where)
    assert told in str(refused.value)


WORDS = (
    "state == != and or not in ( ) [ ] , 'a' 1 1.5 true null . $ contains matches exists len labels[].x ..a ` - is <"
)
words = st.sampled_from([*WORDS.split(), " ", "'", '"', "\\"])


@given(st.lists(words, max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    """Promise: nothing but `QueryRefused` is raised, by reading or by testing."""
    try:
        is_met = holds(text)
    except QueryRefused:
        return
    assert holds(f"not ({text})") is (not is_met)
    assert holds([text, text]) is bool(is_met)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "gt", "in", "or", "$not", "regex"]), inner)
    ),
    max_leaves=8,
)


@given(json_values, json_values)
def test_any_value_is_a_condition_or_refused(where: Any, row: Any) -> None:
    try:
        is_met = holds(where, row)
    except QueryRefused:
        return
    if isinstance(where, dict):
        assert holds({"not": where}, row) is (not is_met)
    assert holds([where, where], row) is bool(is_met)
