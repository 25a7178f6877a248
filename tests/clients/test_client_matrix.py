"""The clients that people use list and call through the bridge, on both fronts (issue 2, Done when)."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.harness import STOP_DEADLINE, Place, eventually, python_server
from support.programs import preloaded_bridge

FRONTS = ["stdio", "http"]
OTHER_FRONTS = ["sse", "websocket"]
"""Those that fewer clients speak with."""
GREETING = "grüße, 世界 🙂"
PATIENCE = 120.0
"""Seconds for a client to start, visit in each era and end; the TypeScript ones take a few for each."""

Target = dict[str, Any]
"""How a client reaches the bridge: `url`, or `command`, `args` and `env`."""


@asynccontextmanager
async def bridge(
    place: Place, front: str, servers: dict[str, Any], is_start_tested: bool = True
) -> AsyncIterator[Target]:
    """A bridge to be started by the client (stdio), or one that is running (HTTP).

    Each client starts the program itself at least once; else it is forked by one that has imported the bridge.
    """
    servers = {"rich": python_server("rich"), **servers}
    if front != "stdio":
        async with place.http_bridge(servers) as client:
            await client.initialize()
            await client.tools_with("rich__echo")
            root = client.url.removesuffix("/mcp")
            urls = {"http": client.url, "sse": f"{root}/sse", "websocket": f"{root.replace('http', 'ws', 1)}/ws"}
            yield {"url": urls[front]}
        return
    config = place.config(servers, bridge={"startup_wait": 60})  # they list once, and want all
    program, *args = (sys.executable, "-m", "mcpbridge") if is_start_tested else preloaded_bridge.command()
    args += ["serve", "--config", str(config)]
    try:
        yield {"command": program, "args": args, "env": place.environment()}
        # The client may have killed the bridge; its servers end all the same.
        await eventually(_survivors(place), lambda left: not left, within=STOP_DEADLINE)
    finally:
        place.kill_survivors()


def _survivors(place: Place) -> Any:
    async def look() -> dict[int, str]:
        return place.survivors()

    return look


async def visit(*command: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> list[Any]:
    """Run a client program; the JSON documents that it printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        _, err = await process.communicate()
        raise AssertionError(f"the client did not end; it said:\n{err.decode()}") from None
    assert process.returncode == 0, f"the client failed:\n{out.decode()}{err.decode()}"
    return list(_documents(out.decode()))


def _documents(text: str) -> Iterator[Any]:
    """The documents of a text: one after the other, on one line or on many."""
    while text := text.lstrip():
        document, end = json.JSONDecoder().raw_decode(text)
        yield document
        text = text[end:]


def saw_everything(seen: dict[str, Any]) -> None:
    """Assert that a client's visit went as it should."""
    assert seen["server"] in ("mcpbridge", None)  # a client told its revision asks for no name
    assert {"rich__echo", "rich__work", "rich__touch"} <= set(seen["tools"])
    assert seen["calls"]["rich__echo"] == GREETING
    assert seen["resource"] == "content of memo://one"
    assert seen["prompt"] == "Greet Ada."


@pytest.mark.parametrize("front", [*FRONTS, *OTHER_FRONTS])
async def test_the_python_sdk(place: Place, front: str) -> None:
    from mcp import Client, StdioServerParameters, types  # over a second of import: only here
    from mcp.client.sse import sse_client
    from mcp.client.stdio import stdio_client

    from clients.websocket_transport import websocket_client

    async def visits(target: Target, mode: Any) -> None:
        to: Any
        if front == "stdio":
            to = stdio_client(StdioServerParameters(**target))
        else:
            to = {"http": str, "sse": sse_client, "websocket": websocket_client}[front](target["url"])
        async with asyncio.timeout(PATIENCE), Client(to, mode=mode) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            [part] = (await client.call_tool("rich__echo", {"text": GREETING})).content
            [content] = (await client.read_resource("memo://one")).contents
            [message] = (await client.get_prompt("rich__greet", {"who": "Ada"})).messages
            assert isinstance(part, types.TextContent)
            assert isinstance(content, types.TextResourceContents)
            assert isinstance(message.content, types.TextContent)
            saw_everything(
                {
                    "server": client.server_info.name if client.server_info else None,
                    "tools": tools,
                    "calls": {"rich__echo": part.text},
                    "resource": content.text,
                    "prompt": message.content.text,
                }
            )
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")

    async with bridge(place, front, {}) as target:
        await visits(target, "legacy")
        if front != "stdio":
            await visits(target, "auto")
            await visits(target, "2026-07-28")
    if front == "stdio":
        for mode in ("auto", "2026-07-28"):
            async with bridge(place, front, {}, is_start_tested=False) as target:
                await visits(target, mode)


@pytest.mark.parametrize("front", FRONTS)
async def test_fastmcp(place: Place, fastmcp_python: str, front: str) -> None:
    script = str(Path(__file__).parent / "fastmcp_client.py")
    modes = ("legacy", "auto", "2026-07-28")
    async with bridge(place, front, {}) as target:
        seen = await visit(fastmcp_python, script, json.dumps(target), *modes)
    assert len(seen) == len(modes)
    for visited in seen:
        saw_everything(visited)


def everything(node: Path) -> dict[str, Any]:
    """The reference server of the protocol's authors, as an upstream."""
    return {"everything": {"command": "node", "args": [str(node / "node_modules/.bin/mcp-server-everything"), "stdio"]}}


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(("script", "modes"), [("sdk_v1", ["legacy"]), ("client_v2", ["legacy", "auto", "modern"])])
async def test_the_typescript_sdk(place: Place, node: Path, front: str, script: str, modes: list[str]) -> None:
    servers = everything(node) if front == "stdio" else {}  # over HTTP it may still be starting
    async with bridge(place, front, servers) as target:
        seen = await visit("node", f"{script}.mjs", json.dumps(target), *modes, cwd=node)
    assert len(seen) == len(modes)
    for visited in seen:
        saw_everything(visited)
        if servers:
            assert "42" in visited["calls"]["everything__get-sum"]


@pytest.mark.parametrize("front", OTHER_FRONTS)
async def test_the_typescript_sdk_on_transports_of_its_first_version(
    place: Place, node: Path, newer_node: str, front: str
) -> None:
    """Its WebSocket transport needs a Node that has `WebSocket`."""
    async with bridge(place, front, {}) as target:
        [seen] = await visit(newer_node, "sdk_v1.mjs", json.dumps(target), "legacy", cwd=node)
    saw_everything(seen)


@pytest.mark.parametrize("front", FRONTS)
async def test_the_inspector(place: Place, node: Path, newer_node: str, front: str) -> None:
    async with bridge(place, front, {}) as target:
        if front == "http":
            reach = ["--transport", "http", "--server-url", target["url"]]
        else:
            env = [part for name, value in target["env"].items() for part in ("-e", f"{name}={value}")]
            reach = [*env, "--", target["command"], *target["args"]]

        async def inspect(*args: str) -> Any:
            inspector = str(node / "node_modules" / ".bin" / "mcp-inspector")
            [printed] = await visit(newer_node, inspector, "--cli", *args, *reach, env={"HOME": str(place.folder)})
            return printed

        listed = await inspect("--method", "tools/list")
        assert {"rich__echo", "rich__work"} <= {tool["name"] for tool in listed["tools"]}
        called = await inspect("--method", "tools/call", "--tool-name", "rich__echo", "--tool-arg", f"text={GREETING}")
        assert called["content"][0]["text"] == GREETING
