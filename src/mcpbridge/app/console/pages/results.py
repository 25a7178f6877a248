"""Kept results: what is kept and whose; one as a table, a tree, text or pictures; and the queries of `recall`."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.guard import PREFIX, form_of
from mcpbridge.app.console.pages.result_view import QUERY_FIELDS, ResultView, view_of
from mcpbridge.results.kept_results import KeptResults

_LISTED = 200
_LARGEST = 4 * 1024**2
"""Bytes of a result up to which it is read in this process; what is larger is asked about through `recall`, which reads
it in another one, so that no call waits for it."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/results` and below."""
    pages = _Pages(console)
    return [
        Route("/results", pages.listed, methods=["GET"]),
        Route("/results/{handle}", pages.one, methods=["GET"]),
        Route("/results/{handle}/raw", pages.raw, methods=["GET"]),
        Route("/results/{handle}/delete", pages.delete, methods=["POST"]),
    ]


class _Pages:
    def __init__(self, console: ConsoleContext) -> None:
        self._console = console

    @property
    def _kept_results(self) -> KeptResults:
        return self._console.bridge.results.kept_results

    async def listed(self, request: Request) -> Response:
        """The newest results, or those with all words of a search."""
        search = request.query_params.get("search", "")
        found = await self._kept_results.everybody(search=search, limit=_LISTED)
        values: dict[str, Any] = {"results": found, "search": search, "now": time.time(), "most": _LISTED}
        if "hx-request" in request.headers:
            return self._console.part(request, "parts/results_table.html", **values)
        return self._console.page(request, "results.html", **values)

    async def one(self, request: Request) -> Response:
        """One result, and what a query says of it."""
        handle, owner = self._named(request)
        summary = await self._kept_results.summary(handle, principal=owner)
        data = await self._kept_results.get(handle, principal=owner) if summary is not None else None
        if data is None or summary is None:
            raise _unknown(handle)
        query = {name: request.query_params.get(name, "").strip() for name in QUERY_FIELDS}
        if len(data) <= _LARGEST:
            view: ResultView = await in_thread(lambda: view_of(data, query))
        else:
            view = await self._asked(handle, owner, query)

        def sort_link(column: str) -> str:
            return self._sort_link(request, column)

        values: dict[str, Any] = {
            "summary": summary,
            "owner": owner,
            "size": len(data),
            "query": query,
            "view": view,
            "chart": json.dumps(view.chart) if view.chart else "",
            "sort_link": sort_link,
            "sorted_by": partial(_order_of, query["sort"]),
        }
        return self._console.page(request, "result.html", **values)

    async def _asked(self, handle: str, owner: str, query: Mapping[str, str]) -> ResultView:
        """The answer of `recall`, for a result that is too large to be read here."""
        given = {name: value for name, value in query.items() if value}
        answer = await self._console.bridge.recall(handle, user=owner, **given)
        texts = [block.get("text", "") for block in answer.raw.get("content", [])]
        text = "\n".join(texts)
        return ResultView(kind="large", text=text, problem=text if answer.is_error else "")

    async def raw(self, request: Request) -> Response:
        """The result byte for byte as the server sent it, as a file: a browser never shows it as a page."""
        handle, owner = self._named(request)
        data = await self._kept_results.get(handle, principal=owner)
        if data is None:
            raise _unknown(handle)
        headers = {"content-disposition": f'attachment; filename="{handle}.json"'}
        return Response(data, media_type="application/json", headers=headers)

    async def delete(self, request: Request) -> Response:
        """Forget one."""
        handle = request.path_params["handle"]
        owner = str((await form_of(request)).get("owner", ""))
        await self._kept_results.drop(handle, principal=owner)
        if "hx-request" in request.headers:
            return Response("")
        return RedirectResponse(f"{PREFIX}/results", 303)

    def _named(self, request: Request) -> tuple[str, str]:
        return request.path_params["handle"], request.query_params.get("owner", "")

    def _sort_link(self, request: Request, column: str) -> str:
        """The address of the same page, sorted by this column; the second time the other way round."""
        term = _term_of(column)
        asked = dict(request.query_params)
        asked["sort"] = f"-{term}" if asked.get("sort") == term else term
        return f"?{urlencode(asked)}"


def _term_of(column: str) -> str:
    """A column as `sort` names it."""
    return column if column.isidentifier() else f"[{json.dumps(column)}]"


def _order_of(sort: str, column: str) -> str:
    """How the rows are sorted by this column, in the words of `aria-sort`; empty: they are not."""
    term = _term_of(column)
    return {term: "ascending", f"-{term}": "descending"}.get(sort.strip(), "")


def _unknown(handle: str) -> HTTPException:
    return HTTPException(404, f"No result is kept under {handle[:40]!r}, or not any more.")
