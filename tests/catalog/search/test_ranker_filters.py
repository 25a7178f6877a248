"""`server:` and `tag:` in a query (issue 6, Ranker)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.search.query_filters import Scope, parse_filters
from mcpbridge.catalog.search.ranker import ServerText


def scope(server: str, *tags: str) -> Scope:
    return Scope.of(ServerText(server, tags=tags[:1]), tags[1:])


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


def test_sixteen_filters_are_obeyed() -> None:
    """More of them are no question that somebody asks; what is said besides stays free of all."""
    names = " ".join(f"server:s{number} tag:t{number}" for number in range(9))
    filters, rest = parse_filters(f"{names} issues")
    assert filters.passes(scope("s0", "t7"))
    assert not filters.passes(scope("s8", "t7"))
    assert not filters.passes(scope("s0", "t8"))
    assert rest.split() == ["issues"]


@pytest.mark.parametrize("mark", "*?[")
def test_a_name_has_eight_wildcards_at_most(mark: str) -> None:
    """One with more is looked for as it is written."""
    obeyed, _ = parse_filters("server:" + mark.replace("[", "[a]") * 8)
    assert obeyed.passes(scope("aaaaaaaa"))
    literal, _ = parse_filters("server:" + mark.replace("[", "[a]") * 9)
    assert not literal.passes(scope("aaaaaaaaa"))
    assert literal.passes(scope(mark.replace("[", "[a]") * 9))
    mixed, _ = parse_filters("server:***???[a][a][a]")
    assert not mixed.passes(scope("aaaaaaaaa"))


NAMES = st.text(alphabet="abc-é", min_size=1, max_size=5)


@given(st.lists(st.tuples(st.sampled_from(["server", "tag"]), NAMES), max_size=6), NAMES, st.lists(NAMES, max_size=3))
def test_several_of_a_kind_are_alternatives_and_both_kinds_must_fit(
    asked: list[tuple[str, str]], server: str, tags: list[str]
) -> None:
    filters, rest = parse_filters(" ".join(f"{kind}:{name}" for kind, name in asked))
    servers = {name for kind, name in asked if kind == "server"}
    wanted = {name for kind, name in asked if kind == "tag"}
    expected = (not servers or server in servers) and (not wanted or not wanted.isdisjoint(tags))
    assert filters.passes(scope(server, *tags)) is expected
    assert bool(filters) is bool(asked)
    assert not rest.strip()


@given(st.text(alphabet='server:tag*?["] ax', max_size=300))
def test_any_text_is_taken_apart(query: str) -> None:
    """What is no filter stays, in its order; nothing is added."""
    filters, rest = parse_filters(query)
    assert not parse_filters(" ".join(rest.split()))[0] or ":" in rest
    left = iter(query)
    assert all(character in left for character in rest if character != " ")
    assert filters or rest == query
