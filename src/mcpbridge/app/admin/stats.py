"""What is counted of calls, the tokens of results, and kept results, as JSON: for commands and the HTTP API alike."""

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

from mcpbridge.catalog.listing.exposure import SEARCHING
from mcpbridge.catalog.listing.list_ledger import ListAccount, ListLedger, ListsBy
from mcpbridge.pipeline.observability.metrics import Metrics, Total
from mcpbridge.results.kept_results import ResultSummary
from mcpbridge.results.token_count import estimated_tokens
from mcpbridge.results.token_ledger import Account, By, TokenLedger


def stats_of(metrics: Metrics) -> dict[str, Any]:
    """Every tool that was called, and every method of requests that call none, the most called first.

    Tokens are estimates, and named so; `latency` in seconds is estimated within buckets.
    """
    return {"pid": os.getpid(), "tools": rows_of(metrics.by_tool())}


def rows_of(totals: Mapping[tuple[str, str, str], Total]) -> list[Mapping[str, Any]]:
    """What `Metrics.by_tool` has, the most called first."""
    rows = [_row_as_json(key, whole) for key, whole in totals.items()]
    return sorted(rows, key=lambda row: (-row["calls"], row["tool"], row["method"]))


def _row_as_json(key: tuple[str, str, str], whole: Total) -> Mapping[str, Any]:
    server, tool, method = key
    return {
        "server": server,
        "tool": tool,
        "method": method,
        "calls": whole.calls,
        "errors": whole.errors,
        "outcomes": whole.outcomes,
        "refused": whole.refused,
        "failed": whole.failed,
        "approvals": whole.approvals,
        "latency": whole.durations.summary(),
        "seconds": round(whole.durations.seconds, 6),
        "server_seconds": round(whole.upstream.seconds, 6),
        "bytes_in": whole.bytes_in,
        "bytes_out": whole.bytes_out,
        "tokens_in_estimated": estimated_tokens(whole.bytes_in),
        "tokens_out_estimated": estimated_tokens(whole.bytes_out),
        "retries": whole.retries,
        "cache_hits": whole.cache_hits,
        "coerced": whole.coerced,
        "rewritten": whole.rewritten,
        "rewritten_tokens_estimated": whole.tokens,
    }


BY: tuple[By, ...] = get_args(By)
"""What tokens can be grouped by."""

_NUMBERS = ("calls", "rewritten", "came", "shown", "stored", "recalled", "saved")


async def accounts_of(
    ledger: TokenLedger, *, days: int = 7, by: Sequence[By] = ("tool",), servers: Collection[str] | None = None
) -> dict[str, Any]:
    """Tokens of the last so many days: a row of each day, server, tool or client as `by` says, and the sum of all.

    `servers`: of these alone.
    All are estimates. `saved` is what clients were not sent, less what they asked for later; `saved_share` is what part
    of what came that is.
    """
    accounts = await ledger.report(days=days, by=by, servers=servers)
    rows = [{**dict(zip(by, account.key, strict=True)), **_numbers([account])} for account in accounts]
    return {"days": days, "by": list(by), "estimated": True, "rows": rows, "total": _numbers(accounts)}


def _numbers(accounts: Sequence[Account]) -> Mapping[str, Any]:
    sums: dict[str, Any] = {name: sum(getattr(account, name) for account in accounts) for name in _NUMBERS}
    return {**sums, "saved_share": round(sums["saved"] / sums["came"], 4) if sums["came"] else 0.0}


_LIST_NUMBERS = ("lists", "sent", "slim", "listed", "slimming", "routing")


async def savings_of(
    ledger: TokenLedger,
    lists: ListLedger,
    *,
    days: int = 1,
    by: Sequence[ListsBy] = ("client",),
    config: str | None = None,
    servers: Collection[str] | None = None,
) -> dict[str, Any]:
    """What the bridge saved in the last so many days, and by which means: in lists of tools, and in results.

    `lists` has a row of each `by`, with counted tokens apart from estimated ones: of full definitions (`sent`), of
    slimmed ones (`slim`), of what was listed (`listed`), and what slimming and routing saved of them. `searches` is
    what models were answered when they looked for tools; routing is less that. Of results all tokens are estimated.

    `config`, `servers`: of this configuration, and of these servers, alone.
    """
    accounts = await lists.report(days=days, by=by, config=config)
    results = await ledger.report(days=days, by=("tool",), servers=servers)
    searches = [account for account in results if account.key[0] in SEARCHING]
    answers = sum(account.shown for account in searches)
    total = {
        name: _list_numbers([account for account in accounts if account.is_counted is is_counted])
        for name, is_counted in (("estimated", False), ("counted", True))
    }
    return {
        "days": days,
        "by": list(by),
        "slimming": {name: numbers["slimming"] for name, numbers in total.items()},
        "routing": {
            "estimated": total["estimated"]["routing"] - answers,
            "counted": total["counted"]["routing"],
        },
        "previews": {"estimated": sum(account.saved for account in results), "counted": 0},
        "searches": {"calls": sum(account.calls for account in searches), "shown": answers},
        "lists": {
            "rows": [
                {**dict(zip(by, one.key, strict=True)), "counted": one.is_counted, **_list_numbers([one])}
                for one in accounts
            ],
            **total,
        },
    }


def _list_numbers(accounts: Sequence[ListAccount]) -> dict[str, int]:
    return {name: sum(getattr(account, name) for account in accounts) for name in _LIST_NUMBERS}


def summary_as_json(summary: ResultSummary) -> dict[str, Any]:
    """What is known of a kept result."""
    at = datetime.fromtimestamp(summary.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "handle": summary.handle,
        "at": at,
        "tool": summary.tool,
        "arguments": summary.arguments,
        "outcome": summary.outcome,
        "kind": summary.kind,
        "headline": summary.headline,
        "chars": summary.chars,
        "client": summary.client,
    }
