"""How previews write values: short, visibly cut, numbers to the last digit."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpbridge.results.preview.wording import (
    Field,
    brief,
    cut,
    ends_text,
    is_long_id,
    mean_text,
    number,
    outline,
    plural,
    rounded_mean,
    time_text,
    value_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-17, "-17"),
        (Decimal("1.10"), "1.10"),
        ({}, "{0}"),
        ({"a": 1, "b": 2}, "{2}"),
        ([], "[0]"),
        ([1, 2, 3], "[3]"),
        ("plain words, as they are", '"plain words, as they are"'),
        ("plain words as they are", "plain words as they are"),
        ("", '""'),
        (" x", '" x"'),
        ("x ", '"x "'),
        ("[x", '"[x"'),
        ("{x", '"{x"'),
        ("'x", '"\'x"'),
        ('"x', '"\\"x"'),
        ('x"y', 'x"y'),
        ("a: b", '"a: b"'),
        ("a; b", '"a; b"'),
        ("a | b", '"a | b"'),
        ("a:b;c,d|e", "a:b;c,d|e"),
        ("a\nb", '"a\\nb"'),
        ("a\u2028b", '"a\u2028b"'),
        ("é", "é"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
    ],
)
def test_a_value_is_bare_where_that_is_plain(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_a_number_is_written_to_its_last_digit_unless_it_is_very_long() -> None:
    assert number(10**119) == str(10**119)
    assert number(10**120) == "1" + "0" * 118 + "…"
    assert number(2**400 - 1) == str(2**400 - 1)[:119] + "…"
    assert number(2**400) == "a number of 401 bits"
    assert number(Decimal("0.1") ** 3) == "0.001"


def test_long_ids_are_told_by_their_beginning() -> None:
    assert [is_long_id(text) for text in ("a1" * 12, "a1" * 11 + "b", "ab" * 12, "a1" * 11 + " b", 7)] == [
        True, False, False, False, False,
    ]  # fmt: skip
    assert is_long_id("a1" * 2000)
    assert not is_long_id("a1" * 2000 + "b")
    assert brief("a1" * 12, 60) == "a1" * 5 + "…"
    assert brief("short", 60) == "short"
    assert brief("x" * 9, 5) == "xxxx…"


@pytest.mark.parametrize(
    ("total", "count", "rounded", "text"),
    [
        (6, 3, "2", "2"),
        (7, 2, "3.5", "3.5"),
        (10, 3, "3.333", "≈3.333"),
        (20, 3, "6.667", "≈6.667"),
        (100000, 3, "33333", "≈33333"),
        (1, 3000, "0.0003333", "≈0.0003333"),
        (0, 5, "0", "0"),
        (-7, 2, "-3.5", "-3.5"),
        (1000, 1, "1000", "1000"),
        (Decimal("2.50"), 1, "2.5", "2.5"),
        (10**15 - 1, 1, "999999999999999", "999999999999999"),
        (10**15, 1, "1.000e+15", "1.000e+15"),
        (-(10**15), 1, "-1.000e+15", "-1.000e+15"),
        (10**15 + 1, 1, "1.000e+15", "≈1.000e+15"),
        (Decimal("0.000001"), 1, "0.000001", "0.000001"),
        (Decimal("0.00000099"), 1, "9.9e-7", "9.9e-7"),
        (Decimal("Infinity"), 2, "", ""),
        (Decimal("NaN"), 2, "", ""),
        (Decimal("1e999999"), 1, "1e+999999", "1e+999999"),
    ],
)
def test_a_mean_has_four_digits_and_says_where_it_is_rounded(
    total: int | Decimal, count: int, rounded: str, text: str
) -> None:
    assert rounded_mean(total, count) == rounded
    assert mean_text(total, count) == text


@given(st.integers(-(10**14), 10**14), st.integers(1, 5000))
def test_a_mean_is_near_what_it_is_of(total: int, count: int) -> None:
    mean, exact = Decimal(rounded_mean(total, count)), Decimal(total) / count
    assert abs(mean - exact) <= max(abs(exact) / 2000, Decimal("1e-9"))
    assert mean_text(total, count).startswith("≈") is (mean * count != total)


@example("x" * 100, 100)
@example("x" * 101, 100)
@example("ab" * 50, 51)
@example("ab" * 50, 50)
@example("ab" * 50, 52)
@example('"' * 200, 80)
@example("word " * 60, 130)
@example("\x00" * 500, 99)
@given(st.text(max_size=400), st.integers(1, 420))
def test_a_long_text_is_told_by_its_ends(text: str, room: int) -> None:
    """Whole where there is room; or else its beginning, how much is left out, and its end; never longer."""
    told = ends_text(text, room)
    assert len(told) <= room
    whole = value_text(text, len(text))
    if len(whole) <= room:
        assert told == whole
    elif " chars … " in told and " … +" in told:
        begin, _, rest = told.partition(" … +")
        left_out, _, end = rest.partition(" chars … ")
        begins = json.loads(begin) if begin.startswith('"') else begin
        ends = json.loads(end) if end.startswith('"') else end
        if "…" not in text and "+" not in text:
            assert text.startswith(begins)
            assert text.endswith(ends)
            assert len(begins) + int(left_out) + len(ends) == len(text)
            assert len(ends) <= len(begins) // 3 + 1


def test_there_is_little_left_unused() -> None:
    """Of a text in plain letters both ends fill the room, but for a few characters."""
    text = "".join(chr(97 + at % 26) for at in range(1000))
    for room in range(60, 400, 7):
        assert room - 15 <= len(ends_text(text, room)) <= room
    assert ends_text(text, 51) == "abcdefghijklmnop … +979 chars … hijkl"
    assert ends_text(text, 50) == text[:47] + "…"
    assert ends_text(text, 2) == "…"


def test_times_in_numbers_have_their_date() -> None:
    assert time_text("2026-01-02") == "2026-01-02"
    assert time_text(1780000000) == "1780000000 (2026-05-28 20:26)"
    assert time_text(1780000000000) == "1780000000000 (2026-05-28 20:26)"
    assert time_text(10**11) == "100000000000 (5138-11-16 09:46)"
    assert time_text(10**11 + 1) == "100000000001 (1973-03-03 09:46)"


def test_words_are_cut_visibly_and_counted() -> None:
    assert [cut("abcd", limit) for limit in (5, 4, 3, 1, 0)] == ["abcd", "abcd", "ab…", "…", "…"]
    assert [plural(count, "row") for count in (0, 1, 2, 1204)] == ["0 rows", "1 row", "2 rows", "1204 rows"]


FIELDS = [
    Field("id", "int"),
    Field("user.login", "unique"),
    Field("user.site.name"),
    Field("user.kind", always='"User"'),
    Field("labels[].name", matter=0.2),
    Field("long", always='"' + "x" * 23 + '"'),
    Field('["a.b"].c', "bool"),
]


@pytest.mark.parametrize(
    ("room", "text"),
    [
        (165, 'id:int,user{login:unique,site.name,kind="User"},labels[].name,long="' + "x" * 23 + '",["a.b"].c:bool'),
        (164, 'id,user{login,site.name,kind="User"},labels[].name,long="' + "x" * 23 + '",["a.b"].c'),
        (140, 'id,user{login,site.name,kind="User"},labels[].name,long="' + "x" * 23 + '",["a.b"].c'),
        (139, 'id,user{login,site.name,kind="User"},labels[].name,long,["a.b"].c'),
        (73, 'id,user{login,site.name,kind="User"},labels[].name,long,["a.b"].c'),
        (72, 'id,user{login,site.name,kind},labels[].name,long,["a.b"].c'),
        (58, 'id,user{login,site.name,kind},labels[].name,long,["a.b"].c'),
        (57, 'id,user{login,site.name,kind},long,["a.b"].c,… +1 fields'),
        (56, 'id,user{login,site.name,kind},long,["a.b"].c,… +1 fields'),
        (55, "id,user{login,site.name,kind},long,… +2 fields"),
        (40, "id,user{login,site.name},… +4 fields"),
        (14, "id,… +6 fields"),
        (13, "… +7 fields"),
        (11, "… +7 fields"),
        (10, ""),
    ],
)
def test_fields_are_listed_in_the_form_for_which_there_is_room(room: int, text: str) -> None:
    assert outline(FIELDS, room) == text


def test_fields_without_types_are_asked_for_by_plainness() -> None:
    fields = [Field("id", "int"), Field("kind", always='"Pod"'), Field("x", always='"' + "y" * 30 + '"')]
    assert outline(fields, 400) == 'id:int,kind="Pod",x="' + "y" * 30 + '"'
    assert outline(fields, 400, 1) == 'id,kind="Pod",x="' + "y" * 30 + '"'
    assert outline(fields, 400, 2) == 'id,kind="Pod",x'
    assert outline(fields, 400, 3) == "id,kind,x"
    assert outline([], 400) == ""
    assert [outline([Field("a")], room) for room in (7, 8)] == ["", "a"]
    assert outline([Field("a"), Field("a.b"), Field("a.c")], 400) == "a{b,c}"
    assert outline([Field("a.b"), Field("a")], 400) == "a.b"
    assert outline([Field("n" * 70)], 400) == "n" * 63 + "…"
    assert outline([Field("")], 400) == ""
