"""The ranker: what holds for any catalog and any query (issue 6, Ranker)."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.search.index import CatalogRankers
from mcpbridge.catalog.search.ranker import Hit, Ranker, ServerText, ToolText

Catalog = Sequence[tuple[ServerText, Sequence[ToolText]]]


def tool(server: str, name: str, description: str = "", schema: Any = None, *tags: str) -> ToolText:
    return ToolText(f"{server}/{name}", server, name, description=description, schema=schema, tags=tags)


CATALOG: Catalog = [
    (
        ServerText("github", "GitHub", "Repositories, issues and pull requests", ("code",)),
        [
            tool("github", "create_issue", "Create a new issue in a repository"),
            tool("github", "list_issues", "List the issues of a repository"),
            tool("github", "merge_pull_request", "Merge a pull request"),
            tool("github", "search_code", "Search for code across repositories"),
        ],
    ),
    (
        ServerText("weather", "Weather", "Forecasts for any place", ("world",)),
        [
            tool("weather", "get_forecast", "Get the weather forecast for a city", None, "daily"),
            tool("weather", "getAlerts", "Severe weather warnings for a region"),
        ],
    ),
    (
        ServerText("mail", "Mail"),
        [
            tool("mail", "send_message", "Send an e-mail to somebody"),
            tool("mail", "search", "Find messages in the mailbox"),
        ],
    ),
]

IDS = [one.id for _, tools in CATALOG for one in tools]
WORDS = (
    "create issue list weather forecast mail send get_forecast github server:github tag:code 天气 pull , . and then"
    " search 8.8.8.8 zebra"
)
words = st.sampled_from(WORDS.split())
queries = st.one_of(st.text(max_size=80), st.lists(words, max_size=10).map(" ".join))


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    return CatalogRankers().of(CATALOG)


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


@given(queries, st.integers(-1, 12))
@settings(max_examples=200)
def test_answers_are_ordered_each_once_and_at_most_what_was_asked(ranker: Ranker, query: str, limit: int) -> None:
    hits = ranker.rank(query, limit)
    assert len(hits) <= max(0, limit)
    assert len(set(ids(hits))) == len(hits)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    named = [hit.is_named for hit in hits]
    assert named == sorted(named, reverse=True)
    assert hits == ranker.rank(query, limit)
    assert ids(hits) == ids(ranker.rank(query, 20))[: len(hits)]


@given(queries, st.sets(st.sampled_from(IDS)))
def test_only_what_is_among_is_answered(ranker: Ranker, query: str, among: set[str]) -> None:
    assert set(ids(ranker.rank(query, 20, among=among))) <= among


@given(queries, st.lists(st.sets(st.sampled_from(IDS)), min_size=1, max_size=6))
@settings(max_examples=60)
def test_views_that_come_again_are_answered_as_at_first(ranker: Ranker, query: str, views: list[set[str]]) -> None:
    """What became of a view is kept (it is told by identity); of one that may change, it is not."""
    kept = [dict.fromkeys(view) for view in views]
    for _ in range(2):
        for view, same in zip(kept, views, strict=True):
            assert ranker.rank(query, 20, among=view) == ranker.rank(query, 20, among=set(same))
    growing: set[str] = set()
    for one in IDS:
        growing.add(one)
        assert set(ids(ranker.rank("server:*", 20, among=growing))) == growing


@given(
    st.lists(st.integers(0, len(CATALOG) - 1), unique=True),
    st.lists(st.integers(0, len(CATALOG) - 1), unique=True),
    queries,
)
@settings(max_examples=60)
def test_one_catalog_after_another_is_as_from_scratch(before: list[int], after: list[int], query: str) -> None:
    rankers = CatalogRankers()
    rankers.of([CATALOG[number] for number in before])
    catalog = [CATALOG[number] for number in after]
    assert rankers.of(catalog).rank(query, 20) == CatalogRankers().of(catalog).rank(query, 20)


def test_a_changed_tool_is_found_by_its_new_text_only() -> None:
    rankers = CatalogRankers()
    rankers.of(CATALOG)
    server, tools = CATALOG[2]
    changed = [tool("mail", "send_message", "Launch a rocket"), *tools[1:]]
    hits = rankers.of([*CATALOG[:2], (server, changed)]).rank("launch a rocket", 8)
    assert hits[0].id == "mail/send_message"


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("search", "mail/search"),
        ("get_forecast", "weather/get_forecast"),
        ("getForecast", "weather/get_forecast"),
        ("github/search_code", "github/search_code"),
        ("send a mail, but with `search_code`", "github/search_code"),
        ("list issues with getAlerts please", "weather/getAlerts"),
    ],
)
def test_a_tool_that_is_named_comes_first(ranker: Ranker, query: str, first: str) -> None:
    hit = ranker.rank(query, 3)[0]
    assert (hit.id, hit.is_named, hit.score) == (first, True, 1.0)


def test_the_tools_of_a_server_that_is_named_come_first(ranker: Ranker) -> None:
    hits = ranker.rank("GitHub", 8)
    assert ids(hits)[:4] == [one.id for one in CATALOG[0][1]]
    assert all(hit.is_named for hit in hits[:4])


def test_filters(ranker: Ranker) -> None:
    assert ids(ranker.rank("server:weather", 8)) == ["weather/get_forecast", "weather/getAlerts"]
    assert ids(ranker.rank("tag:daily", 8)) == ["weather/get_forecast"]
    assert ids(ranker.rank("server:nobody create issue", 8)) == []
    assert ids(ranker.rank("search server:git*", 8))[0] == "github/search_code"
    assert all(one.startswith("github/") for one in ids(ranker.rank("send mail tag:code", 8)))


def test_each_of_several_needs_is_answered_early(ranker: Ranker) -> None:
    hits = ids(
        ranker.rank(
            "Merge the pull request of Anna. Then tell me if there are storm warnings, and send her an e-mail", 4
        )
    )
    assert {"github/merge_pull_request", "weather/getAlerts", "mail/send_message"} <= set(hits)


def test_where_nothing_fits_scores_are_below_the_floor(ranker: Ranker) -> None:
    assert all(hit.score < 0.28 for hit in ranker.rank("bake sourdough bread with rye", 8))
    assert ranker.rank("what will the weather be in Oslo", 8)[0].score >= 0.28


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"inner": schema, "list": {"items": schema}}}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": None},
        {"properties": ["a"]},
        {"type": {"a": 1}, "properties": {"a": None, "b": 3, "c": {"type": {}, "enum": {"x": 1}}}},
        {"properties": {"a": {"description": 5, "enum": [1, None, "b", {}], "items": []}}},
        {"properties": {"x" * 100_000: {"description": "y" * 1_000_000, "enum": ["z" * 100_000] * 1000}}},
        {"properties": {f"p{number}": {"description": "text"} for number in range(5000)}},
        deep(10_000),
        json.loads('{"properties": {"\\ud800": {"description": "\\udfff\\u0000"}}}'),
    ],
)
def test_malformed_schemas_are_survived(schema: Any) -> None:
    ranker = CatalogRankers().of([(ServerText("s"), [tool("s", "odd", "Fly a kite", schema), tool("s", "other")])])
    assert ranker.rank("fly my kite", 1)[0].id == "s/odd"


def test_hostile_texts_are_survived() -> None:
    rankers = CatalogRankers()
    long = "word " * 1_200_000
    ranker = rankers.of(
        [
            (ServerText("a" * 100_000, "\ud800", long), [ToolText("1", "a", "n" * 1_000_000, long, long)]),
            (ServerText("", ""), [ToolText("2", "", ""), ToolText("3", "", "\x00", description="\ud800\udc00 kite")]),
            (ServerText("empty"), []),
        ]
    )
    for query in ("", " ", "\ud800", "kite", "\x00", "a" * 100_000, "word " * 20_000, "_" * 9000, "get_" * 3000):
        assert len(ranker.rank(query, 8)) <= 3
    assert ranker.rank("kite", 1)[0].id == "3"


def test_an_empty_catalog_answers_nothing() -> None:
    ranker = CatalogRankers().of([])
    assert ranker.rank("anything", 8) == ranker.rank("", 8) == ranker.rank("server:x", 8) == []


@given(queries, st.integers(1, 12), st.none() | st.sets(st.sampled_from(IDS)))
@example("MAIL", 1, {"github/create_issue", "github/search_code"})
@settings(max_examples=200)
def test_the_points_of_an_explanation_are_the_score(
    ranker: Ranker, query: str, limit: int, among: set[str] | None
) -> None:
    """Issue 20: the ranking with scores, and which words and vectors made it. It explains this ranking, no other."""
    hits = ranker.rank(query, limit, among=among)
    explained = ranker.explain(query, limit, among=among)
    scored = {hit.id: hit.score for hit in hits if not hit.is_named}
    assert explained.keys() <= scored.keys()
    for id_, one in explained.items():
        assert min(1.0, one.score) == pytest.approx(scored[id_], abs=2e-3)
        assert all(word.points > 0 for word in one.words)
        assert 0 <= one.nearness <= 1
    assert all(
        not score or query.strip().startswith(("server:", "tag:"))
        for id_, score in scored.items()
        if id_ not in explained
    )


def test_an_explanation_names_the_words_as_they_were_written_and_those_that_are_implied(ranker: Ranker) -> None:
    explained = ranker.explain("listing the issues on 8.8.8.8", 8)
    words = {word.word: word for word in explained["github/list_issues"].words}
    assert not words["listing"].is_implied
    assert words["listing"].points > 0
    explained = ranker.explain("will it rain in Rome", 8)
    forecast = explained["weather/get_forecast"]
    assert {word.word for word in forecast.words if word.is_implied} & {"weather", "forecast"}
    assert "rain" in dict(forecast.near_words)


def test_an_explanation_says_which_part_of_a_request_a_tool_is_for(ranker: Ranker) -> None:
    request = "get the weather forecast for Rome, then send a mail message to my boss"
    parts = {id_: one.part for id_, one in ranker.explain(request, 8).items()}
    assert parts["weather/get_forecast"] == "get the weather forecast for Rome"
    assert all(part in request for part in parts.values())
