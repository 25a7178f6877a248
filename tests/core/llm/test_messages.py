"""What models are given and what is taken of their answers, whatever they are asked for."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.core.llm.messages import Prompt, defuser, whole_characters, without_thoughts

MARKS = st.text(alphabet="<>/ \ttoolsTOLSx", max_size=60)


@given(MARKS)
def test_no_text_can_look_like_a_mark(text: str) -> None:
    defused = defuser("tools", "request")(text)
    assert "</tools>" not in defused.casefold()
    assert "<tools>" not in defused.casefold()
    assert defused.replace("&lt;", "<") == text


def test_what_only_begins_like_a_mark_is_left_alone() -> None:
    assert defuser("tools")("<toolset> a < b </other>") == "<toolset> a < b </other>"


@pytest.mark.parametrize("piece", ["<", "< ", "</tools", " "])
def test_hostile_texts_take_no_time(piece: str) -> None:
    begun = time.process_time()
    defuser("tools", "request")("<" + piece * 200_000)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[1]", "[1]"),
        ("<think>Hm. <b>\n</think>\n\n[1]", "[1]"),
        (" <thinking>a</thinking>[1]", "[1]"),
        ("<think>Let me see", ""),
        ("a <think>b</think>", "a <think>b</think>"),
    ],
)
def test_thoughts_are_left_out(text: str, found: str) -> None:
    assert without_thoughts(text) == found


def test_half_a_character_can_be_sent() -> None:
    assert whole_characters("a\ud800b") == "a?b"


def test_what_is_said_is_the_prefix_and_the_text() -> None:
    assert Prompt("be short", "b", 10, prefix="a\n").whole == "a\nb"
