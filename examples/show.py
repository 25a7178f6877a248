"""See the bridge work: `make run`, or `python examples/show.py` when everything is installed.

1. starts an MCP server that can be reached at a URL, so that the example has one over HTTP
2. connects to `mcpbridge serve` with the client of the official SDK, as any program would: over stdio, then over HTTP
3. lists the merged tools and calls one on each server behind the bridge
"""

import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from mcpbridge import Client as BridgeClient
from mcpbridge.storage.http_token import http_token

ROOT = Path(__file__).resolve().parent.parent
EVERYTHING = ROOT / "examples/node_modules/.bin/mcp-server-everything"

SERVE = ["-m", "mcpbridge", "serve", "--config", str(ROOT / "servers.toml"), "--log-level", "warning"]

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("time__convert_time", {"source_timezone": "Europe/Berlin", "time": "16:30", "target_timezone": "Asia/Tokyo"}),
    *([("git__git_branch", {"repo_path": str(ROOT), "branch_type": "local"})] if (ROOT / ".git").exists() else []),
    ("files__list_directory", {"path": "."}),
    ("everything__get-sum", {"a": 19, "b": 23}),
    ("web__echo", {"message": "hello over HTTP"}),
]
"""One tool of each server in servers.toml."""


def main() -> int:
    port = free_port()
    with web_server(port):
        environment = {**os.environ, "EVERYTHING_PORT": str(port)}
        # In a process of its own, so that nothing is left behind; clients share one in the background.
        alone = [*SERVE, "--standalone"]
        stdio = StdioServerParameters(command=sys.executable, args=alone, env=environment)
        print("== mcpbridge serve (stdio) ==\n")
        failed = anyio.run(visit, Client(stdio))
        with http_bridge(environment) as url:
            print(f"\n== mcpbridge serve --http ({url}) ==\n")
            failed += anyio.run(visit, BridgeClient(url, token=http_token(os.environ)))
    return 1 if failed else 0


async def visit(bridge: Client) -> int:
    """List all tools and call one on each server; returns how many of those calls failed."""
    failed = 0
    async with bridge as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        width = max(map(len, tools), default=0)
        print(f"{len(tools)} tools, as one server:")
        for name, tool in tools.items():
            print(f"  {name:{width}}  {shorten(tool.description or tool.title or '', 76)}")
        print("\nOne call to each server:")
        for name, arguments in CALLS:
            if name not in tools:
                print(f"  {name}: not there, because its server is not running")
                failed += not is_optional(name)
                continue
            result = await client.call_tool(name, arguments)
            failed += bool(result.is_error)
            text = " ".join(getattr(part, "text", f"[{part.type}]") for part in result.content)
            print(f"  {name} {'FAILED' if result.is_error else '->'} {shorten(text, 100)}")
    return failed


@contextmanager
def web_server(port: int) -> Generator[None]:
    """The example's server at a URL: runs meanwhile, if Node is there."""
    if not EVERYTHING.exists() or shutil.which("node") is None:
        print("Node is missing, so the servers 'files', 'everything' and 'web' are left out.\n")
        yield
        return
    with program([str(EVERYTHING), "streamableHttp"], {**os.environ, "PORT": str(port)}) as server:
        wait_until(lambda: accepts(port), server)
        yield


@contextmanager
def http_bridge(environment: dict[str, str]) -> Generator[str]:
    """`mcpbridge serve --http`: runs meanwhile. Gives the URL to connect to."""
    port = free_port()
    with program([sys.executable, *SERVE, "--http", f"127.0.0.1:{port}"], environment) as bridge:
        wait_until(lambda: accepts(port), bridge)
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def program(command: list[str], environment: dict[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """A program that runs meanwhile and is asked to end, then made to."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(ready: Any, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    """Wait for a program to be ready. Ends this one if the other ends, or takes too long."""
    until = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(f"{process.args!r} did not start")
        time.sleep(0.05)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """One that nobody has, and that no system gives out by itself before a program of ours is there."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def is_optional(name: str) -> bool:
    """The tool belongs to a server that needs Node, and Node is missing."""
    return not name.startswith(("time__", "git__")) and shutil.which("node") is None


def shorten(text: str, width: int) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= width else f"{text[: width - 1]}…"


if __name__ == "__main__":
    sys.exit(main())
