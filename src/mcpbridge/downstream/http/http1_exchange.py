"""One HTTP/1.1 request on a connection of ours, and its response: `Exchange` without ASGI in between.

The body has nearly always come with the head, so reading it waits for nothing. A whole answer leaves in one write.
Another ASGI application (the admin API, the console) is served by `scope`, `receive` and `send`, which are made only
when they are asked for.
"""

import asyncio
import re
from collections.abc import Coroutine, MutableMapping
from typing import Any, Protocol

from mcpbridge.downstream.http.body_deadline import Deadline
from mcpbridge.downstream.http.exchange import (
    NO_HEADERS,
    ClientLeft,
    DirectExchange,
    Headers,
    Scope,
    status_line,
    too_large,
)
from mcpbridge.protocol.payload import Pieces

_JOINED = 1 << 16
"""Bytes of a body that is copied behind its head, so that both are one write."""
_FORBIDDEN = re.compile(rb"[\r\n\0]")
"""What would end a header early."""


class Connection(Protocol):
    """What a response needs of its connection."""

    transport: asyncio.Transport
    drained: asyncio.Event | None
    """Set when the client has taken what was written; None while it takes all."""

    @property
    def connections(self) -> "Clock":
        """What all connections share."""
        ...

    async def drain(self) -> None:
        """Wait until the client takes more."""
        ...

    def write(self, data: bytes) -> None:
        """Send it after all that was sent before."""
        ...

    def read_on(self) -> None:
        """Someone waits for the rest of a body."""
        ...

    def answered(self, exchange: "Http1Exchange") -> None:
        """The response is complete."""
        ...

    def abort(self) -> None:
        """Cut it."""
        ...

    def run(self, exchange: "Http1Exchange", work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let a request that began without a task continue in one, which takes its first step in any case."""
        ...


class Clock(Protocol):
    """What all connections share."""

    date: bytes
    """The header `date` with its line end."""


class Http1Exchange(DirectExchange):
    """A request that came on `Http1Connection`."""

    __slots__ = (
        *("_body", "_connection", "_is_body_told", "_is_chunked", "_size", "_waiter", "expects_continue"),
        *("had_task", "has_begun", "has_left", "http_version", "is_body_whole", "is_complete"),
        "is_started",
        *("keeps_alive", "url"),
    )

    def __init__(
        self, connection: Connection, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]]
    ) -> None:
        self._begin(method, path, query, headers)
        self._connection = connection
        self.admission = self.express = None
        self.url = b""
        self.http_version = "1.1"
        self.keeps_alive = True
        self.expects_continue = False
        self.is_started = False
        self.had_task = False
        """A task answers it, or did, and may still look at it."""
        self._body: list[bytes] = []
        self._size = 0
        self.is_body_whole = False
        self._is_body_told = False
        self.has_begun = False
        """The response has begun."""
        self.is_complete = False
        """The response is complete."""
        self.has_left = False
        """The client closed the connection."""
        self._is_chunked = False
        self._waiter: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.method} {self.path} complete={self.is_complete} left={self.has_left}>"

    # From the connection

    def take(self, body: bytes) -> int:
        """A part of the body has come. Returns how many bytes wait to be read."""
        if self.is_complete:
            return 0  # nobody reads it any more
        self._body.append(body)
        self._size += len(body)
        if self._waiter is not None:
            self._waiter.set()
        return self._size

    def body_ended(self) -> None:
        """The body is whole."""
        self.is_body_whole = True
        if self._waiter is not None:
            self._waiter.set()

    def client_left(self) -> None:
        """The connection is gone."""
        self.has_left = True
        if self._waiter is not None:
            self._waiter.set()
        if self.express is not None:
            self.express.continue_call()

    def again(self, body: bytes) -> "Http1Exchange":
        """The next request on this connection, which has the same head but for its length, and is whole.

        Its headers are those of this one: nobody asks for the length of a body that is there. It is this very object
        where nobody has it any more: no task had it, so whatever is read from the head is as it was.
        """
        if self.had_task:
            exchange = Http1Exchange.__new__(Http1Exchange)  # what is read from the head is not read again
            exchange._repeat(self, self._connection, body)  # noqa: SLF001 - its own
            return exchange
        self._body, self._size, self.frame, self.extra = [body], len(body), None, NO_HEADERS
        self.is_started, self.is_complete, self.has_begun, self.is_forwarded = True, False, False, False
        return self

    def _repeat(self, former: "Http1Exchange", connection: Connection, body: bytes) -> None:
        self._begin_again(former)
        self.url, self.express = former.url, None
        self.admission, self.http_version, self._connection = former.admission, "1.1", connection
        self._body, self._size, self._waiter = [body], len(body), None
        self.keeps_alive = self.is_body_whole = self.is_started = True
        self.is_complete = self.has_begun = self.has_left = self.had_task = False
        self.expects_continue = self._is_body_told = self._is_chunked = False

    async def _wait(self) -> None:
        if self._waiter is None:
            self._waiter = asyncio.Event()
        self._waiter.clear()
        await self._waiter.wait()

    # The request

    @property
    def whole_body(self) -> bytes:
        """The body, which has come whole. It can still be read."""
        if len(self._body) != 1:
            self._body = [b"".join(self._body)]
        return self._body[0]

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Continue in a task, which takes its first step in any case. It is to answer the request."""
        return self._connection.run(self, work)

    async def body(self, limit: int, deadline: Deadline) -> bytes:
        """See `Exchange.body`."""
        if not self.is_body_whole:
            return await super().body(limit, deadline)
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self._is_body_told = True
        if len(body) > limit:
            raise too_large(limit)
        return body

    async def _receive_part(self) -> tuple[bytes, bool]:
        while not self._body and not self.is_body_whole:
            if self.has_left:
                raise ClientLeft
            if self.expects_continue and not self.has_begun:
                self.expects_continue = False
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._connection.read_on()
            await self._wait()
        body, self._body, self._size = b"".join(self._body), [], 0
        self._is_body_told = self.is_body_whole
        return body, self.is_body_whole

    async def until_client_leaves(self) -> None:
        """See `Exchange.until_client_leaves`."""
        while not (self.has_left or self.is_complete):
            await self._wait()

    # The response

    async def send_json(self, data: bytes | Pieces, status: int = 200, headers: Headers = NO_HEADERS) -> None:
        """See `Exchange.send_json`."""
        connection = self._connection
        if connection.drained is not None:
            await connection.drain()
        if isinstance(data, Pieces) or len(data) > _JOINED or status != 200 or self.method == "HEAD":
            await super().send_json(data, status, headers)
            return
        self.send_now(data, headers)

    def send_now(self, data: bytes, headers: Headers = NO_HEADERS) -> None:
        """Answer with one JSON document in one write, whether or not the client takes it: one that is not large."""
        connection = self._connection
        more = b""
        if headers or self.extra:
            more = _lines((*headers, *self.extra))
            self._heed(headers)
        if not self.keeps_alive:
            more += _CLOSE
        self.has_begun = True
        transport = connection.transport
        if not transport.is_closing():
            transport.write(
                b"%b%b%b%d\r\n%b\r\n%b" % (_JSON_HEAD, connection.connections.date, _LENGTH, len(data), more, data)
            )
        # As `_end`, which nearly every answer would enter here.
        self.is_complete = True
        self._body = []
        if self._waiter is not None:
            self._waiter.set()
        connection.answered(self)

    async def start(self, status: int, headers: Headers) -> None:
        """See `Exchange.start`."""
        await self._connection.drain()
        self._heed(headers)
        lines = _lines(headers)
        has_length = any(name == b"content-length" for name, _ in headers)
        if not has_length and status not in (204, 304) and self.method != "HEAD":
            if self.http_version == "1.1":
                self._is_chunked = True
                lines += b"transfer-encoding: chunked\r\n"
            else:
                self.keeps_alive = False  # the end of the connection is the end of the body
        if not self.keeps_alive:
            lines += _CLOSE
        self.has_begun = True
        self._connection.write(b"%b%b%b\r\n" % (status_line(status), self._connection.connections.date, lines))

    async def write(self, chunk: bytes) -> None:
        """See `Exchange.write`."""
        await self._connection.drain()
        if chunk and self.method != "HEAD":
            self._connection.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._is_chunked else chunk)

    async def finish(self, data: bytes = b"") -> None:
        """See `Exchange.finish`."""
        if data:
            await self.write(data)
        if self._is_chunked:
            self._connection.write(b"0\r\n\r\n")
        self._end()

    def break_off(self) -> None:
        """See `Exchange.break_off`."""
        self._connection.abort()
        self.client_left()

    def _heed(self, headers: Headers) -> None:
        for name, value in headers:
            if name == b"connection" and b"close" in value.lower():
                self.keeps_alive = False

    def _end(self) -> None:
        self.is_complete = True
        self._body = []
        if self._waiter is not None:
            self._waiter.set()
        self._connection.answered(self)

    # For other ASGI applications

    @property
    def peer(self) -> str:
        """See `Exchange.peer`."""
        return peer_of(self._connection.transport)

    @property
    def scope(self) -> Scope:
        """See `Exchange.scope`."""
        transport, forwarded = self._connection.transport, self.forwarded
        scheme = "http" if transport.get_extra_info("ssl_object") is None else "https"
        client = _address(transport.get_extra_info("peername"))
        if forwarded is not None:
            scheme = forwarded.scheme or scheme
            client = (forwarded.client, client[1] if client else 0) if forwarded.client else client
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self.http_version,
            "scheme": scheme,
            "method": self.method,
            "root_path": "",
            "path": self.path,
            "raw_path": self.url.partition(b"?")[0],
            "query_string": self.query,
            "headers": self.raw_headers,
            "client": client,
            "server": _address(transport.get_extra_info("sockname")),
            "state": {},
        }

    async def receive(self) -> MutableMapping[str, Any]:
        """The next part of the body, or that the client has left."""
        if not self._is_body_told:
            try:
                body, is_whole = await self._receive_part()
            except ClientLeft:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": body, "more_body": not is_whole}
        await self.until_client_leaves()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the response.

        Raises:
            ValueError: a header holds what would end it early.
        """
        if self.has_left or self.is_complete:
            return
        if message["type"] == "http.response.start":
            headers = tuple((bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ()))
            if any(_FORBIDDEN.search(name) or _FORBIDDEN.search(value) for name, value in headers):
                raise ValueError("a header of the response holds a line end")
            await self.start(message["status"], headers)
        elif message.get("more_body", False):
            await self.write(message.get("body", b""))
        else:
            await self.finish(message.get("body", b""))


_JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_LENGTH = b"content-length: "
_CLOSE = b"connection: close\r\n"


def _lines(headers: Headers) -> bytes:
    """Header lines; `connection` is written by whoever ends the head."""
    return b"".join([b"%b: %b\r\n" % header for header in headers if header[0] != b"connection"])


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address at the other end of a connection; empty for a Unix socket."""
    name: object = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) and name else ""  # pyright: ignore[reportUnknownArgumentType] - a socket's name


def _address(name: object) -> tuple[str, int] | None:
    """A host and a port as ASGI has them; None for a Unix socket."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None  # pyright: ignore[reportUnknownArgumentType] - a socket's name
