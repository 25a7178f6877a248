"""What is known of a tool in one searchable form, and the queries over it (issue 8)."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.catalog.search.query_filters import QueryProblem, parse_query
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.tool_info import Origin, represented
from mcpbridge.catalog.upstream_filter import Offer
from support.registry_bridge import registering


def ref_of(definition: dict[str, Any], server: str = "github") -> ToolRef:
    snapshot = SnapshotBuilder().build([Offer(server, (json.dumps(definition).encode(),))], {})
    [ref] = snapshot.tools.values()
    return ref


ISSUE = {
    "name": "create_issue",
    "title": "Create an issue",
    "description": "Opens an issue in a repository.",
    "inputSchema": {"type": "object", "properties": {"repository": {"type": "string"}}},
    "outputSchema": {"type": "object"},
    "annotations": {"destructiveHint": False},
}
ORIGIN = Origin("mcp", "remote", "streamable-http", ("vcs", "work items"), ({"repository": "mine"}, "file a bug"))


def test_everything_that_is_known_is_in_it() -> None:
    one = represented(ref_of(ISSUE), ORIGIN)
    assert json.loads(json.dumps(one.as_json())) == {
        "id": "github/create_issue",
        "name": one.name,
        "server": "github",
        "type": "tool",
        "sub_type": "mcp",
        "runtime_type": "remote",
        "protocol_type": "streamable-http",
        "description": "Create an issue: Opens an issue in a repository.",
        "tags": ["vcs", "work items"],
        "schema": {"input": ISSUE["inputSchema"], "output": {"type": "object"}},
        "examples": [{"repository": "mine"}, "file a bug"],
        "annotations": {"destructiveHint": False},
    }


@pytest.mark.parametrize(
    ("query", "holds"),
    [
        ("", True),
        ("issue AND remote", True),
        ("issue remote", True),
        ("issue AND local", False),
        ("tag:nlp OR server:github", True),
        ("tag:nlp", False),
        ("tag:vcs NOT tag:nlp", True),
        ('tag:"work items"', True),
        ('"opens an issue"', True),
        ('"an opens issue"', False),
        ("(local OR remote) AND kind:mcp", True),
        ("-kind:http", True),
        ("protocol:streamable-http", True),
        ("schema:repository", True),
        ("schema:branch", False),
        ("example:bug", True),
        ("example:mine", True),
        ("id:github/*", True),
        ("name:create_issue", True),
        ("id:gitlab/*", False),
        ("type:tool", True),
        ("runtime:remote", True),
        ("CREATE", True),
    ],
)
def test_queries_find_it(query: str, holds: bool) -> None:
    assert parse_query(query).holds(represented(ref_of(ISSUE), ORIGIN).texts()) is holds


@pytest.mark.parametrize(
    "definition",
    [
        {"name": "x"},
        {"name": "x", "inputSchema": {"type": "object"}},
        {"name": "x", "inputSchema": {"type": "object", "properties": []}, "annotations": {"title": "T"}},
        {"name": "x", "inputSchema": {"type": "object"}, "outputSchema": {}, "title": 1, "description": 2},
    ],
)
def test_definitions_of_others_need_not_be_whole(definition: dict[str, Any]) -> None:
    try:
        ref = ref_of(definition)
    except ValueError:
        return  # the catalog offers no such tool
    one = represented(ref, Origin("mcp", "local", "stdio"))
    assert isinstance(one.schema["input"], dict)
    assert parse_query("x").holds(one.texts())


async def test_each_tool_says_where_it_comes_from(tmp_path: Path) -> None:
    text = """
[servers.near]
command = "near"
tags = ["a"]
tool.echo.tags = ["b", "a"]
[servers.far]
url = "wss://far.example/mcp"
[tools.root]
function = "math:sqrt"
examples = [{ x = 4 }]
[tools.day]
command = ["date"]
[tools.web]
endpoint = "https://web.example/x"
tags = ["c"]
"""
    async with registering(tmp_path, text) as at:
        await at.bridge.startup.settled()
        found = {one.id: one for one in at.bridge.representations()}
        assert {
            id_: (one.sub_type, one.runtime_type, one.protocol_type, list(one.tags)) for id_, one in found.items()
        } == {
            "near/echo": ("mcp", "local", "stdio", ["a", "b"]),
            "far/echo": ("mcp", "remote", "websocket", []),
            "tools/root": ("function", "local", "python", []),
            "tools/day": ("command", "local", "process", []),
            "tools/web": ("http", "remote", "http", ["c"]),
            **{name: ("builtin", "local", "python", []) for name in found if name.startswith("mcpbridge/")},
        }
        assert found["tools/root"].examples == ({"x": 4},)
        assert at.names("tag:c OR server:near") == ["near/echo", "tools/web"]
        with pytest.raises(QueryProblem):
            at.names("AND")
