"""Which path leads where: the endpoints of MCP, and the applications beside them. Knows nothing of who asks.

`Routes` decides the paths of endpoints: the merged one, one for each server, and one for each profile. `Mounts` has
other ASGI applications, such as the admin API. Each is made at the first request for it, since most bridges never get
one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs

from mcpbridge.downstream.http.body_deadline import Deadline
from mcpbridge.downstream.http.exchange import (
    MERGED,
    NO_HEADERS,
    Endpoint,
    Exchange,
    Headers,
    Kind,
    Receive,
    Refused,
    Scope,
    Send,
)
from mcpbridge.downstream.http.sessions import Elsewhere
from mcpbridge.downstream.settings import HttpSettings

App = Callable[[Scope, Receive, Send], Awaitable[None]]

_NOBODY: Mapping[str, object] = MappingProxyType({})


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
    app: App, exchange: Exchange, seconds: float, *, who: Mapping[str, object] = _NOBODY, extra: Headers = NO_HEADERS
) -> None:
    """Let the application answer. A body that is not whole after so many seconds is answered for it, with 408.

    `who`: goes into the state; `extra`: headers that every response must carry.
    """
    end = asyncio.get_running_loop().time() + seconds
    is_whole = has_begun = is_over = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal is_whole, is_over
        if is_whole:
            return await exchange.receive()
        if exchange.early_body is not None:
            is_whole = True
            return {"type": "http.request", "body": exchange.early_body, "more_body": False}
        try:
            async with asyncio.timeout_at(end):
                message = await exchange.receive()
        except TimeoutError:
            if not has_begun:
                is_over = True
                text = f"The request was not complete within {seconds:g} s"
                await exchange.refuse(Refused(408, text, close=True))
            return {"type": "http.disconnect"}
        is_whole = not message.get("more_body", False)
        return message

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal has_begun
        if is_over:
            return
        has_begun = True
        if extra and message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await exchange.send(message)

    scope = exchange.scope
    await app({**scope, "state": {**scope.get("state", {}), **who}} if who else scope, receive, send)


AT_BRIDGE = "bridge"
"""The parameter of a link that names the bridge whose page it leads to."""
_VISITED = b"mcpbridge-at="


async def serve_page(app: App, exchange: Exchange, elsewhere: Elsewhere, limit: int, deadline: Deadline) -> None:
    """Let the application answer that runs at the bridge which this browser visits.

    A bridge knows the visitors of its pages, and the sign-ins that are under way, by itself alone. So a browser stays
    with the bridge that answered it first, by a cookie, or that its link names, as long as that one is there. `limit`:
    bytes of a body.

    Raises:
        Refused: that bridge cannot be reached, or was lost before it answered.
    """
    cookies = exchange.headers.get(b"cookie", b"").replace(b" ", b"").split(b";")
    visited = [one.removeprefix(_VISITED) for one in cookies if one.startswith(_VISITED)]
    named = parse_qs(exchange.query.decode("latin-1")).get(AT_BRIDGE, [])
    at = named[0] if named else visited[0].decode("latin-1") if visited else ""
    if at and not exchange.is_forwarded and await elsewhere.is_there(at):  # else no body is read for whoever made it up
        if exchange.method not in ("GET", "HEAD"):
            exchange.early_body = await exchange.body(limit, deadline)
        if await elsewhere.serve_at(at, exchange):
            return
    extra = NO_HEADERS
    if exchange.method == "GET" and visited != [elsewhere.me.encode()]:
        extra = ((b"set-cookie", b"%b%b; Path=/; HttpOnly; SameSite=Lax" % (_VISITED, elsewhere.me.encode())),)
    await serve(app, exchange, deadline.seconds, extra=extra)


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
        *,
        says_names: bool = True,
    ) -> None:
        """`views` returns the servers that have endpoints of their own now, `profiles` the profiles.

        `backends`: those whose tools come as a server's do, and that have none. `says_names`: whoever asks may know
        them all; else what there is besides is nobody's to learn from an error.
        """
        self._says_names = says_names
        self._views, self._profiles, self._backends = views, profiles, backends
        self._kinds: dict[str, Kind] = {"mcp": "mcp"}
        if settings.sse:
            self._kinds["sse"] = "sse"
        if settings.websocket:
            self._kinds["ws"] = "ws"
        self._path = settings.path
        self._merged = {f"/{name}": Endpoint(kind, "") for name, kind in self._kinds.items() if kind != "mcp"}
        self._merged |= dict.fromkeys((settings.path, settings.path.rstrip("/") + "/"), MERGED)

    def find(self, path: str, sees: Callable[[str], bool] | None = None) -> Endpoint:
        """The endpoint at this path. Ask only for someone who was let in.

        `sees`: which servers there are for whoever asks; None: all of them. Of others nothing differs from a server
        that does not exist.

        Raises:
            Refused: 404, with the paths that would work.
        """
        endpoint = self._merged.get(path)
        if endpoint is not None:
            return endpoint
        if path.startswith(_SERVERS):
            kind, name = self._named(path, _SERVERS, "server", self._views(), sees)
            return Endpoint(kind, name)
        if path.startswith(_PROFILES):
            kind, name = self._named(path, _PROFILES, "profile", self._profiles(), sees)
            return Endpoint(kind, "", name)
        raise Refused(404, f"Nothing is here; MCP is served at {self._path}")

    def _named(
        self, path: str, begin: str, what: str, names: Collection[str], sees: Callable[[str], bool] | None
    ) -> tuple[Kind, str]:
        name, _, rest = path.removeprefix(begin).partition("/")
        is_hidden = what == "server" and sees is not None and not sees(name)
        if is_hidden or (name not in names and (sees is not None or not self._says_names)):
            raise Refused(404, f"No {what} is called {name[:64]!r}")
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
