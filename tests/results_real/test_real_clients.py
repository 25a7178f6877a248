"""Clients that check what they get accept large results of real servers, on which these declare an `outputSchema`."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clients.test_client_matrix import PATIENCE, visit
from results_real.real_world import SETTINGS, World, started
from support.harness import Place
from support.rpc import HttpClient

HERE = Path(__file__).parent
ERAS = ["legacy", "2026-07-28"]

Given = list[dict[str, Any]]
"""What a client got of the calls: the `text` of each, and what it has as `structured`."""


@pytest.fixture(scope="module")
async def bridge(
    anyio_backend: str, world: World, node: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HttpClient]:
    """A bridge at a URL, in front of two servers that declare what they answer and one that does not."""
    place = Place(tmp_path_factory.mktemp("clients"))
    servers = {name: world.servers[name] for name in ("files", "memory", "sql")}
    async with place.http_bridge(servers, **SETTINGS) as client:
        await started(client, *servers)
        yield client
    place.clean()


def calls(world: World) -> list[tuple[str, dict[str, Any]]]:
    """Three large results, one that a script made, and one that is small."""
    report = {"path": world.path("report.csv")}
    return [
        ("files__read_text_file", report),
        ("memory__read_graph", {}),
        ("sql__read_query", {"query": "select * from orders"}),
        ("files__directory_tree", {"path": world.inbox, "_transform": "result.length"}),
        ("files__read_text_file", {**report, "head": 2}),
    ]


def accepted(given: Given, world: World) -> None:
    """Assert that a client got what it should."""
    *large, transformed, small = given
    for result, words in zip(large, ("600 rows", "300 objects", "500 objects"), strict=True):
        assert result["text"].startswith("[mcpbridge ")
        assert words in result["text"]
        assert len(result["text"]) <= 2000
        assert result["structured"] in (None, {"text": result["text"]})
    assert (transformed["text"], transformed["structured"]) == ("1500", {"result": 1500})
    assert small["text"].splitlines() == world.report.splitlines()[:2]
    assert small["structured"] == {"content": small["text"]}


async def with_the_python_sdk(to: Any, mode: Any, world: World) -> Given:
    from mcp import Client, types  # over a second of import: only here

    given: Given = []
    async with Client(to, mode=mode) as client:
        await client.list_tools()
        for name, arguments in calls(world):
            result = await client.call_tool(name, arguments)
            assert isinstance(result.content[0], types.TextContent)
            given.append({"text": result.content[0].text, "structured": result.structured_content})
    return given


@pytest.mark.parametrize("mode", ERAS)
async def test_the_python_sdk(bridge: HttpClient, world: World, mode: str) -> None:
    accepted(await with_the_python_sdk(bridge.url, mode, world), world)


async def test_fastmcp(bridge: HttpClient, world: World, fastmcp_python: str) -> None:
    """Both eras in one process, which takes seconds to start."""
    script = str(HERE / "fastmcp_calls.py")
    [given] = await visit(fastmcp_python, script, bridge.url, json.dumps(ERAS), json.dumps(calls(world)))
    assert list(given) == ERAS
    for results in given.values():
        accepted(results, world)


@pytest.mark.parametrize("mode", ["v1", *ERAS])
async def test_the_typescript_sdk(bridge: HttpClient, world: World, node: Path, mode: str) -> None:
    script = str(HERE / "calls.mjs")
    [given] = await visit("node", script, bridge.url, mode, json.dumps(calls(world)), cwd=node)
    accepted(given, world)


async def test_the_python_sdk_on_stdio(place: Place, world: World, node: Path) -> None:
    from mcp import StdioServerParameters

    servers = {name: world.servers[name] for name in ("files", "memory", "sql")}
    args = ["-m", "mcpbridge", "serve", "--config", str(place.config(servers, **SETTINGS))]
    bridge = StdioServerParameters(command=sys.executable, args=args, env=place.environment())
    async with asyncio.timeout(PATIENCE):
        accepted(await with_the_python_sdk(bridge, ERAS[-1], world), world)
    assert place.survivors() == {}
