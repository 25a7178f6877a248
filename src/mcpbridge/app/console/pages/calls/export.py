"""Calls as a file: JSON, or CSV for spreadsheets. Written piece by piece, however many there are.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, which can fetch addresses and run
programs (OWASP, CSV Injection). What clients, models and servers said gets a `'` before it then; numbers are ours.
"""

import csv
import io
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.pages.calls.all_calls import AllCalls, CallsPage
from mcpbridge.app.console.pages.calls.filters import CallFilters
from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.call_log.reader import Filter, Page, Row, read_page
from mcpbridge.storage.sqlite.database import may_exist

Format = Literal["json", "csv"]

_TYPES: Mapping[Format, str] = {"json": "application/json", "csv": "text/csv; charset=utf-8"}

MOST = 1_000_000
"""Calls of one file."""
_AT_ONCE = 500
"""Calls that are read together."""
_AT_ONCE_OF_ALL = 100
"""The same of all bridges of a fleet: each may have to send as many."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_NAME = 40
"""Characters of the name of a bridge in the name of a file."""

_Columns = Sequence[tuple[str, Callable[[Row], Any]]]
_COLUMNS: _Columns = (
    ("uid", lambda row: row.get("uid", "")),
    ("at", lambda row: row["at"]),
    ("seconds", lambda row: row.get("seconds", "")),
    ("method", lambda row: row["method"]),
    ("server", lambda row: row["server"]),
    ("tool", lambda row: row["tool"]),
    ("client", lambda row: row["client"]),
    ("principal", lambda row: row.get("principal", "")),
    ("session", lambda row: row.get("session", "")),
    ("run", lambda row: row.get("run", "")),
    ("parent", lambda row: row.get("parent", "")),
    ("outcome", lambda row: row["outcome"]),
    ("error", lambda row: row.get("error", "")),
    ("argument_bytes", lambda row: row["arguments"]["size"]),
    ("result_bytes", lambda row: row.get("result", {}).get("size", "")),
    ("result_tokens_estimated", lambda row: row.get("result", {}).get("tokens", "")),
    ("original_bytes", lambda row: row.get("original", {}).get("size", "")),
    ("original_tokens_estimated", lambda row: row.get("original", {}).get("tokens", "")),
    ("arguments", lambda row: row["arguments"].get("content", "")),
    ("asked", lambda row: row.get("asked", {}).get("content", "")),
    ("result", lambda row: row.get("result", {}).get("content", "")),
    ("facts", lambda row: json.dumps(row["facts"], ensure_ascii=False) if "facts" in row else ""),
)
"""Names and values of the columns of CSV."""

_COLUMNS_OF_FLEET: _Columns = (*_COLUMNS, ("bridge", lambda row: row.get("bridge", "")))

_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "＝", "＋", "－", "＠")
"""The wide forms count too: some programs take them for the others."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/calls/export.csv` and `.json`, with the filters of the list."""
    calls = AllCalls(console)

    async def export(request: Request) -> Response:
        kind: Format = "csv" if request.path_params["kind"] == "csv" else "json"
        filters = calls.filters(request)
        name = time.strftime("calls-%Y%m%d-%H%M%S", time.gmtime())
        if console.in_fleet:
            first = await calls.page(request, filters, limit=_AT_ONCE_OF_ALL, content=True)
            missing = sorted(one["bridge"] for one in first.missing)
            # The file names those whose calls are not in it: there is no other place in it for that.
            name += "".join(f"-without-{_UNSAFE.sub('-', one)[:_LONGEST_NAME]}" for one in missing)
            pieces = _of_fleet(calls, request, filters, kind, first)
        else:
            pieces = exported(console.bridge.audit.path, filters.which, kind, content=True)
        headers = {"content-disposition": f'attachment; filename="{name}.{kind}"'}
        return StreamingResponse(pieces, media_type=_TYPES[kind], headers=headers)

    return [Route("/calls/export.{kind:str}", export, methods=["GET"])]


async def _of_fleet(
    calls: AllCalls, request: Request, filters: CallFilters, kind: Format, page: CallsPage
) -> AsyncIterator[bytes]:
    """As `exported`, of all bridges of a fleet; it breaks off when one that answered does not any more."""
    missing = sorted(one["bridge"] for one in page.missing)

    async def pages() -> AsyncIterator[Sequence[Row]]:
        left, found = MOST, page
        while True:
            if sorted(one["bridge"] for one in found.missing) != missing:
                raise StoreFailed("a bridge does not answer any more, so the file would lack its calls")
            yield found.rows[:left]
            left -= len(found.rows)
            if left <= 0 or not found.before:
                return
            found = await calls.page(request, filters, limit=_AT_ONCE_OF_ALL, before=found.before, content=True)

    async for piece in _pieces(pages(), kind, _COLUMNS_OF_FLEET):
        yield piece


async def exported(path: Path, which: Filter, kind: Format, *, content: bool) -> AsyncIterator[bytes]:
    """The file, piece by piece, the newest calls first. `content`: with arguments and results, where they are kept.

    Raises:
        StoreFailed: the call log cannot be read.
    """

    async def pages() -> AsyncIterator[Sequence[Row]]:
        left, before = MOST if may_exist(path) else 0, 0
        while left > 0:
            read = partial(read_page, path, which, limit=min(_AT_ONCE, left), before=before, content=content)
            page: Page = await in_thread(read)
            yield page.rows
            left, before = left - len(page.rows), page.before
            if not before:
                break

    async for piece in _pieces(pages(), kind):
        yield piece


async def _pieces(
    pages: AsyncIterator[Sequence[Row]], kind: Format, columns: _Columns = _COLUMNS
) -> AsyncIterator[bytes]:
    yield _header(columns) if kind == "csv" else b"["
    is_first = True
    async for rows in pages:
        if not rows:
            continue
        if kind == "csv":
            yield await in_thread(partial(csv_lines, rows, columns))
        else:
            lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
            yield (("\n" if is_first else ",\n") + lines).encode("utf-8", "replace")
        is_first = False
    if kind == "json":
        yield b"\n]\n"


def _header(columns: _Columns) -> bytes:
    return (",".join(name for name, _ in columns) + "\r\n").encode()


def csv_lines(rows: Sequence[Row], columns: _Columns = _COLUMNS) -> bytes:
    """The rows as lines of CSV (RFC 4180)."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)
    for row in rows:
        writer.writerow([_cell(value(row)) for _, value in columns])
    return out.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """A value that no spreadsheet computes."""
    if not isinstance(value, str):
        return value
    value = value.replace("\0", "")
    return f"'{value}" if value.lstrip(" ").startswith(_FORMULA_SIGNS) else value
