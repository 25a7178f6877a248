"""The HTTP API of a running bridge, for those who administer it: `/api/…`.

A Starlette application, made at the first request for it. `HttpFront` has found out who calls before; what is
in `request.state` says whether they may administer. An ordinary token may not: a model that holds one could approve
its own call.
"""

import json
from typing import Any, cast

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mcpbridge.app.admin.approvals import decide, list_approvals
from mcpbridge.app.admin.errors import STATUS_OF, Problem
from mcpbridge.app.admin.result_routes import Endpoint, result_routes, stats_routes
from mcpbridge.app.admin.server_routes import registry_routes
from mcpbridge.app.admin.usage import own_quotas, requested_usage, running_quotas, visible_usage
from mcpbridge.app.fleet.desk import FleetDesk
from mcpbridge.base.errors import StoreFailed
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.approvals.pending import PendingApprovals
from mcpbridge.results.kept_results import KeptResults
from mcpbridge.results.token_ledger import TokenLedger

_LARGEST_BODY = 64 * 1024
_REPORTS = 1
"""Reports of usage that are made at a time: anybody may ask, and each reads much of the call log in a thread."""
_NOT_ADMIN = (
    "Only who administers the bridge may use this: give a token of `http.tokens` the setting `admin = true`, or start "
    "the bridge with MCPBRIDGE_ADMIN_TOKEN in its environment, and send that token as `Authorization: Bearer TOKEN`"
)


def make_api(
    desk: PendingApprovals,
    kept_results: KeptResults | None = None,
    ledger: TokenLedger | None = None,
    bridge: Bridge | None = None,
    fleet: FleetDesk | None = None,
) -> Starlette:
    """The application; its paths begin with `/api`. What is not given has no paths."""
    return Starlette(
        routes=[
            *_approval_routes(desk),
            *(result_routes(kept_results, _for_admins) if kept_results is not None else ()),
            *(stats_routes(ledger, _for_admins) if ledger is not None else ()),
            *(registry_routes(bridge, _for_admins, _object_of) if bridge is not None else ()),
            *(_usage_routes(bridge, fleet) if bridge is not None else ()),
            *(_fleet_routes(fleet) if fleet is not None else ()),
        ],
        exception_handlers={HTTPException: _http_error, Problem: _problem, StoreFailed: _store_failed},
    )


def _approval_routes(desk: PendingApprovals) -> list[Route]:
    async def approvals(_: Request) -> JSONResponse:
        return JSONResponse({"approvals": await list_approvals(desk)})

    async def answer(request: Request) -> JSONResponse:
        from mcpbridge.pipeline.approvals.decider import Decider

        principal = str(request.state.principal)
        decider = Decider(principal, address=request.client.host if request.client is not None else "")
        document = await _object_of(request)
        by = f"api:{principal or 'admin'}"
        return JSONResponse(await decide(desk, request.path_params["id"], document, by, decider))

    return [
        Route("/api/approvals", _for_admins(approvals), methods=["GET"]),
        Route("/api/approvals/{id}", _for_admins(answer), methods=["POST"]),
    ]


def _usage_routes(bridge: Bridge, fleet: FleetDesk | None) -> list[Route]:
    """`GET /api/usage`: of everybody for administrators, else of whoever asks, and of whom a role of theirs says.

    In a fleet, of all bridges; `bridge` names one, and `here=true` is this one alone, without asking any.

    `GET /api/quotas`: of everybody for administrators, else of whoever asks.
    """
    limiter = anyio.CapacityLimiter(_REPORTS)

    async def usage(request: Request) -> Response:
        who, whose = request.state, None
        if not getattr(who, "is_admin", False):
            if not who.principal:
                return _error(403, "forbidden", _NOT_ADMIN)
            whose = visible_usage(bridge.policy, who.principal, who.identity)
        asked = request.query_params
        if fleet is not None and fleet.fleet is not None and asked.get("here") != "true":
            async with limiter:
                return JSONResponse(await fleet.usage(asked, whose, asked.get("bridge", "")))
        return JSONResponse(await requested_usage(bridge, asked, whose, limiter=limiter))

    async def quotas(request: Request) -> Response:
        who = request.state
        if getattr(who, "is_admin", False):
            return JSONResponse({"quotas": await running_quotas(bridge)})
        if not who.principal:
            return _error(403, "forbidden", _NOT_ADMIN)
        return JSONResponse({"quotas": await own_quotas(bridge, who.principal, who.identity)})

    return [Route("/api/usage", usage, methods=["GET"]), Route("/api/quotas", quotas, methods=["GET"])]


def _fleet_routes(desk: FleetDesk) -> list[Route]:
    """`GET /api/fleet`, and `POST /api/fleet/drain` with `name` and `undo`."""

    async def status(_: Request) -> Response:
        return JSONResponse(dict(await desk.status()))

    async def drain(request: Request) -> Response:
        document = await _object_of(request)
        name, undo = document.get("name", ""), document.get("undo", False)
        if not isinstance(name, str) or not isinstance(undo, bool):
            raise Problem("invalid", "`name` has to be a text, and `undo` true or false")
        return JSONResponse(dict(await desk.drain(name, undo=undo)))

    return [
        Route("/api/fleet", _for_admins(status), methods=["GET"]),
        Route("/api/fleet/drain", _for_admins(drain), methods=["POST"]),
    ]


def _for_admins(endpoint: Endpoint) -> Endpoint:
    async def checked(request: Request) -> Response:
        if not getattr(request.state, "is_admin", False):
            return _error(403, "forbidden", _NOT_ADMIN)
        return await endpoint(request)

    return checked


async def _object_of(request: Request) -> dict[str, Any]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_BODY:
            raise HTTPException(413, f"The body is larger than {_LARGEST_BODY} bytes")
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Problem("invalid", "the body must be a JSON object")
    return cast("dict[str, Any]", document)


def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = {404: "unknown", 405: "method", 413: "invalid"}.get(error.status_code, "error")
    return _error(error.status_code, code, error.detail, error.headers)


def _problem(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Problem)
    return _error(STATUS_OF[error.code], error.code, str(error))


def _store_failed(_: Request, error: Exception) -> JSONResponse:
    # Without the file: whoever reads this need not administer the bridge.
    assert isinstance(error, StoreFailed)
    return _error(STATUS_OF["failed"], "failed", f"what is asked for cannot be read now: {error.what}. Try again later")


def _error(status: int, code: str, message: str, headers: Any = None) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)
