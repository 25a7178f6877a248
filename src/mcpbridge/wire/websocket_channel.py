"""One WebSocket connection as a channel: opened, watched, and told why it ended.

The library's sans-I/O core sits right on the socket: a message costs no task and no queue.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import anyio
from websockets.frames import Frame as WsFrame
from websockets.frames import Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State

from mcpbridge.errors import Overloaded, UpstreamGone
from mcpbridge.wire.dial import why_not_connected
from mcpbridge.wire.frame import Frame
from mcpbridge.wire.messages import read_message
from mcpbridge.wire.salvage import find_ids
from mcpbridge.wire.transport import Outgoing, Receiver
from mcpbridge.wire.websocket_messages import Assembler, Message, WsProtocol, close_text

__all__ = ["WsChannel"]

_WRITE_LIMIT = 16 << 20
"""Bytes that may wait for a server that does not read; one message may be larger while none waits."""
_END_SECONDS = 1.0
"""The closing handshake may take so long."""


class WsChannel(asyncio.Protocol):
    """A connection: the socket's protocol and the bridge's channel in one."""

    def __init__(
        self, name: str, protocol: WsProtocol, receiver: Receiver, max_bytes: int, redact: Callable[[str], str]
    ) -> None:
        self._name = name
        self._protocol = protocol
        self._receiver = receiver
        self._max_bytes = max_bytes
        self._redact = redact
        self._assembler = Assembler(max_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_open = True
        self._is_started = False
        self._early: list[WsFrame] = []
        """Frames that came with the answer to the opening."""
        self._answer: asyncio.Future[Response | None] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._heard = self._loop.time()
        self._pinged: float | None = None
        self._unsent = 0
        """Bytes that waited when the ping was sent: fewer of them is a sign of life too."""
        self._beat: asyncio.TimerHandle | None = None

    # -- opening

    async def opened(self, request: Request) -> Response | None:
        """Ask for the opening; returns the answer, None when the connection ended first."""
        self._protocol.send_request(request)
        self._write()
        return await self._answer

    def start(self, ping_seconds: float, pong_seconds: float) -> None:
        """Hand on from now on what comes, and see to it that the server lives."""
        self._ping_seconds, self._pong_seconds = ping_seconds, pong_seconds
        self._heard = self._loop.time()
        self._beat = self._loop.call_later(ping_seconds, self._look)
        self._loop.call_soon(self._begin)  # whoever opened the channel takes hold of it first

    def _begin(self) -> None:
        self._is_started = True
        early, self._early = self._early, []
        self._deliver(early)
        self._check_protocol()
        if self._gone.is_set():
            self._ended("the connection was cut")

    # -- Channel

    def send(self, message: Outgoing) -> None:
        """As `Channel` promises."""
        transport = self._transport
        if not self._is_open or transport is None or self._protocol.state is not State.OPEN:
            raise UpstreamGone(self._name, "the connection has ended")
        waiting = transport.get_write_buffer_size()
        if waiting and waiting + len(message.data) > _WRITE_LIMIT:
            raise Overloaded(f"Server '{self._name}' does not read: {waiting >> 20} MiB already wait for it")
        self._protocol.send_text(message.data)
        self._write()

    def withdraw(self, id_: bytes) -> bool:
        """Nothing: the server is told by a notification."""
        return False

    def negotiated(self, version: str) -> None:
        """Nothing: no header depends on it."""

    async def close(self) -> None:
        """End the connection in order if the server does its part in time, else cut it."""
        self._is_open = False
        if self._beat is not None:
            self._beat.cancel()
        if self._protocol.state is State.OPEN and not self._gone.is_set():
            self._protocol.send_close(1000)
            self._write()
            with anyio.move_on_after(_END_SECONDS):
                await self._gone.wait()
        self.cut()
        with anyio.move_on_after(_END_SECONDS):
            await self._gone.wait()

    def cut(self) -> None:
        """Close at once; what was not written is dropped."""
        self._is_open = False
        if self._transport is None:
            self._gone.set()
        else:
            self._transport.abort()

    # -- what the event loop reports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came: hand on the messages that they complete."""
        self._heard = self._loop.time()
        self._pinged = None
        self._protocol.receive_data(data)
        self._write()
        self._take_events()
        self._check_protocol()

    def eof_received(self) -> bool:
        """The server sends no more: that ends the connection."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._protocol.receive_eof()
        if not self._answer.done():
            if isinstance(exc, OSError):
                self._answer.set_exception(exc)
            else:
                self._take_events()  # the body of a refusal may have lasted until the end
        if not self._answer.done():
            self._answer.set_result(None)
        self._gone.set()
        if self._is_started:
            self._ended(f"the connection was cut: {why_not_connected(exc)}" if exc else "the connection was cut")

    # -- internals

    def _write(self) -> None:
        data = b"".join(self._protocol.data_to_send())  # the end of the stream is empty: closing is done elsewhere
        if data and self._transport is not None:
            self._transport.write(data)

    def _take_events(self) -> None:
        frames: list[WsFrame] = []
        for event in self._protocol.events_received():
            if isinstance(event, WsFrame):
                frames.append(event)
            elif isinstance(event, Response) and not self._answer.done():
                self._answer.set_result(event)
        if self._is_started:
            self._deliver(frames)
        else:
            self._early += frames

    def _deliver(self, frames: list[WsFrame]) -> None:
        for frame in frames:
            if not self._is_open:
                return
            if frame.opcode is Opcode.CLOSE:
                received = self._protocol.close_rcvd
                code, reason = (received.code, received.reason) if received is not None else (1005, "")
                self._ended(f"it closed the connection with {close_text(code, self._redact(reason))}")
                return
            message = self._assembler.take(frame)
            if message is not None:
                self._take(message)

    def _check_protocol(self) -> None:
        trouble = self._protocol.parser_exc
        if trouble is not None and not isinstance(trouble, EOFError):
            self._ended(f"it broke the WebSocket protocol: {trouble}")

    def _take(self, message: Message) -> None:
        if not message.is_whole:
            limit = f"larger than the limit of {self._max_bytes / 2**20:g} MiB for one message"
            self._receiver.spoiled(find_ids(message.data), limit, b"")
            return
        for item in read_message(message.data):
            if isinstance(item, Frame):
                self._receiver.frame(item, b"")
            else:
                self._receiver.spoiled(item.ids, self._redact(item.reason), b"")

    def _look(self) -> None:
        """Ping a silent server; end the connection of one that stays silent."""
        now = self._loop.time()
        transport = self._transport
        assert transport is not None
        unsent = transport.get_write_buffer_size()
        if self._pinged is not None and unsent < self._unsent:
            self._pinged, self._heard = None, now
        if self._pinged is None:
            wait = self._heard + self._ping_seconds - now
            if wait <= 0:
                self._protocol.send_ping(b"")
                self._write()
                self._pinged, self._unsent = now, transport.get_write_buffer_size()
                wait = min(self._ping_seconds, self._pong_seconds)
        else:
            wait = self._pinged + self._pong_seconds - now
            if wait <= 0:
                self._ended(f"a ping was not answered within {self._pong_seconds:g} s")
                return
        self._beat = self._loop.call_later(wait, self._look)

    def _ended(self, reason: str) -> None:
        if self._is_open and self._is_started:
            self._is_open = False
            if self._beat is not None:
                self._beat.cancel()
            self._receiver.closed(reason)
            if self._protocol.state is not State.CLOSING and self._transport is not None:
                self._transport.abort()
