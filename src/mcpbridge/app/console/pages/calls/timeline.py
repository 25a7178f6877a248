"""The timeline: what servers, clients and the bridge itself did, beside the calls."""

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.guard import PREFIX
from mcpbridge.app.console.pages.calls.all_calls import AllCalls
from mcpbridge.app.console.pages.calls.event_words import GROUPS, tone_of, words_of
from mcpbridge.base.units import parse_moment
from mcpbridge.storage.call_log.reader import Filter

ROWS = 100
"""Events of one page."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/timeline`."""
    calls = AllCalls(console)

    async def page(request: Request) -> Response:
        params = request.query_params
        asked = {name: params.get(name, "").strip()[:500] for name in ("server", "since", "until")}
        kind = params.get("kind", "")
        problem = "" if kind in GROUPS else f"There is no kind of events {kind[:40]!r}."
        kind = kind if kind in GROUPS else ""
        before, times, now = calls.before(request), dict[str, float](), time.time()
        for name in ("since", "until"):
            try:
                times |= {name: parse_moment(asked[name], now)} if asked[name] else {}
            except ValueError as error:
                problem = f"{name.capitalize()}: {error}."
        which = Filter(server=asked["server"] or None, since=times.get("since"), until=times.get("until"))
        found = await calls.events(which, limit=ROWS, before=before, kinds=GROUPS[kind][1])
        given = {name: value for name, value in {"kind": kind, **asked}.items() if value}
        base = f"{PREFIX}/timeline"
        values: dict[str, Any] = {
            "groups": GROUPS,
            "kind": kind,
            "asked": asked,
            "problem": problem,
            "rows": found.rows,
            "missing": found.missing,
            "query": urlencode(given),
            "older": f"{base}?{urlencode({**given, 'before': found.before})}" if found.before else "",
            "newest": f"{base}?{urlencode(given)}" if before else "",
            "history": calls.here,
        }
        return console.page(request, "calls/timeline.html", **values, tone_of=tone_of, words_of=words_of)

    return [Route("/timeline", page, methods=["GET"])]
