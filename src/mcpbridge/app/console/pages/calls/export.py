"""Calls as a file: JSON, or CSV for spreadsheets. Written piece by piece, however many there are.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, which can fetch addresses and run
programs (OWASP, CSV Injection). What clients, models and servers said gets a `'` before it then; numbers are ours.
"""

import csv
import io
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.pages.calls.filters import CallFilters, filters_for
from mcpbridge.storage.call_log.reader import Filter, Page, Row, read_page
from mcpbridge.storage.sqlite.database import may_exist

Format = Literal["json", "csv"]

_TYPES: Mapping[Format, str] = {"json": "application/json", "csv": "text/csv; charset=utf-8"}

MOST = 1_000_000
"""Calls of one file."""
_AT_ONCE = 500
"""Calls that are read together."""

_COLUMNS: Sequence[tuple[str, Callable[[Row], Any]]] = (
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

_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "＝", "＋", "－", "＠")
"""The wide forms count too: some programs take them for the others."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/calls/export.csv` and `.json`, with the filters of the list."""

    async def export(request: Request) -> Response:
        kind: Format = "csv" if request.path_params["kind"] == "csv" else "json"
        path, which = console.bridge.audit.path, _filters(request).which
        pieces = exported(path, which, kind, content=True)
        name = time.strftime("calls-%Y%m%d-%H%M%S", time.gmtime())
        headers = {"content-disposition": f'attachment; filename="{name}.{kind}"'}
        return StreamingResponse(pieces, media_type=_TYPES[kind], headers=headers)

    return [Route("/calls/export.{kind:str}", export, methods=["GET"])]


def _filters(request: Request) -> CallFilters:
    return filters_for(request.state.visitor, request.query_params, time.time())


async def exported(path: Path, which: Filter, kind: Format, *, content: bool) -> AsyncIterator[bytes]:
    """The file, piece by piece, the newest calls first. `content`: with arguments and results, where they are kept.

    Raises:
        StoreFailed: the call log cannot be read.
    """
    yield _header() if kind == "csv" else b"["
    left, before, is_first = MOST if may_exist(path) else 0, 0, True
    while left > 0:
        read = partial(read_page, path, which, limit=min(_AT_ONCE, left), before=before, content=content)
        page: Page = await in_thread(read)
        if page.rows:
            if kind == "csv":
                yield await in_thread(partial(csv_lines, page.rows))
            else:
                lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in page.rows)
                yield (("\n" if is_first else ",\n") + lines).encode("utf-8", "replace")
            is_first = False
        left, before = left - len(page.rows), page.before
        if not before:
            break
    if kind == "json":
        yield b"\n]\n"


def _header() -> bytes:
    return (",".join(name for name, _ in _COLUMNS) + "\r\n").encode()


def csv_lines(rows: Sequence[Row]) -> bytes:
    """The rows as lines of CSV (RFC 4180)."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)
    for row in rows:
        writer.writerow([_cell(value(row)) for _, value in _COLUMNS])
    return out.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """A value that no spreadsheet computes."""
    if not isinstance(value, str):
        return value
    value = value.replace("\0", "")
    return f"'{value}" if value.lstrip(" ").startswith(_FORMULA_SIGNS) else value
