"""How descriptions get shorter: tidying loses no word, and a cut is marked and stands where a reader expects it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.catalog.slim.text import (
    brief,
    cap_description,
    description_of,
    first_sentence,
    telling_sentence,
    text_of,
    tidied,
)
from support.cpu_time import assert_no_longer

TEXTS = st.text(st.sampled_from("ab. \n\t…(optional)e.g!。\U0001f600\ud800:#-<>"), max_size=200) | st.text(max_size=80)


@pytest.mark.parametrize(
    ("sent", "tidy"),
    [
        ("One line", "One line"),
        ("  Trailing  \nblanks \n", "Trailing\nblanks"),
        ("Doc.\n\n    Args:\n        a: b\n\n\n\n    Returns: c\n    ", "Doc.\n\nArgs:\n    a: b\n\nReturns: c"),
        ("List:\r\n- a\r\n  - b\rc", "List:\n- a\n  - b\nc"),
        ("two  spaces  stay", "two  spaces  stay"),
        ("\ttabs\n\t\tin\n\t\t\tlines", "tabs\nin\n\tlines"),
    ],
)
def test_blanks_that_say_nothing_go(sent: str, tidy: str) -> None:
    assert tidied(sent) == tidy


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("Short enough.", 40, "Short enough."),
        ("First things first. Then\nthe second. And a third.", 40, "First things first. Then the second…"),
        ("A sentence that goes on and on, without an end", 30, "A sentence that goes on and…"),
        ("Uses e.g. abbreviations and v1.2 numbers without an end", 40, "Uses e.g. abbreviations and v1.2…"),
        ("x" * 50, 10, "xxxxxxxxx…"),
        ("列出所有的文件和目录在这里。然后还有更多的内容。", 20, "列出所有的文件和目录在这里。…"),
    ],
)  # fmt: skip
def test_whole_sentences_are_kept_as_far_as_they_fit(text: str, limit: int, short: str) -> None:
    assert brief(text, limit) == short


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Get an issue. Needs a token.", "Get an issue."),
        ("Get an issue of example.com, e.g. number 1. Needs a token.", "Get an issue of example.com, e.g. number 1."),
        ("# Issues\n\nGet an issue\n\nArgs:\n  a: b", "Get an issue"),
        ("<usecase>\nGets an issue\n- by number", "Gets an issue"),
        ("Get an issue\nof a repository\nArgs:\n  a: b", "Get an issue of a repository"),
        ("", ""),
    ],
)
def test_the_first_sentence_is_found(text: str, sentence: str) -> None:
    assert first_sentence(text, 160) == sentence


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("The ID of the issue", ""),
        ("Optional. The issue's id.", ""),
        ("The issue id. Found by search.", "Found by search."),
        ("Id of the issue to close (optional)", "Id of the issue to close"),
        ("Die Nummer des Vorgangs für später", "Die Nummer des Vorgangs für später"),
        ("问题编号", "问题编号"),
        ("Issue key, like PROJ-1. More about it.", "Issue key, like PROJ-1…"),
    ],
)
def test_what_the_name_says_is_not_said_again(text: str, told: str) -> None:
    assert telling_sentence(text, 80, "issue_id", "getIssue") == told


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@settings(deadline=None)
@given(TEXTS, st.integers(0, 60))
def test_nothing_is_ever_longer_and_doing_it_again_changes_nothing(text: str, limit: int) -> None:
    tidy = tidied(text)
    assert len(tidy) <= len(text)
    assert tidied(tidy) == tidy
    assert tidy.split() == text.split()
    capped = cap_description(text, limit)
    assert units(capped) <= limit
    assert cap_description(capped, limit) == capped
    assert capped == text or units(text) > limit
    for short in (brief(text, limit + 24), first_sentence(text, limit + 24), telling_sentence(text, limit + 24, "ab")):
        assert len(short) <= limit + 24
        assert "\n" not in short
    assert brief(brief(text, limit + 24), limit + 24) == brief(text, limit + 24)


def test_a_cap_ends_a_paragraph_sentence_or_word() -> None:
    words = "Some words here. " * 10
    assert cap_description(words, 100) == "Some words here. " * 5 + "…"
    assert cap_description("a" * 50 + "\n\n" + "b" * 50, 60) == "a" * 50 + "\n\n…"
    assert cap_description("\U0001f600" * 10, 8) == "\U0001f600" * 3 + "…"
    assert cap_description("short", 4096) == "short"


def test_megabytes_are_no_more_work_than_pages() -> None:
    for text in (
        "a. " * 100_000,
        " " * 900_000 + "a",
        "(optional)" * 60_000,
        "# a\n" * 80_000,
        "\n" * 900_000,
    ):
        ordinary = "A sentence of words, and one more. " * (len(text) // 35)
        assert_no_longer(lambda text=text: tidied(text), lambda ordinary=ordinary: tidied(f"{ordinary} "))
        for short in (
            brief(text, 160),
            first_sentence(text, 160),
            telling_sentence(text, 80),
            cap_description(text, 4096),
        ):
            assert len(short) <= 4096
        assert len(tidied(text)) <= len(text)


@pytest.mark.parametrize(
    ("text", "limit", "capped"),
    [
        ("a" * 60, 60, "a" * 60),
        ("a" * 61, 60, "a" * 59 + "…"),
        ("\U0001f600" * 30, 60, "\U0001f600" * 30),
        ("\U0001f600" * 31, 60, "\U0001f600" * 29 + "…"),
        ("\U0001f600" * 31, 61, "\U0001f600" * 29 + "…"),
        (
            "a" * 44 + "\n\n" + "b" * 50,
            60,
            "a" * 44 + "\n\n" + "b" * 13 + "…",
        ),  # too early: more than a quarter would be lost
        ("a" * 45 + "\n\n" + "b" * 50, 60, "a" * 45 + "\n\n…"),
        ("a" * 57 + "\n\n" + "b" * 50, 60, "a" * 57 + "\n\n…"),
        ("a" * 58 + "\n\n" + "b" * 50, 60, "a" * 58 + "…"),
        ("a" * 43 + ". " + "b" * 50, 60, "a" * 43 + ".…"),
        ("a" * 45 + ". " + "b" * 50, 60, "a" * 45 + ". …"),
        ("a" * 50 + ". " + "b" * 3 + ". " + "c" * 50, 60, "a" * 50 + ". bbb. …"),
        ("ab " * 30, 0, ""),
        ("ab " * 30, -5, ""),
        ("ab " * 30, 1, "…"),
    ],
)
def test_a_cap_loses_a_quarter_at_most_for_a_better_end(text: str, limit: int, capped: str) -> None:
    assert cap_description(text, limit) == capped


@pytest.mark.parametrize(
    ("text", "limit", "told"),
    [
        ("Only the newest ones. More of it.", 22, "Only the newest ones…"),
        ("Only the newest ones. More of it.", 21, "Only the newest ones."),
        ("Only the newest ones. More of it.", 20, "Only the newest…"),
        ("Only the newest ones.", 22, "Only the newest ones."),
        ("…", 80, ""),
        ("The issue…", 80, ""),
        ("…the issue", 80, "…the issue"),
    ],
)
def test_that_there_is_more_is_marked(text: str, limit: int, told: str) -> None:
    assert telling_sentence(text, limit, "issue_id", "getIssue") == told


@pytest.mark.parametrize("raw", [b"5", b"null", b'["a"]', b'{"a":"b"}'])
def test_a_description_that_is_no_string_is_none(raw: bytes) -> None:
    assert text_of(Raw(raw)) is None
    assert description_of({"description": Raw(raw)}) == ""
    assert description_of({"description": Raw(b'"A text. "')}) == "A text."
