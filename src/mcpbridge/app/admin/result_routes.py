"""The parts of the HTTP API about large results: what is kept, and the tokens that results cost and saved."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mcpbridge.app.admin.errors import Problem
from mcpbridge.app.admin.stats import BY, accounts_of, summary_as_json
from mcpbridge.results.kept_results import KeptResults
from mcpbridge.results.token_ledger import By, TokenLedger
from mcpbridge.storage.store import MAX_DAYS

Endpoint = Callable[[Request], Awaitable[Response]]

_MOST = 1000
"""Results that one answer lists."""


def result_routes(kept_results: KeptResults, guarded: Callable[[Endpoint], Endpoint]) -> list[Route]:
    """`GET /api/results`, and `GET` and `DELETE` of `/api/results/HANDLE`.

    Results belong to principals: `principal` in the query names one; without it they are those of the local user.
    """

    async def listed(request: Request) -> Response:
        asked = request.query_params
        limit = _number(asked.get("limit", "50"), "limit", _MOST)
        summaries = await kept_results.summaries(
            principal=_principal(request), search=asked.get("search", ""), limit=limit
        )
        return JSONResponse({"results": [summary_as_json(summary) for summary in summaries]})

    async def one(request: Request) -> Response:
        """The result of the call, byte for byte as the server sent it."""
        data = await kept_results.get(request.path_params["handle"], principal=_principal(request))
        if data is None:
            raise _unknown(request)
        return Response(data, media_type="application/json", headers={"cache-control": "no-store"})

    async def drop(request: Request) -> Response:
        handle = request.path_params["handle"]
        if not await kept_results.drop(handle, principal=_principal(request)):
            raise _unknown(request)
        return JSONResponse({"forgotten": [handle]})

    return [
        Route("/api/results", guarded(listed), methods=["GET"]),
        Route("/api/results/{handle}", guarded(one), methods=["GET"]),
        Route("/api/results/{handle}", guarded(drop), methods=["DELETE"]),
    ]


def stats_routes(ledger: TokenLedger, guarded: Callable[[Endpoint], Endpoint]) -> list[Route]:
    """`GET /api/stats`: tokens of the last `days` (7), grouped `by` (tool; several with commas between)."""

    async def stats(request: Request) -> Response:
        asked = request.query_params
        days = _number(asked.get("days", "7"), "days", MAX_DAYS)
        by = asked.get("by", "tool").split(",")
        if not set(by) <= set(BY):
            raise Problem("invalid", f"by: expected some of {', '.join(BY)}, with commas between")
        return JSONResponse({"tokens": await accounts_of(ledger, days=days, by=cast("list[By]", by))})

    return [Route("/api/stats", guarded(stats), methods=["GET"])]


def _principal(request: Request) -> str:
    return request.query_params.get("principal", "")


def _number(text: str, name: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise Problem("invalid", f"{name}: expected a number from 1 to {most}")
    return int(text)


def _unknown(request: Request) -> Problem:
    handle: Any = request.path_params["handle"]
    return Problem("unknown", f"no result is kept under {str(handle)[:40]!r}, or not any more")
