"""The sessions of clients: which came, what each was listed, its calls, and why it ended."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.guard import PREFIX
from mcpbridge.app.console.pages.calls.all_calls import AllCalls
from mcpbridge.app.console.pages.calls.event_words import tone_of, words_of
from mcpbridge.app.console.pages.calls.filters import CallFilters
from mcpbridge.storage.call_log.reader import Filter

ROWS = 50
"""Sessions of one page, and calls of one session."""
_EVENTS = 200


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/sessions` and each below it."""
    calls = AllCalls(console)

    async def listed(request: Request) -> Response:
        client = request.query_params.get("client", "").strip()
        before = calls.before(request)
        found = await calls.sessions(client or None, limit=ROWS, before=before)
        older = ""
        if found.before:
            older = f"{PREFIX}/sessions?{urlencode({**_given(client=client), 'before': found.before})}"
        query = urlencode({**_given(client=client), **_given(before=before)})
        values: dict[str, Any] = {"sessions": found.rows, "client": client, "older": older, "query": query}
        return console.page(request, "calls/sessions.html", **values, history=calls.here, missing=found.missing)

    async def one(request: Request) -> Response:
        session = request.path_params["session"]
        known = await calls.session(session)
        page = await calls.page(request, CallFilters(Filter(session=session), {}), limit=ROWS)
        happened = await calls.events(Filter(session=session), limit=_EVENTS)
        if known is None and not page.rows and not happened.rows:
            raise HTTPException(404, "There is no such session, or not any more: the call log keeps it for some days.")
        if known is None:  # its begin is forgotten, or it is one that has no begin: of a program, or of the console
            known = {"client": page.rows[0]["client"] if page.rows else ""}
        values: dict[str, Any] = {"one": known, "session": session, "rows": page.rows, "happened": happened.rows}
        values["missing"] = page.missing
        return console.page(request, "calls/session.html", **values, tone_of=tone_of, words_of=words_of)

    return [
        Route("/sessions", listed, methods=["GET"]),
        Route("/sessions/{session}", one, methods=["GET"]),
    ]


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value}
