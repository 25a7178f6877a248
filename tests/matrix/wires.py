"""The four ways to reach the bridge, as a client without any library has them: frames out, frames in."""

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin

import httpx2
from websockets.asyncio.client import ClientConnection, connect

__all__ = ["HttpWire", "SseWire", "StdioWire", "WebSocketWire", "Wire"]

Message = dict[str, Any]
_ENVELOPE_VERSION = "io.modelcontextprotocol/protocolVersion"


class Wire(ABC):
    """One connection to the bridge."""

    def __init__(self) -> None:
        self.take: Callable[[Message], None] = lambda message: None
        """Gets every message that arrives."""
        self.session: dict[str, str] = {}
        """HTTP headers that the handshake brought."""

    @abstractmethod
    async def send(self, message: Message) -> None:
        """Send one message."""

    async def cancel(self, request_id: int, *, modern: bool) -> None:
        """Withdraw a request, as this transport does it."""
        params = {"requestId": request_id, "reason": "no longer wanted"}
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def listen(self) -> None:
        """Be open for messages that belong to no request, in a session of the handshake era."""
        return

    @abstractmethod
    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Take in what arrives."""


@asynccontextmanager
async def _background(*work: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        await _ended(*tasks)


async def _ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class StdioWire(Wire):
    """The bridge's standard input and output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        assert process.stdin
        assert process.stdout
        self._in, self._out = process.stdin, process.stdout

    async def send(self, message: Message) -> None:
        self._in.write(json.dumps(message).encode() + b"\n")
        await self._in.drain()

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        return _background(self._read())

    async def _read(self) -> None:
        async for line in self._out:
            self.take(json.loads(line))


class WebSocketWire(Wire):
    """A WebSocket: one message a frame."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._connection: ClientConnection

    async def send(self, message: Message) -> None:
        await self._connection.send(json.dumps(message))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        offered: Any = ["mcp"]
        async with connect(self._url, subprotocols=offered, max_size=None, compression=None, proxy=None) as connection:
            self._connection = connection
            async with _background(self._read()):
                yield

    async def _read(self) -> None:
        async for text in self._connection:
            self.take(json.loads(text))


class _OverHttp(Wire):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.http: httpx2.AsyncClient
        self.streams: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with httpx2.AsyncClient(timeout=60, trust_env=False) as self.http:
            try:
                yield
            finally:
                await _ended(*self.streams)

    def start(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.streams.add(task)
        task.add_done_callback(self.streams.discard)
        return task


class SseWire(_OverHttp):
    """HTTP+SSE of 2024-11-05: all that arrives comes on one stream, all that is sent is POSTed."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self.start(self._read())
            async with asyncio.timeout(60):
                await self._endpoint
            yield

    async def send(self, message: Message) -> None:
        response = await self.http.post(self._endpoint.result(), json=message)
        assert response.status_code == 202, response.text

    async def _read(self) -> None:
        async with self.http.stream("GET", self.url, headers={"accept": "text/event-stream"}) as response:
            assert response.status_code == 200, await response.aread()
            async for kind, data in _events(response):
                if kind == b"endpoint":
                    self._endpoint.set_result(urljoin(self.url, data.decode()))
                else:
                    self.take(json.loads(data))


class HttpWire(_OverHttp):
    """Streamable HTTP: every message is a POST, whose answer is a message or a stream of them."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._posts: dict[int, asyncio.Task[None]] = {}

    async def send(self, message: Message) -> None:
        post = self.start(self._post(message))
        if "method" in message and "id" in message:
            self._posts[message["id"]] = post
            if message["method"] != "initialize":
                return
        await post

    async def cancel(self, request_id: int, *, modern: bool) -> None:
        if modern:
            await _ended(self._posts[request_id])  # closing the stream says it
        else:
            await super().cancel(request_id, modern=modern)

    async def listen(self) -> None:
        self.start(self._hear())

    def _headers(self, message: Message) -> dict[str, str]:
        plain = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        params = message.get("params") or {}
        version = (params.get("_meta") or {}).get(_ENVELOPE_VERSION)
        if version is None:
            return {**plain, **self.session}
        name = params.get("name") or params.get("uri")
        mirrored = {"mcp-protocol-version": version, "mcp-method": message["method"]}
        return {**plain, **mirrored, **({"mcp-name": name} if name else {})}

    async def _post(self, message: Message) -> None:
        async with self.http.stream("POST", self.url, json=message, headers=self._headers(message)) as response:
            if "mcp-session-id" in response.headers:
                self.session["mcp-session-id"] = response.headers["mcp-session-id"]
            await self._take_in(response)

    async def _hear(self) -> None:
        headers = {"accept": "text/event-stream", **self.session}
        async with self.http.stream("GET", self.url, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            await self._take_in(response)

    async def _take_in(self, response: httpx2.Response) -> None:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            async for _, data in _events(response):
                self.take(json.loads(data))
        elif body := await response.aread():
            self.take(json.loads(body))


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[bytes, bytes]]:
    """The events of a stream with data, each with its kind. Large ones come in many pieces."""
    pieces: list[bytes] = []
    async for piece in response.aiter_bytes():
        pieces.append(piece.replace(b"\r", b""))
        if b"\n" not in pieces[-1]:
            continue
        *whole, rest = b"".join(pieces).split(b"\n\n")
        pieces = [rest]
        for event in whole:
            lines = [line.partition(b":") for line in event.split(b"\n")]
            data = b"\n".join(value.removeprefix(b" ") for name, _, value in lines if name == b"data")
            kinds = [value.strip() for name, _, value in lines if name == b"event"]
            if data:
                yield kinds[-1] if kinds else b"message", data
