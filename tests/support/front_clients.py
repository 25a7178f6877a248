"""Clients of the fronts that `rpc` has none for, and every front in this process behind one `open_front`.

A front is served in front of any core: a real bridge's server, or the scripted one of `http_front`.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import websockets
from websockets.asyncio.client import ClientConnection, connect

from mcpbridge.downstream.http.server import ListenAddress, bind_path, bind_port, serve_http
from mcpbridge.downstream.services import RunningBridge
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.downstream.stdio import serve_stdio
from support.rpc import Client, HttpClient, Message, Reply, StdioClient

__all__ = ["FRONTS", "WEB_FRONTS", "OpenFront", "Served", "SseClient", "WebSocketClient", "http_server", "open_front"]

FRONTS = ("stdio", "http", "unix", "sse", "websocket")
WEB_FRONTS = ("http", "sse", "websocket")


class Silent:
    """The log of a bridge in this process: the test run has it."""

    def told(self) -> str:
        return "(in this process)"


class _Answered(Client):
    """A client that gets answers and other messages on one channel."""

    def __init__(self) -> None:
        super().__init__(Silent())
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self.strays: list[Message] = []
        """Answers to nothing that was asked, and errors without an id."""
        self.batches = asyncio.Queue[list[Message]]()

    def sort(self, raw: bytes) -> None:
        """Take one message."""
        message = json.loads(raw)
        if isinstance(message, list):
            self.batches.put_nowait(message)
        elif "method" in message:
            self.take(message)
        elif waiting := self._waiting.get(json.dumps(message.get("id"))):
            waiting.set_result(Reply(raw, message))
        else:
            self.strays.append(message)
            self._news.set()

    def expect(self, id_: Any) -> asyncio.Future[Reply]:
        """The answer to the request with this id, to come."""
        return self._waiting.setdefault(json.dumps(id_), asyncio.get_running_loop().create_future())

    async def send(self, data: bytes) -> None:
        """Send one message."""
        raise NotImplementedError

    async def exchange(self, message: Message, within: float) -> Reply:
        waiting = self.expect(message["id"])
        await self.send(json.dumps(message).encode())
        async with asyncio.timeout(within):
            return await waiting

    async def tell(self, method: str, **params: Any) -> None:
        await self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    async def stray(self) -> Message:
        """The next message that answers nothing known."""
        async with asyncio.timeout(30):
            while not self.strays:
                self._news.clear()
                await self._news.wait()
        return self.strays.pop(0)


class WebSocketClient(_Answered):
    """A client of the WebSocket front."""

    def __init__(self, socket: ClientConnection) -> None:
        super().__init__()
        self.socket = socket

    async def read(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            async for message in self.socket:
                assert isinstance(message, str), "messages are text frames"
                self.sort(message.encode())

    async def send(self, data: bytes) -> None:
        await self.socket.send(data, text=True)


class SseClient(_Answered):
    """A client of the HTTP+SSE front."""

    def __init__(self, http: httpx2.AsyncClient, url: httpx2.URL) -> None:
        super().__init__()
        self.http, self._url = http, url
        self.endpoint: asyncio.Future[httpx2.URL] = asyncio.get_running_loop().create_future()

    async def read(self, response: httpx2.Response) -> None:
        event = ""
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: ") and event == "endpoint":
                self.endpoint.set_result(self._url.join(line[6:]))
            elif line.startswith("data: "):
                assert event == "message"
                self.sort(line[6:].encode())

    async def post(self, data: bytes) -> httpx2.Response:
        return await self.http.post(await self.endpoint, content=data, headers={"content-type": "application/json"})

    async def send(self, data: bytes) -> None:
        response = await self.post(data)
        assert response.status_code == 202, response.text


@dataclass
class OpenFront:
    """A front, and one client of it."""

    kind: str
    client: Any
    leave: Callable[[], Awaitable[None]]
    """The client goes away without a word."""
    spoil: Callable[[bytes], Awaitable[Message]]
    """Send what is no message; returns what was said to that."""
    answer: Callable[[Message], Awaitable[None]]
    """Send an answer to a request of the bridge."""
    started: list[asyncio.Task[Reply]] = field(default_factory=list[asyncio.Task[Reply]])

    def start(self, method: str, params: Message, id_: Any = None) -> asyncio.Task[Reply]:
        """Ask, without waiting for the answer."""
        id_ = self.client.next_id() if id_ is None else id_
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        task = asyncio.create_task(self.client.exchange(message, 60))
        self.started.append(task)
        return task


@asynccontextmanager
async def open_front(
    kind: str, bridge: RunningBridge, folder: Path, *, view: str = "", **settings: Any
) -> AsyncIterator[OpenFront]:
    """A client of the front of this kind; it has not said anything yet. `view`: the one server that it sees."""
    if kind == "stdio":
        async with _on_pipes(bridge, view) as front:
            yield front
        return
    async with http_server(bridge, HttpSettings(**settings), folder if kind == "unix" else None) as at:
        transport = httpx2.AsyncHTTPTransport(uds=at.origin.removeprefix("unix:")) if kind == "unix" else None
        root = ("http://bridge" if kind == "unix" else at.origin) + (f"/servers/{view}" if view else "")
        async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=30) as http:
            if kind == "sse":
                async with _on_events(http, httpx2.URL(root + "/sse")) as front:
                    yield front
            elif kind == "websocket":
                async with _on_websocket(root.replace("http", "ws", 1) + "/ws") as front:
                    yield front
            else:
                yield _over_http(kind, http, root + "/mcp")


@dataclass
class Served:
    """An HTTP server that runs."""

    at: ListenAddress
    serving: asyncio.Task[None]
    """Cancel it to stop the server."""

    @property
    def origin(self) -> str:
        """`http://HOST:PORT`, or `unix:PATH`."""
        return self.at.origin


@asynccontextmanager
async def http_server(
    bridge: RunningBridge, settings: HttpSettings, folder: Path | None = None, *, mounts: Any = None, **access: Any
) -> AsyncIterator["Served"]:
    """The HTTP server, on a free port, or on a path in the folder. `mounts`: see `serve_http`."""
    if folder is None:
        door = bind_port(settings, host="127.0.0.1", port=0, **{"no_auth": True, **access})
    else:
        door = bind_path(settings, folder / "front.sock", **access)
    with door as at:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_http(bridge, settings, at, on_ready=ready.set_result, mounts=mounts or {}))
        await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
        try:
            yield Served(at, serving)
        finally:
            serving.cancel()
            await asyncio.wait([serving])


def _over_http(kind: str, http: httpx2.AsyncClient, url: str) -> OpenFront:
    client = HttpClient(url, Silent())
    client.http = http

    async def spoil(data: bytes) -> Message:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        response = await http.post(url, content=data, headers=headers | client.session)
        assert response.status_code == 400
        return response.json()

    async def answer(message: Message) -> None:
        response = await http.post(url, json=message, headers=client.headers(message))
        assert response.status_code == 202, response.text
        assert response.content == b""

    async def leave() -> None:
        for task in front.started:
            task.cancel()
        await asyncio.wait(front.started)
        if client.session:  # losing the connection cancels nothing in the handshake era
            await client.http.delete(client.url, headers=client.session)

    front = OpenFront(kind, client, leave, spoil, answer)
    return front


@asynccontextmanager
async def _on_events(http: httpx2.AsyncClient, url: httpx2.URL) -> AsyncIterator[OpenFront]:
    async with http.stream("GET", url, headers={"accept": "text/event-stream"}) as response:
        assert response.status_code == 200, await response.aread()
        client = SseClient(http, url)
        reading = asyncio.create_task(client.read(response))

        async def spoil(data: bytes) -> Message:
            answer = await client.post(data)
            assert answer.status_code == 400
            return answer.json()

        async def answer(message: Message) -> None:
            await client.send(json.dumps(message).encode())

        async def leave() -> None:
            reading.cancel()
            await asyncio.wait([reading])
            await response.aclose()

        try:
            yield OpenFront("sse", client, leave, spoil, answer)
        finally:
            reading.cancel()
            await asyncio.wait([reading])


@asynccontextmanager
async def _on_websocket(url: str) -> AsyncIterator[OpenFront]:
    async with connect(url, subprotocols=[websockets.Subprotocol("mcp")], max_size=None, proxy=None) as socket:
        client = WebSocketClient(socket)
        reading = asyncio.create_task(client.read())

        async def spoil(data: bytes) -> Message:
            await client.send(data)
            return await client.stray()

        async def answer(message: Message) -> None:
            await client.send(json.dumps(message).encode())

        async def leave() -> None:
            socket.transport.abort()

        try:
            yield OpenFront("websocket", client, leave, spoil, answer)
        finally:
            reading.cancel()
            await asyncio.wait([reading])


@asynccontextmanager
async def _on_pipes(bridge: RunningBridge, view: str) -> AsyncIterator[OpenFront]:
    into_read, into_write = os.pipe()
    out_read, out_write = os.pipe()
    loop = asyncio.get_running_loop()
    output = asyncio.StreamReader(limit=1 << 28)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(output), os.fdopen(out_read, "rb"))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(into_write, "wb")
    )
    client = StdioClient(output, asyncio.StreamWriter(transport, protocol, None, loop), Silent())
    serving = asyncio.create_task(serve_stdio(bridge.server, in_fd=into_read, out_fd=out_write, view=view))

    async def spoil(data: bytes) -> Message:
        await client.write(data + b"\n")
        return (await client.answer_to(7)).message

    async def answer(message: Message) -> None:
        await client.write(json.dumps(message).encode() + b"\n")

    async def leave() -> None:
        transport.close()
        reading.close()

    try:
        async with client.reading():
            yield OpenFront("stdio", client, leave, spoil, answer)
    finally:
        transport.close()
        reading.close()
        serving.cancel()
        await asyncio.wait([serving])
        os.close(into_read)
        os.close(out_write)
