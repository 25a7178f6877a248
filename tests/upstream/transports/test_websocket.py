"""The WebSocket transport: its opening, its end, and what only it has. The rest is in the contract suite."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import websockets.asyncio.server
from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame as WsFrame
from websockets.frames import Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from mcpbridge.base.errors import BridgeError, ConfigError, UpstreamHttpError, UpstreamUnavailable
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.transport import Channel
from mcpbridge.upstream.transports.websocket import WebSocketTransport
from support.upstreams.scripted_http import Recorder, Spoiled, deaf_socket, request, tcp_server

Handler = Callable[[ServerConnection], Awaitable[None]]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """The bridge runs on either loop, and their clocks and transports differ."""
    return "asyncio", {"use_uvloop": request.param}


@asynccontextmanager
async def ws_server(handler: Handler, **options: Any) -> AsyncIterator[str]:
    options = {"subprotocols": ["mcp"], "compression": None, "close_timeout": 0.1, "max_size": None, **options}
    async with websockets.asyncio.server.serve(handler, "127.0.0.1", 0, **options) as serving:
        yield f"ws://127.0.0.1:{serving.sockets[0].getsockname()[1]}/mcp?tenant=1"


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[tuple[Channel, Recorder]]:
    got = Recorder()
    with anyio.fail_after(60):
        async with WebSocketTransport("up", url, **{"headers": {}, **options}).connect(got) as channel:
            yield channel, got


async def refusal(url: str, **options: Any) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        async with connected(url, **options):
            raise AssertionError("not reached")
    return caught.value


async def silent(connection: ServerConnection) -> None:
    await connection.wait_closed()


# -- the opening


async def test_the_opening_asks_for_the_subprotocol_with_the_configured_headers() -> None:
    seen: list[Request] = []

    def look(connection: ServerConnection, request: Request) -> None:
        seen.append(request)

    headers = {"Authorization": "Bearer t", "X-Name": "grün", "Sec-WebSocket-Version": "1", "User-Agent": "me"}
    async with ws_server(silent, process_request=look) as url, connected(url, headers=headers):
        pass
    (opening,) = seen
    assert opening.path == "/mcp?tenant=1"
    assert opening.headers["Authorization"] == "Bearer t"
    assert opening.headers["X-Name"].encode("latin-1").decode() == "grün"
    assert opening.headers["Sec-WebSocket-Protocol"] == "mcp"
    assert opening.headers.get_all("Sec-WebSocket-Version") == ["13"]
    assert opening.headers.get_all("User-Agent") == ["me"]
    assert "Sec-WebSocket-Extensions" not in opening.headers, "no compression is offered"


async def test_a_server_that_names_no_subprotocol_is_taken_for_one_of_ours() -> None:
    async with ws_server(silent, subprotocols=None) as url, connected(url) as (channel, _):
        channel.send(request(1))


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "HTTP 401 Unauthorized: who are you"), (403, "HTTP 403"), (404, "HTTP 404"), (503, "HTTP 503")],
)
async def test_a_refused_opening_says_why(status: int, said: str) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(status, "who are you, s3cret-token\n")

    async with ws_server(silent, process_request=refuse) as url:
        error = await refusal(url, headers={"Authorization": "Bearer s3cret-token"})
        assert isinstance(error, UpstreamHttpError)
        assert error.status == status
        assert said in error.what
        assert "s3cret" not in str(error)


async def test_an_address_that_is_no_websocket_says_so() -> None:
    def page(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(200, "welcome")

    async with ws_server(silent, process_request=page) as url:
        assert "instead of opening a WebSocket" in str(await refusal(url))

    async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-x\r\n")

    async with tcp_server(garble) as port:
        error = await refusal(f"ws://127.0.0.1:{port}")
        assert isinstance(error, UpstreamUnavailable)
        assert "does not speak WebSocket" in error.what


async def test_a_redirect_is_followed_on_its_origin_only() -> None:
    def redirect(connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/here":
            return None
        response = connection.respond(307, "")
        response.headers["Location"] = "/here" if "tenant" in request.path else "ws://localhost:1/there"
        return response

    async with ws_server(silent, process_request=redirect) as url:
        async with connected(url) as (channel, _):
            channel.send(request(1))
        error = await refusal(url.partition("?")[0])
        assert "it redirects to ws://localhost, which is not followed" in str(error)


async def test_what_cannot_be_reached_is_unavailable_and_says_why() -> None:
    with deaf_socket() as deaf:
        error = await refusal(f"ws://127.0.0.1:{deaf.getsockname()[1]}", connect_timeout=0.1)
        assert "within 0.1 s" in str(error)
    error = await refusal("ws://127.0.0.1:1")
    assert isinstance(error, UpstreamUnavailable)
    assert error.what == "connection refused: 127.0.0.1:1"
    assert isinstance(await refusal("ftp://x"), ConfigError)
    assert isinstance(await refusal("ws://x", headers={"a": "b\r\nc"}), ConfigError)


async def test_a_server_that_never_answers_the_opening_is_given_up() -> None:
    async with tcp_server(reads) as port:
        error = await refusal(f"ws://127.0.0.1:{port}", connect_timeout=0.1)
        assert "within 0.1 s" in str(error)


class Tokens:
    """An `Authorizer` with a token that is refused and another one."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.challenges: list[str] = []
        self.is_accepted = False

    @property
    def ready(self) -> str | None:
        return None

    async def token(self) -> str:
        return self.tokens[0]

    async def refused(self, used: str, status: int, challenge: str) -> bool:
        assert used == self.tokens.pop(0)
        self.challenges.append(challenge)
        return bool(self.tokens)

    def accepted(self) -> None:
        self.is_accepted = True


async def test_a_refused_token_is_replaced_and_the_opening_tried_again() -> None:
    def check(connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get_all("Authorization") == ["Bearer good"]:
            return None
        response = connection.respond(401, "")
        response.headers["WWW-Authenticate"] = 'Bearer resource_metadata="x"'
        return response

    async with ws_server(silent, process_request=check) as url:
        tokens = Tokens("stale", "good")
        async with connected(url, network=Network(authorizer=tokens)) as (channel, _):
            channel.send(request(1))
        assert tokens.challenges == ['Bearer resource_metadata="x"']
        assert tokens.is_accepted
        error = await refusal(url, network=Network(authorizer=Tokens("stale")))
        assert isinstance(error, UpstreamHttpError)
        assert error.status == 401


# -- messages


async def test_fragments_and_binary_frames_are_messages_too() -> None:
    async def fragments(connection: ServerConnection) -> None:
        await connection.send([b'{"jsonrpc":"2.0",', b'"id":1,', b'"result":{}}'], text=True)
        await connection.send(b'{"jsonrpc":"2.0","id":2,"result":{}}')
        await connection.send('{\n "jsonrpc": "2.0",\n "id": 3,\n "result": {}\n}')
        await connection.send("Internal Server Error")
        await connection.wait_closed()

    async with ws_server(fragments) as url, connected(url) as (_, got):
        for id_ in (b"1", b"2", b"3"):
            assert isinstance(await got.outcome(id_), Frame)
        await got.until(lambda got: got.spoils)
        assert got.spoils == [Spoiled([], "no JSON-RPC message: 'Internal Server Error'", b"")]


async def test_fragments_that_are_too_large_together_fail_their_request_only() -> None:
    async def fragments(connection: ServerConnection) -> None:
        parts = [b'{"jsonrpc":"2.0","id":1,"result":{"x":"', *[b"y" * 1000] * 200, b'"}}']
        await connection.send(parts, text=True)
        await connection.send('{"jsonrpc":"2.0","id":2,"result":{}}')
        await connection.wait_closed()

    async with ws_server(fragments) as url, connected(url, max_bytes=100_000) as (_, got):
        assert isinstance(await got.outcome(b"1"), Spoiled)
        assert isinstance(await got.outcome(b"2"), Frame)
        assert not got.closings


async def test_nothing_of_the_traffic_is_logged_by_the_library(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    quiet, headers = logging.Logger("quiet", 100), {"Authorization": "Bearer s3cret-token"}
    async with ws_server(silent, logger=quiet) as url, connected(url, headers=headers) as (channel, _):
        channel.send(request(1))
    assert "s3cret" not in caplog.text
    assert "tools/call" not in caplog.text


# -- the end


@pytest.mark.parametrize(
    ("code", "reason", "told"),
    [
        (1000, "", "it closed the connection with 1000 (normal closure)"),
        (1011, "out of\nmemory", "it closed the connection with 1011 (internal error): out of memory"),
        (1008, "", "it closed the connection with 1008 (policy violation)"),
        (4001, "bye", "it closed the connection with 4001: bye"),
    ],
)
async def test_the_close_code_is_named(code: int, reason: str, told: str) -> None:
    async def close(connection: ServerConnection) -> None:
        await connection.send('{"jsonrpc":"2.0","id":1,"result":{}}')
        await connection.close(code, reason)

    async with ws_server(close) as url, connected(url) as (_, got):
        await got.until(lambda got: got.closings)
        assert got.closings == [told]
        assert len(got.messages) == 1, "what was said before counts"


async def test_a_connection_that_is_cut_is_told() -> None:
    async def cut(connection: ServerConnection) -> None:
        connection.transport.abort()

    async with ws_server(cut) as url, connected(url) as (_, got):
        await got.until(lambda got: got.closings)
        assert got.closings[0].startswith("the connection was cut")


@asynccontextmanager
async def raw_server(
    after: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], early: bytes = b""
) -> AsyncIterator[str]:
    """Opens a WebSocket, and leaves everything after that to `after`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerProtocol(subprotocols=["mcp"])  # type: ignore[list-item]
        protocol.receive_data(await reader.readuntil(b"\r\n\r\n"))
        (opening,) = protocol.events_received()
        assert isinstance(opening, Request)
        protocol.send_response(protocol.accept(opening))
        writer.write(b"".join(protocol.data_to_send()) + early)
        await after(reader, writer)

    async with tcp_server(serve) as port:
        yield f"ws://127.0.0.1:{port}"


async def reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        pass


async def test_a_ping_that_is_never_answered_ends_the_connection() -> None:
    async with raw_server(reads) as url, connected(url, ping_seconds=0.02, pong_seconds=0.1) as (_, got):
        await got.until(lambda got: got.closings)
        assert got.closings == ["a ping was not answered within 0.1 s"]


async def test_a_server_that_answers_pings_lives() -> None:
    pings = asyncio.Event()
    count = 0

    class Counting(ServerConnection):
        def process_event(self, event: Any) -> None:
            nonlocal count
            count += event.opcode is Opcode.PING if isinstance(event, WsFrame) else 0
            if count >= 3:
                pings.set()
            super().process_event(event)

    quick = {"ping_seconds": 0.02, "pong_seconds": 5}
    async with ws_server(silent, create_connection=Counting) as url, connected(url, **quick) as (_, got):
        await pings.wait()
        assert not got.closings


async def test_pings_of_the_server_are_answered() -> None:
    answered = asyncio.Event()

    async def ping(connection: ServerConnection) -> None:
        await (await connection.ping())
        answered.set()
        await connection.wait_closed()

    async with ws_server(ping) as url, connected(url):
        await answered.wait()


async def test_a_message_that_comes_with_the_opening_is_not_lost() -> None:
    early = WsFrame(Opcode.TEXT, b'{"jsonrpc":"2.0","id":1,"result":{}}').serialize(mask=False)
    async with raw_server(reads, early) as url, connected(url) as (_, got):
        assert isinstance(await got.outcome(b"1"), Frame)


async def test_what_breaks_the_websocket_protocol_ends_the_connection() -> None:
    async with raw_server(reads, b"\xf3\x00") as url, connected(url) as (_, got):
        await got.until(lambda got: got.closings)
        assert got.closings[0].startswith("it broke the WebSocket protocol: ")
