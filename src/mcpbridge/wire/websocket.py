"""The WebSocket transport: subprotocol `mcp`, one JSON-RPC message a frame (SEP-1288 and what servers do).

In no revision of the protocol, so the rules of stdio hold: the first answer tells the era, cancelling is a
notification, all streams share the channel.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import httpx2

from mcpbridge._version import __version__
from mcpbridge.errors import UpstreamHttpError, UpstreamUnavailable
from mcpbridge.redaction import Redactor
from mcpbridge.wire.dial import dial, why_not_connected
from mcpbridge.wire.network import Network
from mcpbridge.wire.transport import Channel, Receiver, TransportKind
from mcpbridge.wire.tunnel import open_tunnel
from mcpbridge.wire.websocket_channel import WsChannel
from mcpbridge.wire.websocket_upgrade import Upgrade

__all__ = ["WebSocketTransport"]

_PING_SECONDS = 20.0
"""Silence after which the server is pinged."""
_PONG_SECONDS = 20.0
"""A server that then shows no sign of life for so long is gone."""
_MAX_REDIRECTS = 3


class WebSocketTransport:
    """Opens channels to one WebSocket address. `max_bytes` bounds a message; `connect_timeout` is in seconds."""

    kind: TransportKind = "websocket"

    def __init__(
        self,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str],
        network: Network | None = None,
        connect_timeout: float = 10.0,
        max_bytes: int = 64 << 20,
        ping_seconds: float = _PING_SECONDS,
        pong_seconds: float = _PONG_SECONDS,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._name = name
        self._url = url
        self._headers = dict(headers)
        self._network = network or Network()
        self._connect_timeout = connect_timeout
        self._max_bytes = max_bytes
        self._pings = (ping_seconds, pong_seconds)
        own = Redactor([part for value in headers.values() for part in (value, value.rpartition(" ")[2])])
        self._redact: Callable[[str], str] = lambda text: own(redact(text))

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
            self._name, self._url, self._headers, user_agent=f"mcpbridge/{__version__}", redact=self._redact
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
            channel = WsChannel(self._name, protocol, receiver, self._max_bytes, self._redact)
            try:
                async with asyncio.timeout(self._connect_timeout):
                    await self._dial(url, channel)
                    answer = await channel.opened(upgrade.request(protocol, token))
                target = upgrade.judge(url, protocol, answer)
            except TimeoutError:
                channel.cut()
                what = f"no connection to {_place(url)} within {self._connect_timeout:g} s"
                raise UpstreamUnavailable(self._name, what) from None
            except (OSError, ValueError) as error:  # ValueError: a host name that IDNA refuses
                channel.cut()
                way = " through its proxy" if self._network.proxy_for(url) else ""
                what = self._redact(f"{why_not_connected(error)}: {_place(url)}{way}")
                raise UpstreamUnavailable(self._name, what) from error
            except BaseException:
                channel.cut()
                raise
            if target is None:
                return channel
            channel.cut()
            url = target
        raise UpstreamHttpError(self._name, 308, "it redirects in a circle")

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
