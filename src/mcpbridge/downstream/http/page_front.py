"""Serve an application for browsers on a port of its own, without any MCP endpoint beside it.

The rules about `Host`, `Origin` and `Sec-Fetch-Site` come first, as on every front (`host_and_origin.py`).
"""

import asyncio

from mcpbridge.downstream.http.exchange import ClientLeft, Exchange, Refused, refusal
from mcpbridge.downstream.http.host_and_origin import HostCheck
from mcpbridge.downstream.http.routes import App

_NO_SOCKET = Refused(400, "No WebSocket is served here")


class PageFront:
    """The front of a port of loopback that has pages only."""

    def __init__(self, app: App, *, address: str, port: int) -> None:
        """`address` and `port`: where it listens."""
        self._app = app
        self._check = HostCheck(reach="loopback", allowed_hosts=(), allowed_origins=(), address=address, port=port)

    async def handle(self, exchange: Exchange) -> None:
        """Serve one request."""
        try:
            self._check.check(exchange.headers, len(exchange.headers), exchange.raw_headers)
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except Refused as refused:
            await exchange.refuse(refused)
        except ClientLeft:
            pass

    def upgrade(
        self, path: str, query: bytes, raw_headers: list[tuple[bytes, bytes]], transport: asyncio.Transport
    ) -> None:
        """There are no WebSockets here."""
        transport.write(refusal(_NO_SOCKET))
        transport.close()

    async def stop(self, seconds: float) -> None:
        """Pages take moments; the stream of events ends with whoever made it."""
