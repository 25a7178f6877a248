"""Every built-in tool through the front, with the SDK's client on the standard streams of the bridge (issue 8)."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from mcp import Client, StdioServerParameters, types

from support.harness import Place
from support.programs import preloaded_bridge
from support.upstreams.scripted_http import Ask, http_server, reply

ALL = [
    "web-search",
    "http-get",
    "crypto-price",
    "file-read",
    "file-write",
    "file-list",
    "file-search",
    "code-execute",
    "git-cli",
    "gh-cli",
    "gws-cli",
    "brief",
    "pulse",
    "task-complete",
    "final-answer",
]
PAGE = b"<html><head><title>Tea</title></head><body><h1>Tea</h1><p>Leaves in <b>water</b>.</p></body></html>"


async def services(ask: Ask) -> bytes:
    """What Tavily, CoinGecko and a web page answer."""
    path = urlsplit(ask.path).path
    if path.endswith("/search"):
        assert ask.headers["authorization"] == "Bearer tvly-secret"
        found = {"url": "https://example.com/tea", "title": "Tea", "content": "About tea.", "score": 0.9}
        return reply({"query": "tea", "results": [found], "response_time": 0.1})
    if path.endswith("/simple/price"):
        return reply({"bitcoin": {"usd": 64000.5, "usd_24h_change": 1.5}})
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(PAGE)}\r\n\r\n"
    return head.encode() + PAGE


def repository(folder: Path) -> Path:
    folder.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    (folder / "a.txt").write_text("one\n")
    own = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "a.txt"], [*own, "commit", "-qm", "The first"]):
        subprocess.run(["git", *words], cwd=folder, env=environment, check=True)
    return folder


def stand_in(folder: Path, name: str) -> None:
    """A program of this name that says what it was given: the real one needs an account."""
    program = folder / name
    program.write_text('#!/bin/sh\necho "ran $0: $*"\n')
    program.chmod(0o755)


@asynccontextmanager
async def client_of(place: Place, url: str, agrees: bool = True, **builtin: Any) -> AsyncIterator[Client]:
    port = urlsplit(url).port
    files = place.folder / "files"
    files.mkdir()
    (files / "notes.txt").write_text("first\nsecond line\n")
    tools = place.folder / "bin"
    tools.mkdir()
    stand_in(tools, "gh")
    stand_in(tools, "gws")
    place.env |= {"PATH": f"{tools}:{os.environ['PATH']}", "TAVILY_API_KEY": "tvly-secret"}
    sections: dict[str, Any] = {
        "enable": ALL,
        "web_search": {"url": url},
        "crypto_price": {"url": f"{url}/api/v3"},
        "http_get": {"allow": ["127.0.0.1"], "ports": [port]},
        "files": {"roots": [str(files)]},
        "git_cli": {"repositories": [str(repository(place.folder / "repo"))]},
        **builtin,
    }
    config = place.config({}, builtin=sections, approval={"ask": ["client"]}, expose={"mode": "all"})

    async def elicit(_context: object, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"decision": "once" if agrees else "no"})

    program, *words = (*preloaded_bridge.command(), "serve", "--config", str(config))
    bridge = StdioServerParameters(command=program, args=words, env=place.environment())
    async with Client(bridge, elicitation_callback=elicit) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> tuple[str, bool, Mapping[str, Any]]:
    result: Any = await client.call_tool(name, arguments)
    text = "\n".join(part.text for part in result.content if part.type == "text")
    return text, bool(result.is_error), result.structured_content or {}


async def listed(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def test_every_builtin_is_listed_and_does_its_work(place: Place) -> None:
    async with http_server(services) as server:
        with anyio.fail_after(150):
            async with client_of(place, server.url.rstrip("/")) as client:
                while not set(ALL) <= (names := await listed(client)):
                    assert set(ALL) - names == {"code-execute"}, names  # whose sandbox is being tried out
                    await anyio.sleep(0.1)
                annotated = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
                assert all(annotated[name] is not None for name in ALL)

                text, failed, _ = await call(client, "web-search", query="tea")
                assert "https://example.com/tea" in text
                assert not failed
                text, failed, _ = await call(client, "http-get", url=f"{server.url.rstrip('/')}/page")
                assert "Leaves in" in text
                assert "<p>" not in text
                text, failed, data = await call(client, "crypto-price", symbols=["BTC", "NOPE"])
                assert "64000.5" in json.dumps(data)
                assert "notFound" in json.dumps(data)
                text, failed, _ = await call(client, "file-read", path="notes.txt")
                assert "second line" in text
                text, failed, _ = await call(client, "file-list", path=".")
                assert "notes.txt" in text
                text, failed, _ = await call(client, "file-search", pattern="second")
                assert "notes.txt" in text
                text, failed, _ = await call(client, "file-write", path="new.txt", content="written")
                assert not failed, text
                assert (place.folder / "files/new.txt").read_text() == "written"
                text, failed, data = await call(client, "code-execute", language="python", code="print(6 * 7)")
                assert not failed, text
                assert data["stdout"] == "42\n"
                text, failed, _ = await call(client, "git-cli", command="log --oneline")
                assert "The first" in text
                text, failed, _ = await call(client, "git-cli", command="tag v1")
                assert not failed, text  # after the user agreed
                text, failed, _ = await call(client, "gh-cli", command="pr list --repo o/r")
                assert "pr list --repo=o/r" in text  # each option is one word, whatever its value
                text, failed, _ = await call(client, "gws-cli", command="drive files list")
                assert "drive files list" in text
                text, failed, data = await call(client, "brief")
                assert {"name": "builtin", "tools": 11} in data["servers"]
                text, failed, data = await call(client, "pulse")
                assert data["calls"] >= 12
                assert data["errors"] == 0
                _, failed, data = await call(client, "task-complete", summary="Done")
                assert data["status"] == "done"
                _, failed, data = await call(client, "final-answer", answer="42", confidence=1)
                assert data["answer"] == "42"


async def test_what_is_dangerous_is_refused_at_the_front(place: Place) -> None:
    async with http_server(services) as server:
        url = server.url.rstrip("/")
        with anyio.fail_after(150):
            async with client_of(place, url, agrees=False, http_get={}) as client:
                secret = place.folder / "secret.txt"
                secret.write_text("the secret")
                for name, arguments, what in [
                    ("http-get", {"url": f"{url}/page"}, "127.0.0.1"),
                    ("http-get", {"url": "http://169.254.169.254/latest/meta-data"}, "169.254.169.254"),
                    ("file-read", {"path": "../secret.txt"}, "secret"),
                    ("file-read", {"path": str(secret)}, "secret"),
                    ("file-write", {"path": "new.txt", "content": "x"}, "not approved"),
                    ("git-cli", {"command": "tag v1"}, "not approved"),
                    ("git-cli", {"command": "-c core.pager=id log"}, "never run"),
                    ("git-cli", {"command": "log --output=/tmp/x"}, "--output"),
                    ("gh-cli", {"command": "auth token"}, "auth"),
                ]:
                    text, failed, _ = await call(client, name, **arguments)
                    assert failed, f"{name} {arguments}: {text}"
                    assert what in text, text
                    assert "the secret" not in text
                assert not (place.folder / "files/new.txt").exists()


@pytest.mark.parametrize("tool", ["web-search", "gh-cli"])
async def test_what_lacks_something_says_so_and_that_trying_again_is_of_no_use(place: Place, tool: str) -> None:
    """Issue 8: without a key "inactive", without the program "do not retry"."""
    place.env["PATH"] = "/usr/bin:/bin"
    config = place.config({}, builtin={"enable": [tool]})
    environment = place.environment()
    program, *words = (*preloaded_bridge.command(), "serve", "--config", str(config))
    bridge = StdioServerParameters(command=program, args=words, env=environment)
    if tool == "gh-cli" and any(Path(folder, "gh").exists() for folder in ("/usr/bin", "/bin")):
        pytest.skip("there is a gh here")
    with anyio.fail_after(60):
        async with Client(bridge) as client:
            arguments = {"query": "tea"} if tool == "web-search" else {"command": "pr list --repo o/r"}
            text, failed, _ = await call(client, tool, **arguments)
            assert failed
            assert "inactive" in text
            assert "Do not retry" in text
