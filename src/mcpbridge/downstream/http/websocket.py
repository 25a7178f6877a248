"""The WebSocket front: a conversation on a WebSocket, one message a text frame (in no revision; SEP-1288 proposes it).

The rules are those of stdio: the request decides its era, and a notification cancels. Host, Origin and token were
checked at the upgrade (`app.py`), before anything here runs. Frames are not compressed: on loopback that costs more
than it saves.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import time
from typing import Final

from websockets.datastructures import Headers
from websockets.exceptions import NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from mcpbridge.base.log import get_logger
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.conversation import READ_LIMIT, Conversation
from mcpbridge.downstream.http.exchange import Headers as RawHeaders
from mcpbridge.downstream.http.exchange import Refused
from mcpbridge.downstream.http.token_lifetime import end_of, is_open_by
from mcpbridge.downstream.services import Core
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.protocol.reading.client_messages import read_client_message

log = get_logger("mcpbridge.websocket_front")

SUBPROTOCOL: Final = Subprotocol("mcp")

_UNAUTHORIZED, _FORBIDDEN = 3000, 3003
"""The codes of closing frames for it (IANA, WebSocket close codes)."""
SILENT_TICKS = 2
"""Pings in a row that nothing came back for, after which the client counts as gone."""
_CLOSING = 10.0
"""Seconds for a client to finish what it is sending and to answer the closing frame; then the connection is cut."""
_LAST_MOMENT = 1.0
"""The same when the bridge stops."""


class WebSockets:
    """All WebSocket clients of one front."""

    def __init__(self, core: Core, settings: HttpSettings) -> None:
        self._core = core
        self._settings = settings
        self._open: set[_Connection] = set()

    def __len__(self) -> int:
        return len(self._open)

    def accept(
        self, path: str, headers: RawHeaders | list[tuple[bytes, bytes]], transport: asyncio.Transport, client: Client
    ) -> None:
        """Answer the handshake and take the connection over.

        Raises:
            Refused: it is no handshake, offers only other subprotocols, or there are too many connections.
        """
        if len(self._open) >= self._settings.max_sessions:
            text = f"All {self._settings.max_sessions} sessions are busy (`http.max_sessions`)"
            raise Refused(503, text, headers=((b"retry-after", b"10"),), close=True)
        handshake = Headers((name.decode("latin-1"), value.decode("latin-1").strip()) for name, value in headers)
        opening = ServerProtocol(subprotocols=[SUBPROTOCOL], select_subprotocol=_choose)
        response = opening.accept(Request(path, handshake))
        if response.status_code != 101:
            raise Refused(response.status_code, f"This is no WebSocket handshake: {opening.handshake_exc}", close=True)
        transport.write(response.serialize())
        connection = _Connection(self._core, self._settings, transport, client, self._open.discard)
        self._open.add(connection)
        transport.set_protocol(connection)

    def end_of_user(self, principal: str, client_id: str) -> None:
        """Close the connections of this principal, by way of this OAuth client; empty: of any."""
        for connection in list(self._open):
            client = connection.client
            if is_open_by(client.principal, client.identity, principal, client_id):
                connection.end("the access token was revoked")

    async def stop(self, seconds: float) -> None:
        """Read no more requests, let open ones finish for that long, then close every connection."""
        await asyncio.gather(*(connection.stop(seconds) for connection in list(self._open)))


class _Connection(asyncio.Protocol):
    """One client. Messages go out in one system call a turn of the loop."""

    def __init__(
        self,
        core: Core,
        settings: HttpSettings,
        transport: asyncio.Transport,
        client: Client,
        on_end: "Callable[[_Connection], None]",
    ) -> None:
        self.client = client
        self._frames = ServerProtocol(state=State.OPEN, max_size=settings.max_body)
        self._transport = transport
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        """A message that comes in several frames."""
        self._unsent = 0
        """Bytes taken for sending and not yet given to the transport."""
        self._is_flushing = False
        self._is_paused = False
        self._lost = asyncio.Event()
        self._interval = settings.keep_alive
        self._silent_ticks = 0
        self._pending_before = 0
        self._timer = self._loop.call_later(self._interval, self._tick)
        self._end: asyncio.TimerHandle | None = None
        """Set once the connection is being closed."""
        self._conversation = Conversation(core, client, send=self._send, pending=self._pending)
        client.hang_up = partial(self.end, code=_FORBIDDEN)
        until = end_of(client.identity)
        self._expiry = (
            None
            if until is None
            else self._loop.call_later(max(0.0, until - time()), self.end, "the access token expired")
        )

    async def stop(self, seconds: float) -> None:
        """See `WebSockets.stop`."""
        self._transport.pause_reading()
        await self._conversation.finish(seconds)
        if self._frames.state is State.OPEN:
            self._frames.send_close(CloseCode.GOING_AWAY, "the bridge is stopping")
            self._flush()
        if not self._transport.is_closing():
            self._transport.resume_reading()  # for the closing frame of the client
        try:
            async with asyncio.timeout(_LAST_MOMENT):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()

    def end(self, why: str, code: int = _UNAUTHORIZED) -> None:
        """What let the client in is over."""
        self._conversation.cancel()
        if self._frames.state is State.OPEN:
            self._frames.send_close(code, why)
            self._flush()

    # -- asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        self._silent_ticks = 0
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Frame):
                self._take(event)
        self._flush()
        if self._pending() > READ_LIMIT and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """The client has closed its side without a closing frame."""
        self._frames.receive_eof()
        self._flush()

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._timer.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._end is not None:
            self._end.cancel()
        self._conversation.close()
        self._on_end(self)
        self._lost.set()

    # -- in

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.CONT:
            self._parts.append(bytes(frame.data))
            if frame.fin:
                parts, self._parts = self._parts, []
                self._take_message(parts[0] if len(parts) == 1 else b"".join(parts))
        elif frame.opcode is Opcode.BINARY:
            self._frames.fail(CloseCode.UNSUPPORTED_DATA, "a message is a text frame")
        elif frame.opcode is Opcode.CLOSE:
            self._conversation.cancel()

    def _take_message(self, data: bytes) -> None:
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError:
                self._frames.fail(CloseCode.INVALID_DATA, "a text frame is UTF-8")
                return
        self._conversation.take(read_client_message(data))

    # -- out

    def _send(self, message: bytes) -> bool | None:
        if self._frames.state is not State.OPEN:
            return False
        self._frames.send_text(message)
        self._unsent += len(message)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        return None

    def _pending(self) -> int:
        return self._unsent + self._transport.get_write_buffer_size()

    def _flush(self) -> None:
        self._is_flushing = False
        self._unsent = 0
        parts = self._frames.data_to_send()
        if not parts or self._transport.is_closing():
            return
        self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._frames.close_expected() and self._end is None:
            self._end = self._loop.call_later(_CLOSING, self._transport.abort)
        if not parts[-1]:  # stands for the end of what we say
            if self._transport.can_write_eof():
                # Not closed yet: what the client has still on its way would reset the connection, and the reason for
                # the end would be lost with it.
                self._transport.write_eof()
            else:
                self._transport.close()

    def _tick(self) -> None:
        """Ask for a sign of life. A client that takes what it was sent shows one too, however slow it is."""
        pending = self._pending()
        if self._pending_before and pending < self._pending_before:
            self._silent_ticks = 0
        self._pending_before = pending
        if self._silent_ticks >= SILENT_TICKS:
            log.info(
                "client does not answer pings; closing its connection", seconds=self._silent_ticks * self._interval
            )
            self._transport.abort()
            return
        self._silent_ticks += 1
        if self._frames.state is State.OPEN:
            self._frames.send_ping(b"")
            self._flush()
        self._timer = self._loop.call_later(self._interval, self._tick)


def _choose(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """`mcp` where it is offered. Clients in the field that offer none at all mean it too."""
    if SUBPROTOCOL in offered:
        return SUBPROTOCOL
    if offered:
        raise NegotiationError(f"the subprotocol is {SUBPROTOCOL}")
    return None
