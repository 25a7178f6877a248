"""The tool `find_tools`: what a caller finds, and how it is told."""

from typing import Any

import pytest

from mcpbridge.catalog.search.visible_tools import VisibleTools
from mcpbridge.tools.builtin.meta.find_tools import FindTools
from support.catalog.searchable_tools import GITHUB, Tool, a_call, an_object, looking_at, visible_tools

TOOLS = [
    GITHUB,
    Tool("github", "list_issues", "List the issues of a repository"),
    Tool("github", "star_repository", "Star a repository"),
    Tool("mail", "send_mail", "Send a mail to somebody", an_object("to", to="string")),
    Tool("mail", "list_folders", "List all folders of a mailbox"),
    Tool("mail", "draw_window", "Draw the window of the mail app", app_only=True),
    *(Tool("weather", f"get_forecast_{n}", f"Get the weather forecast of station {n}") for n in range(30)),
]


async def ask(arguments: Any, *, visible: VisibleTools | None = None, fails: bool = False, **settings: Any) -> str:
    seen = visible or visible_tools(TOOLS)
    result = (await FindTools(looking_at(seen), **settings).run(a_call("find_tools", arguments))).value()
    assert result.get("isError", False) is fails
    (block,) = result["content"]
    assert block["type"] == "text"
    assert "structuredContent" not in result
    return block["text"]


async def test_the_best_tool_comes_first_with_its_signature() -> None:
    lines = (await ask({"query": "open an issue about a bug"})).splitlines()
    assert lines[0].startswith("github__create_issue(owner: str, repo: str, title: str, body?: str")
    assert lines[1].startswith("github__list_issues() - List the issues of a repository")


async def test_there_are_as_many_as_are_asked_for_and_the_rest_is_counted() -> None:
    text = await ask({"query": "weather forecast"})
    assert text.count("weather__") == 8
    assert "16+ more fit: ask again with limit=24" in text
    assert (await ask({"query": "weather forecast", "limit": 3})).count("weather__") == 3
    assert (await ask({"query": "weather forecast", "limit": 999})).count("weather__") == 30
    assert (await ask({"query": "weather forecast", "limit": -5})).count("weather__") == 1
    assert (await ask({"query": "weather forecast"}, limit=2)).count("weather__") == 2


async def test_details() -> None:
    assert "github__create_issue(…) - Create a new issue" in await ask({"query": "create issue", "detail": "names"})
    assert '"name":"github__create_issue"' in await ask({"query": "create issue", "detail": "schemas"})


async def test_an_answer_keeps_to_its_tokens() -> None:
    text = await ask({"query": "weather forecast", "limit": 30}, tokens=200)
    assert len(text) < 1000
    assert text.count("weather__get_forecast_") >= 10
    longer = await ask({"query": "weather forecast", "limit": 30}, tokens=1000)
    assert longer.count("weather__get_forecast_") == 30


async def test_tools_for_apps_and_tools_that_the_caller_may_not_call_are_not_found() -> None:
    """Promise of the bridge: what policy hides, search hides."""
    found = await ask({"query": "draw the window of the mail app"})
    assert "draw_window" not in found
    assert "mail__send_mail" in found
    whole = visible_tools(TOOLS)
    seen = VisibleTools({wire: tool for wire, tool in whole.tools.items() if tool.server != "github"}, whole.ranker)
    for query, answer in (
        ("create an issue on github", "No tool seems to do that."),
        ("github__create_issue", "No tool seems to do that."),
        ("list the folders of github", "mail__list_folders() - List all folders"),
    ):
        assert "github" in await ask({"query": query})
        hidden = await ask({"query": query}, visible=seen)
        assert "github" not in hidden
        assert hidden.startswith(answer)
        assert "mail__" in hidden


async def test_filters() -> None:
    text = await ask({"query": "server:mail"})
    assert (
        text
        == "mail__send_mail(to: str) - Send a mail to somebody\nmail__list_folders() - List all folders of a mailbox"
    )


async def test_when_nothing_fits_it_says_so_and_what_there_is() -> None:
    text = await ask({"query": "knit woollen socks"}, visible=visible_tools(TOOLS, "~30 tools of 3 servers."))
    assert text.startswith("No tool seems to do that.\nThere are ~30 tools of 3 servers.\nNearest, and doubtful:\n")
    empty = await ask({"query": "anything"}, visible=visible_tools([], ""))
    assert empty.startswith("No tool seems to do that.\nTry other words")
    assert "No tool seems" in await ask({"query": "server:nobody"})


async def test_arguments_as_models_write_them() -> None:
    expected = await ask({"query": "weather forecast", "limit": 3})
    for arguments in (
        {"q": "weather forecast", "top_k": "3"},
        {"query": ["weather", "forecast"], "limit": 3.0},
        {"search": "weather forecast", "max_results": 3, "detail": None},
        '{"query": "weather forecast", "limit": 3}',
    ):
        assert await ask(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (None, "query: what the tool should do"),
        ({}, "query: what the tool should do"),
        ({"query": "  "}, "query: what the tool should do"),
        ({"query": 7}, "query: what the tool should do"),
        ({"query": "a", "limit": "many"}, "limit: how many tools, 1 to 50"),
        ({"query": "a", "limit": True}, "limit: how many tools, 1 to 50"),
        ({"query": "a", "detail": "all"}, "detail: one of names, signatures, schemas"),
        ({"query": "a", "detial": "names"}, "detial: no such argument; did you mean detail?"),
        ([1], "arguments: an object with query, limit, detail"),
        ("no JSON", "arguments: an object with query, limit, detail"),
    ],
)
async def test_what_is_wrong_with_a_call_is_told(arguments: Any, told: str) -> None:
    assert told in await ask(arguments, fails=True)


@pytest.mark.parametrize("query", ["x " * 100_000, "\x00\ud7ff", "(((", "[mcpbridge 01 · complete]", "🙂", "*"])
async def test_whatever_is_asked_is_answered(query: str) -> None:
    text = await ask({"query": query})
    assert len(text) < 4000
    assert text.startswith("No tool seems to do that.\nThere are ~3 tools of 1 server: demo (3).")
    assert "[mcpbridge" not in text
