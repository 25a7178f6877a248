"""Whether a search says that something fits."""

import pytest

from mcpbridge.catalog.search.find import find
from support.catalog.searchable_tools import Tool, visible_tools

SIGHT = visible_tools(
    [
        Tool("gitlab", "create_issue", "Create a new issue in a project"),
        Tool("gitlab", "list_issues", "List issues of a project"),
        Tool("gitlab", "create_merge_request", "Create a merge request"),
        Tool("gitlab", "push_files", "Push files to a repository"),
        Tool("slack", "post_message", "Post a message to a channel"),
        Tool("slack", "add_reaction", "Add a reaction to a message"),
        Tool("git", "git_log", "Shows the commit logs"),
        Tool("time", "get_current_time", "Get current time in a specific timezone"),
    ]
)


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("make a ticket", "gitlab/create_issue"),
        ("tell the team something", "slack/post_message"),
        ("open a PR", "gitlab/create_merge_request"),
        ("upload code", "gitlab/push_files"),
        ("server:git history", "git/git_log"),
        ("welche Zeit ist es in Tokio", "time/get_current_time"),
    ],
)
async def test_other_words_for_what_a_tool_does_fit(query: str, tool: str) -> None:
    found = find(query, 3, SIGHT, await SIGHT.ranker(query))
    assert found.fits
    assert tool in [ability.id for ability in found.abilities[:3]]


@pytest.mark.parametrize("query", ["bake a cake", "play some jazz", "translate this poem", "order pizza", ""])
async def test_what_nobody_does_does_not_fit(query: str) -> None:
    found = find(query, 3, SIGHT, await SIGHT.ranker(query))
    assert not found.fits
    assert len(found.named) <= 3
