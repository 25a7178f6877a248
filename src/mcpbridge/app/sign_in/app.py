"""The endpoints and pages of the authorization server, as an ASGI application.

Pages are ours alone: no scripts, nothing of other origins, not in frames. What a client calls itself is shown as its
own claim. From our form the person is sent on by a page, not by a redirect: browsers hold all that a form leads to
against `form-action`, and the provider and the client may be anywhere.
"""

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from http.cookies import CookieError, SimpleCookie
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from mcpbridge.app.console.shown_text import inert_text
from mcpbridge.app.page_requests import FORM, PAGE_HEADERS, is_own_form, media_type_of, read_body
from mcpbridge.app.page_sign_in.provider import ProviderSignIns
from mcpbridge.app.page_sign_in.sessions import PageSessions
from mcpbridge.app.sign_in.authorization_server import PREFIX, Asked, AuthorizationServer, SendBack
from mcpbridge.app.sign_in.clients import LONGEST_DOCUMENT
from mcpbridge.app.sign_in.errors import OAuthRefused
from mcpbridge.app.sign_in.rates import network_of
from mcpbridge.app.sign_in.redirect_uris import target_name
from mcpbridge.app.sign_in.signed_in_tokens import SignedInTokens
from mcpbridge.base.errors import BridgeError, StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.auth.provider_http import ProviderDown
from mcpbridge.downstream.auth.resource_server import ResourceServer
from mcpbridge.downstream.http.routes import App
from mcpbridge.engine.user_accounts import EngineAccounts, Note, open_secrets_of
from mcpbridge.storage.open_store import LazyStore

log = get_logger("mcpbridge.auth")

SIGN_IN = f"{PREFIX}/sign-in"
"""Where people begin who want to see pages of the bridge."""
WELL_KNOWN = "/.well-known/oauth-authorization-server"
_FOLDER = Path(__file__).parent / "templates"
_LONGEST_FORM = 64 * 1024
_LOOK_EVERY, _CLOSE_SECONDS = 600.0, 10.0
"""Seconds."""
_NOT_STORED = {"cache-control": "no-store", "pragma": "no-cache"}
_FOR_PROGRAMS = {**_NOT_STORED, "access-control-allow-origin": "*"}
"""Clients in browsers may be of any origin; nothing there depends on cookies."""
_PAGE_HEADERS = {**PAGE_HEADERS, **_NOT_STORED}

_OF_PROGRAMS = {f"{PREFIX}/{name}" for name in ("token", "register", "revoke")}
_STORE_FAILED = "what the bridge keeps of sign-ins cannot be read or written at the moment"

Parameters = dict[str, list[str]]


@asynccontextmanager
async def signing_in(
    settings: Settings,
    store: LazyStore,
    resource_server: ResourceServer,
    accounts: EngineAccounts,
    sessions: PageSessions | None,
    note: Note,
) -> AsyncGenerator[Mapping[str, Callable[[], App]]]:
    """Sign people in for the life of a front; gives what makes the applications, by the path that theirs begin with.

    `accounts`: who exchanges tokens of people for those of servers, and asks who is signed in. `sessions`: of the pages
    of the bridge, which people sign in to at the provider, too. `note` writes the audit trail.
    """
    assert settings.auth.sign_in is not None
    kept = open_secrets_of(lambda: settings)
    server = AuthorizationServer(
        settings.auth,
        settings.auth.sign_in,
        store.shared,
        kept,
        path=settings.http.path,
        on_end=resource_server.ended,
        on_gone=accounts.left,
        note=note,
    )
    own = SignedInTokens(server.grants, server.provider_tokens, accounts)
    resource_server.tokens.own, resource_server.on_checked = own, own.present
    accounts.sign_ins = server
    app = make_sign_in(server, sessions)
    async with server.grants.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(_forget_the_gone, server)
        try:
            yield {PREFIX: lambda: app, WELL_KNOWN: lambda: app}
        finally:
            tasks.cancel_scope.cancel()
            accounts.sign_ins = None
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS):
                await server.close()
                await kept.close()


async def _forget_the_gone(server: AuthorizationServer) -> None:
    """Look again and again for those whose last sign-in has ended by itself."""
    while True:
        try:
            await server.forget_the_gone()
        except (BridgeError, OSError) as error:
            log.warning("the provider's tokens of people are not forgotten", reason=str(error))
        await anyio.sleep(_LOOK_EVERY)


def make_sign_in(server: AuthorizationServer, sessions: PageSessions | None = None) -> App:
    """The application for `/oauth`, and for the document at the well-known address. `sessions`: see `signing_in`."""
    pages = _Pages(server, sessions)
    routes = [
        Route(f"{PREFIX}/authorize", pages.authorize, methods=["GET", "POST"]),
        Route(f"{PREFIX}/consent", pages.consent, methods=["POST"]),
        Route(f"{PREFIX}/callback", pages.callback, methods=["GET"]),
        Route(SIGN_IN, pages.sign_in, methods=["POST"]),
        Route(f"{PREFIX}/token", pages.token, methods=["POST"]),
        Route(f"{PREFIX}/register", pages.register, methods=["POST"]),
        Route(f"{PREFIX}/revoke", pages.revoke, methods=["POST"]),
        Route(f"{PREFIX}/style.css", pages.style, methods=["GET"]),
        Route(WELL_KNOWN, pages.metadata, methods=["GET"]),
        Route(f"{WELL_KNOWN}/{{path:path}}", pages.metadata, methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={OAuthRefused: _refused, StoreFailed: pages.store_failed})
    app.router.redirect_slashes = False
    return app


def _refused(_: Request, refused: Exception) -> Response:
    """The answer of an endpoint for programs."""
    assert isinstance(refused, OAuthRefused)
    headers = dict(_FOR_PROGRAMS)
    if refused.status == 401:
        headers["www-authenticate"] = 'Basic realm="mcpbridge"'
    if refused.status in (429, 503):
        headers["retry-after"] = str(ceil(refused.retry_after))
    document = {"error": refused.error, "error_description": refused.description}
    return JSONResponse(document, refused.status, headers=headers)


class _Pages:
    """What answers each route."""

    def __init__(self, server: AuthorizationServer, sessions: PageSessions | None) -> None:
        self._server, self._sessions = server, sessions
        self._to_pages = ProviderSignIns(server.provider, lambda: server.token_seconds)
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, finalize=_inert
        )
        self._cookie = "__Host-mcpbridge-sign-in" if server.is_https else "mcpbridge-sign-in"
        self._style = (_FOLDER / "style.css").read_bytes()

    # -- for browsers

    async def authorize(self, request: Request) -> Response:
        browser = self._browser(request) or secrets.token_urlsafe(32)
        try:
            parameters = await _form(request) if request.method == "POST" else _query(request)
            asked = await self._server.begin(parameters, browser, _network(request))
        except SendBack as back:
            return RedirectResponse(back.url, 302, headers=_NOT_STORED)
        except OAuthRefused as refused:
            answer = self._problem(refused.description, refused.status)
            if refused.status == 429:
                answer.headers["retry-after"] = str(ceil(refused.retry_after))
            return answer
        answer = self._page("consent.html", **_words_of(asked))
        self._set_cookie(answer, browser)
        return answer

    async def consent(self, request: Request) -> Response:
        if (problem := self._foreign(request)) is not None:
            return problem
        try:
            form = await _form(request)
            handle = (form.get("request") or [""])[0]
            browser = self._browser(request)
            if form.get("answer") != ["yes"]:
                return self._send_on(await self._server.deny(handle, browser))
            return self._send_on(await self._server.agree(handle, browser))
        except OAuthRefused as refused:
            return self._problem(refused.description, refused.status)
        except ProviderDown as down:
            log.warning("the identity provider cannot be asked", reason=down.reason)
            return self._problem("The identity provider cannot be asked at the moment. Try again in a minute.", 503)

    async def sign_in(self, request: Request) -> Response:
        """Somebody wants to see pages of the bridge: on to the provider."""
        if (problem := self._foreign(request)) is not None:
            return problem
        if self._sessions is None:
            return self._problem("This bridge has no pages to sign in to.", 404)
        browser = self._browser(request) or secrets.token_urlsafe(32)
        try:
            target = ((await _form(request)).get("next") or [""])[0]
            answer = self._send_on(await self._to_pages.begin(target, browser, _network(request)))
        except OAuthRefused as refused:
            return self._problem(refused.description, refused.status)
        except ProviderDown as down:
            log.warning("the identity provider cannot be asked", reason=down.reason)
            return self._problem("The identity provider cannot be asked at the moment. Try again in a minute.", 503)
        self._set_cookie(answer, browser)
        return answer

    async def _signed_in(self, request: Request, sessions: PageSessions) -> Response:
        """Somebody comes back who wants to see pages. A page leads on: these are for navigation from our own."""
        try:
            caller, target = await self._to_pages.finish(_query(request), self._browser(request))
        except OAuthRefused as refused:
            return self._problem(f"You are not signed in: {refused.description}.", refused.status)
        answer = self._page("signed_in.html", url=target, name=caller.identity.name if caller.identity else "")
        before = sessions.find(request)
        if before is not None:
            sessions.close(before)
        sessions.open(answer, caller, is_at_provider=True)
        self._server.note_page_sign_in(caller, request.client.host if request.client is not None else "")
        return answer

    async def callback(self, request: Request) -> Response:
        if self._sessions is not None and self._to_pages.is_for_pages(_query(request)):
            return await self._signed_in(request, self._sessions)
        try:
            url = await self._server.come_back(_query(request), self._browser(request))
        except OAuthRefused as refused:
            return self._problem(refused.description, refused.status)
        return RedirectResponse(url, 302, headers=_NOT_STORED)

    async def style(self, _: Request) -> Response:
        return Response(self._style, media_type="text/css", headers={"cache-control": "max-age=3600"})

    # -- for programs

    async def metadata(self, request: Request) -> Response:
        path = urlsplit(self._server.issuer).path
        below = request.url.path.partition(WELL_KNOWN)[2]
        if below.rstrip("/") not in ("", path):
            return JSONResponse({"error": "not_found"}, 404)
        headers = {"cache-control": "max-age=300", "access-control-allow-origin": "*"}
        return JSONResponse(self._server.metadata(), headers=headers)

    async def token(self, request: Request) -> Response:
        address = request.client.host if request.client is not None else ""
        answer = await self._server.token(await _form(request), request.headers.get("authorization", ""), address)
        return JSONResponse(answer, headers=_FOR_PROGRAMS)

    async def register(self, request: Request) -> Response:
        answer = await self._server.clients.register(await _body(request, LONGEST_DOCUMENT), _network(request))
        return JSONResponse(answer, 201, headers=_FOR_PROGRAMS)

    async def revoke(self, request: Request) -> Response:
        form = await _form(request)
        await self._server.revoke(form, request.headers.get("authorization", ""), _network(request))
        return Response(status_code=200, headers=_FOR_PROGRAMS)

    # -- pages

    async def store_failed(self, request: Request, error: Exception) -> Response:
        """Nothing is known now of clients, grants and tokens: whoever asks keeps what it has, and comes back."""
        log.warning("a request about a sign-in cannot be answered", reason=str(error))
        if request.url.path in _OF_PROGRAMS:
            return _refused(request, OAuthRefused("temporarily_unavailable", _STORE_FAILED, 503))
        return self._problem(f"{_STORE_FAILED[0].upper()}{_STORE_FAILED[1:]}. Try again in a minute.", 503)

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        text = self._templates.get_template(template).render(prefix=PREFIX, **values)
        return HTMLResponse(text, status, headers=_PAGE_HEADERS)

    def _problem(self, problem: str, status: int) -> Response:
        answer = self._page("problem.html", status, problem=problem)
        if status == 503:
            answer.headers["retry-after"] = "10"
        return answer

    def _send_on(self, url: str) -> Response:
        return self._page("onward.html", url=url, where=target_name(url))

    def _foreign(self, request: Request) -> Response | None:
        """Why a page of another origin may not answer for the person; None: it is our own page."""
        own = urlsplit(self._server.issuer)
        if is_own_form(request, f"{own.scheme}://{own.netloc}"):
            return None
        return self._problem("Another page has sent this form. Begin again in your program.", 403)

    def _browser(self, request: Request) -> str:
        try:
            found = SimpleCookie(request.headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return found.value if found is not None and len(found.value) == _COOKIE_LENGTH else ""

    def _set_cookie(self, answer: Response, value: str) -> None:
        secure = "; Secure" if self._server.is_https else ""
        answer.headers.append(
            "set-cookie", f"{self._cookie}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age=600{secure}"
        )


_COOKIE_LENGTH = 43


def _inert(value: object) -> object:
    """What a template prints: text of clients is inert, and visible for what it is."""
    return inert_text(value) if isinstance(value, str) else value


def _words_of(asked: Asked) -> Mapping[str, Any]:
    client = asked.client
    return {
        "handle": asked.handle,
        "name": client.name,
        "is_known": client.is_known,
        "id": client.id,
        "redirect_uri": asked.redirect_uri,
        "where": target_name(asked.redirect_uri),
        "scopes": list(asked.scopes),
        "resource": asked.resource,
    }


def _network(request: Request) -> str:
    """Where it comes from, as far as trusted proxies say."""
    return network_of(request.client.host) if request.client is not None else ""


def _query(request: Request) -> Parameters:
    return parse_qs(request.url.query, keep_blank_values=True, max_num_fields=100)


async def _form(request: Request) -> Parameters:
    if media_type_of(request) != FORM:
        raise OAuthRefused("invalid_request", "the Content-Type must be application/x-www-form-urlencoded")
    try:
        text = (await _body(request, _LONGEST_FORM)).decode()
        return parse_qs(text, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise OAuthRefused("invalid_request", "the form cannot be read") from None


async def _body(request: Request, most: int) -> bytes:
    try:
        return await read_body(request, most)
    except HTTPException as refused:
        what = "the request is too long" if refused.status_code == 413 else "the request was cut off"
        raise OAuthRefused("invalid_request", what, refused.status_code) from None
