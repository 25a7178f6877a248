"""The HTTP front as a plain ASGI application: which rule decides first, and which path leads where.

`Host` and `Origin` come first (`host_and_origin.py`), then who is calling (`bearer_tokens.py`, and `downstream/auth/`
for tokens of issuers), then the route (`routes.py`). A body is read only for someone who may send it. On the MCP route
each request decides its own era, so both eras share one URL: `stateless.py` and `legacy.py` answer.

Each endpoint is a server of its own, so a session that was opened at one of them does not exist at the others. Other
applications learn who calls from the scope's `state`: `principal`, and `is_admin`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import monotonic, time
from types import MappingProxyType
from typing import TYPE_CHECKING

from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.downstream.auth.bearer_tokens import Authenticator
from mcpbridge.downstream.http.body_deadline import BODY_SECONDS, Deadline
from mcpbridge.downstream.http.exchange import (
    NO_HEADERS,
    Admission,
    ClientLeft,
    DirectExchange,
    Exchange,
    Receive,
    Refused,
    Scope,
    Send,
    is_json,
)
from mcpbridge.downstream.http.host_and_origin import HostCheck, Reach, as_navigation, preflight_headers
from mcpbridge.downstream.http.legacy import LegacyFront
from mcpbridge.downstream.http.readiness import Readiness
from mcpbridge.downstream.http.reply import OpenReplies, declares_modern, decode_body
from mcpbridge.downstream.http.routes import App, Mounts, Routes, serve, serve_page
from mcpbridge.downstream.http.sessions import Elsewhere
from mcpbridge.downstream.http.sse import SseFront
from mcpbridge.downstream.http.stateless import ModernFront
from mcpbridge.downstream.http.token_lifetime import REVOKED, while_valid
from mcpbridge.downstream.http.upgrade import ENDED, STOPPING, Upgrades
from mcpbridge.downstream.services import RunningBridge
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.reading.client_messages import read_client_message
from mcpbridge.protocol.revisions import LEGACY, MODERN

if TYPE_CHECKING:
    from mcpbridge.downstream.auth.resource_server import Caller, ResourceServer
    from mcpbridge.downstream.auth.trusted_proxies import TrustedProxies


_ALL_METHODS = ((b"allow", b"GET, POST, DELETE"),)
_MODERN_METHODS = ((b"allow", b"POST"),)
_WELL_KNOWN = "/.well-known/"
_CACHED = ((b"cache-control", b"max-age=300"),)
_SSE_METHODS = ((b"allow", b"GET, POST"),)
_UPGRADE = ((b"upgrade", b"websocket"),)
_LARGEST_PLAIN = 1 << 16
"""Bytes of a request that is answered without a task; a larger one is read by one."""
_NO_MOUNTS: Mapping[str, Callable[[], App]] = MappingProxyType({})


class HttpFront:
    """ASGI application with the MCP endpoints, `/healthz`, `/healthz/ready` and `/readyz`."""

    def __init__(
        self,
        bridge: RunningBridge,
        settings: HttpSettings,
        auth: Authenticator,
        *,
        reach: Reach = "loopback",
        address: str = "",
        port: int | None = None,
        scheme: str = "http",
        body_seconds: float = BODY_SECONDS,
        mounts: Mapping[str, Callable[[], App]] = _NO_MOUNTS,
        pages: Mapping[str, Callable[[], App]] = _NO_MOUNTS,
        public: Mapping[str, Callable[[], App]] = _NO_MOUNTS,
    ) -> None:
        """`reach`, `address`, `port`, `scheme`: see `HostCheck`. `mounts`: see `Mounts`.

        `body_seconds`: how long a client may take to send a request.

        `pages`: applications for browsers, which decide themselves who is let in: no bearer token is asked for.
        `public`: of these, those that pages of any origin may lead to, as a sign-in does.
        """
        self._bridge = bridge
        self._settings = settings
        self._auth = auth
        self._body_deadline = Deadline(body_seconds)
        hosts = list(settings.allowed_hosts)
        if auth.resource_server is not None and reach == "loopback":
            hosts.append(auth.resource_server.host)  # through a proxy on this machine
        self._host_check = HostCheck(
            reach=reach,
            allowed_hosts=hosts,
            allowed_origins=settings.allowed_origins,
            address=address,
            port=port,
            scheme=scheme,
        )
        self._routes = Routes(
            settings,
            lambda: bridge.server.views,
            lambda: bridge.server.profiles,
            lambda: bridge.server.backends,
            says_names=auth.resource_server is None,
        )
        self._proxies = _proxies(settings, reach)
        self._mounts, self._pages = Mounts(mounts), Mounts(pages)
        self._public = Mounts(public) if public else None
        self._underway = OpenReplies()
        self._modern = ModernFront(bridge.server, settings, self._underway)
        self._legacy = LegacyFront(bridge.server, settings, self._underway, monotonic)
        self._sse = SseFront(bridge.server, settings, self._legacy.sessions, self._body_deadline)
        self._upgrades = Upgrades(bridge.server, settings, auth, self._routes, self._host_check, self._proxies)
        self._elsewhere: Elsewhere | None = None
        self._is_stopping = False
        self._readiness = Readiness(bridge, auth, self._why_not_ready)
        self._tokens = None if auth.resource_server is None else auth.resource_server.tokens
        if auth.resource_server is not None:
            auth.resource_server.on_ended = self.end_of_user
            auth.resource_server.on_identity = lambda identity: bridge.server.newer_token(identity)  # noqa: PLW0108 - the server may be another one by then

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of another ASGI server's."""
        if scope["type"] != "http":
            await _not_http(scope, receive, send)
            return
        await self.handle(Exchange(scope, receive, send))

    def join(self, elsewhere: Elsewhere) -> None:
        """Be one of several bridges behind one balancer: sessions may be those of the others."""
        self._elsewhere = self._legacy.elsewhere = self._modern.elsewhere = self._sse.elsewhere = elsewhere
        self._bridge.server.join(elsewhere)
        self._legacy.sessions.new_id, self._legacy.sessions.tag = elsewhere.new_id, elsewhere.me.encode() + b"."
        elsewhere.serve_by(self._legacy)

    async def handle(self, exchange: Exchange, sent: object = None) -> None:
        """Serve one HTTP request. `sent`: it was sent to another bridge before (`Elsewhere.pass_on`)."""
        try:
            await (self._answer(exchange) if sent is None else self._serve_elsewhere(exchange, sent))
        except Refused as refused:
            await exchange.refuse(refused)
        except ClientLeft:
            pass

    def take(self, exchange: DirectExchange) -> bool:
        """Send the call of a whole request on the express lane, which answers it without a task, if it is plain.

        False: nothing was done, and `handle` serves it.
        """
        if self._is_stopping:
            return False
        admission, tokens = exchange.admission, self._tokens
        if admission is None or (
            admission.until is not None
            and (admission.until <= time() or (tokens is not None and admission.generation != tokens.generation))
        ):
            admission = exchange.admission = self._admit(exchange)
            if admission is None:
                return False
        elsewhere = self._elsewhere
        if elsewhere is not None and admission.session and admission.session not in self._legacy.sessions:
            return self._pass_on(exchange, admission, elsewhere)
        lane = self._bridge.server.express
        if lane is None or (lane.recorded.writes_first and not lane.plans.timed.has_express):
            return False
        body = exchange.whole_body
        if len(body) > min(_LARGEST_PLAIN, self._settings.max_body):
            return False
        items = read_client_message(body)
        frame = items[0] if items else None
        if not isinstance(frame, Frame):
            return False
        exchange.frame = frame
        if frame.method != "tools/call":
            return False
        return (self._legacy if admission.session else self._modern).take(exchange, frame, admission, lane)

    def _pass_on(self, exchange: DirectExchange, admission: Admission, elsewhere: Elsewhere) -> bool:
        """Have it answered by another bridge of the fleet without a task. False: nothing was done."""
        if exchange.is_forwarded or len(exchange.whole_body) > min(_LARGEST_PLAIN, self._settings.max_body):
            return False
        exchange.principal, exchange.identity = admission.principal, admission.identity
        exchange.version, exchange.extra = admission.version, admission.extra
        if admission.identity is not None and (server := self._auth.resource_server) is not None:
            exchange.challenge = server.insufficient_scope
        return elsewhere.pass_on(exchange, admission.session, partial(self.handle, exchange))

    def _admit(self, exchange: DirectExchange) -> Admission | None:
        """What the rules say of a request by its head; None: they refuse it, or it cannot be plain."""
        if self._proxies is not None and not exchange.is_forwarded:
            try:
                self._heed(exchange)
            except Refused:
                return None
        headers, accepts = exchange.headers, exchange.accepts
        if exchange.method != "POST" or exchange.path != self._settings.path or not accepts.json:
            return None
        version, session = exchange.header(b"mcp-protocol-version"), headers.get(b"mcp-session-id", b"").strip()
        is_readable = is_json(headers.get(b"content-type", b"")) and b"content-encoding" not in headers
        is_modern = version is not None and version not in LEGACY
        if not is_readable or is_modern == bool(session):
            return None  # without a version, or a session, its body says of which era it is
        try:
            extra = NO_HEADERS  # whoever forwarded it has looked
            if not exchange.is_forwarded:
                extra = self._host_check.check(headers, len(headers), exchange.raw_headers)
            server = self._auth.resource_server
            if server is None:
                return Admission(self._auth.principal(headers.get(b"authorization")), extra, version, session)
            caller = server.caller(exchange.path, exchange.query, headers.get(b"authorization"))
        except Refused:
            return None
        if caller is None:
            return None
        return Admission(caller.principal, extra, version, session, *caller[1:], server.tokens.generation)

    def _heed(self, exchange: Exchange) -> None:
        """Take what trusted proxies say of a request for what it is. Both hosts, the former and theirs, must be right.

        Raises:
            Refused: 400 or 421, for the former.
        """
        assert self._proxies is not None
        exchange.forwarded, exchange.headers, exchange.raw_headers = self._proxies.heed_checked(
            exchange.peer, exchange.headers, exchange.raw_headers, self._host_check.check_host
        )

    def upgrade(
        self, path: str, query: bytes, raw_headers: list[tuple[bytes, bytes]], transport: asyncio.Transport
    ) -> None:
        """Take a connection over that asks to become a WebSocket."""
        self._upgrades.upgrade(path, query, raw_headers, transport)

    def end_of_user(self, principal: str, client_id: str = "") -> None:
        """Somebody's tokens are of no use any more: end what they have open, and their calls under way.

        `client_id`: what came by way of this OAuth client alone; empty: everything.
        """
        self._legacy.express.continue_all()
        self._modern.express.continue_all()
        # A client gets another token for a 401 and repeats its call.
        self._underway.withdraw(REVOKED, lambda reply, _: reply.is_open_by(principal, client_id), is_repeated=True)
        self._legacy.sessions.end_of_user(principal, client_id)
        self._upgrades.end_of_user(principal, client_id)

    async def stop(self, seconds: float) -> None:
        """Take no new requests, let open ones finish for that long, then end them and all sessions."""
        if self._elsewhere is not None:
            end = monotonic() + seconds
            await self._elsewhere.drain(seconds)
            seconds = max(0.0, end - monotonic())
        self._is_stopping = True
        self._upgrades.refuse_more()
        self._legacy.express.continue_all()
        self._modern.express.continue_all()
        self._legacy.sessions.hang_up()
        self._underway.withdraw(ENDED, lambda reply, _: reply.is_subscription)
        async with TaskGroup() as ending:
            ending.create_task(self._finish_replies(seconds))
            ending.create_task(self._sse.stop(seconds))
            ending.create_task(self._upgrades.stop(seconds))
        self._legacy.sessions.close()
        if self._auth.resource_server is not None:
            await self._auth.resource_server.close()

    async def _finish_replies(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._underway.until_none()
        except TimeoutError:
            self._underway.withdraw(ENDED, lambda _, __: True, is_repeated=True)

    def _answer(self, exchange: Exchange, checked: "Caller | None" = None) -> Awaitable[None]:
        """What answers the request. `checked`: who sends it, where that took time; the rules have let it in before.

        Raises:
            Refused: the rules do not let it in, or nothing is there.
        """
        server, path = self._auth.resource_server, exchange.path
        if checked is not None:
            exchange.principal, exchange.identity = checked.principal, checked.identity
            if self._is_stopping:
                raise STOPPING
        else:
            if self._proxies is not None and not exchange.is_forwarded:
                self._heed(exchange)
            headers = exchange.headers
            if self._public is not None and (app := self._public.find(path)) is not None:
                return self._in_public(exchange, app)
            if not exchange.is_forwarded:
                seen = as_navigation(headers, path) if exchange.method == "GET" else headers
                exchange.extra = self._host_check.check(seen, len(headers), exchange.raw_headers)
            if path != self._settings.path or exchange.method == "OPTIONS" or self._is_stopping:
                answer = self._beside(exchange)
                if answer is not None:
                    return answer
            if server is None:
                exchange.principal = self._auth.principal(headers.get(b"authorization"))
            else:
                caller = server.caller(path, exchange.query, headers.get(b"authorization"))
                if caller is None:
                    return self._answer_once_checked(exchange, server)
                exchange.principal, exchange.identity = caller.principal, caller.identity
        if server is not None and exchange.identity is not None:
            exchange.challenge = server.insufficient_scope
        if path != self._settings.path and (answer := self._behind_token(exchange)) is not None:
            return answer
        if path == self._settings.path:
            return self._mcp(exchange)
        sees = self._bridge.server.restriction_of(exchange.principal, exchange.identity)
        exchange.endpoint = self._routes.find(path, sees)
        kind = exchange.endpoint.kind
        if kind == "mcp":
            return self._mcp(exchange)
        if kind == "ws":
            raise Refused(426, "A WebSocket is served here: ask for an upgrade", headers=_UPGRADE)
        if exchange.method == "GET":
            return while_valid(exchange, self._sse.get(exchange))
        if exchange.method == "POST":
            return self._sse.post(exchange)
        raise Refused(405, f"{exchange.method} is not served here", headers=_SSE_METHODS)

    async def _answer_once_checked(self, exchange: Exchange, server: "ResourceServer") -> None:
        caller = await server.check(exchange.path, exchange.headers.get(b"authorization"))
        await self._answer(exchange, caller)

    async def _check_again(self, exchange: Exchange) -> None:
        """Raises Refused: whoever sends this was put out since it was let in."""
        if (server := self._auth.resource_server) is not None:
            await server.check(exchange.path, exchange.headers.get(b"authorization"))

    def _beside(self, exchange: Exchange) -> Awaitable[None] | None:
        """What answers without a token: health, metadata, what browsers ask beforehand, and pages."""
        if exchange.path == "/healthz":
            return self._readiness.live(exchange)
        if exchange.path == "/healthz/ready":
            return self._readiness.ready(exchange)
        if exchange.path.startswith(_WELL_KNOWN) and self._auth.resource_server is not None:
            document = self._auth.resource_server.metadata(exchange.path)
            if document is not None and exchange.method in ("GET", "HEAD"):
                return exchange.send_json(document, headers=_CACHED)
        if exchange.method == "OPTIONS":
            allowed = preflight_headers(exchange.headers)  # browsers send no credentials with it
            if allowed is not None:
                return exchange.send_empty(204, allowed)
        if self._is_stopping:
            raise STOPPING
        app = self._pages.find(exchange.path)
        return None if app is None else self._page(app, exchange)

    def _page(self, app: App, exchange: Exchange) -> Awaitable[None]:
        if self._elsewhere is None:
            return serve(app, exchange, self._body_deadline.seconds)
        return serve_page(app, exchange, self._elsewhere, self._settings.max_body, self._body_deadline)

    def _in_public(self, exchange: Exchange, app: App) -> Awaitable[None]:
        headers = exchange.headers
        self._host_check.check_host(headers, len(headers), exchange.raw_headers)
        if self._is_stopping:
            raise STOPPING
        if exchange.method == "OPTIONS" and (allowed := preflight_headers(headers)) is not None:
            return exchange.send_empty(204, (*allowed, (b"access-control-allow-origin", b"*")))
        return self._page(app, exchange)

    def _behind_token(self, exchange: Exchange) -> Awaitable[None] | None:
        """What answers beside the endpoints: readiness, and further applications."""
        if exchange.path == "/readyz":
            return self._readiness.explained(exchange)
        app = self._mounts.find(exchange.path)
        if app is None:
            return None
        is_admin = self._auth.is_admin(exchange.headers.get(b"authorization"))
        who = {"principal": exchange.principal, "identity": exchange.identity, "is_admin": is_admin}
        return serve(app, exchange, self._body_deadline.seconds, who=who, extra=exchange.extra)

    def _mcp(self, exchange: Exchange) -> Awaitable[None]:
        version = exchange.version = exchange.header(b"mcp-protocol-version")
        if self._elsewhere is not None and version not in MODERN and not exchange.guest:
            id_ = exchange.headers.get(b"mcp-session-id")
            if id_ is not None and id_.strip() not in self._legacy.sessions:
                return self._serve_elsewhere(exchange)
        return self._mcp_here(exchange)

    def _mcp_here(self, exchange: Exchange) -> Awaitable[None]:
        version = exchange.version
        if exchange.method == "POST":
            return self._post(exchange, version)
        if exchange.method not in ("GET", "DELETE"):
            raise Refused(405, f"{exchange.method} is not served here", headers=_ALL_METHODS)
        if version in MODERN:
            raise Refused(405, f"Revision {version} has no {exchange.method}", headers=_MODERN_METHODS)
        if exchange.method == "DELETE":
            return self._legacy.delete(exchange)
        return while_valid(exchange, self._legacy.get(exchange))

    async def _serve_elsewhere(self, exchange: Exchange, sent: object = None) -> None:
        assert self._elsewhere is not None, "whoever asks for this has looked"
        if not await self._elsewhere.serve(exchange, exchange.headers[b"mcp-session-id"].strip(), sent):
            await self._mcp_here(exchange)

    async def _post(self, exchange: Exchange, version: str | None) -> None:
        headers = exchange.headers
        if not is_json(headers.get(b"content-type", b"")):
            raise Refused(415, "The Content-Type must be application/json")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(415, "Compressed requests are not read; send the body as it is")
        if not (exchange.accepts.json or exchange.accepts.events):
            raise Refused(406, "Accept application/json and text/event-stream")
        tokens, generation = self._tokens, self._tokens.generation if self._tokens is not None else 0
        body = exchange.early_body
        if body is None:
            body = await exchange.body(self._settings.max_body, self._body_deadline)
            if self._elsewhere is not None:
                exchange.early_body = body  # another bridge may have to answer
        if tokens is not None and generation != tokens.generation and exchange.identity is not None:
            await self._check_again(exchange)  # somebody was put out while the body came
        message = exchange.frame or decode_body(body)
        if version is not None and version not in LEGACY:
            is_modern = True
        elif b"mcp-session-id" in headers:
            is_modern = False  # the envelope exists in no revision that has sessions: no need to look for it
        else:
            is_modern = isinstance(message, Frame) and declares_modern(body, message)
        if not is_modern:
            if await self._is_opened_elsewhere(exchange, message):
                return
            await self._legacy.post(exchange, message)
        elif isinstance(message, Frame):
            await self._modern.post(exchange, message, exchange.raw_headers)
        else:
            raise Refused(400, "This revision has no batches")

    def _why_not_ready(self) -> str:
        if self._is_stopping:
            return "stopping"
        return "draining" if self._elsewhere is not None and self._elsewhere.is_draining else ""

    async def _is_opened_elsewhere(self, exchange: Exchange, message: Frame | list[bytes]) -> bool:
        """Whether it was an `initialize` that another bridge has answered, since this one takes nothing new."""
        elsewhere = self._elsewhere
        if elsewhere is None or not elsewhere.is_draining or exchange.is_forwarded:
            return False
        if not isinstance(message, Frame) or message.method != "initialize" or not message.id:
            return False
        return await elsewhere.open_elsewhere(exchange)


def _proxies(settings: HttpSettings, reach: Reach) -> "TrustedProxies | None":
    if not settings.trusted_proxies:
        return None
    from mcpbridge.downstream.auth.trusted_proxies import TrustedProxies

    return TrustedProxies(
        settings.trusted_proxies,
        trusts_path=reach == "path",
        family=settings.proxy_headers,
        sets_host=settings.proxy_sets_host,
    )


async def _not_http(scope: Scope, receive: Receive, send: Send) -> None:
    """The other kinds of ASGI connections: nothing is to start or stop, and WebSockets come in by `upgrade`."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
