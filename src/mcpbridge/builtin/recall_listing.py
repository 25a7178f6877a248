"""What is kept, as `recall` lists it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from mcpbridge.builtin.recall_arguments import Wanted
from mcpbridge.results.card import Card
from mcpbridge.results.query_refused import clipped

__all__ = ["LOOKED_AT", "LoggedCall", "listing", "with_logged"]

LOOKED_AT = 500
"""Kept results that are looked at, the newest."""


class LoggedCall(Struct, frozen=True):
    """A call of the call log."""

    tool: str
    outcome: str
    error: str
    at: str
    """ISO 8601."""


def with_logged(text: str, calls: Sequence[LoggedCall], room: int) -> str:
    """The listing, and below it calls that the log tells of, the newest first, as many as fit."""
    lines = ["Calls in the log, whether or not their result is kept:"]
    space = room - len(text) - len(lines[0]) - 2
    for call in calls:
        line = " · ".join(part for part in (call.tool, call.outcome, call.error, call.at) if part)
        space -= len(line) + 1
        if space < 0:
            break
        lines.append(line)
    return "\n".join([text, *lines]) if len(lines) > 1 else text


def listing(cards: Sequence[Card], wanted: Wanted, room: int) -> str:
    """One line for each kept result, the newest first, as many as fit."""
    if not cards:
        return "Nothing is kept" + (" that has all these words." if wanted.search else ".")
    start = wanted.query.offset or 0
    end = len(cards) if wanted.query.limit is None else min(len(cards), start + wanted.query.limit)
    many = f"{len(cards)}{' or more' if len(cards) == LOOKED_AT else ''}"
    space = room - len(f"[{len(cards)}-{len(cards)} of {many}; offset={len(cards)} for the next]")
    lines = list[str]()
    for card in cards[start:end]:
        line = _line(card)
        space -= len(line) + 1
        if space < 0 and lines:
            break
        lines.append(clipped(line, max(room - 80, 40)))
    at = start + len(lines)
    which = f"all {many}" if not start and at == len(cards) else f"{start}-{at - 1} of {many}" if lines else f"{many}"
    rest = f"; offset={at} for the next" if at < len(cards) else ""
    return "\n".join([*lines, f"[{which}{rest}]"])


def _line(card: Card) -> str:
    at = datetime.fromtimestamp(max(0, card.at), UTC).strftime("%Y-%m-%d %H:%MZ")
    called = " ".join(part for part in (card.tool, clipped(card.arguments, 100)) if part)
    outcome = "" if card.outcome == "ok" else card.outcome
    size = f"{card.chars:,} chars" if card.chars else ""
    return " · ".join(part for part in (card.handle, called, clipped(card.headline, 80), size, outcome, at) if part)
