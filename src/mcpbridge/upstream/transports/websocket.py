"""The WebSocket transport: subprotocol `mcp`, one JSON-RPC message a frame (SEP-1288 and what servers do).

The library's sans-I/O core sits right on the socket: a message costs no task and no queue.

In no revision of the protocol, so the rules of stdio hold: the first answer shows the era, cancelling is a
notification, all streams share the channel.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Unpack, cast

import anyio
import httpx2
from websockets.frames import Frame as WsFrame
from websockets.frames import Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State

from mcpbridge.base.errors import Overloaded, UpstreamGone, UpstreamHttpError, UpstreamUnavailable
from mcpbridge.base.version import __version__
from mcpbridge.protocol.http.connect import connection_failure, dial
from mcpbridge.protocol.http.proxy_tunnel import open_tunnel
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.reading.framing import read_message
from mcpbridge.protocol.reading.unreadable import find_ids
from mcpbridge.protocol.transport import Channel, Outgoing, Receiver, TransportKind
from mcpbridge.upstream.transports.remote import RemoteOptions, RemoteTransport
from mcpbridge.upstream.transports.websocket_protocol import Assembler, Message, Upgrade, WsProtocol, close_text

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

    def __repr__(self) -> str:
        state = "closed" if not self._is_open else "open" if self._is_started else "opening"
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return f"<WsChannel {self._name!r} {state}, {unsent} bytes waiting>"

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
        """Nothing: the server gets a notification."""
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
        self._heard = began = self._loop.time()
        self._pinged = None
        self._protocol.receive_data(data)
        self._write()
        self._take_events()
        self._check_protocol()
        if self._receiver.has_unasked and (pause := self._receiver.pause_after(self._loop.time() - began)):
            assert self._transport is not None  # it is what the data came through
            self._transport.pause_reading()
            self._loop.call_later(pause, self._transport.resume_reading)

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
            self._ended(f"the connection was cut: {connection_failure(exc)}" if exc else "the connection was cut")

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


_PING_SECONDS = 20.0
"""Silence after which the server is pinged."""
_PONG_SECONDS = 20.0
"""A server that then shows no sign of life for so long is gone."""
_MAX_REDIRECTS = 3


class WebSocketTransport(RemoteTransport):
    """Opens channels to one WebSocket address. `max_bytes` bounds a message; `connect_timeout` is in seconds."""

    kind: TransportKind = "websocket"

    def __init__(
        self,
        name: str,
        url: str,
        *,
        ping_seconds: float = _PING_SECONDS,
        pong_seconds: float = _PONG_SECONDS,
        **options: Unpack[RemoteOptions],
    ) -> None:
        """See the class."""
        super().__init__(name, url, **options)
        self._pings = (ping_seconds, pong_seconds)

    def last_words(self) -> str:
        """Nothing: what a server has to say it says in the reason of its close."""
        return ""

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """Open a connection; leaving closes it.

        Raises:
            ConfigError: the URL, a header or a certificate cannot be used.
            UpstreamUnavailable, UpstreamHttpError: it cannot be reached, or refuses.
        """
        upgrade = Upgrade(
            self.name, self._url, self._headers, user_agent=f"mcpbridge/{__version__}", redact=self.redact
        )
        channel = await self._open_authorized(upgrade, receiver)
        try:
            channel.start(*self._pings)
            yield channel
        finally:
            with anyio.CancelScope(shield=True):  # bounds itself: a second, then the cut
                await channel.close()

    async def _open_authorized(self, upgrade: Upgrade, receiver: Receiver) -> WsChannel:
        authorizer = self._network.authorizer
        if authorizer is None:
            return await self._open(upgrade, receiver, "")
        for last in (False, False, True):
            token = await authorizer.token()
            try:
                channel = await self._open(upgrade, receiver, token)
            except UpstreamHttpError as error:
                is_about_us = error.status in {401, 403}
                if last or not is_about_us or not await authorizer.refused(token, error.status, upgrade.challenge):
                    raise
            else:
                if token:
                    authorizer.accepted()
                return channel
        raise AssertionError("not reached")

    async def _open(self, upgrade: Upgrade, receiver: Receiver, token: str) -> WsChannel:
        url = upgrade.url
        for _ in range(_MAX_REDIRECTS):
            protocol = upgrade.protocol(url, self._max_bytes)
            channel = WsChannel(self.name, protocol, receiver, self._max_bytes, self.redact)
            try:
                async with asyncio.timeout(self._connect_timeout):
                    await self._dial(url, channel)
                    answer = await channel.opened(upgrade.request(protocol, token))
                target = upgrade.judge(url, protocol, answer)
            except TimeoutError:
                channel.cut()
                what = f"no connection to {_place(url)} within {self._connect_timeout:g} s"
                raise UpstreamUnavailable(self.name, what) from None
            except (OSError, ValueError) as error:  # ValueError: a host name that IDNA refuses
                channel.cut()
                way = " through its proxy" if self._network.proxy_for(url) else ""
                what = self.redact(f"{connection_failure(error)}: {_place(url)}{way}")
                raise UpstreamUnavailable(self.name, what) from error
            except BaseException:
                channel.cut()
                raise
            if target is None:
                return channel
            channel.cut()
            url = target
        raise UpstreamHttpError(self.name, 308, "it redirects in a circle")

    async def _dial(self, url: httpx2.URL, channel: WsChannel) -> None:
        is_tls = url.scheme == "wss"
        port = url.port or (443 if is_tls else 80)
        context = self._network.tls.ssl_context() if is_tls else None
        proxy = self._network.proxy_for(url)
        sock = await (open_tunnel(proxy, url.host, port) if proxy else dial(url.host, port))
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: channel, sock=sock, ssl=context, server_hostname=url.host if context else None
            )
        except BaseException:
            sock.close()
            raise


def _place(url: httpx2.URL) -> str:
    return url.netloc.decode("ascii", "replace")
