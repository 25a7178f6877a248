"""What models are told of tools and queries, and vectors as they are kept."""

import sys
from math import inf, nan, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.search.embeddings.embedder import (
    direction,
    prefixes_of,
    similarities,
    texts_of_query,
    tool_text,
)
from mcpbridge.catalog.search.ranker import ServerText, ToolText

GITHUB = ServerText("gh", "GitHub", "Code and issues")


def test_a_model_is_told_names_as_words_and_what_the_tool_takes() -> None:
    schema = {"type": "object", "properties": {"repo": {"type": "string"}, "title": {"type": "string"}}}
    tool = ToolText("gh/createIssue", "gh", "createIssue", "New issue", "Opens an issue.\n\n  In a repo.", schema)
    assert tool_text(GITHUB, tool) == "gh GitHub: create issue. New issue. Opens an issue. In a repo. repo title"


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=300), st.text(max_size=300), st.recursive(st.none(), lambda x: st.dictionaries(st.text(), x)))
def test_whatever_a_server_says_makes_a_text(name: str, description: str, schema: object) -> None:
    tool = ToolText("x", "s", name, description=description, schema=schema)  # type: ignore[arg-type]
    text = tool_text(ServerText(name, description), tool)
    assert len(text) <= 1200
    assert "\n" not in text
    assert text.encode()


def test_megabytes_are_not_read() -> None:
    text = tool_text(GITHUB, ToolText("x", "s", "n" * 10**6, "t" * 10**6, "\ud800 word " * 10**6))
    assert len(text) <= 1200
    assert "nnn" in text
    assert "word" in tool_text(GITHUB, ToolText("x", "s", "name", "", "word " * 10**6))


def test_a_query_is_told_whole_and_by_its_parts_without_filters() -> None:
    assert texts_of_query("server:gh open an  issue") == ["open an issue"]
    whole, *parts = texts_of_query("Find a hotel in Rome. Then book a table for two.")
    assert whole == "Find a hotel in Rome. Then book a table for two."
    assert parts == ["Find a hotel in Rome", "book a table for two"]


@pytest.mark.parametrize("query", ["", "   ", "server:gh", "tag:x server:y", "\ud800"[:0]])
def test_a_query_without_words_asks_for_nothing(query: str) -> None:
    assert texts_of_query(query) == []


@settings(deadline=None)
@given(st.text(max_size=500))
def test_any_query_makes_few_texts(query: str) -> None:
    texts = texts_of_query(query)
    assert len(texts) <= 5
    assert all(text and text.encode() for text in texts)


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40).filter(lambda found: max(map(abs, found)) > 1e-3))
def test_a_direction_is_near_to_what_it_was_made_of(numbers: list[float]) -> None:
    kept = [number - 256 if number > 127 else number for number in direction(numbers)]
    product = sum(a * b for a, b in zip(numbers, kept, strict=True))
    lengths = sqrt(sum(a * a for a in numbers)) * sqrt(sum(b * b for b in kept))
    assert product / lengths > 0.99


@pytest.mark.parametrize("numbers", [[], [0.0, 0.0], [nan, 1.0], [inf, 1.0], [1e-40], [1.0] * 20_000])
def test_what_has_no_direction_is_refused(numbers: list[float]) -> None:
    with pytest.raises(ValueError, match="vector"):
        direction(numbers)


def cases() -> list[bytes]:
    return [
        direction([1.0, 2.0, -3.0]),
        direction([2.0, 4.0, -6.0]),
        direction([-1.0, -2.0, 3.0]),
        b"",
        b"\1\2",
        bytes(3),
    ]


def test_likeness_is_that_of_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    assert similarities(direction([1.0, 2.0, -3.0]), cases()) == pytest.approx([1, 1, -1, 0, 0, 0])
    assert similarities(b"", cases()) == [0] * 6
    assert similarities(bytes(3), cases()) == [0] * 6


def test_numpy_finds_the_same() -> None:
    pytest.importorskip("numpy")
    assert similarities(direction([1.0, 2.0, -3.0]), cases()) == pytest.approx([1, 1, -1, 0, 0, 0], abs=1e-6)
    assert similarities(bytes(3), cases()) == [0] * 6


@pytest.mark.parametrize(
    ("model", "query", "tool"),
    [
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("nomic-embed-text:latest", "search_query: ", "search_document: "),
        ("BAAI/bge-small-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("text-embedding-3-small", "", ""),
        ("all-minilm", "", ""),
    ],
)
def test_models_that_want_prefixes_get_them(model: str, query: str, tool: str) -> None:
    assert prefixes_of(model) == (query, tool)
