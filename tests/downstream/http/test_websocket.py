"""The WebSocket front on a real socket: handshakes, frames, clients that do not read or have gone, and its end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.frames import Opcode

from mcpbridge.downstream import conversation
from mcpbridge.downstream.http import websocket
from mcpbridge.downstream.settings import HttpSettings
from support.front_clients import http_server
from support.http_front import ScriptedBridge, ScriptedCore, request

MCP = websockets.Subprotocol("mcp")
OPENING = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}


@asynccontextmanager
async def connected(
    core: ScriptedCore, settings: HttpSettings | None = None, **options: object
) -> AsyncIterator[ClientConnection]:
    """A client of the front, past the handshake of both protocols."""
    async with http_server(ScriptedBridge(core), settings or HttpSettings()) as at, asyncio.timeout(15):
        url = at.origin.replace("http", "ws", 1) + "/ws"
        how = {"subprotocols": [MCP], "proxy": None, "close_timeout": 1} | options
        async with connect(url, **how) as socket:
            await ask(socket, OPENING)
            yield socket


async def ask(socket: ClientConnection, message: object) -> dict[str, object]:
    await socket.send(json.dumps(message))
    return json.loads(await socket.recv())


async def test_the_subprotocol_is_agreed_on_and_nothing_is_compressed() -> None:
    """On loopback, deflating big JSON costs more than it saves."""
    async with connected(ScriptedCore()) as socket:
        assert socket.subprotocol == "mcp"
        assert socket.protocol.extensions == []
        assert (await ask(socket, request("echo", 1, a=1)))["result"] == {"a": 1}


async def test_a_client_that_names_no_subprotocol_is_let_in() -> None:
    async with connected(ScriptedCore(), subprotocols=None) as socket:
        assert socket.subprotocol is None
        assert (await ask(socket, request("echo", 1)))["id"] == 1


@pytest.mark.parametrize(
    ("path", "options", "status", "said"),
    [
        ("/ws", {"subprotocols": [websockets.Subprotocol("graphql-ws")]}, 400, "subprotocol"),
        ("/mcp", {}, 400, "No WebSocket is served at /mcp"),
        ("/nowhere", {}, 404, "Nothing is here"),
        ("/servers/files/ws", {}, 101, ""),
        ("/servers/nobody/ws", {}, 404, "known: files, mail"),
    ],
)
async def test_handshakes_that_are_refused_say_why(
    path: str, options: dict[str, object], status: int, said: str
) -> None:
    async with http_server(ScriptedBridge(ScriptedCore()), HttpSettings()) as at:
        url = at.origin.replace("http", "ws", 1) + path
        if status == 101:
            async with connect(url, proxy=None, **options):
                return
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with connect(url, proxy=None, **options):
                raise AssertionError("it was let in")
        assert refused.value.response.status_code == status
        assert said in json.loads(bytes(refused.value.response.body))["error"]["message"]


async def test_a_plain_request_is_told_to_upgrade() -> None:
    async with (
        http_server(ScriptedBridge(ScriptedCore()), HttpSettings()) as at,
        httpx2.AsyncClient(trust_env=False, timeout=60) as client,
    ):
        response = await client.get(at.origin + "/ws")
        assert response.status_code == 426
        assert response.headers["upgrade"] == "websocket"


async def test_the_front_can_be_turned_off() -> None:
    async with http_server(ScriptedBridge(ScriptedCore()), HttpSettings(websocket=False)) as at:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with connect(at.origin.replace("http", "ws", 1) + "/ws", proxy=None):
                pass
        assert refused.value.response.status_code == 404


async def test_requests_over_plain_http_go_on_beside_it() -> None:
    async with connected(ScriptedCore()) as socket:
        host, port = socket.remote_address[:2]
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            response = await client.post(f"http://{host}:{port}/mcp", json=OPENING)
            assert response.status_code == 200
        assert (await ask(socket, request("echo", 1)))["id"] == 1


async def test_a_message_may_come_in_pieces() -> None:
    async with connected(ScriptedCore()) as socket:
        whole = json.dumps(request("echo", 1, text="ä" * 1000), ensure_ascii=False)
        await socket.send(whole[start : start + 100] for start in range(0, len(whole), 100))
        assert json.loads(await socket.recv())["result"] == {"text": "ä" * 1000}


async def test_line_breaks_inside_a_message_do_not_matter() -> None:
    async with connected(ScriptedCore()) as socket:
        await socket.send(json.dumps(request("echo", 1, a=1), indent=2))
        assert json.loads(await socket.recv())["result"] == {"a": 1}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"binary", 1003),
        ("x" * 5000, 1009),
        ("x" * 500_000, 1009),
    ],
    ids=["a binary frame", "more than http.max_body", "far more"],
)
async def test_what_cannot_be_read_closes_the_connection_with_the_code_for_it(message: str | bytes, code: int) -> None:
    """RFC 6455, section 7.4.1."""
    core = ScriptedCore()
    async with connected(core, HttpSettings(max_body=4096)) as socket:
        sending = asyncio.create_task(socket.send(message))
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == code
        await asyncio.gather(sending, return_exceptions=True)
        await gone(core)


async def test_text_that_is_no_utf_8_closes_the_connection() -> None:
    async with connected(ScriptedCore()) as socket:
        await socket.send(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', text=True)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1007


async def test_a_ping_that_is_never_answered_ends_the_session() -> None:
    """Issue 3: a WebSocket ping that is never answered."""
    core = ScriptedCore()
    async with connected(core, HttpSettings(keep_alive=0.05)) as socket:
        await socket.send(json.dumps(request("hold", 5)))
        await core.held.get()
        socket.transport.pause_reading()  # so it sees no ping, and answers none
        async with asyncio.timeout(30):
            assert await core.cancelled.get() == "5"
        await gone(core)


async def test_a_client_that_answers_pings_stays() -> None:
    core = ScriptedCore()
    async with connected(core, HttpSettings(keep_alive=0.02)) as socket:
        await socket.send(json.dumps(request("hold", 5)))
        await core.held.get()
        pings = 0
        take = socket.protocol.recv_frame

        def count(frame: websockets.frames.Frame) -> None:
            nonlocal pings
            pings += frame.opcode is Opcode.PING
            take(frame)

        socket.protocol.recv_frame = count  # type: ignore[method-assign]
        async with asyncio.timeout(30):
            while pings < 5:
                await asyncio.sleep(0.01)
        core.release.set()
        assert json.loads(await socket.recv())["id"] == 5


async def test_closing_cancels_what_is_under_way() -> None:
    core = ScriptedCore()
    async with connected(core, close_timeout=30) as socket:
        await socket.send(json.dumps(request("hold", 5)))
        await core.held.get()
        await socket.close()
        assert socket.close_code == 1000
        async with asyncio.timeout(30):
            assert await core.cancelled.get() == "5"
        await gone(core)


async def test_notifications_to_a_client_that_does_not_read_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "PUSH_LIMIT", 200_000)
    core = ScriptedCore()
    async with connected(core, max_queue=1) as socket:
        await socket.send(json.dumps(request("hold", 5)))
        notify = await core.held.get()
        socket.transport.pause_reading()
        big = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"t":"%b"}}' % (b"x" * 100_000)
        with anyio.fail_after(30):
            while notify(big) is not False:
                await asyncio.sleep(0)
        socket.transport.resume_reading()
        core.release.set()
        while "id" not in (message := json.loads(await socket.recv())):
            pass
        assert message["id"] == 5


async def test_when_the_bridge_stops_open_requests_finish_and_the_client_is_told() -> None:
    """RFC 6455: 1001, going away."""
    core = ScriptedCore()
    async with (
        http_server(ScriptedBridge(core), HttpSettings()) as at,
        asyncio.timeout(15),
        connect(at.origin.replace("http", "ws", 1) + "/ws", proxy=None) as socket,
    ):
        await ask(socket, OPENING)
        await socket.send(json.dumps(request("hold", 5)))
        await core.held.get()
        at.serving.cancel()
        await asyncio.sleep(0)
        core.release.set()
        assert json.loads(await socket.recv())["id"] == 5
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        await asyncio.wait([at.serving])


async def test_no_more_is_read_from_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is lost: once it reads, every request is answered."""
    monkeypatch.setattr(websocket, "READ_LIMIT", 1_000_000)
    core = ScriptedCore()
    async with connected(core, HttpSettings(keep_alive=5), max_queue=1) as socket:
        socket.transport.pause_reading()
        text = "x" * 500_000
        sending = asyncio.create_task(send_all(socket, [json.dumps(request("echo", n, t=text)) for n in range(60)]))
        _, waiting = await asyncio.wait([sending], timeout=0.5)
        assert waiting, "everything was taken"
        assert len(core.asked) < 50, "it was read on and on"
        socket.transport.resume_reading()
        answers = [json.loads(await socket.recv())["id"] for _ in range(60)]
        assert sorted(answers) == list(range(60))


async def send_all(socket: ClientConnection, messages: list[str]) -> None:
    for message in messages:
        await socket.send(message)


async def test_an_upgrade_behind_a_request_that_is_not_answered_yet_closes_the_connection() -> None:
    """Its answer would come into the middle of the frames."""
    core = ScriptedCore()
    async with http_server(ScriptedBridge(core), HttpSettings()) as at, asyncio.timeout(10):
        host, _, port = at.origin.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(OPENING).encode()
        head = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        upgrade = b"GET /ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        writer.write(head % len(body) + body + upgrade)
        assert b"101" not in await reader.read()
        writer.close()


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "http://h"),
        ("GET", "http://[::1/ws"),
        ("GET", "*"),
        ("OPTIONS", "/ws"),
        ("POST", "/ws"),
        ("CONNECT", "example.com:80"),
    ],
)
async def test_what_cannot_open_a_websocket_is_refused_and_no_fault_of_the_bridge(method: str, target: str) -> None:
    """RFC 6455, section 4.1: GET and a path."""
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    async with http_server(ScriptedBridge(ScriptedCore()), HttpSettings()) as at, asyncio.timeout(10):
        host, _, port = at.origin.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 4")
        writer.close()
    assert not faults


async def gone(core: ScriptedCore) -> None:
    """Return when the session of the client is closed."""
    with anyio.fail_after(30):
        while core.closed != core.clients:
            await anyio.sleep(0.01)
