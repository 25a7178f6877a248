"""Which tools globs are about; the same for rules, hooks and the cache."""

import pytest

from mcpbridge.pipeline.permissions.settings import ToolGlobs, globs, names_of
from support.catalog.policies import AnyTool

RENAMED = AnyTool("up", "echo", shown="shout")
SLASHED = AnyTool("git", "hub/delete")


@pytest.mark.parametrize(
    ("texts", "tool", "matches"),
    [
        (["echo"], RENAMED, True),
        (["shout"], RENAMED, True),
        (["up/echo"], RENAMED, True),
        (["up/shout"], RENAMED, True),
        (["up/*"], RENAMED, True),
        (["*"], RENAMED, True),
        (["up/x", "sh?ut"], RENAMED, True),
        (["Echo"], RENAMED, False),
        (["up"], RENAMED, False),
        (["down/echo"], RENAMED, False),
        (["git/hub/*"], SLASHED, True),
        (["hub/delete"], SLASHED, False),
        (["git*/delete"], SLASHED, False),
        ([], RENAMED, False),
    ],
)
def test_a_tool_goes_by_either_name_and_a_slash_parts_server_and_name(
    texts: list[str], tool: AnyTool, matches: bool
) -> None:
    assert ToolGlobs(texts).cover(tool) is matches
    assert ToolGlobs(texts).match(tool.server, names_of(tool)) is matches


def test_no_globs_match_nothing() -> None:
    assert not globs([]).fullmatch("")
    assert globs(["a*", "b"]).fullmatch("b")
