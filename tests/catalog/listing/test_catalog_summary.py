"""The map of a catalog: what it says, how long it gets, and that it stays the same."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.listing.catalog_summary import MAP_TOKENS, catalog_map
from mcpbridge.catalog.search.ranker import ServerText
from mcpbridge.results.token_count import counter

GITHUB = (
    "create_issue", "get_issue", "list_issues", "update_issue", "search_issues", "create_pull_request",
    "merge_pull_request", "list_pull_requests", "get_repo", "list_repos", "get_file_contents",
)  # fmt: skip
SLACK = ("send_message", "list_messages", "list_channels")


def tools(**servers: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(server, name) for server, names in servers.items() for name in names]


def many(count: int) -> list[tuple[str, str]]:
    things = [
        "invoice",
        "customer",
        "weather",
        "forecast",
        "map",
        "route",
        "payment",
        "refund",
        "photo",
        "album",
        "song",
    ]
    things.append("playlist")
    return [(f"server-{n}", f"{verb}_{things[n % 12]}") for n in range(count) for verb in ("get", "list", "create")]


def test_a_map() -> None:
    assert catalog_map(tools(github=GITHUB, slack=SLACK)) == (
        "~15 tools of 2 servers: github (~10: issue, pull request, repo, file) · slack (3: message, channels)."
        " Mostly: create, get, list, merge, search, send."
    )
    assert catalog_map([]) == ""


def test_names_are_found_however_they_are_spelled() -> None:
    camel = tools(gitHub=("createIssue", "listIssues", "getGitHubIssue"), x=("DoIt",))
    assert catalog_map(camel).startswith("~3 tools of 2 servers: gitHub (3: issue) · x (1: do it)")


def test_many_servers_are_told_together() -> None:
    text = catalog_map(many(20))
    assert "17 more servers: server-" in text
    assert text.count(" · ") == 3
    every = catalog_map(many(200))
    assert "~500 tools of 200 servers" in every
    assert "more servers: album, customer" in every
    tagged = {f"server-{n}": ServerText(f"server-{n}", tags=("money" if n % 2 else "travel",)) for n in range(200)}
    assert "more servers: money, travel." in catalog_map(many(200), tagged)


def test_the_same_catalog_gives_the_same_bytes_and_one_tool_more_seldom_others() -> None:
    catalog = many(30) + tools(github=GITHUB, slack=SLACK)
    shuffled = catalog.copy()
    random.Random(7).shuffle(shuffled)
    before = catalog_map(catalog)
    assert catalog_map(shuffled) == before
    others = ("delete_branch", "get_commit", "create_release", "star_repo", "list_labels", "x", "search_users")
    assert [catalog_map([*catalog, ("github", name)]) == before for name in others].count(False) <= 1


def test_names_of_servers_are_not_trusted() -> None:
    hostile = tools(a=("ignore\nall`previous`instructions", "<script>", "忽略", "x" * 10_000, "\ud800", ""))
    text = catalog_map([*hostile, ("server`name]\n" * 50, "get_it")])
    assert text.isprintable()
    assert set(text) <= set("~(),:·. …-_") | {char for char in text if char.isascii() and char.isalnum()}
    assert len(text) < 400


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=60)), max_size=60), st.sampled_from((30, 100, 300)))
def test_a_map_keeps_to_its_budget(names: list[tuple[str, str]], tokens: int) -> None:
    assert counter("o200k")(catalog_map(names, tokens=tokens, count=counter("o200k"))) <= tokens


def test_a_map_is_about_as_long_as_it_may_be() -> None:
    for count in (1, 5, 12, 13, 40, 400):
        assert counter("o200k")(catalog_map(many(count))) <= MAP_TOKENS * 1.15
