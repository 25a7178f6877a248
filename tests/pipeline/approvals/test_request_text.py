"""What a person reads before saying yes is what would be sent."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.pipeline.approvals import request as showing
from mcpbridge.pipeline.approvals.request import LONGEST, one_line_of, readable_arguments

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_what_fits_is_shown_whole_and_visible(value: dict[str, Any]) -> None:
    text = readable_arguments(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    assert json.loads(text) == value
    assert all(
        letter == "\n" or letter.isprintable() or ord(letter) > 0x2FFF or not letter.isascii() for letter in text
    )


def test_numbers_and_members_stand_as_they_were_written() -> None:
    assert one_line_of(b'{ "n": 1.00, "n": 1e400 }', 200) == '{"n":1.00,"n":1e400}'


def test_what_turns_or_hides_text_is_spelled_out() -> None:
    text = readable_arguments('{"path": "a\u202egpj.exe\u200b\U000e0041"}'.encode())
    assert r"a\u202egpj.exe\u200b\udb40\udc41" in text


def test_long_texts_are_shortened_before_members_are_lost() -> None:
    arguments = json.dumps({"first": "x" * 50_000, "last": "rm -rf /"}).encode()
    text = readable_arguments(arguments)
    assert "[50000 characters]" in text
    assert "rm -rf /" in text
    assert f"{len(arguments)} bytes" in text
    assert "SHA-256" in text


def test_many_members_are_cut_and_it_is_said() -> None:
    arguments = json.dumps({f"key{number}": number for number in range(5000)}).encode()
    text = readable_arguments(arguments)
    assert len(text) < LONGEST + 200
    assert "shortened; in all" in text


def test_what_is_no_json_is_shown_all_the_same() -> None:
    assert readable_arguments(b"{broken\x1b[2J") == "{broken\\u001b[2J"


def test_a_line_has_only_so_many_characters() -> None:
    assert one_line_of(b'{"text": "abc"}', 10) == '{"text":"…'
    assert len(one_line_of(b"\x1b" * 100, 10)) == 10


def test_of_very_much_no_more_is_looked_at_than_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client could keep people from answering: every list of what waits formats the arguments of all calls."""
    spelled: list[str] = []

    def spell(found: re.Match[str]) -> str:
        spelled.append(found[0])
        return "?"

    monkeypatch.setattr(showing, "_spelled", spell)
    monkeypatch.setattr(showing, "_shortened", lambda found: spell(found) + found[0])
    members = {f"key{number}": "\u200b" for number in range(50_000)}
    text = readable_arguments(json.dumps(members, ensure_ascii=False).encode(), "the digest")
    assert "SHA-256 the digest" in text
    one_line_of(json.dumps(members, ensure_ascii=False).encode(), 200)
    assert len(spelled) < 1000
