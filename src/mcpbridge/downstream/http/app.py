"""The HTTP front as a plain ASGI application: which rule decides first, and which path leads where.

`Host` and `Origin` come first (`host_and_origin.py`), then who is calling (`bearer_tokens.py`), then the route. A body
is read only for someone who may send it. On the MCP route each request decides its own era, so both eras share one
URL: `stateless.py` and `sessions.py` answer.

`Routes` decides the paths of endpoints: the merged one, one for each server, and one for each profile. Each endpoint
is a server of its own, so a session that was opened at one of them does not exist at the others.

`Mounts` has other ASGI applications, such as the admin API. Each is made at the first request for it, since most
bridges never get one. They learn who calls from the scope's `state`: `principal`, and `is_admin`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.http.bearer_tokens import Authenticator
from mcpbridge.downstream.http.body_deadline import Deadline
from mcpbridge.downstream.http.exchange import (
    MERGED,
    NO_HEADERS,
    Admission,
    ClientLeft,
    Endpoint,
    Exchange,
    Headers,
    Kind,
    Receive,
    Refused,
    Scope,
    Send,
    is_json,
    refusal,
)
from mcpbridge.downstream.http.host_and_origin import HostCheck, Reach, preflight_headers
from mcpbridge.downstream.http.http1_exchange import Http1Exchange
from mcpbridge.downstream.http.reply import OpenReplies, declares_modern, decode_body
from mcpbridge.downstream.http.sessions import LegacyFront
from mcpbridge.downstream.http.sse import SseFront
from mcpbridge.downstream.http.stateless import ModernFront
from mcpbridge.downstream.services import RunningBridge
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.protocol.reading.client_messages import read_client_message
from mcpbridge.protocol.revisions import LEGACY, MODERN

if TYPE_CHECKING:
    from mcpbridge.downstream.http.websocket import WebSockets


App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Mounts:
    """Applications by the path that theirs begin with: `/api` has `/api` and all below `/api/`."""

    def __init__(self, makers: Mapping[str, Callable[[], App]]) -> None:
        self._makers, self._apps = makers, dict[str, App]()
        self._first_letters = tuple(makers)

    def find(self, path: str) -> App | None:
        """The application that this path belongs to; None for nearly all."""
        if not path.startswith(self._first_letters):
            return None
        for prefix, make in self._makers.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                if prefix not in self._apps:
                    self._apps[prefix] = make()
                return self._apps[prefix]
        return None


async def serve(
    app: App, scope: Scope, receive: Receive, send: Send, *, who: Mapping[str, object], extra: Headers
) -> None:
    """Let the application answer. `who`: goes into the state; `extra`: headers that every response must carry."""

    async def send_on(message: Any) -> None:
        if extra and message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    await app({**scope, "state": {**scope.get("state", {}), **who}}, receive, send_on)


_SERVERS = "/servers/"
_PROFILES = "/p/"


class Routes:
    """The paths of all endpoints."""

    def __init__(
        self,
        settings: HttpSettings,
        views: Callable[[], Collection[str]],
        profiles: Callable[[], Collection[str]] = tuple,
        backends: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`views` returns the servers that have endpoints of their own now, `profiles` the profiles.

        `backends`: those whose tools come as a server's do, and that have none.
        """
        self._views, self._profiles, self._backends = views, profiles, backends
        self._kinds: dict[str, Kind] = {"mcp": "mcp"}
        if settings.sse:
            self._kinds["sse"] = "sse"
        if settings.websocket:
            self._kinds["ws"] = "ws"
        self._path = settings.path
        self._merged = {f"/{name}": Endpoint(kind, "") for name, kind in self._kinds.items() if kind != "mcp"}
        self._merged |= dict.fromkeys((settings.path, settings.path.rstrip("/") + "/"), MERGED)

    def find(self, path: str) -> Endpoint:
        """The endpoint at this path. Ask only for someone who may know what is served.

        Raises:
            Refused: 404, with the paths that would work.
        """
        endpoint = self._merged.get(path)
        if endpoint is not None:
            return endpoint
        if path.startswith(_SERVERS):
            kind, name = self._named(path, _SERVERS, "server", self._views())
            return Endpoint(kind, name)
        if path.startswith(_PROFILES):
            kind, name = self._named(path, _PROFILES, "profile", self._profiles())
            return Endpoint(kind, "", name)
        raise Refused(404, f"Nothing is here; MCP is served at {self._path}")

    def _named(self, path: str, begin: str, what: str, names: Collection[str]) -> tuple[Kind, str]:
        name, _, rest = path.removeprefix(begin).partition("/")
        if what == "server" and name not in names and name in self._backends():
            hint = f'a profile serves it alone: [profiles.NAME] servers = ["{name}"], at {_PROFILES}NAME/mcp'
            raise Refused(404, f"{name!r} is of [tools] or a pack, no server with an endpoint of its own; {hint}")
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise Refused(404, f"No {what} is called {name[:64]!r}; known: {known}")
        kind = self._kinds.get(rest.removesuffix("/"))
        if kind is None:
            ways = ", ".join(f"{begin}{name}/{way}" for way in self._kinds)
            raise Refused(404, f"Nothing is here; {what} {name!r} is served at {ways}")
        return kind, name


_ALL_METHODS = ((b"allow", b"GET, POST, DELETE"),)
_MODERN_METHODS = ((b"allow", b"POST"),)
_GET_ONLY = ((b"allow", b"GET"),)
_SSE_METHODS = ((b"allow", b"GET, POST"),)
_UPGRADE = ((b"upgrade", b"websocket"),)
_SOON = ((b"retry-after", b"1"),)
_LARGEST_PLAIN = 1 << 16
"""Bytes of a request that is answered without a task; a larger one is read by one."""
_NO_MOUNTS: Mapping[str, Callable[[], App]] = MappingProxyType({})
_STOPPING = Refused(503, "The bridge is stopping", headers=((b"retry-after", b"5"),), close=True)


def make_app(
    bridge: RunningBridge,
    settings: HttpSettings,
    auth: Authenticator,
    *,
    reach: Reach = "loopback",
    address: str = "",
    port: int | None = None,
    mounts: Mapping[str, Callable[[], App]] = _NO_MOUNTS,
    pages: Mapping[str, Callable[[], App]] = _NO_MOUNTS,
) -> "HttpFront":
    """The ASGI application. `reach`, `address` and `port`: see `HostCheck`; `mounts`, `pages`: see `HttpFront`."""
    return HttpFront(bridge, settings, auth, reach=reach, address=address, port=port, mounts=mounts, pages=pages)


class HttpFront:
    """ASGI application with the MCP endpoints, `/healthz` and `/readyz`."""

    def __init__(
        self,
        bridge: RunningBridge,
        settings: HttpSettings,
        auth: Authenticator,
        *,
        reach: Reach = "loopback",
        address: str = "",
        port: int | None = None,
        body_seconds: float = 30,
        mounts: Mapping[str, Callable[[], App]] = _NO_MOUNTS,
        pages: Mapping[str, Callable[[], App]] = _NO_MOUNTS,
    ) -> None:
        """`body_seconds`: how long a client may take to send a request. `mounts`: see `Mounts`.

        `pages`: applications for browsers, which decide themselves who is let in: no bearer token is asked for.
        """
        self._bridge = bridge
        self._settings = settings
        self._auth = auth
        self._body_deadline = Deadline(body_seconds)
        self._host_check = HostCheck(
            reach=reach,
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
            address=address,
            port=port,
        )
        self._routes = Routes(
            settings,
            lambda: bridge.server.views,
            lambda: bridge.server.profiles,
            lambda: bridge.server.backends,
        )
        self._mounts, self._pages = Mounts(mounts), Mounts(pages)
        self._underway = OpenReplies()
        self._modern = ModernFront(bridge.server, settings, self._underway)
        self._legacy = LegacyFront(bridge.server, settings, self._underway, monotonic)
        self._sse = SseFront(bridge.server, settings, self._legacy.sessions, self._body_deadline)
        self._sockets: WebSockets | None = None
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of another ASGI server's."""
        if scope["type"] != "http":
            await _not_http(scope, receive, send)
            return
        await self.handle(Exchange(scope, receive, send))

    async def handle(self, exchange: Exchange) -> None:
        """Serve one HTTP request."""
        try:
            await self._answer(exchange)
        except Refused as refused:
            await exchange.refuse(refused)
        except ClientLeft:
            pass

    def take(self, exchange: Http1Exchange) -> bool:
        """Send the call of a whole request on the express lane, which answers it without a task, if it is plain.

        False: nothing was done, and `handle` serves it.
        """
        lane = self._bridge.server.express
        if lane is None or self._is_stopping or lane.recorded.writes_first:
            return False
        admission = exchange.admission
        if admission is None:
            admission = exchange.admission = self._admit(exchange)
            if admission is None:
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

    def _admit(self, exchange: Http1Exchange) -> Admission | None:
        """What the rules say of a request by its head; None: they refuse it, or it cannot be plain."""
        headers, accepts = exchange.headers, exchange.accepts
        if exchange.method != "POST" or exchange.path != self._settings.path or not accepts.json:
            return None
        version, session = exchange.header(b"mcp-protocol-version"), headers.get(b"mcp-session-id", b"").strip()
        is_readable = is_json(headers.get(b"content-type", b"")) and b"content-encoding" not in headers
        is_modern = version is not None and version not in LEGACY
        if not is_readable or is_modern == bool(session):
            return None  # without a version, or a session, its body says of which era it is
        try:
            extra = self._host_check.check(headers, len(headers), exchange.raw_headers)
            principal = self._auth.principal(headers.get(b"authorization"))
        except Refused:
            return None
        return Admission(principal, extra, version, session)

    def upgrade(self, path: str, raw_headers: list[tuple[bytes, bytes]], transport: asyncio.Transport) -> None:
        """Take a connection over that asks to become a WebSocket; the same rules let it in as any request."""
        headers = dict(raw_headers)
        try:
            self._host_check.check(headers, len(headers), raw_headers)
            if self._is_stopping:
                raise _STOPPING
            principal = self._auth.principal(headers.get(b"authorization"))
            endpoint = self._routes.find(path)
            if endpoint.kind != "ws":
                raise Refused(400, f"No WebSocket is served at {path[:200]}")
            projects = tuple(self._settings.projects)
            client = Client(principal, endpoint.view, endpoint.profile, projects=projects, front="websocket")
            self._web_sockets().accept(path, raw_headers, transport, client)
        except Refused as refused:
            transport.write(refusal(refused))
            transport.close()

    async def stop(self, seconds: float) -> None:
        """Take no new requests, let open ones finish for that long, then end them and all sessions."""
        self._is_stopping = True
        self._legacy.express.continue_all()
        self._modern.express.continue_all()
        self._legacy.sessions.hang_up()
        self._underway.withdraw(_STOPPING, lambda reply, _: reply.is_subscription)
        async with TaskGroup() as ending:
            ending.create_task(self._finish_replies(seconds))
            ending.create_task(self._sse.stop(seconds))
            if self._sockets is not None:
                ending.create_task(self._sockets.stop(seconds))
        self._legacy.sessions.close()

    async def _finish_replies(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._underway.until_none()
        except TimeoutError:
            self._underway.withdraw(_STOPPING, lambda _, __: True)

    def _web_sockets(self) -> "WebSockets":
        if self._sockets is None:
            from mcpbridge.downstream.http.websocket import WebSockets

            self._sockets = WebSockets(self._bridge.server, self._settings)
        return self._sockets

    def _answer(self, exchange: Exchange) -> Awaitable[None]:
        """What answers the request.

        Raises:
            Refused: the rules do not let it in, or nothing is there.
        """
        headers, path = exchange.headers, exchange.path
        exchange.extra = self._host_check.check(headers, len(headers), exchange.raw_headers)
        if path != self._settings.path or exchange.method == "OPTIONS" or self._is_stopping:
            answer = self._beside(exchange)
            if answer is not None:
                return answer
        exchange.principal = self._auth.principal(headers.get(b"authorization"))
        if path != self._settings.path and (answer := self._behind_token(exchange)) is not None:
            return answer
        if path == self._settings.path:
            return self._mcp(exchange)
        exchange.endpoint = self._routes.find(path)
        kind = exchange.endpoint.kind
        if kind == "mcp":
            return self._mcp(exchange)
        if kind == "ws":
            raise Refused(426, "A WebSocket is served here: ask for an upgrade", headers=_UPGRADE)
        if exchange.method == "GET":
            return self._sse.get(exchange)
        if exchange.method == "POST":
            return self._sse.post(exchange)
        raise Refused(405, f"{exchange.method} is not served here", headers=_SSE_METHODS)

    def _beside(self, exchange: Exchange) -> Awaitable[None] | None:
        """What answers without a token: health, what browsers ask beforehand, and pages."""
        if exchange.path == "/healthz":
            return self._health(exchange)
        if exchange.method == "OPTIONS":
            allowed = preflight_headers(exchange.headers)  # browsers send no credentials with it
            if allowed is not None:
                return exchange.send_empty(204, allowed)
        if self._is_stopping:
            raise _STOPPING
        app = self._pages.find(exchange.path)
        return None if app is None else app(exchange.scope, exchange.receive, exchange.send)

    def _behind_token(self, exchange: Exchange) -> Awaitable[None] | None:
        """What answers beside the endpoints: readiness, and further applications."""
        if exchange.path == "/readyz":
            return self._readiness(exchange)
        app = self._mounts.find(exchange.path)
        if app is None:
            return None
        is_admin = self._auth.is_admin(exchange.headers.get(b"authorization"))
        who = {"principal": exchange.principal, "is_admin": is_admin}
        return serve(app, exchange.scope, exchange.receive, exchange.send, who=who, extra=exchange.extra)

    def _mcp(self, exchange: Exchange) -> Awaitable[None]:
        version = exchange.version = exchange.header(b"mcp-protocol-version")
        if exchange.method == "POST":
            return self._post(exchange, version)
        if exchange.method not in ("GET", "DELETE"):
            raise Refused(405, f"{exchange.method} is not served here", headers=_ALL_METHODS)
        if version in MODERN:
            raise Refused(405, f"Revision {version} has no {exchange.method}", headers=_MODERN_METHODS)
        return self._legacy.get(exchange) if exchange.method == "GET" else self._legacy.delete(exchange)

    async def _post(self, exchange: Exchange, version: str | None) -> None:
        headers = exchange.headers
        if not is_json(headers.get(b"content-type", b"")):
            raise Refused(415, "The Content-Type must be application/json")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(415, "Compressed requests are not read; send the body as it is")
        if not (exchange.accepts.json or exchange.accepts.events):
            raise Refused(406, "Accept application/json and text/event-stream")
        body = await exchange.body(self._settings.max_body, self._body_deadline)
        message = exchange.frame or decode_body(body)
        if version is not None and version not in LEGACY:
            is_modern = True
        elif b"mcp-session-id" in headers:
            is_modern = False  # the envelope exists in no revision that has sessions: no need to look for it
        else:
            is_modern = isinstance(message, Frame) and declares_modern(body, message)
        if not is_modern:
            await self._legacy.post(exchange, message)
        elif isinstance(message, Frame):
            await self._modern.post(exchange, message, exchange.raw_headers)
        else:
            raise Refused(400, "This revision has no batches")

    async def _health(self, exchange: Exchange) -> None:
        """The process serves; nothing is said about what is behind it."""
        if exchange.method not in ("GET", "HEAD"):
            raise Refused(405, "Only GET is served here", headers=_GET_ONLY)
        await exchange.send_json(b'{"status":"ok"}')

    async def _readiness(self, exchange: Exchange) -> None:
        """The bridge is worth asking: its servers had their time to start.

        A server that is down is shown, but does not make the bridge unready.
        """
        if exchange.method not in ("GET", "HEAD"):
            raise Refused(405, "Only GET is served here", headers=_GET_ONLY)
        servers = [{"name": server["name"], "state": server["state"]} for server in self._bridge.status()["servers"]]
        is_ready = self._bridge.has_settled
        document = {"status": "ready" if is_ready else "starting", "servers": servers}
        await exchange.send_json(encode(document), 200 if is_ready else 503, NO_HEADERS if is_ready else _SOON)


async def _not_http(scope: Scope, receive: Receive, send: Send) -> None:
    """The other kinds of ASGI connections: nothing is to start or stop, and WebSockets come in by `upgrade`."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
