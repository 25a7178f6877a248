"""What a person reads before saying yes is what would be sent."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.approvals.showing import LONGEST, one_line_of, shown

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_what_fits_is_shown_whole_and_visible(value: dict[str, Any]) -> None:
    text = shown(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    assert json.loads(text) == value
    assert all(
        letter == "\n" or letter.isprintable() or ord(letter) > 0x2FFF or not letter.isascii() for letter in text
    )


def test_numbers_and_members_stand_as_they_were_written() -> None:
    assert one_line_of(b'{ "n": 1.00, "n": 1e400 }') == '{"n":1.00,"n":1e400}'


def test_what_turns_or_hides_text_is_spelled_out() -> None:
    text = shown('{"path": "a\u202egpj.exe\u200b\U000e0041"}'.encode())
    assert r"a\u202egpj.exe\u200b\udb40\udc41" in text


def test_long_texts_are_shortened_before_members_are_lost() -> None:
    arguments = json.dumps({"first": "x" * 50_000, "last": "rm -rf /"}).encode()
    text = shown(arguments)
    assert "[50000 characters]" in text
    assert "rm -rf /" in text
    assert f"{len(arguments)} bytes" in text
    assert "SHA-256" in text


def test_many_members_are_cut_and_it_is_said() -> None:
    arguments = json.dumps({f"key{number}": number for number in range(5000)}).encode()
    text = shown(arguments)
    assert len(text) < LONGEST + 200
    assert "shortened; in all" in text


def test_what_is_no_json_is_shown_all_the_same() -> None:
    assert shown(b"{broken\x1b[2J") == "{broken\\u001b[2J"
