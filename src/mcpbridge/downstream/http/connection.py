"""One TCP connection of HTTP/1.1: it reads requests, starts them one after the other, and writes their responses.

Heads are parsed by httptools (llhttp), which refuses what a second reader could understand otherwise (RFC 9112,
section 11.2): two lengths, a length beside `chunked`, bare line feeds. What is decided here is the life of the
connection:

- A request begins when its head has come. Nearly always its body came along, and then nothing waits for it.
- Requests that arrive before the answer of the former one wait in line; meanwhile no more is read.
- Limits: a head has `_MAX_HEAD` bytes and `_HEAD_SECONDS`; a connection without requests is kept for
  `_IDLE_SECONDS`; a client that takes nothing of what is written for `_STUCK_SECONDS` is cut off. One timer a second
  looks at all connections (`Connections`), so a request starts and cancels none.
- A connection that asks to become a WebSocket is given away.

`http1_exchange.py` is the request and its response.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools

from mcpbridge.base.background_tasks import FirstStep
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.http.exchange import Exchange, Refused, refusal
from mcpbridge.downstream.http.http1_exchange import Http1Exchange
from mcpbridge.protocol.http.repeated_head import RepeatedHead

log = get_logger("mcpbridge.http")

_MAX_HEAD = 64 * 1024
"""Bytes of a request line and headers beyond the first read."""
_HEAD_SECONDS = 30.0
"""Seconds for a head to come whole, the first one from the opening of the connection."""
_IDLE_SECONDS = 75.0
"""Seconds that a connection without requests is kept: longer than clients keep theirs, so that they close first."""
_STUCK_SECONDS = 300.0
"""Seconds without a byte taken by a client whose answer waits to be sent."""
_TICK = 1.0
"""Seconds between two looks at all connections."""

_BODY_AHEAD = 64 * 1024
"""Bytes of a body that are read before someone asks for them."""


class Front(Protocol):
    """What answers at an address."""

    def handle(self, exchange: Exchange) -> Awaitable[None]:
        """Serve one request."""
        ...

    def upgrade(
        self, path: str, query: bytes, raw_headers: list[tuple[bytes, bytes]], transport: asyncio.Transport
    ) -> None:
        """Take a connection over that asks to become a WebSocket, or refuse it."""
        ...

    async def stop(self, seconds: float) -> None:
        """Take no new requests, and let open ones finish for that long."""
        ...


class Connections:
    """All connections of one listening socket, the requests that run on them, and the clock they share."""

    def __init__(self, front: Front, take: Callable[[Http1Exchange], bool] = lambda exchange: False) -> None:
        """`take` sees each whole request first, and answers it without a task; False: nothing was done."""
        self.front = front
        self.take = take
        self.loop = asyncio.get_running_loop()
        self.open = set[Http1Connection]()
        self.tasks = set[asyncio.Task[None]]()
        self.is_stopping = False
        self.date = b""
        """The header `date` with its line end."""
        self.now = 0.0
        """The loop's time at the last tick."""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} open={len(self.open)} requests={len(self.tasks)}>"

    def connect(self) -> "Http1Connection":
        """The protocol of a new connection."""
        return Http1Connection(self)

    def add(self, connection: "Http1Connection") -> None:
        """A connection is open."""
        self.open.add(connection)
        if self._timer is None:
            self._tick()

    def discard(self, connection: "Http1Connection") -> None:
        """A connection is closed, or is no longer ours."""
        self.open.discard(connection)

    async def close(self, seconds: float) -> None:
        """Close all connections. What still answers has so many seconds; then it is cancelled."""
        self.is_stopping = True
        for connection in list(self.open):
            connection.close_when_idle()
        if self.tasks:
            _, running = await asyncio.wait(self.tasks, timeout=seconds)
            for task in running:
                task.cancel()
        for connection in list(self.open):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.now = self.loop.time()
        self.date = b"date: %b\r\n" % formatdate(time.time(), usegmt=True).encode()
        for connection in list(self.open):
            connection.look(self.now)
        self._timer = self.loop.call_later(min(_TICK, _HEAD_SECONDS), self._tick) if self.open else None


class Http1Connection(asyncio.Protocol):
    """A connection to a client."""

    __slots__ = (
        *("_expects", "_head_size", "_headers", "_is_between", "_is_broken", "_is_in_head", "_is_paused"),
        *("_is_upgrading", "_known", "_latest", "_line", "_loop", "_parser", "_since", "_stuck", "_url"),
        *("connections", "current", "drained", "transport"),
    )

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        """What it shares with all others."""
        self._loop = connections.loop
        self._parser = httptools.HttpRequestParser(self)
        # Without it a request that closes the connection is refused for what follows it, instead of answered.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.current: Http1Exchange | None = None
        """The request that is being answered."""
        self._latest: Http1Exchange | None = None
        """The one whose body comes in."""
        self._line = deque[Http1Exchange]()
        """Requests that came before the answer of `current`."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects = False
        self._head_size = 0
        self._is_in_head = True
        self._is_between = True
        """The parser has read no part of the next request."""
        self._known: tuple[RepeatedHead, Http1Exchange] | None = None
        """The head of a request that was answered without a task, and that request."""
        self._is_upgrading = False
        self._is_broken = False
        """Nothing more is read from it."""
        self._is_paused = False
        """No data is wanted for now."""
        self._since: float | None = None
        """The time at which it began to wait for a head; None while a request is being read or answered."""
        self.drained: asyncio.Event | None = None
        """Set when the client has taken what was written; None while it takes all."""
        self._stuck: tuple[float, int] = (0.0, 0)
        """Since when, and with how many bytes, the client has taken nothing."""

    def __repr__(self) -> str:
        what = "answering" if self.current else "waiting"
        return f"<{type(self).__name__} {what} in_line={len(self._line)} broken={self._is_broken}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = cast("asyncio.Transport", transport)
        self._since = self._loop.time()
        self.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: nobody hears what is answered from now on."""
        self.connections.discard(self)
        self._is_broken = True
        self.resume_writing()
        if self.current is not None:
            self.current.client_left()
        if self._latest is not None:
            self._latest.client_left()
        self._line.clear()

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless a head takes too long."""
        if self._is_broken:
            return
        was_between = self._is_between and self.current is None
        if was_between and self._known is not None and self._take_again(*self._known, data):
            return
        if self._is_in_head and self._head_size:
            self._head_size += len(data)
            if self._head_size > _MAX_HEAD:
                self._refuse(b"431 Request Header Fields Too Large")
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._is_upgrading:
                self._give_away()
            else:
                self._decline_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            if isinstance(error, httptools.HttpParserCallbackError):
                log.error("a request could not be taken", exc_info=error)  # a fault of ours, not of the client's
            self._break("This is no valid HTTP request")
            return
        current = self.current
        if current is not None and not current.is_started:
            self._begin(current)
            if was_between and current.express is not None and self._is_between and not self._line:
                head = RepeatedHead.of(data, len(current.whole_body))
                self._known = None if head is None else (head, current)

    def _take_again(self, head: RepeatedHead, former: Http1Exchange, data: bytes) -> bool:
        """Take a request with a known head, without parsing it. False: it has another, or has not come whole."""
        body = head.body_in(data)
        if body is None or self.connections.is_stopping:
            return False
        self._since = None
        exchange = self._latest = self.current = former.again(body)
        self._known = head, exchange
        if self.drained is not None or not self.connections.take(exchange):  # as `_begin`, for one that is whole
            self._start(exchange)
        return True

    def on_message_begin(self) -> None:
        """A head begins."""
        self._is_in_head, self._is_between = True, False
        self._head_size, self._expects = 1, False
        self._url, self._headers = b"", []
        if self._latest is not None:  # the first head counts from the opening of the connection
            self._since = self.connections.now

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._url = self._url + url if self._url else url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: those are dropped, since the rules looked at the headers already."""
        if self._is_in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self._expects = True
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A head is whole."""
        if self._is_broken:
            return  # it came together with what ends the connection
        self._is_in_head = False
        self._since = None
        parser, url = self._parser, self._url
        if parser.should_upgrade() and parser.get_method() != b"CONNECT" and not _asks_for_websocket(self._headers):
            return  # the parser stops here, and `_decline_upgrade` goes on
        if not url.startswith(b"/") and url != b"*":
            self._take_host_of_target()
        if parser.should_upgrade():
            self._is_upgrading = True
            return
        if self._latest is not None and not self._latest.keeps_alive:
            self._latest = None  # what follows the last request of a connection is not answered
            self._is_broken = True
            return
        method, version = parser.get_method(), parser.get_http_version()
        path, query = _target(url)
        exchange = Http1Exchange(self, _text(method), path, query, self._headers)
        exchange.url = url
        exchange.http_version = version
        exchange.keeps_alive = version == "1.1" and parser.should_keep_alive() and not self.connections.is_stopping
        exchange.expects_continue = self._expects
        self._latest = exchange
        if self.current is None:
            self.current = exchange
        else:
            self._line.append(exchange)
            self._pause()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        exchange = self._latest
        if exchange is not None and not self._is_upgrading and exchange.take(body) > _BODY_AHEAD:
            self._pause()

    def on_message_complete(self) -> None:
        """The body is whole."""
        if self._latest is not None and not self._parser.should_upgrade():
            self._latest.body_ended()
            self._is_between = True

    def pause_writing(self) -> None:
        """The client takes less than is written."""
        self.drained = asyncio.Event()
        self._stuck = (self._loop.time(), self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has taken most of what was written."""
        if self.drained is not None:
            self.drained.set()
            self.drained = None

    async def drain(self) -> None:
        """Wait until the client takes more; at once where it takes all. Cancelling it costs nothing."""
        if self.drained is not None:
            await self.drained.wait()

    def write(self, data: bytes) -> None:
        """Send it after all that was sent before; nothing where the client is gone."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def read_on(self) -> None:
        """Someone waits for the rest of a body, or for the next request."""
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()

    def _pause(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def answered(self, exchange: Http1Exchange) -> None:
        """The response of `exchange` is complete: the next request has its turn, or the connection waits for one."""
        if exchange is not self.current:
            return
        self.current = None
        if not exchange.keeps_alive or self.connections.is_stopping:
            self._is_broken = True
            self.transport.close()
        elif self._line:
            self.current = self._line.popleft()
            self._begin(self.current)
        else:
            self._since = self.connections.now
            if self._is_paused:
                self.read_on()

    def look(self, now: float) -> None:
        """Once a second: end the connection if it has waited for too long."""
        if self.drained is not None:
            size = self.transport.get_write_buffer_size()
            if size < self._stuck[1]:
                self._stuck = (now, size)
            elif now - self._stuck[0] > _STUCK_SECONDS:
                self.abort()
        if self._since is None or self.current is not None:
            return
        waited = now - self._since
        if self._is_in_head:
            if waited >= _HEAD_SECONDS:
                self._refuse(b"408 Request Timeout")
        elif waited >= _IDLE_SECONDS:
            self._is_broken = True
            self.transport.close()

    def close_when_idle(self) -> None:
        """The server ends: close it now, or after the answer that is under way."""
        if self.current is None:
            self._is_broken = True
            self.transport.close()
        else:
            self.current.keeps_alive = False
            self._line.clear()

    def abort(self) -> None:
        """Cut it."""
        self._is_broken = True
        self.transport.abort()

    def _begin(self, exchange: Http1Exchange) -> None:
        """A request has its turn: it is answered without a task, if that can be."""
        if exchange.is_body_whole and self.drained is None:
            exchange.is_started = True
            if self.connections.take(exchange):
                return
        self._start(exchange)

    def run(self, exchange: Http1Exchange, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """See `Connection`."""
        exchange.had_task = True
        return self._spawn(FirstStep(self._serve(exchange, work)))

    def _start(self, exchange: Http1Exchange) -> None:
        exchange.is_started = exchange.had_task = True
        self._spawn(self._serve(exchange))

    def _spawn(self, serving: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks = self.connections.tasks
        task = self._loop.create_task(serving)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def _serve(self, exchange: Http1Exchange, work: Awaitable[None] | None = None) -> None:
        try:
            await (work or self.connections.front.handle(exchange))
            if not exchange.is_complete and not exchange.has_left:
                raise RuntimeError("the request was left without a whole response")
        except asyncio.CancelledError:
            self.abort()
            raise
        except Exception:
            log.exception("a request failed", method=exchange.method, path=exchange.path)
            if exchange.has_begun:
                self.abort()
            else:
                await exchange.refuse(Refused(500, "The bridge failed at this request; its log says why", close=True))

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read the request as if it had not offered another protocol; the parser takes its body for that protocol.

        Java's client offers HTTP/2 so (`Upgrade: h2c`) with its first request, whatever that is.
        """
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, version)]
        lines += [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"%b\r\n%b" % (b"".join(lines), rest))

    def _give_away(self) -> None:
        """What follows is no HTTP; the front has the connection from now on."""
        self._is_broken = True
        if self.current is not None:
            self.transport.close()  # an earlier request on it is still being answered
            return
        path, query = self._target_to_upgrade()
        if not path:
            refused = Refused(400, "This cannot be upgraded: a WebSocket opens with GET and a path", close=True)
            self.transport.write(refusal(refused))
            self.transport.close()
            return
        self.connections.discard(self)
        self.connections.front.upgrade(path, query, self._headers, self.transport)

    def _target_to_upgrade(self) -> tuple[str, bytes]:
        """Path and query; no path when the request cannot open a WebSocket (RFC 6455, section 4.1)."""
        return _target(self._url) if self._parser.get_method() == b"GET" else ("", b"")

    def _take_host_of_target(self) -> None:
        """A target that is a whole URL names the host (RFC 9112, absolute-form): it must not be another than `Host`.

        One that differs is added as a second `Host`, which is refused where the headers are checked.
        """
        _, slashes, rest = self._url.partition(b"://")
        host = re.split(rb"[/?#]", rest, maxsplit=1)[0] if slashes else b""
        if host not in [value for name, value in self._headers if name == b"host"]:
            self._headers.append((b"host", host))

    def _break(self, why: str) -> None:
        """What came is no HTTP. Read no more; say so, or close after the answers of the requests before it."""
        self._is_broken = True
        if self.current is not None and not self.current.is_body_whole:
            self.current.client_left()  # the rest of its body will never come
        if self.current is None or self.current.has_left:
            self.transport.write(refusal(Refused(400, why, close=True)))
            self.transport.close()
            return
        (self._line[-1] if self._line else self.current).keeps_alive = False
        if not self.current.is_started:
            self._start(self.current)

    def _refuse(self, status: bytes) -> None:
        self._is_broken = True
        self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
        self.transport.close()


@lru_cache(maxsize=512)
def _target(url: bytes) -> tuple[str, bytes]:
    """The decoded path and the query of a request target; an empty path where it has none."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        return "", b""
    path = (parsed.path or b"").decode("ascii", "replace")
    return unquote(path) if "%" in path else path, parsed.query or b""


@lru_cache(maxsize=64)
def _text(method: bytes) -> str:
    return method.decode("ascii", "replace")


def _asks_for_websocket(headers: list[tuple[bytes, bytes]]) -> bool:
    tokens = [token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")]
    return b"upgrade" in tokens and any(
        name == b"upgrade" and value.strip().lower() == b"websocket" for name, value in headers
    )
