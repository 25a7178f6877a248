"""Make a recorded call again, as it was or with other arguments."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
from msgspec import Raw
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.guard import PREFIX, form_of
from mcpbridge.app.console.pages.calls.all_calls import AllCalls
from mcpbridge.app.console.sign_in import Visit
from mcpbridge.app.console.tool_calls import Made, make_call, while_wanted
from mcpbridge.storage.call_log.reader import Filter, Row

_RECORD_SECONDS = 5.0
"""Seconds that the record of a call may take to be written."""
_LOOK = 0.05
REPEATABLE = ("tools/call", "resources/read", "prompts/get")
"""Requests that can be made again."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/calls/{uid}/again`."""
    return [Route("/calls/{uid}/again", _Repeater(console).again, methods=["POST"])]


class _Repeater:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        self._calls = AllCalls(console)
        self._history = self._calls.here

    async def again(self, request: Request) -> Response:
        """Make the call, and show what came of it."""
        row = await self._calls.whole(request, request.path_params["uid"])
        if row is None:
            raise HTTPException(404, "There is no such call any more.")
        form = await form_of(request)
        text = str(form.get("arguments", "")).strip() or arguments_of(row)
        problem = _problem(row, text)
        if problem or text is None:
            return self._refused(request, problem)
        visit: Visit = request.state.visitor.visit
        outcome: Made | None = await while_wanted(request, partial(self._make_call, visit, row, text))
        self._console.live.announce("calls", "running")
        if outcome is None:
            return Response(status_code=204)  # nobody reads it
        new = await self._record_of(outcome)
        if "hx-request" not in request.headers:
            return RedirectResponse(f"{PREFIX}/calls/{new}" if new else f"{PREFIX}/calls", 303)
        return self._console.part(request, "calls/made.html", made=outcome, uid=new)

    async def _make_call(self, visit: Visit, row: Row, text: str) -> Made:
        return await make_call(self._console.bridge, visit, row["method"], params_of(row, text))

    async def _record_of(self, outcome: Made) -> str:
        """The uid of the call that was made; empty: it is not recorded."""
        if not self._history.is_recorded:
            return ""
        with anyio.move_on_after(_RECORD_SECONDS):
            while True:
                page = await self._history.page(Filter(session=outcome.session), limit=50)
                if own := [row for row in page.rows if "parent" not in row]:
                    return str(own[0].get("uid", own[0]["id"]))
                await anyio.sleep(_LOOK)
        return ""

    def _refused(self, request: Request, problem: str) -> Response:
        if "hx-request" in request.headers:
            return self._console.message(request, problem, "bad", 400)
        raise HTTPException(400, problem)


def arguments_of(row: Row) -> str | None:
    """The arguments of a call as it can be made again: as the client sent them. None: they are not kept whole."""
    if row["method"] == "resources/read":
        return "{}"
    part = row.get("asked") or row["arguments"]
    content: str | None = part.get("content")
    if content is None or len(content.encode()) < part["size"]:
        return "{}" if part["size"] == 0 else None
    if row["method"] != "prompts/get":
        return content or "{}"
    try:  # of such a request all params are kept
        return json.dumps(json.loads(content).get("arguments") or {}, ensure_ascii=False)
    except (ValueError, RecursionError, AttributeError):
        return None


def params_of(row: Row, arguments: str) -> dict[str, Any]:
    """The params of the request."""
    name, encoded = row["tool"], Raw(arguments.encode("utf-8", "replace"))
    if row["method"] == "resources/read":
        return {"uri": name}
    return {"name": name if row["method"] == "tools/call" else f"{row['server']}/{name}", "arguments": encoded}


def _problem(row: Row, text: str | None) -> str:
    """Why the call cannot be made again; empty: it can."""
    if row["method"] not in REPEATABLE:
        return f"A request of {row['method']} cannot be made again from here."
    if text is None:
        return "The arguments are not kept whole, so the call cannot be made again as it was: give some."
    try:
        known: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"The arguments are no JSON: {error}."
    return "" if isinstance(known, dict) else "The arguments must be a JSON object: {…}."
