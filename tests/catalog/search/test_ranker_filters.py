"""`server:` and `tag:` in a query (issue 6, Ranker)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.search.query_filters import Scope, parse_filters
from mcpbridge.catalog.search.ranker import ServerText, ToolText


def scope(server: str, *tags: str) -> Scope:
    return Scope.of(ServerText(server, tags=tags[:1]), ToolText("id", server, "name", tags=tags[1:]))


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ("server:github", True),
        ("SERVER:GitHub", True),
        ("server:git*", True),
        ("server:gitlab", False),
        ("server:gitlab server:github", True),
        ("tag:code", True),
        ("tag:vcs", True),
        ("tag:ops", False),
        ("server:github tag:ops", False),
        ('server:"github"', True),
        ("server:[", False),
    ],
)
def test_what_passes(query: str, *, passes: bool) -> None:
    filters, rest = parse_filters(query)
    assert filters
    assert not rest.strip()
    assert filters.passes(scope("github", "code", "VCS")) is passes


def test_a_name_with_blanks_stands_in_quotes() -> None:
    filters, rest = parse_filters('open issues server:"My Server" today')
    assert filters.passes(scope("my server"))
    assert rest.split() == ["open", "issues", "today"]


@pytest.mark.parametrize("query", ["myserver:github", "the server: github", "http://server:80/x", "server:", "a:b"])
def test_what_only_looks_like_a_filter_is_text(query: str) -> None:
    filters, rest = parse_filters(query)
    assert not filters
    assert rest == query


@given(st.text(alphabet='server:tag*?["] ax', max_size=300))
def test_any_text_is_taken_apart(query: str) -> None:
    filters, rest = parse_filters(query)
    filters.passes(scope("a", "x"))
    assert len(rest) <= len(query)
