"""An MCP server that lets nobody in without a token, the authorization server that gives them, and a browser.

The authorization server is the SDK's own; the MCP server is the SDK's behind a guard that asks for rights tool by tool.
What they say about themselves can be bent, to see what the bridge makes of it.
"""

import asyncio
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcpbridge.upstream.auth.context import Page

__all__ = ["Browser", "OAuthWorld", "oauth_world"]

Document = dict[str, Any]
Bend = Callable[[Document], Document | None]


def as_it_is(document: Document) -> Document:
    return document


class AuthorizationServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The SDK's authorization server with everything in memory. Whoever asks for a page has signed in by that."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.asked: list[str] = []
        """The scopes of every authorization, in order."""
        self.resources: set[str | None] = set()
        self.refreshes = 0
        self.lifetime: int | None = 3600
        self.gives_refresh = True
        self.iss: Callable[[str], str | None] = lambda issuer: issuer
        self.issuer = ""
        self.refresh_gate = asyncio.Event()
        self.refresh_gate.set()
        self.grants: Callable[[list[str]], list[str]] = lambda scopes: scopes

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        scopes = params.scopes or []
        self.asked.append(" ".join(scopes))
        self.resources.add(params.resource)
        code = secrets.token_urlsafe(24)
        self.codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            scopes=scopes,
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(
            str(params.redirect_uri), code=code, state=params.state, iss=self.iss(self.issuer)
        )

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.give(client.client_id, self.grants(authorization_code.scopes))

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.refreshes += 1
        await self.refresh_gate.wait()
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant", "used before")
        return self.give(client.client_id, scopes or refresh_token.scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def give(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes)
        if self.gives_refresh:
            self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(
            access_token=access,
            expires_in=self.lifetime,
            scope=" ".join(scopes) or None,
            refresh_token=refresh if self.gives_refresh else None,
        )

    def forget_access(self) -> None:
        """Every access token is refused from now on."""
        self.access.clear()


@dataclass
class OAuthWorld:
    """Both servers."""

    url: str
    issuer: str
    server: AuthorizationServer
    bend_metadata: Bend = as_it_is
    """What the authorization server says of itself; None: nothing."""
    bend_resource: Bend = as_it_is
    """What the MCP server says of itself (RFC 9728)."""
    scopes: dict[str, str] = field(default_factory=dict[str, str])
    """Rights that tools need beside `basic`."""
    seen: list[str] = field(default_factory=list[str])
    """The tokens that reached the MCP server, and empty ones for requests without."""
    never: bool = False
    """Refuse every token."""
    machine_tokens: list[str] | None = None
    """The bodies of requests to `/machine-token`, which gives a token to whoever asks; None: there is no such thing."""


class Guard:
    """Lets in who has a token with the rights for what is asked."""

    def __init__(self, inner: ASGIApp, world: Callable[[], OAuthWorld]) -> None:
        self._inner, self._world = inner, world

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        world = self._world()
        request = Request(scope)
        if request.url.path.startswith("/.well-known/oauth-protected-resource"):
            told = world.bend_resource(
                {"resource": world.url, "authorization_servers": [world.issuer], "scopes_supported": ["basic"]}
            )
            await (JSONResponse(told) if told else JSONResponse({}, 404))(scope, receive, send)
            return
        body, again = await _taken(receive)
        if request.url.path == "/machine-token" and world.machine_tokens is not None:
            world.machine_tokens.append(body.decode())
            given = world.server.give("machine", ["basic"]).model_dump(exclude_none=True, exclude={"refresh_token"})
            await JSONResponse(given)(scope, again, send)
            return
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        world.seen.append(token)
        known = None if world.never else world.server.access.get(token)
        where = f"{urlsplit(world.url).scheme}://{urlsplit(world.url).netloc}/.well-known/oauth-protected-resource/mcp"
        if known is None:
            challenge = f'Bearer scope="basic", resource_metadata="{where}"'
            await JSONResponse({}, 401, {"WWW-Authenticate": challenge})(scope, again, send)
            return
        message = json.loads(body) if body else {}
        tool = message.get("params", {}).get("name", "") if message.get("method") == "tools/call" else ""
        wanted = world.scopes.get(tool, "")
        if not set(wanted.split()) <= set(known.scopes):
            challenge = f'Bearer error="insufficient_scope", scope="{wanted}", resource_metadata="{where}"'
            await JSONResponse({}, 403, {"WWW-Authenticate": challenge})(scope, again, send)
            return
        await self._inner(scope, again, send)


async def _taken(receive: Receive) -> tuple[bytes, Receive]:
    """The body of a request, and a `receive` that brings it once more."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return body, again


def bent(inner: ASGIApp, world: Callable[[], OAuthWorld]) -> ASGIApp:
    """The authorization server, with its metadata bent."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/.well-known"):
            await inner(scope, receive, send)
            return
        if scope["path"] != "/.well-known/oauth-authorization-server":
            await JSONResponse({}, 404)(scope, receive, send)
            return
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=inner), timeout=60) as client:
            document = (await client.get(f"http://as{scope['path']}")).json()
        document |= {"issuer": world().issuer, "authorization_response_iss_parameter_supported": True}
        told = world().bend_metadata(document)
        await (JSONResponse(told) if told else JSONResponse({}, 404))(scope, receive, send)

    return app


@asynccontextmanager
async def served(make: Callable[[str], ASGIApp]) -> AsyncIterator[str]:
    """The origin at which an app runs."""
    # The protocol is named so that asyncio switches Nagle's algorithm off: else answers wait 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(make(origin), log_config=None, timeout_graceful_shutdown=1)
        web = uvicorn.Server(config)
        task = asyncio.ensure_future(web.serve(sockets=[listening]))
        try:
            yield origin
        finally:
            web.should_exit = True
            await task


@asynccontextmanager
async def oauth_world(**settings: Any) -> AsyncIterator[OAuthWorld]:
    """Both servers, running. `settings` are fields of `OAuthWorld`."""
    mcp = MCPServer("guarded")

    @mcp.tool()
    async def read(text: str) -> str:
        return f"read {text}"

    @mcp.tool()
    async def write(text: str) -> str:
        return f"wrote {text}"

    provider = AuthorizationServer()
    worlds: list[OAuthWorld] = []

    def authorization_app(origin: str) -> ASGIApp:
        provider.issuer = origin
        options = ClientRegistrationOptions(enabled=True, valid_scopes=["basic", "write", "more", "even-more"])
        routes = create_auth_routes(provider, AnyHttpUrl(origin), None, options, RevocationOptions(enabled=True))
        return bent(Starlette(routes=routes), lambda: worlds[0])

    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(served(authorization_app))
        app = mcp.streamable_http_app()
        origin = await stack.enter_async_context(served(lambda origin: Guard(app, lambda: worlds[0])))
        world = OAuthWorld(f"{origin}/mcp", issuer, provider, **settings)
        worlds.append(world)
        yield world


class Browser:
    """A person with a browser: visits the page, and lets it lead back to the bridge."""

    def __init__(self, *, alters: Callable[[dict[str, str]], dict[str, str]] | None = None) -> None:
        self.visited: list[dict[str, str]] = []
        """The parameters of every page."""
        self.ended: list[int] = []
        """The status of the last page of each visit."""
        self._alters = alters
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.opened = asyncio.Event()

    async def __call__(self, page: Page) -> bool:
        self.visited.append({key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()})
        self.opened.set()
        await self.may_go_on.wait()
        async with httpx2.AsyncClient(timeout=60) as client:
            first = await client.get(page.url)
            target = first.headers["location"]
            if self._alters is not None:
                parts = urlsplit(target)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                target = parts._replace(query=urlencode(self._alters(query))).geturl()
            self.ended.append((await client.get(target)).status_code)
        return True
