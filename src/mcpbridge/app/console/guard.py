"""Who may see the console: the rules before every page, and the headers of every answer.

In this order: a request that a page of another origin makes is refused (`Sec-Fetch-Site`, `Origin`); who has no cookie
of ours is sent to the page that says how to sign in; what changes something needs the token of its form and the right
to change. Bearer tokens mean nothing here: a model that holds one sees nothing.

The `Host` was checked before (`downstream/http/host_and_origin.py`), against pages that rebind their name.
"""

import hmac
import re
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from mcpbridge.app.console.sign_in import SignIns, Visit, form_token
from mcpbridge.app.page_requests import read_form
from mcpbridge.app.page_sign_in.sessions import PageSession, PageSessions
from mcpbridge.downstream.http.exchange import Receive, Scope, Send
from mcpbridge.downstream.http.routes import App

PREFIX = "/console"
"""The path that all of the console is below."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""No code and no styles but those of our own files; `data:` images are the icons of the style sheet and of results."""

_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with none at all browsers send `Origin: null` with forms
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_NOT_STORED = (b"cache-control", b"no-store")
_OPEN_PATHS = (f"{PREFIX}/enter", f"{PREFIX}/static/")
"""What is served without a cookie: the way in, and files that say nothing of this bridge."""
EVENTS = f"{PREFIX}/events"
"""The stream that pages hear while they are open."""
_NO_ROLE = "None of your roles opens the console (`console` in `roles`)."
_OWN_APPROVALS = "/approvals"
"""Where somebody sees their own calls that wait, and those that they may decide about."""
_OWN = re.compile(
    r"/(calls(/(list|running|mine|export\.(csv|json)|[^/]+))?|usage|events|sign-out|enter(/.*)?|static/.*)", re.DOTALL
)
"""What those may ask for who see what is their own: each of these pages looks whose it shows."""
_OWN_ALONE = "Your roles open your own calls and usage in the console, and nothing else (`console` in `roles`)."
_READS = frozenset({"GET", "HEAD"})
_OUR_SITES = frozenset({"same-origin", "none"})
_LONGEST_FORM = 8 << 20
"""Bytes of a form of somebody who is signed in: a whole configuration, or the arguments of a call."""
_LONGEST_OF_STRANGERS = 64 << 10


class Visitor(Struct, frozen=True):
    """Who asks for a page; in `request.state.visitor`."""

    visit: Visit
    token: str
    """What its forms send along (`form_token`)."""
    session: PageSession | None = None
    """Of somebody who signed in at the identity provider."""
    is_in: Callable[[], bool] = lambda: True
    """Whether they may see the console still: what takes longer than a moment asks it anew."""
    sees_all: bool = True
    """Else their own calls and usage: pages show nothing that is not `principal`'s."""

    @property
    def principal(self) -> str:
        """Who it is in the call log; empty: the local user."""
        if self.session is not None:
            return self.session.principal
        return "" if self.visit.is_local else self.visit.by


RoleOf = Callable[[PageSession], Literal["admin", "view-all", "view"] | None]
"""What somebody who signed in at the identity provider may do in the console now; None: nothing."""


class Guard:
    """ASGI application around the console's."""

    def __init__(
        self,
        app: App,
        sign_ins: SignIns,
        cookie: str,
        sessions: PageSessions | None = None,
        role_of: RoleOf = lambda session: None,
    ) -> None:
        """`cookie`: its name. `sessions`: who signed in at the identity provider; `role_of` says what they may do."""
        self._app, self._sign_ins, self._cookie = app, sign_ins, cookie
        self._sessions, self._role_of = sessions, role_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or answer it."""
        request = Request(scope, receive)
        path = request.url.path

        async def send_on(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), *_HEADERS]
                if not path.startswith(f"{PREFIX}/static/"):
                    headers.append(_NOT_STORED)
                message = {**message, "headers": headers}
            await send(message)

        answer = self._refusal(request) or await self._admit(request, scope)
        await (answer(scope, receive, send_on) if answer is not None else self._app(scope, receive, send_on))

    def _visitor(self, request: Request) -> tuple[Visitor | None, PageSession | None]:
        """Who asks, as far as they may see the console now; and who signed in at the provider, whether they may or not.

        A token that was shown at another page is no sign-in here: a model that holds one sees nothing.
        """
        cookie = _cookie(request, self._cookie)

        def is_in() -> bool:
            return self._visitor(request)[0] is not None

        visit = self._sign_ins.visit(cookie)
        if visit is not None:
            return Visitor(visit, form_token(cookie), None, is_in), None
        session = self._sessions.find(request) if self._sessions is not None else None
        if session is None or not session.is_at_provider:
            return None, None
        role = self._role_of(session)
        if role is None:
            return None, session
        visit = Visit(session.digest, "admin" if role == "admin" else "read", session.principal, session.until)
        return Visitor(visit, session.form_token, session, is_in, sees_all=role != "view"), session

    def _refusal(self, request: Request) -> Response | None:
        """Why a page of another origin gets nothing. Another port of this machine is another origin."""
        headers = request.headers
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None and site not in _OUR_SITES:
            return _plain(403, "A page of another origin asked for this; the console answers its own pages only.")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return _plain(403, "The Origin of this request is not the console's own.")
        if request.method not in _READS and origin is None and site != "same-origin":
            return _plain(403, "A request that changes something must say where it comes from (Origin).")
        if headers.get("sec-fetch-dest") in ("iframe", "frame", "embed", "object"):
            return _plain(403, "The console is not shown inside other pages.")
        return None

    async def _admit(self, request: Request, scope: Scope) -> Response | None:
        """None: it may pass. Puts the `Visitor` into the scope's state."""
        path = request.url.path
        visitor, session = self._visitor(request)
        if visitor is None:
            if path.startswith(_OPEN_PATHS):
                return None
            is_page = request.method in _READS and "hx-request" not in request.headers and path != EVENTS
            if session is not None:
                return RedirectResponse(_OWN_APPROVALS, 303) if is_page else _plain(403, _NO_ROLE)
            if is_page:
                return RedirectResponse(f"{PREFIX}/enter", 303)
            return _plain(401, "You are signed out. Type `mcpbridge ui` for a new link.")
        if not visitor.sees_all and _OWN.fullmatch(path.removeprefix(PREFIX)) is None:
            if path.rstrip("/") == PREFIX and request.method in _READS:
                return RedirectResponse(f"{PREFIX}/calls", 303)
            return _plain(403, _OWN_ALONE)
        visit = visitor.visit
        scope["state"] = {**scope.get("state", {}), "visitor": visitor}
        if request.method in _READS or path == f"{PREFIX}/enter":
            return None
        given = request.headers.get("x-form-token", "")
        if not given:
            try:
                form = await form_of(request)
            except HTTPException as refused:
                return _plain(refused.status_code, refused.detail)
            given = str(form.get("form_token", ""))
        if not hmac.compare_digest(given.encode(), visitor.token.encode()):
            return _plain(403, "The form is out of date. Load the page again.")
        if not visit.may_change and not path.startswith(f"{PREFIX}/sign-out"):
            return _plain(403, "This sign-in may look, and change nothing.")
        return None


async def form_of(request: Request) -> FormData:
    """The form of a request to the console, read once. Strangers may send little.

    Raises:
        HTTPException: see `read_form`.
    """
    known: FormData | None = getattr(request.state, "form", None)
    if known is None:
        most = _LONGEST_FORM if hasattr(request.state, "visitor") else _LONGEST_OF_STRANGERS
        known = request.state.form = await read_form(request, most)
    return known


def _cookie(request: Request, name: str) -> str:
    """The value of our cookie. A browser may send cookies of other ports as well; one that is malformed spoils none."""
    for line in request.headers.getlist("cookie"):
        for part in line.split(";"):
            key, _, value = part.strip().partition("=")
            if key == name:
                return value
    return ""


def _plain(status: int, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)


def cookie_header(name: str, value: str, *, seconds: float, is_secure: bool) -> str:
    """The `Set-Cookie` of a sign-in; an empty value takes it back."""
    parts = [f"{name}={value}", f"Path={PREFIX}", f"Max-Age={int(seconds)}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, *["Secure"] * is_secure])
