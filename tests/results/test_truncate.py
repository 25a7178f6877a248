"""The strategy `truncate`: the beginning, whole as far as it goes, and exact notes of the rest."""

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.results.document import Document, read
from mcpbridge.results.exact_json import parse_json, write_json
from mcpbridge.results.truncate import Cut, _shares, shorten_error, shrunk, truncate
from support.truncate_examples import FILE, examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=60) | st.text(alphabet='a"\\\n\x00é漢', max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=20), inner, max_size=20),
    max_leaves=60,
)
NOTE = re.compile(
    r"^\[Showing ([\d,]+) of ([\d,]+) (items|members|rows|characters) — ([\d,]+) more omitted\]$", re.MULTILINE
)


def as_json(value: Any) -> Document:
    return Document(json.dumps(value, indent=2), "json", value)


def noted(text: str) -> tuple[int, int, int]:
    note = NOTE.search(text)
    assert note is not None, text
    kept, total, omitted = (int(note[at].replace(",", "")) for at in (1, 2, 4))
    assert kept + omitted == total
    return kept, total, omitted


@settings(max_examples=80, deadline=None)
@given(VALUES.filter(lambda value: isinstance(value, list | dict)), st.integers(100, 800))
def test_json_stays_json_within_its_room(value: Any, room: int) -> None:
    document = as_json(value)
    shown = truncate(document, room)
    assert len(shown) <= room
    if len(document.text) <= room:
        assert shown == document.text
        return
    body, *notes = shown.split("\n")
    assert type(json.loads(body)) is type(value)
    assert all(note.startswith("[") for note in notes)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 99), min_size=60, max_size=160).map(
        lambda numbers: [{"a": at} if at % 3 else {"b": at, "c": -at} for at in numbers]
    ),
    st.integers(100, 500),
)
def test_the_first_items_of_a_list_are_unchanged_and_the_others_counted(rows: list[dict[str, int]], room: int) -> None:
    shown = truncate(as_json(rows), room)
    kept, total, _ = noted(shown)
    assert total == len(rows)
    assert json.loads(shown.partition("\n")[0]) == rows[:kept]


def test_the_note_reads_as_promised() -> None:
    shown = truncate(as_json([{"id": at, "name": f"row {at}"} for at in range(892)]), 400)
    assert re.search(r"\]\n\[Showing \d+ of 892 items — \d+ more omitted\]$", shown)


def test_lists_within_an_object_are_cut_where_they_are_and_named() -> None:
    shown = truncate(as_json({"ok": True, "items": list(range(1000, 1892)), "few": [1, 2]}), 300)
    body, note = shown.split("\n")
    value = json.loads(body)
    assert value["ok"] is True
    assert value["few"] == [1, 2]
    kept = len(value["items"])
    assert value["items"] == list(range(1000, 1000 + kept))
    assert note == f"[items: showing {kept} of 892 — {892 - kept} more omitted]"


def test_room_is_dealt_out_in_proportion() -> None:
    shown = truncate(as_json({"long": ["x" * 9] * 300, "short": ["y" * 9] * 100}), 800)
    value = json.loads(shown.partition("\n")[0])
    assert 2.5 < len(value["long"]) / len(value["short"]) < 3.5


def test_a_long_text_is_cut_with_a_mark() -> None:
    value = json.loads(truncate(as_json({"id": 7, "body": "word " * 500}), 200).partition("\n")[0])
    assert value["id"] == 7
    assert re.fullmatch(r"(word )+\w*…\[\+\d+ chars\]", value["body"])


def test_many_members_lose_the_last_ones_rather_than_all_that_they_hold() -> None:
    shown = truncate(as_json({f"user{at}": {"name": f"n{at}", "age": at} for at in range(200)}), 300)
    body, note = shown.split("\n")
    kept = json.loads(body)
    assert kept["user3"] == {"name": "n3", "age": 3}
    assert noted(note)[:2] == (len(kept), 200)


def test_numbers_stay_as_they_were() -> None:
    text = '[{"id": 12345678901234567890, "price": 1.10}' + ', {"id": 2, "price": 2.00}' * 90 + "]"
    shown = truncate(Document(text, "json", parse_json(text)), 200)
    assert '{"id":12345678901234567890,"price":1.10}' in shown
    assert parse_json(shown.partition("\n")[0])[0]["price"] == Decimal("1.10")


def test_what_is_nested_too_deep_is_cut_by_depth() -> None:
    value: Any = ["end" * 400]
    for _ in range(150):
        value = {"in": value, "and": 1}
    shown = truncate(as_json(value), 400)
    assert len(shown) <= 400
    head = json.loads(shown.partition("\n")[0])
    assert "in" in head or "and" in head, "something of it is left"


def test_json_lines_and_csv_keep_whole_rows() -> None:
    lines = "\n".join(json.dumps({"n": at, "s": "a\u2028b"}, ensure_ascii=False) for at in range(300))
    shown = truncate(read(lines), 250)
    kept, total, _ = noted(shown)
    assert total == 300
    assert shown.split("\n")[:-1] == lines.split("\n")[:kept]
    text = "name,size\n" + "".join(f'"a\nb {at}",{at}\n' for at in range(300))
    rows: list[dict[str, Any]] = [{"name": f"a\nb {at}", "size": at} for at in range(300)]
    shown = truncate(Document(text, "csv", rows), 250)
    kept, total, _ = noted(shown)
    assert total == 300
    assert shown.startswith("name,size\n")
    assert f'"a\nb {kept - 1}",{kept - 1}\n[Showing' in shown


def test_a_table_keeps_its_heading() -> None:
    text = "| a | b |\n|---|---|\n" + "".join(f"| {at} | x |\n" for at in range(300))
    rows: list[dict[str, Any]] = [{"a": at, "b": "x"} for at in range(300)]
    shown = truncate(Document(text, "table", rows), 200)
    kept, total, _ = noted(shown)
    assert total == 300
    assert f"| {kept - 1} | x |\n[Showing" in shown


def test_a_python_value_is_shown_as_json() -> None:
    shown = truncate(Document(str([{"a": None}] * 300), "repr", [{"a": None}] * 300), 200)
    assert shown.startswith('[{"a":null}')


@pytest.mark.parametrize("text", ["line of a log\n" * 900, "x" * 9000])
def test_other_texts_keep_their_beginning(text: str) -> None:
    shown = truncate(Document(text, "text"), 300)
    assert len(shown) <= 300
    kept, total, _ = noted(shown)
    assert total == len(text)
    assert shown.rpartition("\n")[0] == text[:kept]


def test_half_a_character_is_shown_as_text() -> None:
    value = ["\ud800"] * 200
    shown = truncate(Document(json.dumps(value), "json", value), 200)
    assert 100 <= len(shown) <= 200
    assert r"\ud800" in shown
    assert shown.encode()


@given(st.text(max_size=3000), st.integers(100, 800))
def test_an_error_keeps_its_beginning_and_its_end(text: str, room: int) -> None:
    shown = shorten_error(text, room)
    assert len(shown) <= room
    assert shown[:20] == text[:20]
    assert shown[-10:] == text[-10:]


def test_each_example_is_cut_as_its_file_has_it() -> None:
    """Written anew by `PYTHONPATH=tests python -m support.truncate_examples --write`, when what is kept changes."""
    found, expected = examples().splitlines(), FILE.read_text(encoding="utf-8").splitlines()
    assert [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]] == []
    assert len(found) == len(expected)


@given(st.lists(st.integers() | st.text(max_size=5), max_size=30), st.integers(2, 200))
def test_of_a_list_as_many_items_are_kept_as_fit(items: list[Any], room: int) -> None:
    cuts: list[Cut] = []
    kept = shrunk(items, room, cuts)
    assert len(write_json(kept)) <= room
    if kept == items[: len(kept)] and (kept or not items or not isinstance(items[0], str)):
        assert kept == items or len(write_json(items[: len(kept) + 1])) > room
    assert cuts == (
        [] if kept == items else [Cut("", len(kept), len(items), "items")] if len(kept) < len(items) else []
    )


@settings(deadline=None)
@given(VALUES, st.integers(2, 400))
def test_what_is_cut_fits_and_each_cut_says_what_is_left(value: Any, room: int) -> None:
    cuts: list[Cut] = []
    try:
        kept = shrunk(value, room, cuts)
    except ValueError:
        return
    if isinstance(value, str | list | dict):
        assert len(write_json(kept)) <= room
    for cut in cuts:
        assert 0 <= cut.kept_count < cut.total
    if len(write_json(value)) <= room:
        assert kept == value
        assert cuts == []


def test_what_needs_just_an_equal_part_of_the_room_is_kept_whole() -> None:
    assert _shares({"a": 5, "b": 20}, 10) == {"a": 5, "b": 5}
    assert _shares({"a": 20, "b": 4, "c": 5}, 15) == {"b": 4, "c": 5, "a": 6}
