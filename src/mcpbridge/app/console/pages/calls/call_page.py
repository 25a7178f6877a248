"""One call: what was sent and shown, where the time went, what was logged meanwhile, and how to make it again."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.admin.log_lines import LogLines, lines_between, own_log
from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.pages.calls.again import REPEATABLE, arguments_of
from mcpbridge.app.console.pages.calls.all_calls import AllCalls
from mcpbridge.app.console.pages.calls.copies import Target, copies_of
from mcpbridge.app.console.pages.calls.failure_help import help_for
from mcpbridge.app.console.pages.calls.waterfall import waterfall
from mcpbridge.app.console.pages.result_view import view_of
from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.recording import UID_BITS, RunningCall
from mcpbridge.engine.cassettes.one_call import cassette_of_call
from mcpbridge.protocol.revisions import LATEST_LEGACY
from mcpbridge.storage.call_log.reader import Row
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.transports.stdio import StdioTransport

_RECORD_SECONDS, _LOOKS = 1.0, 10
"""How long, and in how many looks, the record of a call that has ended is waited for."""
_DAY = 86400.0
_LOG_LINES = 200
_BEFORE, _AFTER = 0.5, 1.0
"""Seconds before and after a call whose log lines are shown with it."""
_DEFAULT_URL = "http://127.0.0.1:8808/mcp"
_LARGEST_ORIGINAL = 512 * 1024
"""Bytes of a kept result up to which it is shown beside the other; what is larger has a page of its own."""
_BEGINNING = 4000
"""Bytes that are shown of it then."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/calls/{uid}` and its parts."""
    pages = _CallPage(console)
    return [
        Route("/calls/{uid}", pages.page, methods=["GET"]),
        Route("/calls/{uid}/log", pages.log, methods=["GET"]),
        Route("/calls/{uid}/cassette", pages.cassette, methods=["GET"]),
    ]


class _CallPage:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console
        self._calls = AllCalls(console)
        self._history = self._calls.here

    async def page(self, request: Request) -> Response:
        """The whole page; of a call under way one that waits for its end."""
        uid, visitor = request.path_params["uid"], request.state.visitor
        row = await self._call(request, uid)
        if row is None:
            return await self._under_way(request, uid)
        if not (visitor.sees_all or row.get("principal", "") == visitor.principal):
            raise _unknown()
        if "hx-request" in request.headers:  # the page of the running call, which has ended
            return Response(headers={"hx-refresh": "true"})
        for name in ("arguments", "asked", "result"):
            part = row.get(name, {})
            part["is_cut"] = "content" in part and len(part["content"].encode()) < part["size"]
        tool = self._tool(row)
        shown, original = await self._shown_result(row), await self._original(row)
        arguments = arguments_of(row)
        values: dict[str, Any] = {
            "row": row,
            "stages": waterfall(row.get("stages"), row.get("seconds", 0.0)),
            "help": help_for(row),
            "arguments": arguments,
            "can_repeat": row["method"] in REPEATABLE,
            "may_change": tool is None or tool.hints.read_only is not True,
            "copies": copies_of(self._target(request, row, arguments, tool)) if arguments is not None else [],
            "has_cassette": tool is not None and _cassette_parts(row, arguments) is not None,
            "shown": shown,
            "original": original,
            "trace": _part(row, "facts").get("trace", ""),
            "history": self._history,
        }
        return self._console.page(request, "calls/call.html", **values)

    async def _call(self, request: Request, uid: str) -> Row | None:
        """The call; of one that has just ended the record is waited for. Others are asked at first, and at last."""
        for look in range(_LOOKS):
            row = await self._history.call(uid)
            if row is not None:
                return {**row, "bridge": self._console.own_name} if self._console.in_fleet else row
            if self._running(uid) is not None:
                return None
            if look in (0, _LOOKS - 1):
                row = await self._calls.elsewhere(request, uid)
                if row is not None or await self._running_elsewhere(request, uid) is not None:
                    return row
            if not _is_of_now(uid):
                return None
            await asyncio.sleep(_RECORD_SECONDS / _LOOKS)
        return None

    async def _running_elsewhere(self, request: Request, uid: str) -> tuple[str, RunningCall] | None:
        return next((found for found in await self._calls.under_way(request) if found[1].uid == uid), None)

    async def _under_way(self, request: Request, uid: str) -> Response:
        call, is_part, visitor = self._running(uid), "hx-request" in request.headers, request.state.visitor
        bridge = ""
        if call is None and (found := await self._running_elsewhere(request, uid)) is not None:
            bridge, call = found
        if call is not None and not (visitor.sees_all or call.principal == visitor.principal):
            raise _unknown()
        if call is not None:
            render = self._console.part if is_part else self._console.page
            template = "calls/under_way_part.html" if is_part else "calls/under_way.html"
            return render(request, template, call=call, bridge=bridge, uid=uid, now=time.time())
        if is_part:
            return Response(status_code=204)  # its record is about to be written
        raise _unknown()

    async def log(self, request: Request) -> Response:
        """What was logged while the call ran, and what its server wrote."""
        row = await self._known(request)
        if row.get("bridge", self._console.own_name) != self._console.own_name:
            return self._console.part(request, "calls/log_elsewhere.html", row=row)
        began, ended = _times(row)
        path = own_log()
        lines = LogLines(())
        if path is not None:
            lines = await in_thread(partial(lines_between, path, began - _BEFORE, ended + _AFTER, most=_LOG_LINES))
        redact = self._console.redact
        values: dict[str, Any] = {
            "row": row,
            "lines": [msgspec.structs.replace(line, fields=redact.values_of(line.fields)) for line in lines.lines],
            "more": lines.more,
            "path": path,
            "stderr": _stderr(self._console.bridge.pool, row["server"], began - _BEFORE, ended + _AFTER),
        }
        return self._console.part(request, "calls/log.html", **values)

    async def cassette(self, request: Request) -> Response:
        """A cassette of this call, as a file."""
        row = await self._known(request)
        tool = self._tool(row)
        parts = _cassette_parts(row, arguments_of(row))
        if tool is None or parts is None:
            raise HTTPException(404, "There is no cassette: arguments or result of this call are not kept whole.")
        arguments, result = parts
        upstream = self._console.bridge.pool.upstreams.get(tool.server)
        if upstream is None:
            raise HTTPException(404, "A cassette holds what crosses to servers; this tool is the bridge's own.")
        handle = _part(row, "original").get("handle")
        if handle:
            kept = await self._console.bridge.results.kept_results.get(handle, principal=row.get("principal", ""))
            result = kept if kept is not None else result
        data = cassette_of_call(
            tool.server, upstream.version or LATEST_LEGACY, tool.name, tool.definition, arguments, result
        )
        headers = {"content-disposition": f'attachment; filename="call-{row.get("uid", row["id"])}.jsonl"'}
        return Response(data, media_type="application/jsonl", headers=headers)

    async def _known(self, request: Request) -> Row:
        row = await self._calls.whole(request, request.path_params["uid"])
        if row is None:
            raise HTTPException(404, "There is no such call any more.")
        return row

    def _running(self, uid: str) -> RunningCall | None:
        return next((call for call in self._console.bridge.running_calls() if call.uid == uid), None)

    def _tool(self, row: Row) -> ToolRef | None:
        if row["method"] != "tools/call":
            return None
        try:
            return self._console.bridge.catalog.snapshot.tool(row["tool"])
        except UnknownName:
            return None

    async def _shown_result(self, row: Row) -> Mapping[str, Any] | None:
        content = row.get("result", {}).get("content")
        return await in_thread(partial(_result_view, content.encode())) if content else None

    async def _original(self, row: Row) -> Mapping[str, Any] | None:
        """The result as the server sent it; None: it is not kept, or is what was shown."""
        handle = _part(row, "original").get("handle")
        if not handle:
            return None
        data = await self._console.bridge.results.kept_results.get(handle, principal=row.get("principal", ""))
        if data is None:
            return {"is_gone": True}
        if len(data) > _LARGEST_ORIGINAL:
            return {"is_large": True, "size": len(data), "beginning": data[:_BEGINNING].decode("utf-8", "replace")}
        return await in_thread(partial(_result_view, data))

    def _target(self, request: Request, row: Row, arguments: str | None, tool: ToolRef | None) -> Target:
        status = self._console.status()
        served = str(_part(status, "daemon").get("http") or "")
        if not served and not status.get("daemon") and str(status.get("front", "")).startswith("http"):
            served = f"{request.url.scheme}://{request.url.netloc}/mcp"
        name = row["tool"]
        if tool is not None and not name.isprintable():
            name = tool.wire
        headers: Mapping[str, str] = {}
        if tool is not None and tool.is_marked and arguments:
            from mcpbridge.protocol.sdk import mcp_param_headers

            headers = mcp_param_headers(tool.headers, json.loads(arguments))
        config, url = status.get("config") or "", served or _DEFAULT_URL
        return Target(row["method"], name, arguments or "{}", config, url, is_served=bool(served), headers=headers)


def _stderr(pool: Pool, server: str, since: float, until: float) -> Sequence[tuple[float, str]] | None:
    """What the processes of a server wrote to standard error then; None: it has none that the bridge sees."""
    transports = [one.transport for one in pool.everyone() if one.name == server]
    found = [one.stderr_between(since, until) for one in transports if isinstance(one, StdioTransport)]
    return sorted(line for lines in found for line in lines) if found else None


def _is_of_now(uid: str) -> bool:
    """The call may have ended a moment ago: it began within the last day, going by its uid."""
    try:
        began = (int(uid, 16) >> UID_BITS) / 1e6
    except ValueError:
        return False
    return 0 <= time.time() - began < _DAY


def _part(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A member that is an object; empty where it is left out."""
    return row.get(name) or {}


def _times(row: Row) -> tuple[float, float]:
    began = datetime.fromisoformat(row["at"]).timestamp()
    return began, began + row.get("seconds", 0.0)


def _cassette_parts(row: Row, arguments: str | None) -> tuple[bytes, bytes] | None:
    """Arguments as the server got them, and the result; None: they are not kept whole."""
    part, result = row["arguments"], _part(row, "result")
    content, shown = part.get("content", arguments), result.get("content")
    if content is None or shown is None or row["method"] != "tools/call":
        return None
    if len(content.encode()) < part["size"] or len(shown.encode()) < result["size"] or not shown:
        return None
    return content.encode() or b"{}", shown.encode()


def _result_view(data: bytes) -> Mapping[str, Any]:
    """A result as its texts, as what `result_view` makes of it, and whole."""
    texts: list[str] = []
    try:
        blocks = cast("dict[str, list[dict[str, Any]]]", msgspec.json.decode(data)).get("content", [])
        texts = [str(block["text"]) for block in blocks if isinstance(block.get("text"), str)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError, TypeError):
        return {"texts": [], "view": None, "raw": data}
    return {"texts": texts, "view": view_of(data, {}), "raw": data}


def _unknown() -> HTTPException:
    return HTTPException(404, "There is no such call, or not any more: the call log keeps them for some days.")
