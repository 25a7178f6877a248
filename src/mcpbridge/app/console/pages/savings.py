"""What the bridge saves: tokens of results by day, server, tool and client; of definitions; and what costs most.

All token numbers are estimates unless `results.tokenizer` counts them, and the page says which. Sums of results and of
lists come from the same functions as `mcpbridge stats`, those of definitions from the same as `mcpbridge tokens`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.admin.stats import BY, accounts_of, savings_of
from mcpbridge.app.admin.token_costs import costs_document
from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.console.pages.savings_advice import advice_on_definition, advice_on_results
from mcpbridge.catalog.listing.list_ledger import ListsBy
from mcpbridge.results.token_ledger import By

_DAYS = (1, 7, 30, 90)
_COSTLIEST = 10
_DOLLARS = 3.0
"""Per million tokens, unless the page is asked with another price."""
_TEMPLATE_ROWS = 200


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/savings`."""

    async def savings(request: Request) -> Response:
        return console.page(request, "savings.html", **await _values(console, request))

    return [Route("/savings", savings, methods=["GET"])]


async def _values(console: ConsoleContext, request: Request) -> dict[str, Any]:
    asked = request.query_params
    days = int(asked["days"]) if asked.get("days", "").isdecimal() and int(asked["days"]) in _DAYS else 7
    by = cast("By", asked["by"] if asked.get("by") in BY else "tool")
    price = _price(asked.get("price", ""))
    ledger, bridge = console.bridge.results.ledger, console.bridge
    await ledger.flush()
    accounts = await accounts_of(ledger, days=days, by=(by,))
    daily = await accounts_of(ledger, days=days, by=("day",))
    tools = await accounts_of(ledger, days=days, by=("tool",))
    lists_by: ListsBy = "client" if by == "tool" else by
    saved = await savings_of(ledger, bridge.list_ledger, days=days, by=(lists_by,), config=bridge.settings.source)
    how = bridge.settings.results.tokenizer
    costs: Mapping[str, Any] = await in_thread(lambda: costs_document(bridge.catalog.snapshot, how))
    rows = sorted(accounts["rows"], key=lambda row: -row["saved"] if by != "day" else 0)
    return {
        "days": days,
        "all_days": _DAYS,
        "by": by,
        "all_by": BY,
        "rows": rows[:_TEMPLATE_ROWS],
        "saved": saved,
        "lists_by": lists_by,
        "lists": saved["lists"]["rows"][:_TEMPLATE_ROWS],
        "total": accounts["total"],
        "price": price,
        "dollars": accounts["total"]["saved"] * price / 1e6,
        "is_counted": how != "estimate",
        "chart": _chart(daily["rows"]),
        "costs": costs,
        "costly_tools": [
            {**one, "advice": advice_on_definition(one, bridge.settings.expose)} for one in costs["tools"][:_COSTLIEST]
        ],
        "costly_results": [{**row, "advice": advice_on_results(row)} for row in _costliest(tools["rows"])],
    }


def _price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        return _DOLLARS
    return price if 0 <= price < 10_000 else _DOLLARS


def _chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """The days as a chart: what came, and what was shown of it; empty if there is nothing to draw."""
    days = sorted(rows, key=lambda row: row["day"])
    if len(days) < 2:
        return ""
    at = [int(datetime.fromisoformat(row["day"]).replace(tzinfo=UTC).timestamp()) for row in days]
    names = {"sent by servers": "came", "shown to models": "shown", "saved": "saved"}
    series = [[row[name] for row in days] for name in names.values()]
    return json.dumps({"names": list(names), "x": at, "series": series, "time": True})


def _costliest(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: -(row["shown"] + row["recalled"]))[:_COSTLIEST]
