"""Kept results, and the tokens of all, as JSON documents: the same for commands and for the HTTP API."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

from mcpbridge.results.card import Card
from mcpbridge.results.ledger import Account, By, Ledger

__all__ = ["BY", "accounts_of", "card_document"]

BY: tuple[By, ...] = get_args(By)
"""What tokens can be told by."""

_NUMBERS = ("calls", "rewritten", "came", "shown", "stored", "recalled", "saved")


async def accounts_of(ledger: Ledger, *, days: int = 7, by: Sequence[By] = ("tool",)) -> dict[str, Any]:
    """Tokens of the last so many days: a row of each day, server, tool or client as `by` says, and the sum of all.

    All are estimates. `saved` is what clients were not sent, less what they asked for later; `saved_share` is what part
    of what came that is.
    """
    accounts = await ledger.report(days=days, by=by)
    rows = [{**dict(zip(by, account.key, strict=True)), **_numbers([account])} for account in accounts]
    return {"days": days, "by": list(by), "estimated": True, "rows": rows, "total": _numbers(accounts)}


def _numbers(accounts: Sequence[Account]) -> Mapping[str, Any]:
    sums: dict[str, Any] = {name: sum(getattr(account, name) for account in accounts) for name in _NUMBERS}
    return {**sums, "saved_share": round(sums["saved"] / sums["came"], 4) if sums["came"] else 0.0}


def card_document(card: Card) -> dict[str, Any]:
    """What is known of a kept result."""
    at = datetime.fromtimestamp(card.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "handle": card.handle,
        "at": at,
        "tool": card.tool,
        "arguments": card.arguments,
        "outcome": card.outcome,
        "kind": card.kind,
        "headline": card.headline,
        "chars": card.chars,
        "client": card.client,
    }
