"""The lossless tier: shorter, never longer, and the same value to the last digit."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import parse_json, write_json
from mcpbridge.results.lossless.decode import restore
from mcpbridge.results.lossless.encode import LEGEND, Lossless, shortest, table_form

MANY = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))

TRICKY = [
    *("", " ", "null", "true", "1", "1.10", "-0", "1e5", "a|b", "a,b;c]", "[x", "{y", '"', "'", "\\", "\n", "a\nb"),
    *("\t", " lead", "trail ", "{}", "{{a}}", "{a}", "~", "=x", "&user", "@rows", "+", "^", "#", "*", ".", "a.b"),
    *("\x00", "\x7f", "\x85", "\u2028", "\u00a0x\u00a0", "ünïcödé", "日本", "😀", "[0]", "&", "a&b", "\0table rows"),
]
TEXTS = st.sampled_from(TRICKY) | st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
NUMBERS = (
    st.integers(-(10**40), 10**40)
    | st.integers(-5, 5)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.sampled_from([Decimal("1.10"), Decimal("1.1"), Decimal("-0.0"), Decimal("1E+400")])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
NAMES = st.sampled_from(["id", "name", "url", "a.b", "", "*", "0", "+1", "a b", "type", "children", "x|y", "{id}", "ü"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Any]:
    """Records as services give them: the same members, some absent, some constant, some told from others."""
    names = draw(st.lists(NAMES | TEXTS, min_size=1, max_size=6, unique=True))
    kinds = [
        draw(st.sampled_from(["scalar", "few", "same", "derived", "count", "nested", "list", "any"])) for _ in names
    ]
    few = draw(st.lists(VALUES, min_size=1, max_size=3))
    prefix, suffix, step = draw(TEXTS), draw(TEXTS), draw(st.integers(-3, 70))
    shared = draw(
        st.lists(st.fixed_dictionaries(dict.fromkeys(("id", "login", "url"), SCALARS)), min_size=1, max_size=3)
    )
    items = st.sampled_from(shared) | st.fixed_dictionaries({"p": SCALARS})
    rows: list[Any] = []
    for i in range(draw(st.integers(1, 9))):
        row: dict[str, Any] = {}
        for name, kind in zip(names, kinds, strict=True):
            if draw(st.integers(0, 5)) == 0:
                continue
            match kind:
                case "scalar":
                    row[name] = draw(SCALARS)
                case "few":
                    row[name] = draw(st.sampled_from(few))
                case "same":
                    row[name] = few[0]
                case "derived":
                    row[name] = f"{prefix}{next((v for v in row.values() if type(v) in (int, str)), '')}{suffix}"
                case "count":
                    row[name] = 1000 + step * i
                case "nested":
                    row[name] = draw(st.sampled_from(shared))
                case "list":
                    row[name] = draw(st.lists(items, max_size=3))
                case _:
                    row[name] = draw(VALUES)
        rows.append(row if draw(st.integers(0, 12)) else draw(VALUES))
    return rows


@st.composite
def trees(draw: st.DrawFn) -> list[Any]:
    def node(depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {"name": draw(TEXTS), "type": draw(st.sampled_from(["file", "directory"]))}
        how = draw(st.integers(0, 3))
        if depth and how < 3:
            out["children"] = [node(depth - 1) for _ in range(draw(st.integers(0, 3)))]
        elif how == 3:
            out["children"] = draw(st.sampled_from([None, [], "none", [1]]))
        return out

    return [node(3) for _ in range(draw(st.integers(1, 3)))]


def same(one: Any, other: Any) -> bool:
    """To the last digit, members in the same order."""
    return write_json(one) == write_json(other)


@MANY
@given(VALUES | record_lists() | trees() | st.dictionaries(TEXTS, record_lists(), max_size=3))
def test_what_is_given_back_is_the_same_value(value: Any) -> None:
    """Promise: nothing is lost, whatever form was the shortest; and it is never longer than what was sent."""
    sent = Document(write_json(value), "json", value)
    found = shortest(sent)
    assert len(found.text) <= len(sent.text)
    assert same(restore(found.text, found.form), value)


@MANY
@given(
    record_lists() | trees() | st.dictionaries(TEXTS, st.fixed_dictionaries({"a": SCALARS, "b": SCALARS}), min_size=4)
)
def test_a_table_can_be_turned_back(value: Any) -> None:
    """The notation holds any values, and need not lean on the check in `shortest`."""
    assert same(restore(table_form(value), "table"), value)


def rows(count: int) -> list[dict[str, Any]]:
    people = [
        {"login": name, "id": 7000 + i, "url": f"https://api.example.com/users/{name}", "admin": False}
        for i, name in enumerate(("ann", "bob", "eve"))
    ]
    return [
        {
            "number": 1200 - i,
            "title": f"Title {i * 7919 % 97}, or so",
            "url": f"https://api.example.com/issues/{1200 - i}",
            "user": people[i % 3],
            "assignee": None if i % 4 else people[i % 2],
            "labels": [{"name": "bug", "color": "f00"}, {"name": "ui", "color": "00f"}][: i % 3],
            "state": "open",
            "price": Decimal("1.10") if i % 2 else Decimal("1.1"),
            "zip": "01234" if i % 2 else "99999",
        }
        for i in range(count)
    ]


def test_records_become_a_table_that_can_be_read() -> None:
    value = {"total": 20, "items": rows(20)}
    found = shortest(Document(write_json(value), "json", value))
    lines = found.text.split("\n")
    assert found.form == "table"
    assert lines[0].startswith(LEGEND)
    assert lines[1] == '{"total":20,"items":@items}'
    assert "&user(login) 3" in lines
    assert "@items 20" in lines
    head = lines[lines.index("@items 20") + 1].split("|")
    assert head[:4] == ["number={1200-1*i}", "title~Title {}, or so", "url~https://api.example.com/issues/{number}",
                        "user&user"]  # fmt: skip
    assert "state=open" in head
    assert "zip:str" in head
    assert lines[-1] == "14|bob|null|[bug,f00]|1.10|01234"
    assert same(restore(found.text, "table"), value)


@pytest.mark.parametrize("kind", ["json", "ndjson", "repr", "csv", "table"])
def test_every_kind_that_has_a_value_can_become_a_table(kind: Any) -> None:
    value = [{"a": i, "constant": "the same text in every row", "b": f"x{i * 37 % 11}"} for i in range(40)]
    sent = "\n".join(write_json(row) for row in value)
    found = shortest(Document(sent, kind, value))
    assert found.form == "table"
    assert same(restore(found.text, "table"), value)


def test_a_tree_becomes_an_outline() -> None:
    value = [
        {
            "name": f"dir{i}",
            "type": "directory",
            "children": [
                {"name": "src", "type": "directory", "children": [{"name": f"file{i}.py", "type": "file"}]},
                {"name": "empty", "type": "directory", "children": []},
                {"name": "readme.md", "type": "file"},
            ],
        }
        for i in range(9)
    ]
    found = shortest(Document(write_json(value), "json", value))
    assert found.form == "table"
    assert "\n src|directory|+\n  file0.py|file\n empty|directory|[]\n readme.md|file\n" in found.text
    assert same(restore(found.text, "table"), value)


PATHS = st.lists(
    st.lists(st.sampled_from(["", "src", "lib", "a b", " x", "main.py", "ü", "..", "c:\\"]), max_size=5).map("/".join),
    max_size=30,
).map("\n".join)


@MANY
@given(PATHS | st.text(" /ab\n", max_size=40))
def test_paths_come_back_in_their_order(text: str) -> None:
    """Whatever the list holds: folders that come again, empty lines, names with spaces in front."""
    found = shortest(Document(text, "listing"))
    assert len(found.text) <= len(text)
    assert found.text == text if found.form == "as sent" else restore(found.text, found.form) == text


def test_paths_are_grouped_by_folder() -> None:
    folders = ("/srv/app/src/api", "/srv/app/src/models", "/srv/app/tests")
    text = "\n".join(f"{folder}/module_{i}.py" for folder in folders for i in range(20)) + "\n"
    found = shortest(Document(text, "listing"))
    lines = found.text.split("\n")
    assert found.form == "table"
    assert lines[1:4] == ["/srv/app/src/api/", " module_0.py", " module_1.py"]
    assert len(found.text) < 0.55 * len(text)
    assert restore(found.text, found.form) == text


def test_texts_without_a_value_are_left_as_they_are() -> None:
    assert shortest(Document("a b c\n" * 2000, "log")) == Lossless("as sent", "a b c\n" * 2000)


def test_half_characters_are_left_as_they_are() -> None:
    text = json.dumps([{"a": "\ud800"}] * 30)
    assert shortest(Document(text, "json", parse_json(text))).form == "as sent"


@pytest.mark.parametrize("depth", [50, 200, 900])
def test_deep_values_neither_crash_nor_change(depth: int) -> None:
    text = '{ "a":[{"b":1,"c":2},' * depth + "0" + "]}" * depth
    try:
        value = parse_json(text)
    except ValueError:
        return
    found = shortest(Document(text, "json", value))
    assert parse_json(text) == restore(found.text, found.form)


def test_with_room_a_rich_text_is_given_up_at_once() -> None:
    """A megabyte that cannot fit is not rewritten for nothing."""
    value = rows(3000)
    for i, row in enumerate(value):
        row["title"] = f"{i * 2654435761 % 2**32:08x} {i * 40503 % 65536:04x}"
    text = write_json(value)
    assert shortest(Document(text, "json", value), 2000) == Lossless("as sent", text)


def test_with_room_what_fits_is_found() -> None:
    value = [{"id": i, "state": "ready", "url": f"https://api.example.com/{i}", "size": i % 7} for i in range(200)]
    found = shortest(Document(json.dumps(value, indent=1), "json", value), 2000)
    assert found.form == "table"
    assert len(found.text) <= 2000


def _nested(depth: int, leaf: str) -> str:
    return "[[],[],[],[]," * depth + leaf + "]" * depth


LONG = json.dumps([f"{i * 2654435761 % 2**32:x}" for i in range(5000)])
HOSTILE = {
    "a text of one letter": [{"a": "a", "b": "a" * 200_000}] * 3,
    "a template of a thousand parts": [{"a": "a" * (1 + i % 3), "b": "a" * 1900 + str(i)} for i in range(300)],
    "columns that differ late": [{f"k{j}": 0 if i < 290 else i * j for j in range(100)} for i in range(300)],
    "every record of another shape": [{f"k{i * j % 997}": 1 for j in range(1, 12)} for i in range(2000)],
    "every record with names of its own": [{f"k{i}_{j}": 1 for j in range(10)} for i in range(2000)],
    "lists in lists in lists": [parse_json(_nested(150, LONG)), parse_json(_nested(150, "[1]"))],
    "nothing, often": [{} for _ in range(20_000)],
    "braces": [{"{a}": "{" * i, "}": "}" * i, "c": "{}"} for i in range(100)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_made_to_be_hard_is_done_or_left(name: str) -> None:
    """Nothing takes more than time in proportion: with more, this would not end before the test's time is up."""
    value = HOSTILE[name]
    text = write_json(value)
    found = shortest(Document(text, "json", value))
    assert len(found.text) <= len(text)
    assert same(restore(found.text, found.form), value)


def test_the_same_value_gives_the_same_text() -> None:
    value = rows(30)
    assert shortest(Document(write_json(value), "json", value)) == shortest(Document(write_json(value), "json", value))


@MANY
@given(st.text(max_size=200) | st.text('@&|[]{}()=~^+:*.i0123 \n"abc', max_size=80).map(lambda t: f"{LEGEND}\n{t}"))
def test_what_is_no_table_is_refused(text: str) -> None:
    """`restore` raises nothing but ValueError (NotReadable)."""
    try:
        restore(text, "table")
    except ValueError:
        pass


def test_with_a_room_only_what_fits_is_turned_into_a_table() -> None:
    value = rows(40)
    document = Document(f" {write_json(value)}", "json", value)
    table = shortest(document)
    assert table.form == "table"
    assert shortest(document, len(table.text)) == table
    assert shortest(document, len(table.text) - 1).form == "minified"
    paths = Document("\n".join(f"src/deep/down/m{at}.py" for at in range(40)), "listing")
    table = shortest(paths)
    assert shortest(paths, len(table.text)) == table
    assert shortest(paths, len(table.text) - 1) == Lossless("as sent", paths.text)
