"""The pages where people approve calls of others, as an ASGI application: who sees what, and who decides.

A link leads here from a message. It decides nothing: the page asks who somebody is, shows the call to whoever may
decide about it, and an answer is a POST of its form. Whether somebody may is asked again in that moment. Whoever made a
call sees that it waits; to everybody else there is no such call. Secrets in arguments are masked.
"""

import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mcpbridge.app import connections
from mcpbridge.app.admin.approvals import decide
from mcpbridge.app.admin.errors import STATUS_OF, Problem
from mcpbridge.app.console.shown_text import inert_text
from mcpbridge.app.page_requests import PAGE_HEADERS, is_own_form, read_form
from mcpbridge.app.page_sign_in.sessions import PageSession, PageSessions
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.base.short_turns import short_turns
from mcpbridge.downstream.auth.resource_server import Caller
from mcpbridge.downstream.http.app import App
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.approvals.decider import Decider, approvers_in_words
from mcpbridge.pipeline.approvals.pending import PendingApprovals
from mcpbridge.pipeline.approvals.request import ApprovalRequest, readable_arguments
from mcpbridge.protocol.canonical_json import canonical_digest

log = get_logger("mcpbridge.approvals")

_STYLES = Path(connections.__file__).parent / "static"
"""One look for all plain pages."""
_LARGEST_FORM = 64 << 10
_LOOKED_AT = 256 * 1024
"""Bytes of arguments that are looked at."""
_LARGE = 4 * 1024
"""Bytes of arguments from which on a thread looks at them."""
_ANSWERS = {"approve": {"decision": "approve"}, "deny": {"decision": "deny"}}
_NOT_SIGNED_IN = (
    "People decide here who signed in with their account: a token may also be in the hands of a program. Sign out, and "
    "sign in with your account."
)
_NOTHING = (
    "There is no call here that you can decide about. It may be for others, somebody may have answered it, or the time "
    "for it may be over."
)
_AWAY = "What calls wait for cannot be read now: the bridge's store does not answer. Try again in a few seconds."
_ENDED = {
    "granted": "It was approved by {by}.",
    "denied": "It was denied by {by}.",
    "expired": "Nobody answered in time, so it was refused.",
    "cancelled": "Whoever made the call has withdrawn it.",
    "unavailable": "Nobody could be asked.",
}

Identify = Callable[[str], Awaitable[Caller | None]]
"""Whose token this is; None: nobody's."""


class _CallView(Struct, frozen=True):
    """One call, as a page shows it."""

    request: ApprovalRequest
    until: float
    is_waiting: bool
    may_decide: bool
    is_own: bool
    who: str = ""
    arguments: str = ""
    """For the page of this call alone."""


def make_approval_pages(bridge: Bridge, sessions: PageSessions, identify: Identify, *, prefix: str) -> App:
    """The application for the path `prefix` and all below it."""
    return _Pages(bridge, sessions, identify, prefix).app()


class _Pages:
    def __init__(self, bridge: Bridge, sessions: PageSessions, identify: Identify, prefix: str) -> None:
        self._bridge, self._sessions, self._identify, self._prefix = bridge, sessions, identify, prefix
        self._threads = anyio.CapacityLimiter(1)

    @property
    def _has_provider(self) -> bool:
        """People can sign in at an identity provider."""
        return self._bridge.user_accounts.sign_ins is not None

    @property
    def _desk(self) -> PendingApprovals:
        return self._bridge.approvals

    def app(self) -> App:
        """The routes."""
        routes = [
            Route("/", self.show_all, methods=["GET"]),
            Route("/enter", self.enter, methods=["GET"]),
            Route("/enter", self.sign_in, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STYLES)),
            Route("/{id:str}", self.show, methods=["GET"]),
            Route("/{id:str}", self.answer, methods=["POST"]),
        ]
        app = Starlette(
            routes=[Route(self._prefix, self.show_all, methods=["GET"]), Mount(self._prefix, routes=routes)],
            exception_handlers={StoreFailed: self._store_is_away},
        )
        app.router.redirect_slashes = False
        return app

    async def _store_is_away(self, request: Request, _: Exception) -> Response:
        return self._message(request, "Not now", 503, problem=_AWAY)

    # -- who

    async def enter(self, request: Request) -> Response:
        """The page that asks who somebody is."""
        return self._enter(request, self._prefix)

    async def sign_in(self, request: Request) -> Response:
        """Somebody typed a token."""
        if not is_own_form(request):
            return self._refused(request)
        form = await self._form(request)
        target = self._own_path(form.get("next", ""))
        caller = await self._identify(form.get("token", ""))
        if caller is None:
            return self._enter(request, target, 403, problem="This token is not valid here.")
        answer = RedirectResponse(target, 303, PAGE_HEADERS)
        self._sessions.open(answer, caller, is_at_provider=False)
        return answer

    async def sign_out(self, request: Request) -> Response:
        """This browser is nobody's any more."""
        session = self._sessions.find(request)
        if session is None or not await self._may_change(request, session):
            return self._refused(request)
        answer = RedirectResponse(f"{self._prefix}/enter", 303, PAGE_HEADERS)
        self._sessions.sign_out(answer, session)
        return answer

    # -- what

    async def show_all(self, request: Request) -> Response:
        """The calls that this person may decide about, and the person's own that wait."""
        session = self._sessions.find(request)
        if session is None:
            return self._enter(request, self._prefix)
        return self._page(request, "list.html", "Approvals", calls=await self._calls(session))

    async def show(self, request: Request) -> Response:
        """One call. Looking at it changes nothing."""
        id_ = request.path_params["id"]
        session = self._sessions.find(request)
        if session is None:
            return self._enter(request, self._own_path(request.url.path))
        pending = await self._desk.find(id_)
        shown = self._view(pending.request, session, pending.until, pending.is_waiting) if pending else None
        if shown is None:
            return self._ended(request, session, id_)
        shown = replace(shown, arguments=await self._arguments(shown.request))
        return self._page(request, "call.html", f"Approval of {shown.request.tool}", call=shown)

    async def answer(self, request: Request) -> Response:
        """A yes or a no. Of several people who answer one is heard."""
        id_ = request.path_params["id"]
        session = self._sessions.find(request)
        if session is None or not await self._may_change(request, session):
            return self._refused(request)
        form = await self._form(request)
        pending = await self._desk.find(id_)
        if pending is None:
            return self._ended(request, session, id_, 409)
        if self._view(pending.request, session, 0.0, is_waiting=True) is None:
            return self._message(request, "Nothing here", 404, problem=_NOTHING)  # as if there were none
        if pending.request.approve_by is None:
            return self._message(request, "Not done", 403, problem="This call is not approved here.")
        if self._has_provider and session.identity is not None and not session.is_at_provider:
            return self._message(request, "Not done", 403, problem=_NOT_SIGNED_IN)  # a program may have that token, too
        if form.get("answer") not in _ANSWERS:
            return self._message(request, "Not done", 400, problem="The form has no answer.")
        answer = {**_ANSWERS[form["answer"]], "reason": form.get("reason", "").strip()}
        try:
            await decide(self._desk, id_, answer, f"page:{session.principal}", self._decider(request, session))
        except Problem as problem:
            if problem.code == "unknown":
                return self._ended(request, session, id_, 409)
            return self._message(request, "Not done", STATUS_OF[problem.code], problem=f"{problem}.")
        return RedirectResponse(f"{self._prefix}/{id_}", 303, PAGE_HEADERS)

    def _ended(self, request: Request, session: PageSession, id_: str, status: int = 200) -> Response:
        """What became of a call, for those who might have decided about it and who made it."""
        for at, event in self._desk.recent.ended():
            if event.request.id == id_ and self._view(event.request, session, 0.0, is_waiting=False) is not None:
                text = _ENDED[event.event].format(by=event.by.partition(":")[2] or event.by)
                why = f" The reason: {event.why}" if event.why else ""
                text = f"The call of {event.request.tool} waits no more, since {_when(at)}. {text}{why}"
                return self._message(request, "Answered" if event.by else "Over", status, text=text)
        return self._message(request, "Nothing here", 404, problem=_NOTHING)

    async def _calls(self, session: PageSession) -> Sequence[_CallView]:
        found = [self._view(one.request, session, one.until, one.is_waiting) for one in await self._desk.pending()]
        return [one for one in found if one is not None]

    def _view(self, request: ApprovalRequest, session: PageSession, until: float, is_waiting: bool) -> _CallView | None:
        """A call as this person sees it; None: there is none for this person."""
        is_own = request.principal == session.principal
        may_decide = request.approve_by is not None and not self._desk.objection(
            request, Decider(session.principal, session.identity)
        )
        if not (is_own or may_decide):
            return None
        who = approvers_in_words(request.approve_by) if request.approve_by is not None else ""
        return _CallView(request, until, is_waiting, may_decide, is_own, who)

    # -- parts

    async def _arguments(self, request: ApprovalRequest) -> str:
        """The arguments as people see them; in a thread if they are large, as looking for secrets takes long."""
        if len(request.arguments_json) <= _LARGE:
            return self._shown_arguments(request)
        with short_turns():
            return await anyio.to_thread.run_sync(self._shown_arguments, request, limiter=self._threads)

    def _shown_arguments(self, request: ApprovalRequest) -> str:
        data = request.arguments_json
        text = self._bridge.redact(data[:_LOOKED_AT].decode("utf-8", "replace"))
        digest = request.digest or canonical_digest(data)
        size = len(data) if len(data) > _LOOKED_AT else 0
        return readable_arguments(text.encode("utf-8", "replace"), digest, size)

    def _own_path(self, target: str) -> str:
        """A path of these pages to go on to; their first one instead of anything else."""
        id_ = target.removeprefix(f"{self._prefix}/")
        is_ours = target.startswith(f"{self._prefix}/") and id_.isascii() and id_.isalnum()
        return target if is_ours else self._prefix

    def _decider(self, request: Request, session: PageSession) -> Decider:
        address = request.client.host if request.client is not None else ""
        return Decider(session.principal, session.identity, address)

    async def _form(self, request: Request) -> dict[str, str]:
        """The texts of a form; kept in the request, and read again from there."""
        if not hasattr(request.state, "form"):
            form = await read_form(request, _LARGEST_FORM)
            request.state.form = {name: value for name, value in form.items() if isinstance(value, str)}
        return request.state.form

    async def _may_change(self, request: Request, session: PageSession) -> bool:
        given = (await self._form(request)).get("form_token", "")
        return is_own_form(request) and hmac.compare_digest(given.encode(), session.form_token.encode())

    def _refused(self, request: Request) -> Response:
        return self._message(request, "Not done", 403, problem="The form is out of date, or not of this page.")

    def _enter(self, request: Request, target: str, status: int = 200, *, problem: str = "") -> Response:
        return self._page(request, "enter.html", "Sign in", status, problem=problem, next=target)

    def _message(
        self, request: Request, title: str, status: int = 200, *, text: str = "", problem: str = ""
    ) -> Response:
        return self._page(request, "message.html", title, status, text=text, problem=problem)

    def _page(self, request: Request, template: str, title: str, status: int = 200, **values: Any) -> Response:
        session = self._sessions.find(request)
        shared: Mapping[str, Any] = {
            "prefix": self._prefix,
            "title": title,
            "problem": "",
            "session": session,
            "sign_in": self._has_provider,
        }
        text = self._templates.get_template(template).render({**shared, **values})
        return HTMLResponse(text, status, PAGE_HEADERS)

    @cached_property
    def _templates(self) -> Environment:
        environment = Environment(
            loader=PackageLoader("mcpbridge.app.approval_pages"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_inert,
        )
        environment.filters["when"] = _when
        return environment


def _inert(value: object) -> object:
    """What a template prints of a text, whoever wrote it; markup of our own passes as it is."""
    return inert_text(value) if type(value) is str else value


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
