"""The pages about accounts as an ASGI application: who sees them, and what they do.

A browser is signed in as one user, by a token of the bridge or by a one-time link, and sees what is this user's alone.
A link to connect an account works only in a browser of the user it was made for: it may have been sent on (MCP
2026-07-28, Elicitation, Safe URL Handling). No link does anything by itself: a page names the user, and a form of it
signs the browser in, or leads to the provider. `Visitors` decides who somebody is; another way to sign in, such as
one at an identity provider, takes its place there.

A provider sends browsers back from another site, so the cookie is `SameSite=Lax`; what changes something is a POST with
the token of its form, from a page of ours. On to the provider leads a page, not a redirect: browsers hold all that a
form leads to against `form-action`.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mcpbridge.app.admin.usage import own_quotas
from mcpbridge.app.console.sign_in import SignIns, Visit, form_token
from mcpbridge.app.page_requests import PAGE_HEADERS, is_own_form, read_form
from mcpbridge.app.page_sign_in.sessions import PageSessions
from mcpbridge.base.errors import BridgeError, ConfigError, StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.http.app import App
from mcpbridge.library.bridge import Bridge
from mcpbridge.upstream.accounts.accounts import UserAccounts
from mcpbridge.upstream.accounts.sign_ins import PREFIX, UserSignIn

log = get_logger("mcpbridge.connections")

COOKIE = "mcpbridge-connections"
"""Over https with the prefix `__Host-`: no other host of the domain can set it."""
_STATIC = Path(__file__).parent / "static"
_PATIENCE = 60.0
"""Seconds that a browser waits for the provider to say what it has to say."""
_LARGEST_FORM = 256 << 10
_STALE = "This link is not good any more: it was used, or is too old. Connect the account from the list."
_NO_VALUES = "This server takes no values from users."
_NOT_YOURS = (
    "This link was made for another user of the bridge, so nothing was done. If somebody sent it to you, that person "
    "would have got the use of your account."
)


Identify = Callable[[str], Awaitable[str | None]]
"""Whose token this is; None: nobody's."""


class _Visitor(Struct, frozen=True):
    """Who looks at a page."""

    user: str
    """The principal; empty: the local user."""
    form_token: str
    visit: Visit | None = None
    name: str = ""
    """Of somebody who signed in at the identity provider; empty: not known."""


class Visitors:
    """Who is signed in to the pages, and how somebody gets in."""

    def __init__(
        self,
        sign_ins: SignIns,
        identify: Identify,
        *,
        is_secure: bool,
        is_open: bool,
        sessions: PageSessions | None = None,
    ) -> None:
        """`is_open`: the bridge asks nobody who they are. `sessions`: who signed in at the identity provider."""
        self.sessions = sessions
        self.sign_ins, self._identify, self._is_open = sign_ins, identify, is_open
        self.cookie = f"__Host-{COOKIE}" if is_secure else COOKIE
        """Its name."""

    def visitor(self, request: Request) -> _Visitor | None:
        """Who asks; None: not known yet."""
        cookie = request.cookies.get(self.cookie, "")
        visit = self.sign_ins.visit(cookie)
        if visit is not None:
            return _Visitor(visit.by, form_token(cookie), visit)
        session = self.sessions.find(request) if self.sessions is not None else None
        if session is not None:
            return _Visitor(session.principal, session.form_token, name=session.name)
        return _Visitor("", form_token(COOKIE)) if self._is_open else None

    async def enter(self, token: str) -> str | None:
        """The cookie for the holder of a token; None: it is nobody's."""
        user = await self._identify(token.strip()) if token.strip() else None
        return self.sign_ins.open("read", user) if user is not None else None

    async def bearer(self, request: Request) -> str | None:
        """The user whose token is in the `Authorization` header."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return await self._identify(token.strip()) if scheme.lower() == "bearer" and token.strip() else None


def make_connections(
    bridge: Bridge,
    sign_ins: SignIns,
    identify: Identify,
    *,
    is_secure: bool,
    is_open: bool,
    sees: Callable[[str, str], bool] = lambda user, server: True,
    identity_of: Callable[[str], Identity | None] = lambda user: None,
    sessions: PageSessions | None = None,
) -> App:
    """The application for `/connections` and all below it. See `Visitors`; `is_secure`: browsers come over https.

    `sees`: whether there is a server for a user, by the user's roles, which `identity_of` knows them by.
    """
    visitors = Visitors(sign_ins, identify, is_secure=is_secure, is_open=is_open, sessions=sessions)
    return _Pages(bridge, visitors, is_secure=is_secure, sees=sees, identity_of=identity_of).app()


class _Pages:
    def __init__(
        self,
        bridge: Bridge,
        visitors: Visitors,
        *,
        is_secure: bool,
        sees: Callable[[str, str], bool],
        identity_of: Callable[[str], Identity | None],
    ) -> None:
        self._bridge, self._visitors, self._is_secure, self._sees = bridge, visitors, is_secure, sees
        self._identity_of = identity_of

    @property
    def _accounts(self) -> UserAccounts:
        return self._bridge.user_accounts.all

    def app(self) -> App:
        """The routes."""
        one = "/{server:str}"
        routes = [
            Route("/", self.show, methods=["GET"]),
            Route("/enter", self.enter, methods=["GET"]),
            Route("/enter", self.sign_in, methods=["POST"]),
            Route("/link", self.link, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
            Route("/callback", self.come_back, methods=["GET"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
            Route(f"{one}/start", self.start, methods=["GET"]),
            Route(f"{one}/start", self.go_on, methods=["POST"]),
            Route(f"{one}/variables", self.ask_variables, methods=["GET"]),
            Route(f"{one}/variables", self.set_variables, methods=["POST"]),
            Route(f"{one}/disconnect", self.disconnect, methods=["POST"]),
        ]
        app = Starlette(routes=[Route(PREFIX, self.show, methods=["GET"]), Mount(PREFIX, routes=routes)])
        app.router.redirect_slashes = False
        return app

    # -- who

    async def enter(self, request: Request) -> Response:
        """The page that asks who somebody is; of a one-time link, whether this browser is to be its user's."""
        code = request.query_params.get("code")
        if code is None:
            return self._page(request, "enter.html", "Sign in", next=PREFIX)
        whose = self._visitors.sign_ins.whose(code)
        if whose is None:
            return self._used_up(request)
        return self._page(request, "enter_as.html", "Sign in", code=code, whose=whose)

    async def sign_in(self, request: Request) -> Response:
        """Somebody typed a token, or agreed to a one-time link."""
        if not is_own_form(request):
            return self._refused(request)
        form = await _form(request)
        if "code" in form:
            return await self._redeem(request, form["code"])
        target = _own_path(form.get("next", ""))
        cookie = await self._visitors.enter(form.get("token", ""))
        if cookie is None:
            return self._page(
                request, "enter.html", "Sign in", 403, problem="This token is not valid here.", next=target
            )
        return self._let_in(cookie, target)

    async def _redeem(self, request: Request, code: str) -> Response:
        """Sign in by a one-time link. The page that was agreed to has named the user whom this browser was of."""
        visitor = self._visitors.visitor(request)
        if visitor is not None and not await self._may_change(request, visitor):
            return self._refused(request)
        cookie = self._visitors.sign_ins.redeem(code)
        if cookie is None:
            return self._used_up(request)
        if visitor is not None and visitor.visit is not None:
            self._visitors.sign_ins.close(visitor.visit)
        return self._let_in(cookie, PREFIX)

    async def link(self, request: Request) -> Response:
        """A one-time link for the holder of a token, who sends it as to every endpoint."""
        user = await self._visitors.bearer(request)
        if user is None:
            return JSONResponse({"error": "invalid_token"}, 401, {**PAGE_HEADERS, "www-authenticate": "Bearer"})
        code = self._visitors.sign_ins.make_code("read", user)
        origin = self._accounts.sign_ins.origin()
        return JSONResponse({"url": f"{origin}{PREFIX}/enter?code={code}"}, headers=PAGE_HEADERS)

    async def sign_out(self, request: Request) -> Response:
        """This browser is nobody's any more."""
        visitor = self._visitors.visitor(request)
        if visitor is None or not await self._may_change(request, visitor):
            return self._refused(request)
        if visitor.visit is not None:
            self._visitors.sign_ins.close(visitor.visit)
        answer, sessions = self._let_in("", f"{PREFIX}/enter"), self._visitors.sessions
        session = sessions.find(request) if sessions is not None else None
        if sessions is not None and session is not None:
            sessions.sign_out(answer, session)
        return answer

    # -- what

    async def show(self, request: Request) -> Response:
        """What the user has connected."""
        visitor = self._visitors.visitor(request)
        if visitor is None:
            return self._page(request, "enter.html", "Sign in", next=PREFIX)
        quotas: list[dict[str, Any]] | None = None
        with suppress(StoreFailed):  # the log of the bridge says so with the next call
            quotas = await own_quotas(self._bridge, visitor.user, self._identity_of(visitor.user))
        connections = await self._accounts.connections(visitor.user) if self._bridge.user_accounts.are_wanted else []
        found = [
            one
            for one in connections
            # An account that was connected before a role was lost can still be disconnected.
            if self._sees(visitor.user, one.server) or (one.is_connected and one.how != "exchange")
        ]
        asks = {
            one.server: self._accounts.sign_ins.begin(one.server, visitor.user).id
            for one in found
            if one.how == "sign-in" and not one.is_connected
        }
        return self._page(request, "list.html", "Your connections", connections=found, asks=asks, quotas=quotas)

    async def start(self, request: Request) -> Response:
        """A link from a call, or from the list: asks the right user whether to go on to the provider."""
        server, ask = request.path_params["server"], request.query_params.get("ask", "")
        visitor = self._visitors.visitor(request)
        if visitor is None:
            return self._page(request, "enter.html", "Sign in", next=_own_path(f"{request.url.path}?ask={ask}"))
        sign_in = self._sign_in_of(request, visitor, ask)
        if isinstance(sign_in, Response):
            return sign_in
        if self._variables(server, visitor):
            return RedirectResponse(f"{PREFIX}/{server}/variables", 303, PAGE_HEADERS)
        return self._page(request, "start.html", f"Connect {server}", server=server, ask=ask)

    async def go_on(self, request: Request) -> Response:
        """The user wants to: on to the provider."""
        server = request.path_params["server"]
        visitor = self._visitors.visitor(request)
        if visitor is None or not await self._may_change(request, visitor):
            return self._refused(request)
        sign_in = self._sign_in_of(request, visitor, (await _form(request)).get("ask", ""))
        if isinstance(sign_in, Response):
            return sign_in
        try:
            async with asyncio.timeout(_PATIENCE):
                page = await self._accounts.provider_page(sign_in)
        except TimeoutError:
            return self._message(request, "Not connected", 504, problem=f"{server} does not say where to sign in.")
        except BridgeError as error:
            return self._message(request, "Not connected", 502, problem=self._bridge.redact(str(error)))
        if urlsplit(page).scheme not in ("https", "http"):  # the server says where
            return self._message(request, "Not connected", 502, problem=f"{server} names no web page to sign in at.")
        return self._page(request, "onward.html", f"Going on to {urlsplit(page).netloc}", url=page)

    def _sign_in_of(self, request: Request, visitor: _Visitor, ask: str) -> UserSignIn | Response:
        """The sign-in of a link, or why this visitor does not get it."""
        server = request.path_params["server"]
        sign_in = self._accounts.sign_ins.find(server, ask) if self._sees(visitor.user, server) else None
        if sign_in is None:
            return self._message(request, "Not connected", 404, problem=_STALE)
        if not hmac.compare_digest(sign_in.principal.encode(), visitor.user.encode()):
            log.warning("a link to connect an account was opened by another user", upstream=server)
            return self._message(request, "Not connected", 403, problem=_NOT_YOURS)
        return sign_in

    async def come_back(self, request: Request) -> Response:
        """The browser comes back from a provider."""
        visitor = self._visitors.visitor(request)
        if visitor is None:
            problem = "You are signed out of this bridge, so nothing was connected. Sign in, and begin anew."
            return self._page(request, "enter.html", "Sign in", 403, problem=problem, next=PREFIX)
        sign_in = self._accounts.sign_ins.of_answer(request.url.query, visitor.user)
        if sign_in is None or sign_in.redirect is None:
            return self._message(request, "Not connected", 403, problem=_STALE)
        trouble = sign_in.redirect.take(f"{sign_in.redirect.uri}?{request.url.query}")
        return await self._outcome(request, sign_in, trouble)

    async def _outcome(self, request: Request, sign_in: UserSignIn, trouble: str) -> Response:
        try:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.shield(sign_in.over)
        except TimeoutError:
            trouble = trouble or "the provider does not answer"
        except BridgeError as error:
            trouble = trouble or self._bridge.redact(str(error))
        if trouble:
            return self._message(request, "Not connected", 400, problem=f"{trouble[:1].upper()}{trouble[1:]}.")
        text = f"Your account at {sign_in.server} is connected. A call that waited for it continues by itself."
        return self._message(request, "Connected", text=text)

    async def ask_variables(self, request: Request) -> Response:
        """The form for what a program needs of its user."""
        server = request.path_params["server"]
        visitor = self._visitors.visitor(request)
        if visitor is None:
            return self._page(request, "enter.html", "Sign in", next=_own_path(request.url.path))
        if not (variables := self._variables(server, visitor)):
            return self._message(request, "Not found", 404, problem=_NO_VALUES)
        return self._page(request, "variables.html", f"Connect {server}", server=server, variables=variables)

    async def set_variables(self, request: Request) -> Response:
        """What the user typed there."""
        server = request.path_params["server"]
        visitor = self._visitors.visitor(request)
        if visitor is None or not await self._may_change(request, visitor):
            return self._refused(request)
        if not (variables := self._variables(server, visitor)):
            return self._message(request, "Not found", 404, problem=_NO_VALUES)
        form = await _form(request)
        values = {name: form.get(f"v.{name}", "") for name in variables}
        try:
            await self._accounts.set_variables(server, visitor.user, {k: v for k, v in values.items() if v})
        except (ConfigError, TimeoutError) as error:
            return self._message(request, "Not connected", 400, problem=str(error) or "Try again.")
        return RedirectResponse(PREFIX, 303, PAGE_HEADERS)

    async def disconnect(self, request: Request) -> Response:
        """The user wants an account gone."""
        server = request.path_params["server"]
        visitor = self._visitors.visitor(request)
        if visitor is None or not await self._may_change(request, visitor):
            return self._refused(request)
        was_there, was_revoked = await self._accounts.disconnect(server, visitor.user)
        if was_there and not was_revoked and not self._named_variables(server):
            text = f"The bridge has forgotten your account at {server}. Its provider did not confirm: revoke it there."
            return self._message(request, "Disconnected", text=text)
        return RedirectResponse(PREFIX, 303, PAGE_HEADERS)

    # -- internals

    def _variables(self, server: str, visitor: _Visitor) -> list[str]:
        """What this server takes of users, if there is such a server for this one."""
        return self._named_variables(server) if self._sees(visitor.user, server) else []

    def _named_variables(self, server: str) -> list[str]:
        settings = self._bridge.settings.servers.get(server)
        return settings.auth.variables if settings is not None else []

    async def _may_change(self, request: Request, visitor: _Visitor) -> bool:
        given = (await _form(request)).get("form_token", "")
        return is_own_form(request) and hmac.compare_digest(given.encode(), visitor.form_token.encode())

    def _refused(self, request: Request) -> Response:
        return self._message(request, "Not done", 403, problem="The form is out of date, or not of this page.")

    def _used_up(self, request: Request) -> Response:
        problem = "This link was used already, or is too old."
        return self._page(request, "enter.html", "Sign in", 403, problem=problem, next=PREFIX)

    def _let_in(self, cookie: str, target: str) -> Response:
        seconds = self._bridge.settings.accounts.sign_in_lifetime if cookie else 0
        answer = RedirectResponse(target, 303, PAGE_HEADERS)
        path = "/" if self._is_secure else PREFIX  # which the prefix `__Host-` wants
        answer.set_cookie(
            self._visitors.cookie,
            cookie,
            int(seconds),
            path=path,
            secure=self._is_secure,
            httponly=True,
            samesite="lax",
        )
        return answer

    def _message(
        self, request: Request, title: str, status: int = 200, *, text: str = "", problem: str = ""
    ) -> Response:
        return self._page(request, "message.html", title, status, text=text, problem=problem)

    def _page(self, request: Request, template: str, title: str, status: int = 200, **values: Any) -> Response:
        visitor = self._visitors.visitor(request)
        shared: Mapping[str, Any] = {
            "prefix": PREFIX,
            "title": title,
            "problem": "",
            "user": (visitor.name or visitor.user) if visitor is not None else None,
            "sign_in": self._visitors.sessions is not None,
            "form_token": visitor.form_token if visitor is not None else "",
        }
        return HTMLResponse(self._templates.get_template(template).render({**shared, **values}), status, PAGE_HEADERS)

    @cached_property
    def _templates(self) -> Environment:
        environment = Environment(
            loader=PackageLoader("mcpbridge.app.connections"), autoescape=True, undefined=StrictUndefined
        )
        environment.filters["when"] = _when
        return environment


def _when(since: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(since))


async def _form(request: Request) -> dict[str, str]:
    """The texts of a form; kept in the request, and read again from there.

    Raises:
        HTTPException: see `read_form`.
    """
    if not hasattr(request.state, "form"):
        form = await read_form(request, _LARGEST_FORM)
        request.state.form = {name: value for name, value in form.items() if isinstance(value, str)}
    return request.state.form


def _own_path(target: str) -> str:
    """A path of these pages to go on to; their first one instead of anything else."""
    parts = urlsplit(target)
    is_ours = not parts.scheme and not parts.netloc and parts.path.startswith(f"{PREFIX}/")
    is_plain = target.isascii() and target.isprintable() and "\\" not in target and "//" not in target
    return target if is_ours and is_plain and ".." not in parts.path else PREFIX
