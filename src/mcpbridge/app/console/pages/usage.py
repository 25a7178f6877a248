"""Who used what: calls, failures, tokens and time by user, server, tool, client, role and day.

The sums are those of `mcpbridge usage`, of the call log. Each row leads to its calls.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.admin.errors import Problem
from mcpbridge.app.admin.usage import own_quotas, requested_usage, running_quotas, visible_usage
from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.guard import Visitor
from mcpbridge.base.errors import StoreFailed
from mcpbridge.core.identity import Identity
from mcpbridge.storage.call_log.usage import USAGE_BY, Whose

_SPANS = {"1h": "an hour", "24h": "a day", "7d": "7 days", "30d": "30 days", "90d": "90 days"}
_ROWS = 500
_OF_CALLS = {"user": "principal", "server": "server", "tool": "tool", "client": "client"}
"""Filters of the page of calls, by what a row is of."""


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/usage`."""

    async def usage(request: Request) -> Response:
        return console.page(request, "usage.html", **await _values(console, request))

    return [Route("/usage", usage, methods=["GET"])]


async def _values(console: ConsoleContext, request: Request) -> dict[str, Any]:
    asked = request.query_params
    since = asked["since"] if asked.get("since") in _SPANS else "7d"
    by = [one for one in asked.getlist("by") if one in USAGE_BY] or ["user"]
    user, price = asked.get("user", "").strip(), asked.get("price", "").strip()
    wanted = {"since": since, "by": ",".join(by), "price": price, **({"user": user} if user else {})}
    problem, visitor = "", request.state.visitor
    identity = visitor.session.identity if visitor.session is not None else None
    whose = None if visitor.sees_all else visible_usage(console.bridge.policy, visitor.principal, identity)
    try:
        report = await _report(console, wanted, whose)
    except Problem as error:
        problem = str(error)
        report = await _report(console, {**wanted, "price": ""}, whose)
    report = cast("Mapping[str, Any]", console.redact.values_of(report))
    return {
        "since": since,
        "spans": _SPANS,
        "by": list(dict.fromkeys(by)),
        "all_by": [one for one in USAGE_BY if one != "team"],
        "user": user,
        "price": price,
        "problem": problem,
        "report": report,
        "rows": [{**row, "calls_link": _calls_of(row)} for row in report["rows"][:_ROWS]],
        "left_out": max(0, len(report["rows"]) - _ROWS),
        **await _quotas(console, visitor, identity),
        "is_recorded": console.bridge.recording != "off",
    }


async def _report(console: ConsoleContext, wanted: Mapping[str, str], whose: Whose | None) -> Mapping[str, Any]:
    """As `requested_usage`; in a fleet of all bridges."""
    if console.fleet is not None and console.in_fleet:
        return await console.fleet.usage(wanted, whose)
    return await requested_usage(console.bridge, wanted, whose)


async def _quotas(console: ConsoleContext, visitor: Visitor, identity: Identity | None) -> dict[str, Any]:
    """What is used of the quotas of roles, by whom, and when all of it is there again."""
    settings = console.bridge.settings
    try:
        everybody = running_quotas(console.bridge) if visitor.sees_all else None
        found = await (everybody or own_quotas(console.bridge, visitor.principal, identity))
    except StoreFailed as error:
        return {"quotas": [], "quotas_problem": console.redact(str(error))}
    rows = cast("list[dict[str, Any]]", console.redact.values_of({"rows": found[:_ROWS]})["rows"])
    return {
        "quotas": rows,
        "has_quotas": any(role.quota for role in settings.roles),
        "quotas_left_out": max(0, len(found) - _ROWS),
    }


def _calls_of(row: Mapping[str, Any]) -> str:
    """Where the calls of a row are listed; empty if the filters of that page cannot say which these are."""
    filters = {_OF_CALLS[one]: row[one] for one in _OF_CALLS if row.get(one)}
    return f"calls?{urlencode(filters)}" if filters else ""
