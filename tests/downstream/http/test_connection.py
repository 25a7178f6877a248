"""HTTP/1.1 on the wire: what a connection makes of requests that are cut, joined, unfinished or meant to deceive.

What concerns every server runs over the bridge's own and over uvicorn, which serves the same application.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.http.app import HttpFront
from mcpbridge.downstream.http.exchange import Exchange
from mcpbridge.downstream.http.server import bind_port, serve_front
from mcpbridge.downstream.settings import HttpSettings
from support.http_front import ScriptedBridge, ScriptedCore, modern_body, modern_headers, named, serving

HOST = b"Host: localhost\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"


def post(body: bytes, *lines: bytes, target: bytes = b"/mcp", length: bool = True) -> bytes:
    """A modern request; `lines` are further headers."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    message = json.loads(body)
    headers |= named(modern_headers(message["method"], message["params"]))
    head = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in headers.items())
    size = b"Content-Length: %d\r\n" % len(body) if length else b""
    return b"POST %b HTTP/1.1\r\n%b%b%b%b\r\n%b" % (target, HOST, head, size, b"".join(lines), body)


def call(method: str = "echo", id_: int = 1) -> bytes:
    return json.dumps(modern_body(method, id_)).encode()


class Served:
    """A server under test."""

    def __init__(self, port: int, core: ScriptedCore) -> None:
        self.port, self.core = port, core

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def exchange(self, *parts: bytes) -> bytes:
        """All that the server says until it closes the connection; our side stays open meanwhile."""
        reader, writer = await self.connect()
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def own_server() -> AsyncIterator[Served]:
    async with serving() as http:
        yield Served(int(http.root.rpartition(":")[2]), http.core)


@asynccontextmanager
async def under_uvicorn() -> AsyncIterator[Served]:
    core = ScriptedCore()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = HttpFront(ScriptedBridge(core), HttpSettings(), Authenticator([]), address="127.0.0.1", port=port)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, loop="none"))
    serving_it = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(60):
            yield Served(port, core)
    finally:
        core.release.set()
        server.should_exit = server.force_exit = True
        await asyncio.wait([serving_it])


@pytest.fixture(params=[own_server, under_uvicorn])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    async with request.param() as served:
        yield served


@pytest.fixture
async def own() -> AsyncIterator[Served]:
    async with own_server() as served:
        yield served


async def responses(reader: asyncio.StreamReader, count: int) -> list[tuple[int, bytes]]:
    """So many responses with a length: status and body."""
    found: list[tuple[int, bytes]] = []
    for _ in range(count):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        found.append((int(head.split()[1]), await reader.readexactly(length)))
    return found


SMUGGLED = post(call("smuggled", 66))
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


DECEPTIONS = {
    "a length beside chunks": post(call(), CHUNKED) + b"0\r\n\r\n" + SMUGGLED,
    "chunks beside a length": post(call(), b"Transfer-Encoding:chunked\r\n") + SMUGGLED,
    "two lengths": post(call(), b"Content-Length: 5\r\n") + SMUGGLED,
    "the same length twice": post(call(), b"Content-Length: %d\r\n" % len(call())) + SMUGGLED,
    "a list of lengths": post(call(), b"Content-Length: 5, 5\r\n", length=False) + SMUGGLED,
    "a length with a sign": post(call(), b"Content-Length: +%d\r\n" % len(call()), length=False) + SMUGGLED,
    "a length below zero": post(call(), b"Content-Length: -1\r\n", length=False) + SMUGGLED,
    "a length in hexadecimal": post(call(), b"Content-Length: 0x10\r\n", length=False) + SMUGGLED,
    "a length with digits of other scripts": post(call(), "Content-Length: ٣\r\n".encode(), length=False) + SMUGGLED,
    "a length too large to count": post(call(), b"Content-Length: %d\r\n" % (1 << 70), length=False) + SMUGGLED,
    "an empty length": post(call(), b"Content-Length:\r\n", length=False) + SMUGGLED,
    "a length with a blank before its colon": post(call(), b"Content-Length : 3\r\n", length=False) + SMUGGLED,
    "chunks with a blank before the colon": post(call(), b"Transfer-Encoding : chunked\r\n") + SMUGGLED,
    "another coding last": post(call(), b"Transfer-Encoding: chunked, identity\r\n", length=False) + SMUGGLED,
    "a coding that is none": post(call(), b"Transfer-Encoding: xchunked\r\n", length=False) + SMUGGLED,
    "lines that end in a bare line feed": post(call()).replace(b"\r\n", b"\n") + SMUGGLED,
    "one line that ends in a bare line feed": post(call(), b"X-A: b\nX-Smuggled: c\r\n") + SMUGGLED,
    "a bare carriage return": post(call(), b"X-A: b\rX-Smuggled: c\r\n") + SMUGGLED,
    "a folded line": post(call(), b"X-A: b\r\n Content-Length: 0\r\n") + SMUGGLED,
    "a blank line's worth of name": post(call(), b": value\r\n") + SMUGGLED,
    "a line without a colon": post(call(), b"Content-Length\r\n") + SMUGGLED,
    "a NUL in a name": post(call(), b"X-\0A: b\r\n") + SMUGGLED,
    "a NUL in a value": post(call(), b"X-A: b\0c\r\n") + SMUGGLED,
    "a chunk whose size is no number": post(call(), CHUNKED, length=False)[: -len(call())] + b"zz\r\n" + SMUGGLED,
    "a chunk of negative size": post(call(), CHUNKED, length=False)[: -len(call())] + b"-1\r\n" + SMUGGLED,
    "a chunk too large to count": post(call(), CHUNKED, length=False)[: -len(call())] + b"f" * 17 + b"\r\n" + SMUGGLED,
    "a chunk without its end": post(call(), CHUNKED, length=False)[: -len(call())] + b"2\r\n{}}}" + SMUGGLED,
    "a chunk that ends in a line feed": post(call(), CHUNKED, length=False)[: -len(call())] + b"2\n{}\n" + SMUGGLED,
    "a method that is none": b"GE(T / HTTP/1.1\r\n" + HOST + b"\r\n" + SMUGGLED,
    "a version that is none": b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n" + SMUGGLED,
    "no version": b"GET /healthz\r\n" + SMUGGLED,
    "a target with a blank": b"GET /health z HTTP/1.1\r\n" + HOST + b"\r\n" + SMUGGLED,
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + SMUGGLED,
}


@pytest.mark.parametrize("deception", DECEPTIONS)
async def test_what_two_readers_could_understand_otherwise_is_refused_whole(deception: str, server: Served) -> None:
    """RFC 9112, sections 6.3 and 11.2: nothing after it is taken for a request, and the connection ends."""
    answer = await server.exchange(DECEPTIONS[deception])
    assert answer == b"" or int(answer.split()[1]) in (400, 501), answer
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert "smuggled" not in [method for _, method in server.core.asked]


async def test_the_request_that_is_hidden_would_be_answered(server: Served) -> None:
    reader, writer = await server.connect()
    writer.write(SMUGGLED)
    assert (await responses(reader, 1))[0][0] == 200
    writer.close()
    assert [method for _, method in server.core.asked] == ["smuggled"]


async def test_requests_sent_together_are_answered_in_their_order(server: Served) -> None:
    reader, writer = await server.connect()
    writer.write(post(call("echo", 1)) + HEALTH + post(call("echo", 2)))
    one, health, two = await responses(reader, 3)
    writer.close()
    assert [json.loads(body)["id"] for _, body in (one, two)] == [1, 2]
    assert health == (200, b'{"status":"ok"}')


async def test_a_request_may_come_a_byte_at_a_time(server: Served) -> None:
    reader, writer = await server.connect()
    for byte in post(call("echo", 7)) + HEALTH:
        writer.write(bytes([byte]))
        await writer.drain()
    one, health = await responses(reader, 2)
    writer.close()
    assert (json.loads(one[1])["id"], health[0]) == (7, 200)


async def test_a_body_may_come_in_chunks(server: Served) -> None:
    body = call("echo", 3)
    head = post(body, CHUNKED, length=False)[: -len(body)]
    reader, writer = await server.connect()
    writer.write(head + chunk(body[:10]) + chunk(body[10:]) + b"0\r\n\r\n" + HEALTH)
    one, health = await responses(reader, 2)
    writer.close()
    assert (one[0], json.loads(one[1])["id"], health[0]) == (200, 3, 200)


async def test_trailers_change_nothing(own: Served) -> None:
    """RFC 9110, section 6.5.1: what stands after the body is none of the headers that the rules looked at."""
    body = call("echo", 3)
    head = post(body, CHUNKED, length=False)[: -len(body)]
    end = b"0\r\nMcp-Name: another\r\nHost: evil.example\r\n\r\n"
    reader, writer = await own.connect()
    for part in (head, chunk(body), end + HEALTH):
        writer.write(part)
        await writer.drain()
    one, health = await responses(reader, 2)
    writer.close()
    assert (one[0], json.loads(one[1])["id"], health[0]) == (200, 3, 200)


async def test_connect_is_refused(own: Served) -> None:
    assert (await own.exchange(b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"\r\n")).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("head", [b"HTTP/1.1\r\nConnection: close\r\n", b"HTTP/1.0\r\n"])
async def test_a_connection_that_is_to_close_is_closed_after_its_answer(head: bytes, server: Served) -> None:
    answer = await server.exchange(b"GET /healthz " + head + HOST + b"\r\n" + SMUGGLED)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b'{"status":"ok"}')
    assert b"connection: close\r\n" in answer
    assert server.core.asked == []


async def test_head_has_the_length_and_no_body(server: Served) -> None:
    answer = await server.exchange(b"HEAD /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")
    assert b"content-length: 15\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


async def test_a_client_that_asks_whether_to_go_on_is_told_to(server: Served) -> None:
    request, body = post(call("echo", 4), b"Expect: 100-continue\r\n"), call("echo", 4)
    reader, writer = await server.connect()
    writer.write(request[: -len(body)])
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    [(status, answer)] = await responses(reader, 1)
    writer.close()
    assert (status, json.loads(answer)["id"]) == (200, 4)


async def test_a_client_that_is_refused_is_not_told_to_go_on(server: Served) -> None:
    reader, writer = await server.connect()
    writer.write(post(call(), b"Expect: 100-continue\r\n", target=b"/nowhere")[: -len(call())])
    [(status, _)] = await responses(reader, 1)
    writer.close()
    assert status == 404


async def test_a_client_that_leaves_in_the_middle_of_its_body_asked_for_nothing(server: Served) -> None:
    _, writer = await server.connect()
    writer.write(post(call("echo"))[:-5])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    reader, writer = await server.connect()
    writer.write(HEALTH)
    assert (await responses(reader, 1))[0][0] == 200
    writer.close()
    assert server.core.asked == []


async def test_a_call_ends_when_its_client_has_left(server: Served) -> None:
    _, writer = await server.connect()
    writer.write(post(call("hold", 5)))
    await server.core.held.get()
    writer.close()
    assert await server.core.cancelled.get() == "5"


async def test_another_upgrade_than_a_websocket_is_no_reason_to_refuse(own: Served) -> None:
    """Java's client offers HTTP/2 with its first request (h2c), and goes on with HTTP/1.1 where nobody takes it."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    reader, writer = await own.connect()
    writer.write(post(call("echo", 1), offer) + post(call("echo", 2)))
    answers = await responses(reader, 2)
    writer.write(b"GET /healthz HTTP/1.1\r\n" + HOST + offer + b"\r\n")
    answers += await responses(reader, 1)
    writer.close()
    assert [status for status, _ in answers] == [200, 200, 200]


async def test_what_follows_no_http_is_not_read_and_what_came_before_is_answered(own: Served) -> None:
    answer = await own.exchange(post(call("echo", 1)) + b"no HTTP at all\r\n\r\n" + SMUGGLED)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b'"id":1' in answer
    assert len(own.core.asked) == 1


async def test_an_idle_connection_is_closed(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.downstream.http.connection._IDLE_SECONDS", 0.01)
    reader, writer = await own.connect()
    writer.write(HEALTH)
    await responses(reader, 1)
    assert await reader.read() == b""
    writer.close()


async def test_a_client_that_takes_nothing_is_cut_off_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.downstream.http.connection._STUCK_SECONDS", 0.01)
    left = asyncio.Event()

    class Endless:
        async def handle(self, exchange: Exchange) -> None:
            if exchange.path == "/healthz":
                await exchange.send_json(b"{}")
                return
            await exchange.start_stream()
            leaving = asyncio.create_task(exchange.until_client_leaves())
            while not leaving.done():
                await exchange.write(b"x" * 65536)
                await asyncio.sleep(0)
            left.set()

        def upgrade(self, path: str, raw_headers: list[tuple[bytes, bytes]], transport: asyncio.Transport) -> None:
            raise AssertionError

        async def stop(self, seconds: float) -> None:
            pass

    async with front(Endless()) as served:
        _, slow = await served.connect()
        slow.transport.pause_reading()
        slow.write(b"GET /endless HTTP/1.1\r\n" + HOST + b"\r\n")
        await left.wait()
        assert (await served.exchange(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).endswith(b"{}")
        slow.close()


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_failing_application_fails_one_request_only(has_begun: bool) -> None:
    class Failing:
        async def handle(self, exchange: Exchange) -> None:
            if exchange.path == "/healthz":
                await exchange.send_json(b"{}")
                return
            if has_begun:
                await exchange.start_stream()
            raise ZeroDivisionError

        def upgrade(self, path: str, raw_headers: list[tuple[bytes, bytes]], transport: asyncio.Transport) -> None:
            raise AssertionError

        async def stop(self, seconds: float) -> None:
            pass

    async with front(Failing()) as served:
        broken = await served.exchange(b"GET /bad HTTP/1.1\r\n" + HOST + b"\r\n")
        assert broken.startswith(b"HTTP/1.1 200 " if has_begun else b"HTTP/1.1 500 ") or (has_begun and not broken)
        assert not broken.endswith(b"0\r\n\r\n"), "a cut stream must not look whole"
        assert (await served.exchange(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).endswith(b"{}")


@asynccontextmanager
async def front(what: Any) -> AsyncIterator[Served]:
    ready = asyncio.Event()
    with bind_port(HttpSettings(), host="127.0.0.1", port=0, no_auth=True) as at:
        task = asyncio.create_task(serve_front(what, at.listener, ready.set))
        try:
            async with asyncio.timeout(60):
                await ready.wait()
                yield Served(at.port or 0, ScriptedCore())
        finally:
            task.cancel()
            await asyncio.wait([task])
