"""Both ends of an HTTP upstream under test: a server that says what the test wants, byte by byte, and a receiver
that keeps what a transport delivers."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from mcpbridge.base.errors import BridgeError
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.transport import Outgoing

__all__ = [
    "Ask",
    "Failed",
    "HttpServer",
    "Recorder",
    "Spoiled",
    "answer_to",
    "chunk",
    "closed_port",
    "deaf_socket",
    "event",
    "events_head",
    "http_server",
    "reply",
    "request",
    "result_of",
    "tcp_server",
]


@dataclass
class Ask:
    """One request that reached the server."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connection: int
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `gone` has seen the client leave."""

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def id(self) -> Any:
        return self.message.get("id")

    async def say(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
        await self.writer.drain()

    async def gone(self) -> None:
        """Return when the client has closed the connection. For the script; the test waits for `left`."""
        with suppress(ConnectionError):
            while await self.reader.read(1024):
                pass
        self.left.set()


Script = Callable[[Ask], Awaitable[bytes | None]]
"""Answers a request: the bytes of the whole answer, or None when it has written to the connection itself."""


@dataclass
class HttpServer:
    url: str
    asks: list[Ask] = field(default_factory=list)
    connections: int = 0
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    def seen(self, what: str) -> list[Ask]:
        """The requests of this HTTP method or JSON-RPC method."""
        return [ask for ask in self.asks if ask.method == what or (ask.body and ask.message.get("method") == what)]

    async def until(self, what: str, count: int = 1) -> list[Ask]:
        """Wait until so many of them have come."""
        async with self.news:
            await self.news.wait_for(lambda: len(self.seen(what)) >= count)
        return self.seen(what)


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""One connection, from its beginning to its end."""


@asynccontextmanager
async def tcp_server(talk: Talk, **options: Any) -> AsyncIterator[int]:
    """Serve on loopback, on the port given; leaving ends what goes on still. `options` as for `http_server`."""
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await talk(reader, writer)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await listening.wait_closed()


@asynccontextmanager
async def http_server(script: Script, **options: Any) -> AsyncIterator[HttpServer]:
    """Serve on loopback; `options` go to `asyncio.start_server`."""
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        server.connections += 1
        try:
            await _converse(server, script, reader, writer, server.connections)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # asyncio's streams log a cancelled handler as a fault
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26, **options)
    port = listening.sockets[0].getsockname()[1]
    scheme = "https" if "ssl" in options else "http"
    server = HttpServer(f"{scheme}://127.0.0.1:{port}/mcp")
    try:
        yield server
    finally:
        listening.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await listening.wait_closed()


async def _converse(
    server: HttpServer, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
) -> None:
    while not writer.is_closing():
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head[1:] if line}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        ask = Ask(method, path, headers, body, reader, writer, connection)
        async with server.news:
            server.asks.append(ask)
            server.news.notify_all()
        answer = await script(ask)
        if answer is not None:
            await ask.say(answer)


def reply(body: bytes | dict[str, Any] = b"", status: int = 200, **headers: str) -> bytes:
    """A whole answer. Underscores in header names stand for hyphens."""
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    headers = {"content_type": "application/json", "content_length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + body


def result_of(ask: Ask, result: object = None) -> dict[str, Any]:
    """The JSON-RPC answer to the request."""
    return {"jsonrpc": "2.0", "id": ask.id, "result": result if result is not None else {"content": []}}


def answer_to(ask: Ask, **headers: str) -> bytes:
    """What a plain legacy server answers: JSON to requests, 202 to the rest, and no stream of its own."""
    if ask.method == "GET":
        return reply(status=405)
    if ask.method == "DELETE" or "id" not in ask.message or "method" not in ask.message:
        return reply(status=202)
    return reply(result_of(ask), **headers)


def events_head(**headers: str) -> bytes:
    """The head of an event stream, sent in chunks."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    return f"{head}{lines}\r\n".encode()


def chunk(data: bytes) -> bytes:
    """One HTTP chunk; an empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(data: object = None, *, id: str = "", retry: int | None = None, type: str = "") -> bytes:  # noqa: A002
    """One server-sent event, as a chunk."""
    lines = [f"id: {id}"] if id else []
    lines += [f"event: {type}"] if type else []
    lines += [f"retry: {retry}"] if retry is not None else []
    lines += [f"data: {json.dumps(data)}" if data is not None else "data: "]
    return chunk("\n".join([*lines, "", ""]).encode())


@dataclass(frozen=True)
class Failed:
    error: BridgeError
    sent: bool


@dataclass(frozen=True)
class Spoiled:
    ids: list[bytes]
    reason: str
    via: bytes


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nothing listens, and which nobody else gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextmanager
def deaf_socket() -> Iterator[socket.socket]:
    """A listening socket whose queue is full: the system answers no further attempt to connect."""
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(4):  # nobody accepts these
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(deaf.getsockname())
        yield deaf


class Recorder:
    """A receiver that keeps everything."""

    def __init__(self) -> None:
        self.messages: list[tuple[Frame, bytes]] = []
        self.failures: list[tuple[bytes, Failed]] = []
        self.spoils: list[Spoiled] = []
        self.closings: list[str] = []
        self._news = asyncio.Event()

    def frame(self, frame: Frame, via: bytes) -> None:
        self.messages.append((frame, via))
        self._news.set()

    def spoiled(self, ids: list[bytes], reason: str, via: bytes) -> None:
        self.spoils.append(Spoiled(ids, reason, via))
        self._news.set()

    def failed(self, id_: bytes, error: BridgeError, *, sent: bool) -> None:
        self.failures.append((id_, Failed(error, sent)))
        self._news.set()

    has_unasked = False

    def pause_after(self, seconds: float) -> float:
        raise AssertionError("nothing came unasked")

    def closed(self, reason: str) -> None:
        self.closings.append(reason)
        self._news.set()

    async def outcome(self, id_: bytes) -> Frame | Failed | Spoiled:
        """Wait for what the request comes to."""
        while True:
            for frame, _ in self.messages:
                if not frame.method and bytes(frame.id) == id_:
                    return frame
            for failed_id, failure in self.failures:
                if failed_id == id_:
                    return failure
            for spoiled in self.spoils:
                if id_ in spoiled.ids:
                    return spoiled
            await self.changed()

    async def until(self, is_so: Callable[["Recorder"], object]) -> None:
        """Wait until it is so."""
        while not is_so(self):
            await self.changed()

    async def changed(self) -> None:
        """Wait for the next delivery."""
        self._news.clear()
        await self._news.wait()


def request(
    id_: int,
    method: str = "tools/call",
    *,
    name: str = "",
    params: object = None,
    headers: Iterable[tuple[str, str]] = (),
) -> Outgoing:
    """A request; an `id_` of 0 makes a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    if id_:
        message["id"] = id_
    return Outgoing(json.dumps(message).encode(), method, b"%d" % id_ if id_ else b"", name, tuple(headers))
