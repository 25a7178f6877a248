"""One HTTP/1.1 client connection: one exchange at a time, kept for the next when both sides allow it.

An `Exchange` is the answer to one request. It owns the body that arrived, so the connection is free again as soon as
the last byte is parsed, whether or not anyone has read the body. Why we have our own connection: `client.py`.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from typing import TypeVar, cast

import httptools
import httpx2

from mcpbridge.protocol.http.connect import connection_failure

_HEAD_LIMIT = 256 << 10
"""Bytes of status line and headers that are accepted."""
_BUFFER_LIMIT = 1 << 20
"""Bytes of body that may wait for a reader before the socket is left to fill up."""


class Exchange(httpx2.AsyncByteStream):
    """The answer to one request: its head once it is there, and its body as a stream."""

    def __init__(self, connection: "HttpConnection", read_timeout: float | None) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.connection = connection
        self._read_timeout = read_timeout
        self._head: asyncio.Future[None] | None = None
        """Made where somebody waits for the head."""
        self._more: asyncio.Future[None] | None = None
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._is_complete = False
        self._error: Exception | None = None

    async def head(self) -> None:
        """Wait for status and headers.

        Raises:
            httpx2.TransportError: the connection ended first, or the peer does not speak HTTP/1.1.
        """
        if not self.status and self._error is None:
            self._head = self.connection.loop.create_future()
            await self._in_time(self._head)
        elif not self.status and self._error is not None:
            raise self._error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            if self._chunks:
                data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
                self._chunks.clear()
                self._buffered = 0
                self.connection.flow(self, paused=False)
                yield data
            elif self._error is not None:
                raise self._error
            elif self._is_complete:
                return
            else:
                self._more = self.connection.loop.create_future()
                await self._in_time(self._more)

    async def aclose(self) -> None:
        """Give the exchange up. The connection of an unfinished one cannot be used again and is cut."""
        if not self._is_complete:
            self.connection.cut()

    async def _in_time(self, future: asyncio.Future[None]) -> None:
        if self._read_timeout is None:
            await future
            return
        try:
            async with asyncio.timeout(self._read_timeout):
                await future
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"nothing came for {self._read_timeout:g} s") from error

    # What the connection reports.

    def head_arrived(self, status: int) -> None:
        """Status and headers are whole."""
        self.status = status
        if self._head is not None and not self._head.done():
            self._head.set_result(None)

    def body_arrived(self, data: bytes) -> None:
        """A piece of the body."""
        self._chunks.append(data)
        self._buffered += len(data)
        if self._buffered > _BUFFER_LIMIT:
            self.connection.flow(self, paused=True)
        self._wake()

    def completed(self) -> None:
        """Nothing more will come."""
        self._is_complete = True
        self._wake()

    def broke(self, error: Exception) -> None:
        """The connection ended before the answer did."""
        self._error = error
        if self._head is not None and not self._head.done():
            self._head.set_exception(error)
            self._head.exception()  # seen: the asker may be gone
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


ExchangeT = TypeVar("ExchangeT", bound=Exchange)


class HttpConnection(asyncio.Protocol):
    """A socket and its parser. The pool that made it hears when it is free again and when it is gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_free: Callable[["HttpConnection"], None],
        on_gone: Callable[["HttpConnection"], None],
    ) -> None:
        self.loop = loop
        self.server_keeps = ""
        """The value of the last `Keep-Alive` header, such as `timeout=5`; empty when there was none."""
        self.expires = 0.0
        """Loop time after which the pool does not use it again."""
        self._on_free = on_free
        self._on_gone = on_gone
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._in_head = True
        self._is_interim = False
        self._has_length = False
        self._is_paused = False
        self._is_stray = False
        self._writable: asyncio.Future[None] | None = None

    # No warning when it is dropped: the event loop holds it while its socket is open, and asyncio warns of the socket.

    def __repr__(self) -> str:
        state = "closed" if not self.is_open else "idle" if self._exchange is None else "in use"
        return f"<HttpConnection {state}{', answer held back' * self._is_paused}>"

    @property
    def is_open(self) -> bool:
        """Neither side has closed it, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    def begin(self, read_timeout: float | None) -> Exchange:
        """Start an exchange; the request follows by `write`."""
        return self.start(Exchange(self, read_timeout))

    def start(self, exchange: ExchangeT) -> ExchangeT:
        """The same with an exchange that was made for this connection."""
        self._exchange = exchange
        return exchange

    def write(self, data: bytes) -> None:
        """Queue bytes of the request."""
        if self._transport is not None:
            self._transport.write(data)

    @property
    def is_writable(self) -> bool:
        """The peer has taken most of what was written: `writable` would not wait."""
        return self._writable is None

    async def writable(self) -> None:
        """Wait until the peer has taken most of what was written, or the connection is gone."""
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def cut(self) -> None:
        """Close at once; what was not written is dropped."""
        if self._transport is not None:
            self._transport.abort()

    def flow(self, exchange: Exchange, *, paused: bool) -> None:
        """Stop or continue reading, as the reader of `exchange` keeps up."""
        if self._exchange is exchange and paused != self._is_paused and self._transport is not None:
            self._is_paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # What the event loop reports.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came: parse them."""
        if self._in_head:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break(httpx2.RemoteProtocolError("it wants to continue in another protocol, which was not asked for"))
            return
        except httptools.HttpParserError as error:
            self._break(httpx2.RemoteProtocolError(f"not an HTTP/1.1 answer: {error}"))
            return
        if self._in_head and self._head_size > _HEAD_LIMIT:
            self._break(httpx2.RemoteProtocolError(f"headers over the limit of {_HEAD_LIMIT} bytes"))
        elif self._is_stray:
            self.cut()  # an answer that nobody asked for: it would be taken for that to the next request

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed: end the exchange under way, by its rules."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            if exchange.status and not self._has_length and exc is None:
                exchange.completed()  # its end was meant to be the end of the connection (RFC 9112, 6.3)
            elif isinstance(exc, ssl.SSLError):  # such as a server that wanted a certificate of ours
                exchange.broke(httpx2.ReadError(connection_failure(exc)))
            elif exchange.status:
                exchange.broke(httpx2.ReadError("the connection was cut within the answer"))
            else:
                exchange.broke(httpx2.ReadError("the connection was closed before an answer"))
        self.resume_writing()
        self._on_gone(self)

    def pause_writing(self) -> None:
        """The peer does not read: `writable` waits from now on."""
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        """The peer reads again."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    # What the parser reports.

    def on_message_begin(self) -> None:
        """The first byte of an answer."""
        self._headers = []
        self._has_length = False
        self._in_head = True
        self._is_stray = self._exchange is None

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        value = value.rstrip(b" \t")  # the parser keeps trailing blanks
        if name in {b"content-length", b"transfer-encoding"}:
            self._has_length = True
        elif name == b"keep-alive":
            self.server_keeps = value.decode("latin-1")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole. 1xx heads are skipped: another follows."""
        status = self._parser.get_status_code()
        self._is_interim = 100 <= status < 200
        if self._is_interim or self._exchange is None:
            return
        self._in_head = False
        self._exchange.headers = self._headers
        self._exchange.head_arrived(status)

    def on_body(self, body: bytes) -> None:
        """A piece of the body, chunk framing removed."""
        if self._exchange is not None:
            self._exchange.body_arrived(body)

    def on_message_complete(self) -> None:
        """The answer is whole: free the connection, or close it when it cannot serve again."""
        if self._is_interim:
            return
        self._in_head = True
        exchange, self._exchange = self._exchange, None
        if exchange is None or self._transport is None:
            return
        self._head_size = 0
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # the peer answered in the middle of the request and may read no more of it
        elif self._parser.should_keep_alive():
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            self._on_free(self)
        else:
            self._transport.close()
        exchange.completed()

    def _break(self, error: Exception) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.broke(error)
        self.cut()
