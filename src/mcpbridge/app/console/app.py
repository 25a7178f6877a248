"""The console as an ASGI application: its routes, the way in, and its static files.

`make_console` puts the guard around everything. Each page's own routes are in its module below `pages/`.
"""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from mcpbridge.app.console.context import STATIC, ConsoleContext
from mcpbridge.app.console.guard import PREFIX, Guard, Visitor, cookie_header, form_of
from mcpbridge.app.console.pages import (
    approvals,
    overview,
    results,
    savings,
    servers,
    settings,
    usage,
)
from mcpbridge.app.console.pages.calls import again, call_list, call_page, export, sessions, timeline
from mcpbridge.app.console.pages.catalog import catalog_list, tool_page, try_tool
from mcpbridge.app.console.sign_in import Visit
from mcpbridge.app.page_sign_in.sessions import PageSessions
from mcpbridge.base.errors import BridgeError
from mcpbridge.downstream.http.routes import App

_PAGES = (
    overview,
    call_list,
    export,
    call_page,  # after those with fixed paths
    again,
    sessions,
    timeline,
    catalog_list,
    tool_page,
    try_tool,
    approvals,
    results,
    servers,
    usage,
    savings,
    settings,
)
"""The modules of the pages, each with `routes(console)`; their paths are below `/console`."""

_ENDED = "You are signed out: your sign-in ended, or none of your roles opens the console any more. Sign in again."
"""For pages that were open then."""


def make_console(console: ConsoleContext, cookie: str, sessions: PageSessions | None = None) -> App:
    """The application for `/console` and all below it. `cookie`: its name, another one for each bridge of a machine.

    `sessions`: who signed in at the identity provider; None: nobody can.
    """
    own = [route for page in _PAGES for route in page.routes(console)]
    app = Starlette(
        routes=[Mount(PREFIX, routes=[*own, *_entrance(console, cookie, sessions), *_files(console)])],
        exception_handlers={HTTPException: _http_error(console), BridgeError: _bridge_error(console)},
    )
    app.router.redirect_slashes = False
    return Guard(app, console.sign_ins, cookie, sessions, console.role_of)


def _entrance(console: ConsoleContext, cookie: str, sessions: PageSessions | None) -> Sequence[BaseRoute]:
    """How somebody gets in: by a link of `mcpbridge ui`, or by typing a token that may see the console."""
    can = sessions is not None

    def let_in(request: Request, value: str) -> Response:
        answer = RedirectResponse(f"{PREFIX}/", 303)
        seconds = console.bridge.settings.console.sign_in_lifetime
        is_secure = request.url.scheme == "https"
        answer.headers.append("set-cookie", cookie_header(cookie, value, seconds=seconds, is_secure=is_secure))
        return answer

    def note(kind: str, visit: Visit | None) -> None:
        if visit is not None:
            console.bridge.trail.note(kind, {"who": f"console:{visit.by}", "detail": visit.role})

    async def enter(request: Request) -> Response:
        code = request.query_params.get("code")
        if code is not None:
            value = console.sign_ins.redeem(code)
            if value is not None:
                note("console.signed_in", console.sign_ins.visit(value))
                return let_in(request, value)
            return console.page(
                request, "enter.html", 403, problem="This link was used already, or is too old.", sign_in=can
            )
        if hasattr(request.state, "visitor"):
            return RedirectResponse(f"{PREFIX}/", 303)
        problem = _ENDED if "ended" in request.query_params else ""
        return console.page(request, "enter.html", problem=problem, sign_in=can)

    async def sign_in(request: Request) -> Response:
        token = str((await form_of(request)).get("token", ""))
        role = console.token_role(token) if token else None
        if role is None:
            problem = "This token may not see the console. It takes `admin` or `console = true` in `http.tokens`."
            return console.page(request, "enter.html", 403, problem=problem, sign_in=can)
        value = console.sign_ins.open(*role)
        note("console.signed_in", console.sign_ins.visit(value))
        return let_in(request, value)

    async def sign_out(request: Request) -> Response:
        visitor: Visitor = request.state.visitor
        console.sign_ins.close(visitor.visit)
        note("console.signed_out", visitor.visit)
        answer = RedirectResponse(f"{PREFIX}/enter", 303)
        is_secure = request.url.scheme == "https"
        answer.headers.append("set-cookie", cookie_header(cookie, "", seconds=0, is_secure=is_secure))
        session = sessions.find(request) if sessions is not None else None
        if sessions is not None and session is not None:
            sessions.sign_out(answer, session)
        return answer

    return [
        Route("/enter", enter, methods=["GET"]),
        Route("/enter", sign_in, methods=["POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]


def _files(console: ConsoleContext) -> Sequence[BaseRoute]:
    async def events(request: Request) -> Response:
        visitor: Visitor = request.state.visitor
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(console.live.stream(visitor.is_in), media_type="text/event-stream", headers=headers)

    async def banner(request: Request) -> Response:
        """What every page says on top: a broken configuration, a full disk."""
        return console.part(request, "parts/banner.html", state=console.status())

    return [
        Route("/events", events, methods=["GET"]),
        Route("/parts/banner", banner, methods=["GET"]),
        Mount("/static", StaticFiles(directory=STATIC), name="static"),
    ]


def _bridge_error(console: ConsoleContext):
    def answer(request: Request, error: Exception) -> Response:
        """What the bridge could not do, such as reading the call log from a disk that is broken."""
        assert isinstance(error, BridgeError)
        problem = console.redact(error.full_message())
        if "hx-request" in request.headers:
            return console.message(request, problem, "bad", 503)
        return console.page(request, "error.html", 503, problem=problem, code=503)

    return answer


def _http_error(console: ConsoleContext):
    def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if not hasattr(request.state, "visitor"):
            return Response(error.detail, error.status_code)
        return console.page(request, "error.html", error.status_code, problem=error.detail, code=error.status_code)

    return answer
