"""Taking an address, and stopping gently."""

import asyncio
import json
import socket
from typing import Any

import httpx2
import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.http.app import HttpFront
from mcpbridge.downstream.http.server import bind_port
from mcpbridge.downstream.settings import HttpSettings
from support.http_front import ScriptedBridge, ScriptedCore, events, modern_body, modern_headers, request, said, serving


def enter(host: str, port: int) -> None:
    with bind_port(HttpSettings(), host=host, port=port):
        raise AssertionError("not reached")


def test_a_port_in_use_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: the port is in use\n  .*another port"):
            enter("127.0.0.1", port)


@pytest.mark.parametrize("host", ["198.51.100.7", "no.such.host.invalid"])
def test_an_address_that_is_not_ours_is_explained(host: str) -> None:
    with pytest.raises(ConfigError, match=host.replace(".", r"\.")):
        enter(host, 0)


async def test_an_address_that_others_can_reach_needs_a_token_or_a_clear_word() -> None:
    with pytest.raises(ConfigError, match="no token is configured"):
        enter("0.0.0.0", 0)
    async with serving(host="0.0.0.0", token="t") as http:
        assert (await http.post(request("ping"))).status_code == 401
    async with serving(host="0.0.0.0", no_auth=True) as http:
        assert (await http.client.get(http.root + "/healthz")).status_code == 200


async def test_the_url_names_the_real_port_and_path() -> None:
    async with serving(HttpSettings(path="/tools")) as http:
        assert http.url.endswith("/tools")
        assert ":0/" not in http.url
        assert (await http.client.get(http.url.replace("/tools", "/healthz"))).status_code == 200


async def test_stopping_lets_an_open_request_finish_and_ends_what_would_never_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpbridge.downstream.http.server._DRAIN", 60.0)  # neither runs out here
    monkeypatch.setattr("mcpbridge.downstream.http.server._LAST_MOMENT", 60.0)
    async with serving() as http:
        session = await http.session()
        call = asyncio.create_task(http.post(request("hold"), **session))
        await http.core.held.get()
        listen = asyncio.create_task(
            http.post(modern_body("subscriptions/listen", 9), **modern_headers("subscriptions/listen", {}))
        )
        await http.core.held.get()
        async with http.stream("GET", **session) as channel:
            http.front.cancel()
            assert await http.core.cancelled.get() == "9"
            assert events((await listen).text) == [("", said(0).decode())]
            assert await channel.aread() == b""
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as another:
            with pytest.raises(httpx2.ConnectError):
                await another.get(http.root + "/healthz")
        assert http.core.closed == []
        http.core.release.set()
        assert (await call).json()["result"] == {}
        with pytest.raises(asyncio.CancelledError):
            await http.front
        assert http.core.closed == http.core.clients


async def test_what_does_not_finish_in_time_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.downstream.http.server._DRAIN", 0.05)
    monkeypatch.setattr("mcpbridge.downstream.http.server._LAST_MOMENT", 60.0)
    async with serving() as http:
        call = asyncio.create_task(http.post(request("hold", 3), **await http.session()))
        await http.core.held.get()
        http.front.cancel()
        assert await http.core.cancelled.get() == "3"
        assert (await call).status_code == 502
        assert (await call).json()["error"]["message"].startswith("outcome unknown")


@pytest.mark.parametrize("end", ["the bridge stops", "the session ends"])
async def test_a_stream_whose_call_is_cut_ends_with_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("mcpbridge.downstream.http.server._DRAIN", 0.05)
    monkeypatch.setattr("mcpbridge.downstream.http.server._LAST_MOMENT", 60.0)
    async with serving() as http:
        call = asyncio.create_task(http.post(request("tell", 3), **await http.session()))
        await http.core.held.get()
        if end == "the bridge stops":
            http.front.cancel()
        else:
            http.core.clients[0].hang_up("another bridge has it now")
        *_, last = [line[5:] for line in (await call).text.splitlines() if line.startswith("data:")]
        assert json.loads(last)["id"] == 3
        assert json.loads(last)["error"]["message"].startswith("outcome unknown")


async def test_headers_without_end_are_refused_before_they_fill_the_memory() -> None:
    async with serving() as http:
        reader, writer = await connect(http.root)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        await writer.drain()
        try:
            while not reader.at_eof() and not reader._buffer:
                writer.write(b"X-More: and more\r\n" * 1000)
                await writer.drain()
                await asyncio.sleep(0)
            assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
        except ConnectionError:
            pass  # closed in the middle of our writing: just as well
        finally:
            writer.close()
        assert (await http.client.get(http.root + "/healthz")).status_code == 200


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: loc"])
async def test_headers_that_do_not_come_are_given_up(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.downstream.http.connection._HEAD_SECONDS", 0.05)
    async with serving() as http:
        opened = socket.create_connection(("127.0.0.1", port_of(http.root)))
        opened.sendall(begun)  # before the front can take it: what came after its answer would be told by a reset
        reader, writer = await asyncio.open_connection(sock=opened)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()
        await writer.wait_closed()


async def test_under_another_asgi_server_it_starts_and_stops_and_has_no_websocket() -> None:
    core = ScriptedCore()
    app = HttpFront(ScriptedBridge(core), HttpSettings(), Authenticator([]))
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> dict[str, str]:
        return {"type": coming.pop(0)}

    coming = ["lifespan.startup", "lifespan.shutdown"]
    await app({"type": "lifespan"}, receive, send)
    await app({"type": "websocket"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


async def connect(root: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port_of(root))


def port_of(root: str) -> int:
    return int(root.rpartition(":")[2])
