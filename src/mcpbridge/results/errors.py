"""The one error of queries over results, and the budget of work that a query may use.

The error says what is wrong, where, and what there is instead.
"""

from collections.abc import Iterable

from mcpbridge.base.suggestions import nearest
from mcpbridge.results.query.limits import NAMES_SHOWN, VISITED_VALUES


class QueryRefused(ValueError):
    """A query that cannot be answered. The message is for whoever wrote it."""


class Meter:
    """Counts the values that a query visits, so that a small query cannot ask for endless work."""

    __slots__ = ("_left",)

    def __init__(self, work: int = VISITED_VALUES) -> None:
        self._left = work

    def spend(self, amount: int = 1) -> None:
        """Count some more.

        Raises:
            QueryRefused: that was too much.
        """
        self._left -= amount
        if self._left < 0:
            raise QueryRefused("too much work: give a narrower path, and no `**` or `..` over what is nested")


def clipped(text: str, most: int = 60) -> str:
    """The text, cut where it is long, for messages."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def known_names(wanted: str, names: Iterable[str]) -> str:
    """`a, b, c and 4 more`, those like `wanted` first."""
    there = list(dict.fromkeys(names))
    close = nearest(clipped(wanted, 200), there[:2000])
    ordered = [*close, *(name for name in there if name not in close)]
    shown = ", ".join(clipped(name, 40) for name in ordered[:NAMES_SHOWN])
    return f"{shown} and {len(ordered) - NAMES_SHOWN} more" if len(ordered) > NAMES_SHOWN else shown
