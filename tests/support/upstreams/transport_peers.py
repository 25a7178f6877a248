"""The server's side of every transport, message by message: what a contract suite over all of them needs.

A `FarEnd` hears what the bridge sends and says raw bytes, whatever carries them: lines of a real process, POSTs and
event streams, WebSocket frames. The process of stdio is a pipe to a socket of the test, so that the test decides.
"""

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import websockets.asyncio.server
from websockets.exceptions import ConnectionClosed

from mcpbridge.base.process.process import ProcessSpec
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.transports.sse import SseTransport
from mcpbridge.upstream.transports.stdio import StdioTransport
from mcpbridge.upstream.transports.streamable_http import StreamableHttpTransport
from mcpbridge.upstream.transports.websocket import WebSocketTransport
from support.upstreams.scripted_http import Ask, chunk, events_head, http_server, reply

__all__ = ["KINDS", "FarEnd", "far_end"]

Message = dict[str, Any]

KINDS = ["stdio", "streamable-http", "sse", "websocket"]

_PIPE = """
import os, socket, sys, threading
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def inward():
    while data := sock.recv(1 << 16):
        while data:
            data = data[os.write(1, data):]
    os._exit(0)
threading.Thread(target=inward, daemon=True).start()
while data := os.read(0, 1 << 16):
    sock.sendall(data)
"""


class FarEnd:
    """One server. Subclasses know how bytes travel."""

    transport: Transport

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """All that was heard, in order."""
        self.has_left = asyncio.Event()
        """The bridge closed the connection."""
        self._news = asyncio.Event()

    def take(self, data: bytes) -> None:
        self.messages.append(json.loads(data))
        self._news.set()

    async def hears(self, method: str, times: int = 1) -> Message:
        """The message with this method, now or later; an empty method means an answer."""
        while True:
            found = [message for message in self.messages if message.get("method", "") == method]
            if len(found) >= times:
                return found[times - 1]
            self._news.clear()
            await self._news.wait()

    async def answer(self, id_: int, result: bytes = b"{}") -> None:
        """The answer to a request."""
        await self.say(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id_, result), during=id_, is_last=True)

    async def say(self, data: bytes, *, during: int, is_last: bool = False) -> None:
        """Raw bytes of a message that belongs to the request `during`, as far as the transport can tell."""
        raise NotImplementedError

    async def end(self) -> None:
        """The server goes away without a word."""
        raise NotImplementedError

    def stop_reading(self) -> None:
        """Take nothing more."""
        raise NotImplementedError


class StdioEnd(FarEnd):
    def __init__(self) -> None:
        super().__init__()
        self.connected = asyncio.Event()
        self.writer: asyncio.StreamWriter
        self.reading = True

    def leave(self) -> None:
        if self.connected.is_set():
            self.writer.close()

    def reach(self, port: int, max_bytes: int) -> None:
        spec = ProcessSpec(sys.executable, ("-I", "-S", "-c", _PIPE, str(port)), {"PATH": os.environ["PATH"]})
        self.transport = StdioTransport("up", spec, max_bytes=max_bytes)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.connected.set()
        try:
            while self.reading and (line := await reader.readline()):
                self.take(line)
            if not self.reading:
                return
        except (ConnectionError, asyncio.CancelledError):
            pass
        self.has_left.set()
        writer.close()

    async def say(self, data: bytes, *, during: int, is_last: bool = False) -> None:
        await self.connected.wait()
        self.writer.write(data + b"\n")
        await self.writer.drain()

    async def end(self) -> None:
        await self.connected.wait()
        self.writer.close()

    def stop_reading(self) -> None:
        self.reading = False


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """Return when the other side has closed, gently or not."""
    with suppress(ConnectionError):
        await reader.read(1)


class StreamableEnd(FarEnd):
    def __init__(self) -> None:
        super().__init__()
        self.asks: dict[int, Ask] = {}
        self.arrived: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.reading = True

    async def script(self, ask: Ask) -> bytes | None:
        if ask.method == "GET":
            return reply(status=405)
        if not self.reading:
            await ask.gone()
            return None
        self.take(ask.body)
        if "id" not in ask.message or "method" not in ask.message:
            return reply(status=202)
        await ask.say(events_head())
        self.asks[ask.id] = ask
        self.arrived[ask.id].set()
        await self._until_done(ask)
        return None

    async def _until_done(self, ask: Ask) -> None:
        done = asyncio.ensure_future(ask.left.wait())
        gone = asyncio.ensure_future(_until_gone(ask.reader))
        await asyncio.wait([done, gone], return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        if not gone.done():
            gone.cancel()
            await asyncio.wait([gone])
            return
        self.has_left.set()
        ask.writer.close()

    async def say(self, data: bytes, *, during: int, is_last: bool = False) -> None:
        await self.arrived[during].wait()
        await self.asks[during].say(chunk(b"data: " + data + b"\n\n"))
        if is_last:
            await self.asks[during].say(chunk(b""))
            self.asks[during].left.set()

    async def end(self) -> None:
        for ask in self.asks.values():
            ask.writer.transport.abort()

    def stop_reading(self) -> None:
        self.reading = False


class SseEnd(FarEnd):
    def __init__(self) -> None:
        super().__init__()
        self.stream: Ask
        self.opened = asyncio.Event()
        self.reading = True

    async def script(self, ask: Ask) -> bytes | None:
        if ask.method == "GET":
            self.stream = ask
            await ask.say(events_head(), chunk(b"event: endpoint\ndata: /messages?session=1\n\n"))
            self.opened.set()
            await ask.gone()
            self.has_left.set()
            return None
        assert ask.path == "/messages?session=1"
        if not self.reading:
            await ask.gone()
            return None
        self.take(ask.body)
        return reply(status=202)

    async def say(self, data: bytes, *, during: int, is_last: bool = False) -> None:
        await self.opened.wait()
        await self.stream.say(chunk(b"event: message\r\ndata: " + data + b"\r\n\r\n"))

    async def end(self) -> None:
        await self.opened.wait()
        self.stream.writer.transport.abort()

    def stop_reading(self) -> None:
        self.reading = False


class WebSocketEnd(FarEnd):
    def __init__(self) -> None:
        super().__init__()
        self.opened = asyncio.Event()
        self.connection: websockets.asyncio.server.ServerConnection
        self.reading = True

    async def serve(self, connection: websockets.asyncio.server.ServerConnection) -> None:
        self.connection = connection
        self.opened.set()
        try:
            async for data in connection:
                self.take(data if isinstance(data, bytes) else data.encode())
                if not self.reading:
                    await connection.wait_closed()
        except ConnectionClosed:
            pass
        self.has_left.set()

    async def say(self, data: bytes, *, during: int, is_last: bool = False) -> None:
        await self.opened.wait()
        await self.connection.send(data, text=True)

    async def end(self) -> None:
        await self.opened.wait()
        self.connection.transport.abort()

    def stop_reading(self) -> None:
        self.reading = False
        if self.opened.is_set():
            self.connection.transport.pause_reading()


@asynccontextmanager
async def far_end(kind: str, *, max_bytes: int = 64 << 20) -> AsyncIterator[FarEnd]:
    """A server that speaks this transport, and in it the transport that reaches it."""
    with anyio.fail_after(120):
        if kind == "stdio":
            stdio = StdioEnd()
            async with await asyncio.start_server(stdio.serve, "127.0.0.1", 0, limit=1 << 26) as listening:
                stdio.reach(listening.sockets[0].getsockname()[1], max_bytes)
                yield stdio
                stdio.leave()
        elif kind == "streamable-http":
            streamable = StreamableEnd()
            async with http_server(streamable.script) as server:
                streamable.transport = StreamableHttpTransport("up", server.url, headers={}, max_bytes=max_bytes)
                yield streamable
        elif kind == "sse":
            sse = SseEnd()
            async with http_server(sse.script) as server:
                sse.transport = SseTransport("up", server.url, headers={}, max_bytes=max_bytes)
                yield sse
        else:
            ws = WebSocketEnd()
            async with websockets.asyncio.server.serve(
                ws.serve,
                "127.0.0.1",
                0,
                subprotocols=["mcp"],  # type: ignore[list-item]
                max_size=None,
                compression=None,
                ping_interval=None,
                close_timeout=0.1,
            ) as serving:
                port = serving.sockets[0].getsockname()[1]
                ws.transport = WebSocketTransport("up", f"ws://127.0.0.1:{port}", headers={}, max_bytes=max_bytes)
                yield ws
