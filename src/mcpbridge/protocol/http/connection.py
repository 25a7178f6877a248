"""One HTTP/1.1 client connection: one exchange at a time, kept for the next when both sides allow it.

An `Exchange` is the answer to one request. It owns the body that arrived, so the connection is free again as soon as
the last byte is parsed, whether or not anyone has read the body. Why we have our own connection: `client.py`.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from typing import cast

import httptools
import httpx2

from mcpbridge.protocol.http.connect import connection_failure
from mcpbridge.protocol.http.repeated_head import RepeatedHead

_HEAD_LIMIT = 256 << 10
"""Bytes of status line and headers that are accepted."""
_BUFFER_LIMIT = 1 << 20
"""Bytes of body that may wait for a reader before the socket is left to fill up."""
_MOST_HEADS = 16
"""Heads in a row that were remembered in vain; a server whose heads never repeat is not worth more."""


class Exchange(httpx2.AsyncByteStream):
    """The answer to one request: its head once it is there, and its body as a stream."""

    # What most exchanges never have is of the class: to set it would cost each of them.
    status = 0
    headers: list[tuple[bytes, bytes]]
    is_direct = False
    """It takes its answer itself, in the turn of the loop in which it comes; then it has `repeated`, too."""
    _read_timeout: float | None = None
    _head: asyncio.Future[None] | None = None
    """Made where somebody waits for the head."""
    _more: asyncio.Future[None] | None = None
    _buffered = 0
    _is_complete = False
    _error: Exception | None = None

    def __init__(self, connection: "HttpConnection", read_timeout: float | None) -> None:
        self.connection = connection
        self._read_timeout = read_timeout
        self._chunks: list[bytes] = []

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

    def repeated(self, former: "Exchange", body: bytes) -> None:
        """The whole answer, with the head that the one to `former` had, but for the length. Of direct ones only."""
        raise NotImplementedError

    @property
    def repeatable(self) -> int:
        """The size of the body, if the next answer with such a head may come by `repeated`; else -1."""
        return -1

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
        self.exchange: Exchange | None = None
        """The one under way, which whoever has the connection sets in the turn in which it writes the request."""
        self.transport: asyncio.Transport | None = None
        self.writable_again: asyncio.Future[None] | None = None
        """Done when the peer has taken most of what was written, or the connection is gone; None: it has."""
        self._on_free = on_free
        self._on_gone = on_gone
        self._parser = httptools.HttpResponseParser(self)
        self._finished: Exchange | None = None
        """The one whose answer is whole, while the parser looks whether anything follows it."""
        self._headers: list[tuple[bytes, bytes]] = []
        self._keeps_alive = True
        """The server keeps the connection after that answer."""
        self._head_size = 0
        self._is_between = True
        """The parser has read no part of the next answer."""
        self._in_head = True
        self._is_interim = False
        self._has_length = False
        self._is_paused = False
        self._is_stray = False
        self._known: tuple[RepeatedHead, Exchange] | None = None
        """The head of an answer that was taken directly, and its exchange."""
        self._heads_left = _MOST_HEADS

    # No warning when it is dropped: the event loop holds it while its socket is open, and asyncio warns of the socket.

    def __repr__(self) -> str:
        state = "closed" if not self.is_open else "idle" if self.exchange is None else "in use"
        return f"<HttpConnection {state}{', answer held back' * self._is_paused}>"

    @property
    def is_open(self) -> bool:
        """Neither side has closed it, as far as is known."""
        return self.transport is not None and not self.transport.is_closing()

    def begin(self, read_timeout: float | None) -> Exchange:
        """Start an exchange; the request follows by `write`."""
        self.exchange = Exchange(self, read_timeout)
        return self.exchange

    def write(self, data: bytes) -> None:
        """Queue bytes of the request."""
        if self.transport is not None:
            self.transport.write(data)

    async def writable(self) -> None:
        """Wait until the peer has taken most of what was written, or the connection is gone."""
        if self.writable_again is not None:
            await asyncio.shield(self.writable_again)

    def cut(self) -> None:
        """Close at once; what was not written is dropped."""
        if self.transport is not None:
            self.transport.abort()

    def flow(self, exchange: Exchange, *, paused: bool) -> None:
        """Stop or continue reading, as the reader of `exchange` keeps up."""
        if self.exchange is exchange and paused != self._is_paused and self.transport is not None:
            self._is_paused = paused
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # What the event loop reports.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came: parse them, unless they are an answer with a known head, and nothing else."""
        exchange, was_between = self.exchange, self._is_between
        if self._known is not None and was_between and exchange is not None and exchange.is_direct:
            head, former = self._known
            body = head.body_in(data)
            if body is not None:
                self._heads_left = _MOST_HEADS
                self.exchange = None
                self._release(keeps_alive=True)
                exchange.repeated(former, body)
                return
        self._is_between = False
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
        if (finished := self._finished) is not None:
            self._finish(finished)
            if was_between and finished is exchange and finished.is_direct:
                self._remember(data, finished)
        if self._in_head and self._head_size > _HEAD_LIMIT:
            self._break(httpx2.RemoteProtocolError(f"headers over the limit of {_HEAD_LIMIT} bytes"))
        elif self._is_stray:
            self.cut()  # an answer that nobody asked for: it would be taken for that to the next request

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed: end the exchange under way, by its rules."""
        exchange, self.exchange = self.exchange, None
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
        self.writable_again = self.loop.create_future()

    def resume_writing(self) -> None:
        """The peer reads again."""
        if self.writable_again is not None:
            self.writable_again.set_result(None)
            self.writable_again = None

    # What the parser reports.

    def on_message_begin(self) -> None:
        """The first byte of an answer."""
        self._headers = []
        self._has_length = self._is_between = False
        self._in_head = True
        self._is_stray = self.exchange is None

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
        if self._is_interim or self.exchange is None:
            return
        self._in_head = False
        self.exchange.headers = self._headers
        self.exchange.head_arrived(status)

    def on_body(self, body: bytes) -> None:
        """A piece of the body, chunk framing removed."""
        if self.exchange is not None:
            self.exchange.body_arrived(body)

    def on_message_complete(self) -> None:
        """The answer is whole. What follows it in the same read comes before anyone can ask for it."""
        if self._is_interim:
            return
        self._is_between = self._in_head = True
        if self.exchange is not None:
            self._finished, self.exchange = self.exchange, None
            self._keeps_alive = self._parser.should_keep_alive()
            self._head_size = 0

    def _finish(self, exchange: Exchange) -> None:
        """An answer is whole: free the connection, or close it when it cannot serve again."""
        self._finished = None
        if not self._is_stray:
            self._release(keeps_alive=self._keeps_alive)
        exchange.completed()

    def _release(self, *, keeps_alive: bool) -> None:
        transport = self.transport
        if transport is None:
            return
        if transport.get_write_buffer_size():
            transport.abort()  # the peer answered in the middle of the request and may read no more of it
        elif keeps_alive:
            if self._is_paused:
                self._is_paused = False
                transport.resume_reading()
            self._on_free(self)
        else:
            transport.close()

    def _remember(self, data: bytes, exchange: Exchange) -> None:
        """Recognise the next answer with the head of this one, which came whole in this read."""
        self._known = None
        if self._heads_left and (size := exchange.repeatable) >= 0 and self.is_open:
            self._heads_left -= 1
            head = RepeatedHead.of(data, size)
            self._known = None if head is None else (head, exchange)

    def _break(self, error: Exception) -> None:
        exchange, self.exchange = self.exchange, None
        finished, self._finished = self._finished, None
        if finished is not None:
            finished.completed()  # what is wrong came behind its answer
        if exchange is not None:
            exchange.broke(error)
        self.cut()
