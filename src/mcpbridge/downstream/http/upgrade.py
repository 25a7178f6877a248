"""Connections that ask to become a WebSocket: the same rules let them in as any request, and the same paths lead there.

What happens on a WebSocket is in `websocket.py`, which is loaded with the first one.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.http.exchange import Refused, refusal
from mcpbridge.downstream.http.host_and_origin import HostCheck
from mcpbridge.downstream.http.http1_exchange import peer_of
from mcpbridge.downstream.http.routes import Routes
from mcpbridge.downstream.services import Core
from mcpbridge.downstream.settings import HttpSettings

if TYPE_CHECKING:
    from mcpbridge.downstream.auth.resource_server import Caller
    from mcpbridge.downstream.auth.trusted_proxies import TrustedProxies
    from mcpbridge.downstream.http.websocket import WebSockets

RawHeaders = list[tuple[bytes, bytes]]

_SOON = ((b"retry-after", b"5"),)
STOPPING = Refused(503, "not sent: the bridge is stopping; it is safe to repeat", headers=_SOON, close=True)
"""The answer to whatever comes then."""
ENDED = Refused(503, "The bridge is stopping", headers=_SOON, close=True)
"""What ends work that has begun."""


class Upgrades:
    """Opens the WebSockets of one front."""

    def __init__(
        self,
        core: Core,
        settings: HttpSettings,
        auth: Authenticator,
        routes: Routes,
        host_check: HostCheck,
        proxies: "TrustedProxies | None",
    ) -> None:
        self._core, self._settings, self._auth, self._routes = core, settings, auth, routes
        self._host_check, self._proxies = host_check, proxies
        self._sockets: WebSockets | None = None
        self._checking = set[asyncio.Task[None]]()
        self._is_stopping = False

    def upgrade(self, path: str, query: bytes, raw_headers: RawHeaders, transport: asyncio.Transport) -> None:
        """Take a connection over, or refuse it."""
        address, headers = peer_of(transport), dict(raw_headers)
        authorization = headers.get(b"authorization")
        try:
            if self._proxies is not None:
                forwarded, headers, raw_headers = self._proxies.heed_checked(
                    address, headers, raw_headers, self._host_check.check_host
                )
                address = forwarded.client
            self._host_check.check(headers, len(headers), raw_headers)
            if self._is_stopping:
                raise STOPPING
            server = self._auth.resource_server
            if server is None:
                self._open(path, raw_headers, transport, address, self._auth.principal(authorization))
            elif (caller := server.caller(path, query, authorization)) is not None:
                self._open(path, raw_headers, transport, address, caller.principal, caller)
            else:
                transport.pause_reading()  # the client says nothing before it is answered
                checking = server.check(path, authorization)
                task = asyncio.ensure_future(self._open_once_checked(path, raw_headers, transport, address, checking))
                self._checking.add(task)
                task.add_done_callback(self._checking.discard)
        except Refused as refused:
            transport.write(refusal(refused))
            transport.close()

    async def _open_once_checked(
        self,
        path: str,
        raw_headers: RawHeaders,
        transport: asyncio.Transport,
        address: str,
        checking: "Awaitable[Caller]",
    ) -> None:
        try:
            caller = await checking
            if self._is_stopping:
                raise STOPPING
            if not transport.is_closing():
                self._open(path, raw_headers, transport, address, caller.principal, caller)
                transport.resume_reading()
        except Refused as refused:
            transport.write(refusal(refused))
            transport.close()

    def _open(
        self,
        path: str,
        raw_headers: RawHeaders,
        transport: asyncio.Transport,
        address: str,
        principal: str,
        caller: "Caller | None" = None,
    ) -> None:
        identity = None if caller is None else caller.identity
        endpoint = self._routes.find(path, self._core.restriction_of(principal, identity))
        if endpoint.kind != "ws":
            raise Refused(400, f"No WebSocket is served at {path[:200]}")
        client = Client(
            principal,
            endpoint.view,
            endpoint.profile,
            identity=identity,
            address=address,
            projects=tuple(self._settings.projects),
            front="websocket",
        )
        if self._sockets is None:
            from mcpbridge.downstream.http.websocket import WebSockets

            self._sockets = WebSockets(self._core, self._settings)
        self._sockets.accept(path, raw_headers, transport, client)

    def end_of_user(self, principal: str, client_id: str) -> None:
        """See `WebSockets.end_of_user`."""
        if self._sockets is not None:
            self._sockets.end_of_user(principal, client_id)

    def refuse_more(self) -> None:
        """Open none from now on."""
        self._is_stopping = True

    async def stop(self, seconds: float) -> None:
        """Let what is open finish for that long, then close it."""
        if self._sockets is not None:
            await self._sockets.stop(seconds)
