"""Who is let in over HTTP without any configuration: this user, by the token of this user."""

import asyncio
import json
import os
import pty
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from support.harness import Command, Place, python_server
from support.http_front import request

SERVERS = {"one": python_server("plain")}
ACCEPT = {"accept": "application/json, text/event-stream"}
OPENING = request(
    "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "raw", "version": "1"}
)


def token_file(place: Place) -> Path:
    return place.folder / ".local/state/mcpbridge/http-token"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@asynccontextmanager
async def served(place: Place, *more: str) -> AsyncIterator[tuple[str, Command]]:
    """`serve --http` with nothing configured about access; its address."""
    config = str(place.config(SERVERS))
    async with place.started("serve", "--config", config, "--http", "127.0.0.1:0", *more) as command:
        found = await command.logged(r"http://127\.0\.0\.1:[1-9]\d*")
        yield found[0], command


async def status_of(url: str, **headers: str) -> int:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        return (await client.post(f"{url}/mcp", json=OPENING, headers=ACCEPT | headers)).status_code


async def test_the_token_of_this_user_is_asked_for_by_default(place: Place) -> None:
    """Promise of the bridge: neither another user of this machine nor a web page can call a tool."""
    async with served(place) as (url, command):
        token = token_file(place).read_text().strip()
        assert stat.S_IMODE(token_file(place).stat().st_mode) == 0o600
        assert await status_of(url) == 401
        assert await status_of(url, **bearer(token)) == 200
        for wrong in (token[:-1], token + "x", token.swapcase(), "x", f"{token} {token}"):
            assert await status_of(url, **bearer(wrong)) == 401
        assert await status_of(url, authorization=token) == 401
        assert await status_of(url, authorization=f"Basic {token}") == 401
        assert await status_of(f"{url}/mcp?token={token}") == 401
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            for path in ("/mcp", "/sse", "/ws", "/servers/one/mcp", "/readyz", "/metrics", "/api/tools", "/nothing"):
                assert (await client.get(url + path)).status_code == 401, path
            assert (await client.get(f"{url}/healthz")).status_code == 200
            refused = (await client.get(f"{url}/mcp")).json()["error"]["message"]
            assert "mcpbridge status" in refused
            assert token not in refused
        with pytest.raises(InvalidStatus) as closed:
            async with connect(f"{url.replace('http', 'ws')}/ws", proxy=None):
                pass
        assert closed.value.response.status_code == 401
        async with connect(f"{url.replace('http', 'ws')}/ws", proxy=None, additional_headers=bearer(token)) as web:
            await web.send(json.dumps(OPENING))
            assert "result" in json.loads(await web.recv())
    assert token not in "\n".join(command.log)
    assert str(token_file(place)) in "\n".join(command.log)


async def test_status_names_the_file_and_never_the_token(place: Place) -> None:
    async with served(place):
        shown = (await place.run("status")).out + (await place.run("status", "--json")).out
        assert f"HTTP clients send the token in {token_file(place)}" in shown
        assert token_file(place).read_text().strip() not in shown


async def test_it_stays_the_same_over_restarts(place: Place) -> None:
    async with served(place):
        first = token_file(place).read_text().strip()
    async with served(place) as (url, _):
        assert await status_of(url, **bearer(first)) == 200


async def test_where_another_token_is_asked_for_this_one_is_not_made(place: Place) -> None:
    place.env["THE_TOKEN"] = "a-token-of-the-test"
    async with served(place, "--token-env", "THE_TOKEN") as (url, _):
        assert await status_of(url) == 401
        assert await status_of(url, **bearer("a-token-of-the-test")) == 200
        assert not token_file(place).exists()


async def test_no_auth_lets_everybody_in_and_says_so(place: Place) -> None:
    async with served(place, "--no-auth") as (url, command):
        assert await status_of(url) == 200
        assert not token_file(place).exists()
        said = next(line for line in command.log if "--no-auth" in line)
        assert "Every user and every program of this machine" in said
        assert "call every tool" in said
        assert "\x1b" not in said, "nobody reads colours in a pipe"


async def test_a_person_reads_that_in_red(place: Place) -> None:
    config = str(place.config(SERVERS))
    ours, theirs = pty.openpty()
    line = ["-m", "mcpbridge", "serve", "--config", config, "--http", "127.0.0.1:0", "--no-auth"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *line),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=theirs,
        cwd=place.folder,
        env=place.environment(),
    )
    os.close(theirs)
    try:
        shown = b""
        async with asyncio.timeout(30):
            while b"every tool" not in shown:
                shown += await asyncio.to_thread(os.read, ours, 4096)
        assert b"\x1b[31m" in shown
    finally:
        process.terminate()
        await process.wait()
        os.close(ours)


async def test_with_configured_tokens_no_auth_opens_nothing(place: Place) -> None:
    tokens = [{"name": "me", "sha256": "0" * 64}]
    config = str(place.config(SERVERS, http={"tokens": tokens}))
    async with place.started("serve", "--config", config, "--http", "127.0.0.1:0", "--no-auth") as command:
        found = await command.logged(r"http://127\.0\.0\.1:[1-9]\d*")
        assert await status_of(found[0]) == 401
        assert not [line for line in command.log if "--no-auth" in line]


async def test_a_file_that_others_can_read_keeps_the_bridge_from_starting(place: Place) -> None:
    token_file(place).parent.mkdir(parents=True)
    token_file(place).write_text("k" * 60)
    token_file(place).chmod(0o644)
    finished = await place.run("serve", "--config", str(place.config(SERVERS)), "--http", "127.0.0.1:0")
    assert finished.code == 2
    assert str(token_file(place)) in finished.err
    assert "Remove it" in finished.err


async def test_an_address_that_others_reach_needs_a_token_that_somebody_chose(place: Place) -> None:
    finished = await place.run("serve", "--config", str(place.config(SERVERS)), "--http", "0.0.0.0:0")
    assert finished.code == 2
    assert "no token is set" in finished.err
    assert not token_file(place).exists()


async def test_a_socket_in_the_file_system_needs_none(place: Place) -> None:
    path = Path(place.environment()["XDG_RUNTIME_DIR"]) / "front.sock"
    async with place.started("serve", "--config", str(place.config(SERVERS)), "--http", f"unix:{path}") as command:
        await command.logged("listening")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"401" not in await asyncio.to_thread(client.recv, 100)
        assert not token_file(place).exists()
    path.unlink(missing_ok=True)
