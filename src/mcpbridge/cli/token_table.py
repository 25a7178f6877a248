"""The table of tokens that `mcpbridge stats` shows."""

from collections.abc import Mapping
from typing import Any

from mcpbridge.cli.output import print_table

__all__ = ["print_tokens"]

_TITLES = ["Calls", "Rewritten", "Came", "Shown", "Recalled", "Stored", "Saved", "%"]
_COUNTS = ("calls", "rewritten", "came", "shown", "recalled", "stored", "saved")


def print_tokens(told: Mapping[str, Any]) -> None:
    """What `accounts_of` told: a line for each row, and one for their sum."""
    by: list[str] = told["by"]
    print(f"tokens of results, {_span(told['days'])} (estimates)")
    rows = [[*(row[part] or "-" for part in by), *_numbers(row)] for row in told["rows"]]
    total = ["total", *[""] * (len(by) - 1), *_numbers(told["total"])]
    print_table([*(part.capitalize() for part in by), *_TITLES], [*rows, total], wraps=by[0].capitalize())


def _span(days: int) -> str:
    return "today" if days == 1 else f"last {days} days"


def _numbers(row: Mapping[str, Any]) -> list[str]:
    return [*(f"{row[name]:,}" for name in _COUNTS), f"{row['saved_share']:.0%}" if row["came"] else "-"]
