"""`mcpbridge serve` as a process on the fronts that are neither plain stdio nor a port."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import websockets
from websockets.asyncio.client import connect

from support.harness import Place, eventually, python_server
from support.rpc import StdioClient

SERVERS = {"one": python_server("plain"), "rich": python_server("rich")}
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Unix-domain sockets")


@asynccontextmanager
async def one_server(place: Place, name: str) -> AsyncIterator[StdioClient]:
    """`mcpbridge serve --server NAME`, and a client."""
    async with place.started("serve", "--config", str(place.config(SERVERS)), "--server", name) as command:
        assert command.process.stdin
        assert command.process.stdout
        client = StdioClient(command.process.stdout, command.process.stdin, command)
        async with client.reading():
            yield client


async def test_one_server_is_served_alone_by_its_own_names(place: Place) -> None:
    async with one_server(place, "rich") as client:
        await client.initialize()
        assert "echo" in await client.tools_with("echo")
        assert (await client.call("echo", text="hi")).text == "hi"
        found = await place.run("status", "--json")
        [status] = json.loads(found.out)["bridges"]
        assert [server["name"] for server in status["servers"]] == ["rich"], "the others are not started"
        assert status["front"] == "stdio (rich)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--server", "rcih"], "Known: one, rich"),
        (["--server", "rich", "--http"], "/servers/rich/mcp"),
        (["--http", "unix:"], "or unix:PATH"),
    ],
)
async def test_what_cannot_be_served_says_why(place: Place, arguments: list[str], said: str) -> None:
    finished = await place.run("serve", "--config", str(place.config(SERVERS)), *arguments)
    assert finished.code == 2
    assert said in finished.err


async def test_a_socket_in_the_file_system_is_shown_and_removed(place: Place) -> None:
    path = Path(f"/tmp/mcpb-front-{os.getpid()}.sock")
    config = str(place.config(SERVERS))
    async with place.started("serve", "--config", config, "--http", f"unix:{path}") as command:
        await command.logged(rf"unix:{path}")
        async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(path)), timeout=10) as client:
            assert (await client.get("http://bridge/healthz")).json() == {"status": "ok"}
            assert (await client.post("http://bridge/mcp", json=OPENING)).status_code == 200
        [status] = json.loads((await place.run("status", "--json")).out)["bridges"]
        assert status["front"] == f"unix:{path}"
        taken = await place.run("serve", "--config", config, "--http", f"unix:{path}")
        assert taken.code == 2
        assert "another program listens" in taken.err
    assert not path.exists()


async def test_web_sockets_are_served_on_the_same_port(place: Place) -> None:
    async with place.http_bridge(SERVERS) as client:
        url = client.url.replace("http", "ws", 1).replace("/mcp", "/servers/rich/ws")
        async with connect(url, subprotocols=[websockets.Subprotocol("mcp")], proxy=None) as socket:
            await socket.send(json.dumps(OPENING))
            assert json.loads(await socket.recv())["result"]["protocolVersion"] == "2025-11-25"


def test_what_only_some_clients_need_is_not_loaded_for_the_others() -> None:
    """Start-up time: `websockets` is loaded for the first client that speaks it."""
    code = "import sys, mcpbridge.downstream.http.server, mcpbridge.library.bridge; print('websockets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("alone", ["1", "0"])
async def test_a_client_does_not_run_what_stands_in_the_directory_that_it_is_opened_in(
    place: Place, alone: str
) -> None:
    """A cloned repository may have a `servers.toml`; the bridge is started in it, and nobody was asked."""
    place.env["MCPBRIDGE_STANDALONE"] = alone
    place.config({"evil": {"command": "sh", "args": ["-c", "touch owned"]}})
    finished = await place.run("serve")
    assert finished.code == 2
    assert f"mcpbridge trust {place.folder / 'servers.toml'}" in finished.err
    assert f"--config {place.folder / 'servers.toml'}" in finished.err
    assert not (place.folder / "owned").exists()


@pytest.mark.parametrize("alone", ["1", "0"])
async def test_a_client_is_answered_why_the_bridge_cannot_start(place: Place, alone: str) -> None:
    """It shows that to people; what stands on standard error few see."""
    place.env["MCPBRIDGE_STANDALONE"] = alone
    (place.folder / "servers.toml").write_text("[servers.x]\ncomand = 'x'\n")
    asked = b'{"jsonrpc":"2.0","method":"notifications/x"}\n'
    asked += b'{"jsonrpc":"2.0","id":"a\\u0020b","method":"initialize","params":{}}\n'
    its, ours = os.pipe()
    os.write(ours, asked)  # before it runs: it waits for that, but not for long
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcpbridge", "serve", "--config", "servers.toml"),
            stdin=its,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=place.folder,
            env=place.environment(),
        )
        async with asyncio.timeout(60):
            said, told = await process.communicate()
        assert process.returncode == 2, told.decode()
        [answer] = map(json.loads, said.splitlines())
        assert answer["id"] == "a b"
        assert "servers.toml:2" in answer["error"]["message"]
        assert "`command`" in answer["error"]["message"]

        async def left() -> dict[int, str]:
            return place.survivors()

        assert await eventually(left, lambda found: not found) == {}  # a daemon that could not start ends by itself
    finally:
        os.close(its)
        os.close(ours)
        place.kill_survivors()
