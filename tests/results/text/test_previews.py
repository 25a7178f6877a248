"""Promises of every preview of a text: within its room, the same each time, whatever the text is."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.results.document import Document
from mcpbridge.results.preview.preview import headline_text, preview_text
from mcpbridge.results.text.detect import TextKind
from mcpbridge.results.text.lines import Fact, facts_text

KINDS: tuple[TextKind, ...] = get_args(TextKind)

TRICKY = (
    "ERROR ;[db] ;failed;<table><tr>;<td>;</a>;<!--;<a href=x>;# ;```;"
    "@@ -1,2 +3,999999999999 @@;+;-;src/a.py;:12: ;├── ;│   ;key: ;99999999999999999999ms;é;**;"
    "1 passed;Traceback (most recent call last):;a::b PASSED;  at x(;&#x110000;[;{;=; ;١٢;\x00;"
    "\ud800;\n;\r\n;2025-01-02T03:04:05Z ;-rw-r--r-- 1 a b 1,2K Nov 22 04:47 x;| a | b |\n;"
    "|---|---|\n;diff --git a/x b/y\n;--- a\n+++ b\n"
)
PIECES = st.sampled_from(TRICKY.split(";"))


@settings(max_examples=120, deadline=None)
@given(
    st.lists(PIECES | st.text(max_size=20), max_size=120).map("".join), st.sampled_from(KINDS), st.integers(150, 3000)
)
def test_a_preview_keeps_to_its_room_and_says_the_same_again(text: str, kind: TextKind, room: int) -> None:
    document = Document(text, kind)
    told = preview_text(document, room)
    assert len(told) <= room
    assert told == preview_text(document, room)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["", "\n", "x" * 5_000_000, "a b 1\n" * 1_000_000], ids=["none", "end", "line", "lines"]
)
def test_texts_of_any_size_have_a_preview(kind: TextKind, text: str) -> None:
    shown = preview_text(Document(text, kind), 400)
    assert len(shown) <= 400
    assert shown.strip() or not text.strip()


def test_it_is_said_when_not_all_was_looked_at() -> None:
    text = "2025-01-02 03:04:05 INFO hello world\n" * 300_000
    told = preview_text(Document(text, "log"), 800)
    assert "300000 lines" in told
    assert "only:" in told.partition("\n")[0]


def test_a_headline_counts_lines_and_quotes_nothing() -> None:
    assert headline_text(Document("a\nb\n", "log")) == "log, 2 lines"
    assert headline_text(Document("<title>x</title>", "html")) == "HTML page, 1 line"


def test_what_matters_most_gets_the_room_and_what_is_cut_is_counted() -> None:
    facts = [
        Fact(3, "minor: " + "x" * 80),
        Fact(0, "count: 7"),
        Fact(1, "names: ", ["alpha", "beta", "gamma", "delta"]),
    ]
    assert facts_text(facts, 40) == "count: 7\nnames: alpha, beta, … +2"
    assert facts_text(facts, 45) == "count: 7\nnames: alpha, beta, gamma, delta"


def test_minor_facts_get_a_part_of_a_large_room_only() -> None:
    numbers = [str(at) for at in range(1000, 2000)]
    minor = [Fact(7, "often: ", numbers, share=0.2), Fact(8, "seldom: ", numbers, share=0.2)]
    assert 900 < len(facts_text(minor, 1000)) <= 1000
    assert 1500 < len(facts_text(minor, 3000)) <= 3000 * 11 // 20
    assert len(facts_text([Fact(1, "failed: ", numbers, share=0.2), *minor], 3000)) > 2900
