"""The HTTP front on a Unix-domain socket: whose it is, what it replaces, and what is left of it."""

import os
import socket
import stat
from pathlib import Path

import httpx2
import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.downstream.http.server import listen_at_path
from mcpbridge.downstream.settings import HttpSettings
from support.front_clients import http_server
from support.http_front import JSON, ScriptedBridge, ScriptedCore, request

OPENING = request("initialize", protocolVersion="2025-06-18")


def client_of(path: Path) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(path)), headers=JSON, timeout=30)


async def test_only_this_user_can_open_it_and_nobody_needs_a_token(tmp_path: Path) -> None:
    async with http_server(ScriptedBridge(ScriptedCore()), HttpSettings(), tmp_path):
        path = tmp_path / "front.sock"
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        async with client_of(path) as client:
            assert (await client.post("http://any.name/mcp", json=OPENING)).status_code == 200
    assert list(tmp_path.iterdir()) == []


async def test_a_token_that_is_configured_is_asked_for_there_too(tmp_path: Path) -> None:
    """A proxy may stand in front of it."""
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings(), tmp_path, token="s3cret"),
        client_of(tmp_path / "front.sock") as client,
    ):
        assert (await client.post("http://x/mcp", json=OPENING)).status_code == 401


async def test_a_page_of_a_foreign_origin_is_refused_there_too(tmp_path: Path) -> None:
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings(), tmp_path),
        client_of(tmp_path / "front.sock") as client,
    ):
        answer = await client.post("http://x/mcp", json=OPENING, headers={"origin": "https://evil.example"})
        assert answer.status_code == 403


async def test_hosts_that_are_configured_are_the_only_ones(tmp_path: Path) -> None:
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings(allowed_hosts=["mcp.example"]), tmp_path),
        client_of(tmp_path / "front.sock") as client,
    ):
        assert (await client.post("http://other.example/mcp", json=OPENING)).status_code == 421
        assert (await client.post("http://mcp.example/mcp", json=OPENING)).status_code == 200


def test_the_socket_of_a_dead_bridge_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with listen_at_path(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    assert not path.exists()


def test_the_socket_of_a_living_program_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen_at_path(path):
        with pytest.raises(ConfigError, match="another program listens"), listen_at_path(path):
            pass
        assert path.exists()


@pytest.mark.parametrize("kind", ["busy", "of another kind"])
def test_only_a_program_that_is_gone_is_replaced(tmp_path: Path, kind: str) -> None:
    """Not one that is too busy to take us, and not one that may be asked by its own user only."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if kind == "busy" else socket.SOCK_DGRAM) as living:
        living.bind(str(path))
        waiting: list[socket.socket] = []
        if kind == "busy":
            living.listen(0)
            for _ in range(2):
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(str(path))
        with pytest.raises(ConfigError, match="another program listens"), listen_at_path(path):
            pass
        assert path.exists()
        for client in waiting:
            client.close()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="is no socket"), listen_at_path(path):
        pass
    assert path.read_text() == "precious"


def test_a_later_bridges_socket_outlives_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen_at_path(path) as first:
        first.close()  # it died; somebody else takes its place before it is cleaned up
        with listen_at_path(path):
            later = path.lstat().st_ino
            os.utime(tmp_path)
            assert path.lstat().st_ino == later
    assert not path.exists()


@pytest.mark.parametrize(
    ("path", "said"), [("/nowhere/at/all.sock", "cannot listen on"), ("/tmp/" + "x" * 120, "must be short")]
)
def test_a_path_that_cannot_be_had_says_why(path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said), listen_at_path(Path(path)):
        pass
