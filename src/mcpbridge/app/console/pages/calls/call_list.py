"""The list of calls: newest first, filtered by its address, with those that run on top of it."""

import fnmatch
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.call_history import COUNTED
from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.guard import PREFIX, Visitor
from mcpbridge.app.console.pages.calls.all_calls import AllCalls
from mcpbridge.app.console.pages.calls.filters import BOXED, BRIDGE, LOCAL_USER, NAMES, OUTCOMES, CallFilters
from mcpbridge.app.console.shown_text import shown_time
from mcpbridge.core.recording import RunningCall
from mcpbridge.storage.call_log.reader import Filter

ROWS = 50
"""Calls of one page."""
_RUNNING = 50
"""Calls under way that are shown."""
_OFFERED = 200
"""Names that a box proposes."""
_SETTLED = 2.0
"""Seconds after which a call that another process has begun is shown as such."""
_REMEMBERED = 32
"""Lists that are remembered as they were rendered: pages with the same filters get the same."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/calls`, its parts, the calls of who looks, and cancelling."""
    pages = _CallList(console)
    return [
        Route("/calls", pages.listed, methods=["GET"]),
        Route("/calls/list", pages.newer, methods=["GET"]),
        Route("/calls/running", pages.running, methods=["GET"]),
        Route("/calls/mine", pages.mine, methods=["GET"]),
        Route("/calls/{uid}/cancel", pages.cancel, methods=["POST"]),
    ]


class _CallList:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        self._calls = AllCalls(console)
        self._rendered: dict[str, tuple[str, bytes]] = {}
        """By filters, what names the newest call, and the list."""

    async def listed(self, request: Request) -> Response:
        """The page; for a form that was changed only the list, whose address the browser then shows."""
        filters = self._calls.filters(request)
        is_part = "hx-request" in request.headers
        asked = [(key, value) for key, value in request.query_params.multi_items() if key in (*NAMES, BRIDGE)]
        if not is_part and any(not value.strip() for _, value in asked):
            return RedirectResponse(_address(filters), 303)  # a form sends all its boxes
        before = self._calls.before(request)
        values = await self._values(request, filters, before, is_live=request.query_params.get("live") != "off")
        is_counted = not before and not filters.which.text  # a text would be looked for in all of them
        values["total"] = await self._calls.count(request, filters) if is_counted else None
        if is_part:
            answer = self._console.part(request, "calls/found.html", **values)
            answer.headers["hx-push-url"] = _address(filters)
            return answer
        offers = self._offers(sees_all=request.state.visitor.sees_all)
        running = await self._running(request, filters)
        visitor: Visitor = request.state.visitor
        is_mine = filters.which.principal == visitor.principal or not visitor.sees_all
        return self._console.page(request, "calls/calls.html", **values, **running, **offers, is_mine=is_mine)

    async def mine(self, request: Request) -> Response:
        """The calls of who looks: the same list, filtered by them."""
        visitor: Visitor = request.state.visitor
        return RedirectResponse(f"{PREFIX}/calls?{urlencode({'principal': visitor.principal or LOCAL_USER})}", 303)

    async def newer(self, request: Request) -> Response:
        """The list again if there are calls that came after a number; else nothing, and the page stays as it is."""
        filters = self._calls.filters(request)
        newest = await self._calls.newest(request, filters, request.query_params.get("after", ""))
        if not newest:
            return Response(status_code=204)
        # What others may see is filtered in the same way, and says more of bridges that cannot be reached.
        key = f"{request.state.visitor.sees_all} {filters.query()}"
        known = self._rendered.pop(key, None)
        if known is None or known[0] != newest:
            values = await self._values(request, filters, "", is_live=True)
            part = partial(self._console.part, request, "calls/list.html", **values)
            known = newest, bytes((await in_thread(part)).body)  # 50 rows take some milliseconds
        self._rendered[key] = known
        while len(self._rendered) > _REMEMBERED:
            del self._rendered[next(iter(self._rendered))]
        return HTMLResponse(known[1])

    async def running(self, request: Request) -> Response:
        """The calls under way."""
        filters = self._calls.filters(request)
        running = await self._running(request, filters)
        return self._console.part(request, "calls/running.html", filters=filters, **running)

    async def cancel(self, request: Request) -> Response:
        """Cancel a call under way; its client gets an error that says so."""
        uid, visitor = request.path_params["uid"], request.state.visitor
        is_done = self._console.bridge.cancel_call(uid, visitor.visit.by)
        self._console.live.announce("running", "calls")
        if "hx-request" not in request.headers:
            return RedirectResponse(f"{PREFIX}/calls", 303)
        if is_done:
            return self._console.message(request, "The call is cancelled; its server was asked to stop.")
        return self._console.message(request, "This call is over already.", "info", 404)

    async def _values(self, request: Request, filters: CallFilters, before: str, *, is_live: bool) -> dict[str, Any]:
        page = await self._calls.page(request, filters, limit=ROWS, before=before)
        is_first = not before
        return {
            "filters": filters,
            "rows": page.rows,
            "most": COUNTED,
            "after": page.after,
            "older": _address(filters, before=page.before) if page.before else "",
            "newest": "" if is_first else _address(filters),
            "is_live": is_live and is_first,
            "toggle": _address(filters, **({"live": "off"} if is_live else {})),
            "history": self._calls.here,
            "missing": page.missing,
            "bridges": self._calls.bridges,
        }

    async def _running(self, request: Request, filters: CallFilters) -> dict[str, Any]:
        elsewhere = [
            (bridge, call)
            for bridge, call in await self._calls.under_way(request, filters.bridge)
            if _fits(call, filters.which)
        ]
        me = self._console.own_name
        own = [
            call
            for call in self._console.bridge.running_calls()
            if _fits(call, filters.which) and filters.bridge in ("", me)
        ]
        known = {call.uid for call in (*own, *(call for _, call in elsewhere))}
        # A row of a call of this bridge stays for a moment after it is over.
        settled = shown_time(time.time() - _SETTLED)
        rows = await self._calls.here.running(filters.which, limit=_RUNNING)
        others = [row for row in rows if row.get("uid") not in known and row["at"] < settled]
        return {
            "now": time.time(),
            "running": [
                *(_as_row(call) for call in own[:_RUNNING]),
                *({**_as_row(call), "bridge": bridge} for bridge, call in elsewhere[:_RUNNING]),
            ],
            "elsewhere": others if filters.bridge in ("", me) else [],
            "more_running": max(0, len(own) - _RUNNING) + max(0, len(elsewhere) - _RUNNING),
        }

    def _offers(self, *, sees_all: bool) -> dict[str, Any]:
        """What the boxes propose; nothing to those who see nothing but their own."""
        series = list(self._console.bridge.metrics) if sees_all else []
        known = {one["name"] for one in self._console.status()["servers"]} if sees_all else set[str]()
        servers = sorted({one.server for one in series} | known)
        clients = sorted({one.client for one in series if one.client})
        hidden = [name for name in NAMES if name not in BOXED]
        return {"servers": servers[:_OFFERED], "clients": clients[:_OFFERED], "outcomes": OUTCOMES, "hidden": hidden}


def _address(filters: CallFilters, **more: object) -> str:
    query = "&".join(filter(None, (filters.query(), urlencode(more))))
    return f"{PREFIX}/calls" + (f"?{query}" if query else "")


def _fits(call: RunningCall, which: Filter) -> bool:
    """Whether a call under way is one of those that are wanted; what only ended calls have does not count."""
    own = call.tool.partition("/")[2]
    pairs = (
        (which.server, (call.server,)),
        (which.tool, (call.tool, own)),
        (which.client, (call.client,)),
        (which.principal, (call.principal,)),
        (which.session, (call.session,)),
        (which.method, (call.method,)),
    )
    return all(any(map(_matcher(wanted), values)) for wanted, values in pairs if wanted is not None)


def _matcher(pattern: str) -> Callable[[str], bool]:
    return lambda value: fnmatch.fnmatchcase(value, pattern)


def _as_row(call: RunningCall) -> Mapping[str, Any]:
    return {
        "uid": call.uid,
        "method": call.method,
        "server": call.server,
        "tool": call.tool,
        "client": call.client,
        "principal": call.principal,
        "session": call.session,
        "since": call.since,
        "stage": call.stage,
        **({"parent": call.parent} if call.parent else {}),
    }
