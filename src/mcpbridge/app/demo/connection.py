"""The demo as a client: of the bridge, and of the servers behind it without one. Both by the official SDK."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import anyio
from anyio import to_thread
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.session import ElicitationFnT
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import CallToolResult, Implementation, TextContent, TextResourceContents, Tool

from mcpbridge.app.admin.control_client import ask_all
from mcpbridge.app.demo.bill import count_tokens
from mcpbridge.app.demo.cast import Cast, ToolCall
from mcpbridge.base.directories import runtime_directory
from mcpbridge.base.version import __version__
from mcpbridge.catalog.slim.slim import visible
from mcpbridge.config.load import read
from mcpbridge.upstream.settings import ServerSettings

CLIENT = Implementation(name="mcpbridge-demo", version=__version__)

_SECONDS = 60.0
"""How long an answer is waited for."""


class Connected:
    """A client of a bridge that runs."""

    def __init__(self, client: Client, tools: Sequence[Tool], environment: Mapping[str, str]) -> None:
        self._client, self._environment = client, environment
        self.tools = tools
        """What the bridge lists to this client."""

    async def call(self, call: ToolCall, progress: ProgressFnT | None = None) -> CallToolResult:
        """Call a tool behind the bridge as a model does that has found it: by `call_tool`, where that is listed."""
        if any(tool.name == call.tool for tool in self.tools):
            return await self._client.call_tool(call.tool, dict(call.arguments), progress_callback=progress)
        wrapped: dict[str, Any] = {"name": call.tool, "arguments": dict(call.arguments)}
        return await self._client.call_tool("call_tool", wrapped, progress_callback=progress)

    async def original(self, handle: str) -> str:
        """The text of a kept result, whole, which a program reads as a resource."""
        (content,) = (await self._client.read_resource(f"mcpbridge://results/{handle}/text")).contents
        assert isinstance(content, TextResourceContents)
        return content.text

    async def state_of(self, server: str) -> Mapping[str, Any]:
        """What the bridge's status says of a server: its `state`, why, and its process. Empty: it does not know it."""
        bridges: Any = await to_thread.run_sync(ask_all, runtime_directory(self._environment))
        states: list[Mapping[str, Any]] = [state for bridge in bridges for state in bridge.get("servers", [])]
        nothing: Mapping[str, Any] = {}
        return next((state for state in states if state["name"] == server), nothing)


def text_of(result: CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


def definition_tokens(tools: Sequence[Tool]) -> int:
    """Tokens of what clients show models of these tools."""
    return sum(count_tokens(visible(tool.model_dump_json(by_alias=True, exclude_none=True).encode())) for tool in tools)


@asynccontextmanager
async def bridge_client(cast: Cast, directory: Path, log: TextIO, ask: ElicitationFnT) -> AsyncGenerator[Connected]:
    """`mcpbridge serve` on the configuration of the cast, and a client of it.

    Nothing of the user's is touched: the bridge keeps its files below `directory`. It ends with the context, its
    servers with it. `ask` answers its questions.
    """
    environment = {**_environment(directory), **cast.environment}
    arguments = [
        "-P",
        "-m",
        "mcpbridge",
        "serve",
        "--standalone",
        "--config",
        str(cast.config),
        "--log-level",
        "warning",
    ]
    started = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    client = Client(
        stdio_client(started, errlog=log),
        client_info=CLIENT,
        elicitation_callback=ask,
        read_timeout_seconds=_SECONDS,
    )
    async with client:
        yield Connected(client, (await client.list_tools()).tools, environment)


async def tools_without_bridge(cast: Cast, directory: Path, log: TextIO) -> dict[str, list[Tool]]:
    """What each server of the configuration lists to a client that connects to it directly, by server."""
    environment = {**_environment(directory), **cast.environment}
    servers = read(cast.config, {**os.environ, **cast.environment}).settings.servers
    found: dict[str, list[Tool]] = {}

    async def ask(name: str, server: ServerSettings) -> None:
        at = server.url or stdio_client(_started(server, environment), errlog=log)
        async with Client(at, client_info=CLIENT, read_timeout_seconds=_SECONDS) as client:
            found[name] = (await client.list_tools()).tools

    async with anyio.create_task_group() as group:
        for name, server in servers.items():
            group.start_soon(ask, name, server)
    return {name: found[name] for name in servers}


def _started(server: ServerSettings, environment: Mapping[str, str]) -> StdioServerParameters:
    assert server.command is not None, "the servers of a demo have a command or a URL"
    return StdioServerParameters(
        command=server.command, args=list(server.args), env={**environment, **server.env}, cwd=server.cwd
    )


def _environment(directory: Path) -> dict[str, str]:
    """Variables by which all files of a bridge are below this directory. Most others of the user are not handed on."""
    run = directory / "r"  # short, since a path of a socket has 104 characters at most
    run.mkdir(mode=0o700, exist_ok=True)
    places = {f"XDG_{kind}_HOME": str(directory / kind.lower()) for kind in ("STATE", "CACHE", "CONFIG", "DATA")}
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
    return {**kept, **places, "XDG_RUNTIME_DIR": str(run)}
