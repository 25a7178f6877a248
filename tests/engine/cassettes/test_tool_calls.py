"""Tools of other services are recorded by what comes of their calls; in replay none of them is asked or described."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge import Bridge
from mcpbridge.base.errors import ConfigError
from mcpbridge.engine.cassettes.cassette import Cassette
from mcpbridge.engine.cassettes.format import HEADER
from mcpbridge.protocol.jsonrpc import encode
from support.harness import python_server
from support.upstreams.scripted_http import Ask, http_server, reply

KEY = "key-of-the-service-0123"
DOCUMENT = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{name}": {
            "get": {
                "operationId": "getPet",
                "parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": {"description": "ok"}},
            }
        }
    },
}


async def pets(ask: Ask) -> bytes:
    """A service that repeats the key that it was given."""
    if ask.path.endswith("openapi.json"):
        return reply(DOCUMENT)
    if ask.path.endswith("none"):
        return reply({"error": "no such pet"}, 404)
    if ask.path.endswith("search"):
        return reply(
            {"query": "tea", "results": [{"url": "https://example.com/tea", "title": "Tea", "content": "Tea."}]}
        )
    return reply({"name": ask.path.rsplit("/", 1)[-1], "key": ask.headers.get("x-key", "")})


def local(word: str) -> str:
    """A function of the program."""
    return f"local {word}"


def config(url: str) -> dict[str, Any]:
    headers = {"X-Key": "${PETS_KEY}"}
    return {
        "tools": {
            "pet": {"endpoint": f"{url}/pets/{{name}}", "headers": headers},
            "pets": {"openapi": f"{url}/openapi.json", "base_url": url, "headers": headers},
        },
        "builtin": {"enable": ["web-search"], "web_search": {"api_key": "${PETS_KEY:-no-key}", "url": url}},
        "servers": {"plain": python_server("plain")},
    }


async def program(bridge: Bridge) -> list[Any]:
    made: list[Any] = [[tool.definition for tool in await bridge.list_tools()]]
    for name, arguments in (
        ("tools/pet", {"name": "Rex"}),
        ("tools/pet", {"name": "none"}),
        ("pets/getPet", {"name": "Tom"}),
        ("builtin/web-search", {"query": "tea"}),
        ("tools/local", {"word": "word"}),
        ("plain/echo", {"text": "hi"}),
    ):
        result = await bridge.call_tool(name, arguments)
        made.append([result.text.replace(KEY, "[redacted]"), result.is_error])
    return made


async def test_services_are_recorded_and_not_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    made: list[list[Any]] = []
    async with http_server(pets) as server:
        settings = config(server.url)
        for name in (path, tmp_path / "y.jsonl"):
            with anyio.fail_after(60):
                async with Bridge.open(settings, tools=[local], cassette=name, environ={"PETS_KEY": KEY}) as bridge:
                    assert await bridge.settled(30)
                    made.append(await program(bridge))
        asked = len(server.asks)
    assert path.read_bytes() == (tmp_path / "y.jsonl").read_bytes()
    assert KEY not in path.read_text()
    assert "local" not in path.read_text(), "functions of the program run for real"
    tape = Cassette(path)
    with anyio.fail_after(60):
        async with Bridge.open(settings, tools=[local], cassette=tape, environ={}) as bridge:  # no key, no service
            assert await bridge.settled(30)
            made.append(await program(bridge))
            missing = await bridge.call_tool("tools/pet", {"name": "Max"})
    assert made[0] == made[1] == made[2]
    assert made[0][2][1], "a status that tells of an error"
    assert missing.is_error
    assert '+    "name": "Max"' in missing.text
    assert len(tape.unmatched) == 1
    assert len(server.asks) == asked


@pytest.mark.parametrize("kind", ["tables", "file"])
async def test_a_built_in_tool_needs_no_key_in_replay(tmp_path: Path, kind: str) -> None:
    path, tables = tmp_path / "x.jsonl", {"enable": ["web-search"], "web_search": {"api_key": "${NO_SUCH_KEY}"}}
    line: dict[str, Any] = {
        "server": "builtin",
        "request": "tools/call",
        "params": {"name": "web-search", "arguments": {"query": "a"}},
    }
    line["result"] = {"content": [{"type": "text", "text": "found"}]}
    path.write_bytes(b"\n".join([HEADER, encode(line)]))
    (tmp_path / "servers.toml").write_text(
        '[builtin]\nenable = ["web-search"]\n[builtin.web_search]\napi_key = "${NO_SUCH_KEY}"\n'
    )
    settings = {"builtin": tables} if kind == "tables" else tmp_path / "servers.toml"
    with anyio.fail_after(60):
        async with Bridge.open(settings, cassette=path, environ={}) as bridge:
            assert (await bridge.call_tool("builtin/web-search", {"query": "a"})).text == "found"
    with pytest.raises(ConfigError, match=r"missing variable \$\{NO_SUCH_KEY\}"):
        Bridge.open(settings, cassette=tmp_path / "new.jsonl", environ={})
