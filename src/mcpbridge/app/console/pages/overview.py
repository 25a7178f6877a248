"""The overview: servers as cards, who is connected, what waits for a person, what was saved today."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.admin.stats import accounts_of
from mcpbridge.app.console.context import ConsoleContext


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/` and its parts."""

    async def overview(request: Request) -> Response:
        return console.page(request, "overview.html", **await _values(console))

    async def cards(request: Request) -> Response:
        return console.part(request, "parts/overview_cards.html", **await _values(console))

    return [Route("/", overview, methods=["GET"]), Route("/parts/overview", cards, methods=["GET"])]


async def _values(console: ConsoleContext) -> dict[str, Any]:
    status = console.status()
    accounts = await accounts_of(console.bridge.results.ledger, days=1, by=("day",))
    return {
        "state": status,
        "servers": [_card(server, status) for server in status["servers"]],
        "clients": _clients(status),
        "savings": accounts["total"],
        "now": time.time(),
    }


def _card(server: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    calls = server.get("calls", 0)
    minutes = max(status["uptime_s"] / 60, 1 / 60)
    return {
        **server,
        "tone": {"ready": "good", "idle": "good", "starting": "info", "disabled": "off"}.get(server["state"], "bad"),
        "per_minute": calls / minutes,
        "latency": server.get("latency") or {},
    }


def _clients(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    daemon = cast("Mapping[str, Any]", status.get("daemon") or {})
    return list(daemon.get("clients") or [])
