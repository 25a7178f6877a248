"""The inbox of calls that wait for a person: approve or deny each, see what is new in it, and what became of others."""

from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.admin.approvals import decide, list_approvals, recent_approvals
from mcpbridge.app.admin.errors import STATUS_OF, Problem
from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.guard import PREFIX, Visitor, form_of
from mcpbridge.app.console.sign_in import Visit
from mcpbridge.pipeline.approvals.decider import OPERATOR, Decider

_ANSWERS = {
    "once": {"decision": "approve", "for": "once"},
    "session": {"decision": "approve", "for": "session"},
    "deny": {"decision": "deny"},
    "deny-session": {"decision": "deny", "for": "session"},
}
"""By the button that is pressed: the decision that the desk gets."""
_SAID = {
    "once": "Approved: {}.",
    "session": "Approved, and the same call again in this session: {}.",
    "deny": "Denied: {}.",
    "deny-session": "Denied, and the same call again in this session: {}.",
}
_RECENT = 30


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/approvals` and below."""
    pages = _Approvals(console)
    return [
        Route("/approvals", pages.page, methods=["GET"]),
        Route("/approvals/parts/inbox", pages.inbox, methods=["GET"]),
        Route("/approvals/{id}", pages.answer, methods=["POST"]),
    ]


def _decider(request: Request) -> Decider:
    visitor: Visitor = request.state.visitor
    if visitor.visit.is_local:
        return OPERATOR
    address = request.client.host if request.client is not None else ""
    return Decider(visitor.visit.by, visitor.session.identity if visitor.session is not None else None, address)


class _Approvals:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console

    async def page(self, request: Request) -> Response:
        """The whole page."""
        return self._console.page(request, "approvals.html", **await self._values())

    async def inbox(self, request: Request) -> Response:
        """What changes while the page is open."""
        return self._console.part(request, "parts/approvals_inbox.html", said="", tone="good", **await self._values())

    async def answer(self, request: Request) -> Response:
        """Give an answer; the desk is the one that `mcpbridge approve` and the API ask."""
        form = await form_of(request)
        id_, said = request.path_params["id"], str(form.get("answer", ""))
        visit: Visit = request.state.visitor.visit
        try:
            if said not in _ANSWERS:
                raise Problem("invalid", "answer: expected once, session, deny or deny-session")
            answer = {**_ANSWERS[said], "reason": str(form.get("reason", ""))}
            done = await decide(self._console.bridge.approvals, id_, answer, f"console:{visit.by}", _decider(request))
        except Problem as problem:
            return await self._answer(request, f"{problem}.", "bad", STATUS_OF[problem.code])
        self._console.live.announce("approvals", "calls")
        then = (
            ""
            if done["waiting"] or said.startswith("deny")
            else " The call gave up waiting; it passes when it is made again."
        )
        return await self._answer(request, _SAID[said].format(done["tool"]) + then, "good", 200)

    async def _answer(self, request: Request, text: str, tone: str, status: int) -> Response:
        if "hx-request" not in request.headers:
            if status >= 400:
                raise HTTPException(status, text)
            return RedirectResponse(f"{PREFIX}/approvals", 303)
        values = {**await self._values(), "said": text, "tone": tone}
        return self._console.part(request, "parts/approvals_inbox.html", status, **values)

    async def _values(self) -> dict[str, Any]:
        bridge = self._console.bridge
        return {
            "waiting": await list_approvals(bridge.approvals),
            "recent": await recent_approvals(bridge.approvals, bridge.audit.path, limit=_RECENT),
            "timeout": bridge.settings.approval.timeout,
        }
