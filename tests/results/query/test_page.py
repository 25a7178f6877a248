"""Pages of answers: never too long, every row once, every value as it was."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.results.document import Document, read
from mcpbridge.results.errors import QueryRefused
from mcpbridge.results.exact_json import parse_json, write_json
from mcpbridge.results.query.query import answer
from mcpbridge.results.query.request import read_query

texts = st.text(st.characters(codec="utf-8"), max_size=12)
scalars = (
    st.none() | st.booleans() | st.integers() | texts | st.decimals(allow_nan=False, allow_infinity=False, places=3)
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=10
)
records = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(), "name": texts}, optional={"note": scalars, "tags": st.lists(texts, max_size=2)}
    ),
    max_size=40,
)
rooms = st.integers(200, 900)


def cells(line: str) -> list[str]:
    """A line of the table, as its docstring says that it is to be read."""
    found, rest = list[str](), line
    while True:
        if rest.startswith('"'):
            _, end = json.JSONDecoder().raw_decode(rest)
            found.append(rest[:end])
            rest = rest[end:]
        else:
            cell, comma, after = rest.partition(",")
            found.append(cell)
            rest = comma + after
        if not rest:
            return found
        rest = rest[1:]


def cell_value(cell: str) -> Any:
    if not cell.startswith('"'):
        try:
            return parse_json(cell)
        except ValueError:
            return cell
    return json.loads(cell)


def rows_of(body: str, *, is_table: bool) -> list[Any]:
    if not is_table:
        return (
            parse_json(body) if body.startswith("[") and "\n" not in body else [parse_json(x) for x in body.split("\n")]
        )
    header, *lines = body.split("\n")
    names = [cell_value(name) for name in cells(header)]
    return [
        parse_json(line)
        if line.startswith("{")
        else {name: cell_value(cell) for name, cell in zip(names, cells(line), strict=True) if cell}
        for line in lines
    ]


@settings(max_examples=60, deadline=None)
@given(records, rooms)
def test_paging_visits_every_row_once_as_it_was(rows: list[dict[str, Any]], room: int) -> None:
    document = Document(write_json(rows), "json", rows)
    seen, offset = list[Any](), 0
    while offset < len(rows):
        text = answer(
            read_query({"offset": offset, "select": {n: n for n in ("id", "name")}}), {"h": document}, room
        ).text
        assert len(text) <= room
        body, _, last = text.rpartition("\n")
        found = rows_of(body, is_table="as CSV" in last)
        assert found
        seen += found
        offset += len(found)
        assert (f"offset={offset} for the next" in last) == (offset < len(rows))
    assert seen == [{"id": row["id"], "name": row["name"]} for row in rows]


@settings(max_examples=60, deadline=None)
@given(records)
def test_rows_that_are_shown_are_as_they_were(rows: list[dict[str, Any]]) -> None:
    """Tables too: a member that is missing stays missing, lists stand as JSON in a text."""
    if not rows:
        return
    text = answer(read_query({"offset": 0}), {"h": Document("", "json", rows)}, 100_000).text
    body, _, last = text.rpartition("\n")
    is_table = "as CSV" in last
    expected = [{n: write_json(v) if is_table and isinstance(v, list) else v for n, v in row.items()} for row in rows]
    assert rows_of(body, is_table=is_table) == expected


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=3000), rooms)
def test_paging_through_one_text_gives_all_of_it(text: str, room: int) -> None:
    document = Document("", "json", {"body": text, "other": 1})
    seen = ""
    while len(seen) < len(text):
        page = answer(read_query({"path": "body", "offset": len(seen)}), {"h": document}, room).text
        assert len(page) <= room
        body, mark, _ = page.rpartition("\n[chars ")
        seen += body if mark else page
    assert seen == text


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=80), min_size=1, max_size=60),
    rooms,
)
def test_paging_through_lines_gives_every_line(lines: list[str], room: int) -> None:
    if not lines[-1]:
        lines[-1] = "end"
    document = Document("\n".join(lines), "text")
    seen = list[str]()
    while len(seen) < len(lines):
        page = answer(read_query({"lines": f"{len(seen) + 1}-"}), {"h": document}, room).text
        assert len(page) <= room
        body, mark, _ = page.rpartition("\n[lines ")
        seen += (body if mark else page).split("\n")
    assert seen == lines


arguments = st.fixed_dictionaries(
    {},
    optional={
        "path": st.sampled_from(["", "a", "[0]", "[]", "**", "..a", "[].a", "/0/a", "[1:3]", "a.b"]),
        "where": st.sampled_from(
            ["a == 1", "exists(a)", "$ > 1", "not b", {"a": {"gt": 0}}, "$index < 2", "a contains 'x'"]
        ),
        "select": st.sampled_from(["a", "a,b", "$", "$path", {"x": "a"}, "len(a)", "$trail,$key"]),
        "sort": st.sampled_from(["a", "-a", "$", "-$index", ["a", "-b"]]),
        "offset": st.integers(0, 5),
        "limit": st.integers(0, 5),
        "aggregate": st.sampled_from(["count", "distinct:a", "max", "sum:a", "first", "median:$"]),
        "group_by": st.sampled_from(["a", "$", ["a", "b"]]),
        "find": st.sampled_from(["a", "1", "é"]),
        "lines": st.sampled_from(["1", "-3", "2-9"]),
        "context": st.integers(0, 3),
    },
)
NAMES = st.sampled_from(["a", "b", "name", "x y"])
inner_trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=20
)
trees = st.lists(inner_trees, max_size=6) | st.dictionaries(NAMES, inner_trees, max_size=4)


@settings(max_examples=300, deadline=None)
@given(arguments, trees | st.text(max_size=400), rooms)
def test_any_query_over_anything_is_answered_in_the_room_or_refused(asked: Any, value: Any, room: int) -> None:
    document = Document(write_json(value), "json", value) if not isinstance(value, str) else read(value)
    most = room
    try:
        text = answer(read_query(asked), {"h": document}, room).text
    except QueryRefused as refused:
        text, most = str(refused), 1500
    assert len(text) <= most
    text.encode("utf-8", "surrogatepass" if most == 1500 else "strict")


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["path", "where", "select", "sort", "offset", "aggregate", "lines", "regex"]), json_values
    )
)
def test_any_arguments_are_a_query_or_refused(asked: dict[str, Any]) -> None:
    """A refusal begins with the argument that is wrong; what is read once is read so again."""
    refused = ""
    try:
        query = read_query(asked)
    except QueryRefused as error:
        refused = str(error)
    else:
        assert repr(read_query({**asked, "unknown": 1}).select) == repr(query.select)
        assert (query.sort == ()) == (asked.get("sort") in (None, ""))
    assert not refused or refused.startswith(tuple(asked)), refused


def test_the_same_query_gives_the_same_bytes() -> None:
    rows = [{"k": n % 7, "v": Decimal(n)} for n in range(500)]
    document = Document("", "json", rows)
    for asked in ({"group_by": "k"}, {"sort": "k"}, {"aggregate": "distinct:k"}, {}):
        assert len({answer(read_query(asked), {"h": document}, 600).text for _ in range(3)}) == 1


@pytest.mark.parametrize(
    "asked", [{"sort": "-n"}, {"group_by": "n"}, {"where": "n matches '(a*)*b'"}, {"regex": "(x+x+)+y"}]
)
def test_many_rows_are_no_trouble(asked: dict[str, Any]) -> None:
    rows = [{"n": "x" * 50 + str(number * 7919 % 10007)} for number in range(10_000)]
    assert answer(read_query(asked), {"h": Document("", "json", rows)}, 800).text


def test_a_search_that_leaves_nothing_of_one_object_says_so() -> None:
    asked = read_query({"find": "a", "select": "a"})
    assert answer(asked, {"h": read("{}")}, 200).text == "[no rows]"
