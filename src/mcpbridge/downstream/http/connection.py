"""One TCP connection: limits on the head of a request, and a cheap deadline for the body.

The HTTP server under us reads heads of any size for any time, so a stranger without a token could fill the memory
with headers. The size of a body is limited where it is read (`exchange.py`, by `http.max_body`).

`Deadline` limits many short waits with one timer. Reading a body takes microseconds, and a timer for each costs more
than the reading (12 µs with `asyncio.timeout`, a tenth of a whole request).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

OnUpgrade = Callable[[str, list[tuple[bytes, bytes]], asyncio.Transport], None]
"""Takes over a connection that asks to become a WebSocket: path, headers (names in lower case), transport."""

_MAX_HEAD = 64 * 1024
"""Bytes of a request line and headers beyond the first read."""
_HEAD_SECONDS = 30.0
"""Seconds for a head to come whole, the first one from the opening of the connection."""


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection, closed when a head is too long or too slow."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_size = 0
        self._is_in_head = True
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(_Joined(transport))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless a head takes too long."""
        if self._is_in_head and self._head_size:
            self._head_size += len(data)
            if self._head_size > _MAX_HEAD:
                self._refuse(b"431 Request Header Fields Too Large")
                return
        super().data_received(data)
        if self._is_in_head and self._head_timer is None and not self.transport.is_closing():
            self._await_head()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._is_in_head = True
        self._head_size = 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._is_in_head = False
        if self._head_timer is not None:
            self._stop_timer()
        if not self.url.startswith(b"/"):
            self._take_host_of_target()
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        """Give the connection away: what follows is no HTTP. The server is configured with an `OnUpgrade`."""
        self._stop_timer()
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self.transport.close()  # an earlier request on it is still being answered
            return
        path = self._path_to_upgrade()
        if path is None:
            self.send_400_response("This cannot be upgraded: a WebSocket opens with GET and a path.")
            return
        self.connections.discard(self)
        transport = cast("_Joined", self.transport).plain
        cast("OnUpgrade", self.ws_protocol_class)(path, self.headers, transport)

    def _path_to_upgrade(self) -> str | None:
        """The path that is asked for; None when the request cannot open a WebSocket (RFC 6455, section 4.1)."""
        if self.parser is None or self.parser.get_method() != b"GET":
            return None
        try:
            path = httptools.parse_url(self.url).path
        except httptools.HttpParserInvalidURLError:
            return None
        return unquote(path.decode("ascii", "replace")) if path else None

    def _take_host_of_target(self) -> None:
        """A target that is a whole URL names the host (RFC 9112, absolute-form): it must not be another than `Host`.

        One that differs is added as a second `Host`, which is refused where the headers are checked.
        """
        _, slashes, rest = self.url.partition(b"://")
        host = re.split(rb"[/?#]", rest, maxsplit=1)[0] if slashes else b""
        if host not in [value for name, value in self.headers if name == b"host"]:
            self.headers.append((b"host", host))

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(_HEAD_SECONDS, self._refuse, b"408 Request Timeout")

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: bytes) -> None:
        self._stop_timer()
        self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
        self.transport.close()


class _Joined(asyncio.Transport):
    """A transport that keeps what is written until something follows, at most for this turn of the loop.

    uvicorn writes the head and the body of an answer one after the other, and each write is a system call that wakes
    the client: joined, an answer costs one of both.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes | bytearray | memoryview] = []

    @property
    def plain(self) -> asyncio.Transport:
        """The transport itself, with nothing waiting."""
        self._flush()
        return self._transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._waiting.append(data)
        if len(self._waiting) > 1:
            self._flush()  # the body has come, and takes the head along
        else:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._waiting.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._flush()
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._waiting))

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            if not self._transport.is_closing():
                self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))


_CHECKS = 4
"""How often the timer looks within the time limit: a wait may take a quarter longer than that."""

T = TypeVar("T")


class Deadline:
    """Ends each wait that takes longer than `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._since: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()
        self._is_checking = False

    async def within(self, wait: Awaitable[T]) -> T:
        """Await it.

        Raises:
            TimeoutError: it took too long and was cancelled.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can wait")
        loop = asyncio.get_running_loop()
        before = task.cancelling()
        self._since[task] = loop.time()
        if not self._is_checking:
            self._is_checking = True
            loop.call_later(self.seconds / _CHECKS, self._check, loop)
        try:
            return await wait
        except asyncio.CancelledError:
            if task not in self._expired:
                raise
            self._expired.discard(task)
            if task.uncancel() > before:
                raise  # somebody else cancelled it in the same turn
            raise TimeoutError from None
        finally:
            del self._since[task]
            if task in self._expired:  # it ended by itself all the same
                self._expired.discard(task)
                task.uncancel()

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        oldest = loop.time() - self.seconds
        for task, since in self._since.items():
            if since > oldest:
                break  # they are in the order in which they began
            self._expired.add(task)
            task.cancel()
        self._is_checking = bool(self._since)
        if self._is_checking:
            loop.call_later(self.seconds / _CHECKS, self._check, loop)
