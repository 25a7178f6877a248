"""The floor: the least that a relay in Python can do for a call. No features, and no error is handled.

floor_relay.py [--http PORT] URL | COMMAND ...

The tools of the upstream appear as `up_NAME`. A message is parsed once and encoded once each way. Fronts and upstreams
speak stdio or streamable HTTP (JSON answers, no sessions), so that each pair of transports has a floor of its own.
"""

import asyncio
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

try:
    from uvloop import run
except ImportError:
    from asyncio import run

Message = dict[str, Any]
Handle = Callable[[Message], Awaitable[bytes | None]]

_INFO = {"name": "floor", "version": "1"}
_VERSION = "2025-06-18"


def _request(number: int, method: str, params: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


# ------------------------------------------------------------------ framing


class Lines(asyncio.Protocol):
    """Each line that arrives, parsed."""

    def __init__(self, receive: Callable[[Message], Any], ended: Callable[[], None] = lambda: None) -> None:
        self._parts: list[bytes] = []
        self._receive, self._ended = receive, ended

    def data_received(self, data: bytes) -> None:
        first, *more = data.split(b"\n")
        self._parts.append(first)
        for part in more:
            if line := b"".join(self._parts):
                self._receive(orjson.loads(line))
            self._parts = [part]

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()


class Http(asyncio.Protocol):
    """Each HTTP message that arrives on a keep-alive connection, its body parsed (None when it is empty)."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.out: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        if self._missing < 0:
            buffer = b"".join(self._parts)
            end = buffer.find(b"\r\n\r\n") + 4
            if end < 4:
                return
            head = buffer[:end].lower()
            where = head.find(b"content-length:")
            length = int(head[where + 15 : head.index(b"\r\n", where)]) if where >= 0 else 0
            self._parts = [buffer[end:]]
            self._missing = length - len(buffer) + end
        else:
            self._missing -= len(data)
        if self._missing <= 0:
            body = b"".join(self._parts)
            self._parts, self._missing = [], -1
            self.received(orjson.loads(body) if body else None)

    def received(self, message: Message | None) -> None:
        raise NotImplementedError


# ------------------------------------------------------------------ upstream


class StdioUpstream(asyncio.SubprocessProtocol):
    """A child process; answers are matched to requests by id."""

    def __init__(self) -> None:
        self._lines = Lines(self._answer)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stdin = transport.get_pipe_transport(0)  # type: ignore[attr-defined]

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._lines.data_received(data)

    def _answer(self, message: Message) -> None:
        if future := self._waiting.pop(message.get("id", 0), None):
            future.set_result(message)

    async def request(self, method: str, params: Any) -> Message:
        self._count += 1
        future = self._waiting[self._count] = asyncio.get_running_loop().create_future()
        self._stdin.write(_request(self._count, method, params) + b"\n")
        return await future


class HttpUpstream:
    """A pool of connections, one request at a time on each."""

    class Connection(Http):
        waiting: asyncio.Future[Message | None]

        def received(self, message: Message | None) -> None:
            self.waiting.set_result(message)

    def __init__(self, url: str) -> None:
        self._host, _, path = url.removeprefix("http://").partition("/")
        accept = "application/json, text/event-stream"
        self._head = (
            f"POST /{path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\naccept: {accept}\r\n"
            f"mcp-protocol-version: {_VERSION}\r\ncontent-length: "
        ).encode()
        self._free: deque[HttpUpstream.Connection] = deque()

    async def request(self, method: str, params: Any) -> Message:
        loop = asyncio.get_running_loop()
        if self._free:
            connection = self._free.pop()
        else:
            host, _, port = self._host.partition(":")
            _, connection = await loop.create_connection(self.Connection, host, int(port))
        connection.waiting = loop.create_future()
        body = _request(1, method, params)
        connection.out.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        message = await connection.waiting
        self._free.append(connection)
        return message or {}


# ------------------------------------------------------------------ front


class HttpFront(Http):
    """One connection of a client."""

    def __init__(self, handle: Handle) -> None:
        super().__init__()
        self._handle = handle

    def received(self, message: Message | None) -> None:
        asyncio.get_running_loop().create_task(self._answer(message or {}))

    async def _answer(self, message: Message) -> None:
        if (data := await self._handle(message)) is None:
            self.out.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
            return
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data)
        self.out.write(head + data)


async def main() -> None:
    arguments = sys.argv[1:]
    port = 0
    if arguments[0] == "--http":
        port, arguments = int(arguments[1]), arguments[2:]
    loop = asyncio.get_running_loop()
    if arguments[0].startswith("http://"):
        upstream: StdioUpstream | HttpUpstream = HttpUpstream(arguments[0])
    else:
        _, upstream = await loop.subprocess_exec(StdioUpstream, *arguments, stderr=None)
    hello = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": _INFO}
    await upstream.request("initialize", hello)
    tools = (await upstream.request("tools/list", {}))["result"]["tools"]
    names = {"up_" + tool["name"]: tool["name"] for tool in tools}
    for tool in tools:
        tool["name"] = "up_" + tool["name"]

    async def handle(message: Message) -> bytes | None:
        if "id" not in message:
            return None
        if message["method"] == "initialize":
            result = {"protocolVersion": _VERSION, "capabilities": {"tools": {}}, "serverInfo": _INFO}
            response: Message = {"result": result}
        elif message["method"] == "tools/list":
            response = {"result": {"tools": tools}}
        else:
            message["params"]["name"] = names[message["params"]["name"]]
            response = await upstream.request(message["method"], message["params"])
        return orjson.dumps({**response, "jsonrpc": "2.0", "id": message["id"]})

    if port:
        server = await loop.create_server(lambda: HttpFront(handle), "127.0.0.1", port)
        await server.serve_forever()

    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout.buffer)

    async def relay(message: Message) -> None:
        if data := await handle(message):
            out.write(data + b"\n")

    # The end of the input is the end of everything: the child sees its own input close.
    await loop.connect_read_pipe(
        lambda: Lines(lambda m: loop.create_task(relay(m)), lambda: os._exit(0)), sys.stdin.buffer
    )
    await asyncio.Event().wait()


run(main())
