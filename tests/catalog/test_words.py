"""Texts and identifiers as words (issue 6, Ranker: light stemming, split identifiers, CJK bigrams, stop words)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.search.lexical.needs import clauses
from mcpbridge.catalog.words import STOP_WORDS, name_key, runs_of, stem, stems_of


@pytest.mark.parametrize(
    "forms",
    [
        "query queries",
        "list lists listed listing",
        "create creates created creating",
        "plan plans planned planning",
        "translate translation translates",
        "analysis analyses",
        "box boxes",
        "search searches searching",
        "summarize summarise summarizing",
        "calculate calculator calculation",
        "delete deletion deleted",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize("apart", ["status state", "address add", "string str", "news new", "process proceed", "s3 s"])
def test_other_words_have_other_stems(apart: str) -> None:
    one, other = apart.split()
    assert stem(one) != stem(other)


@given(st.text(max_size=40))
def test_a_stem_is_never_empty_nor_longer(word: str) -> None:
    assert len(stem(word)) <= len(word)
    assert bool(stem(word)) == bool(word)


@pytest.mark.parametrize(
    "name", ["listPullRequests", "list_pull_requests", "list-pull-requests", "list.pull/requests", "ListPullRequests"]
)
def test_spellings_of_a_name_are_the_same_words(name: str) -> None:
    assert stems_of(name) == ["list", "pull", "request"]
    assert name_key(name) == "listpullrequests"


def test_mixed_names_are_found_whole_and_in_parts() -> None:
    assert stems_of("GitHub") == ["github", "git", "hub"]
    assert stems_of("base64") == ["base64", "base"]
    assert stems_of("s3") == ["s3"]
    assert stems_of("HTTPServer") == ["httpserver", "http", "server"]


def test_scripts_without_spaces_are_taken_by_two_and_accents_do_not_matter() -> None:
    assert stems_of("查询天气") == ["查询", "询天", "天气"]
    assert stems_of("Café RÉSUMÉ") == stems_of("cafe resume")


def test_what_says_nothing_is_left_out_of_stems_but_stays_in_plain_words() -> None:
    assert stems_of("could you please tell me how much is this") == []
    assert [word for run in runs_of("Tell me THIS") for word in run.plain] == ["tell", "me", "this"]


@given(st.text())
def test_any_text_has_words(text: str) -> None:
    stems = stems_of(text)
    assert all(stems)
    assert stems == stems_of(text)
    assert not STOP_WORDS.intersection(word for word in stems if stem(word) in STOP_WORDS and word in text.split())


@given(st.lists(st.sampled_from(["list", "Files", "get", "Issue", "v2", "URL"]), min_size=1, max_size=5))
def test_signs_between_words_do_not_matter(words: list[str]) -> None:
    assert stems_of("_".join(words)) == stems_of(" ".join(words)) == stems_of("-".join(words))


@pytest.mark.parametrize(
    ("request_text", "needs"),
    [
        ("find a hotel in Rome", []),
        ("Find a hotel in Rome. Then book a table.", ["Find a hotel in Rome", "book a table"]),
        (
            "Translate the report to German, and send it to Anna by mail",
            ["Translate the report to German", "send it to Anna by mail"],
        ),
        ("compare Rome and Paris", []),
        ("What is the weather? Also, convert 5 miles to km", ["What is the weather", "convert 5 miles to km"]),
    ],
)
def test_needs_of_a_request(request_text: str, needs: list[str]) -> None:
    assert clauses(request_text) == needs


@given(st.text())
def test_needs_are_parts_each_once(text: str) -> None:
    parts = clauses(text)
    assert len(parts) != 1
    assert len(parts) <= 8
    assert len(set(parts)) == len(parts)
