"""Rows put in order and in groups."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from msgspec import Struct

from mcpbridge.results.paths import Place
from mcpbridge.results.query_aggregates import aggregate_named
from mcpbridge.results.query_refused import Meter, QueryRefused, known_names
from mcpbridge.results.query_terms import Term
from mcpbridge.results.query_values import identity, order_by

__all__ = ["Aggregate", "SortKey", "aggregated", "columns_only", "grouped", "sorted_rows"]

COMBINATIONS = 1000
"""Groups that one row may belong to."""


class SortKey(Struct, frozen=True):
    """One thing to sort by."""

    term: Term
    is_descending: bool = False


class Aggregate(Struct, frozen=True):
    """One thing to know of many rows."""

    name: str
    """What it is called in the answer."""
    function: str
    """A key of `AGGREGATES`."""
    term: Term | None
    """What of each row; None: the row itself."""

    def of(self, rows: Sequence[Place], meter: Meter) -> Any:
        """Its value. Nulls do not count, but for `count` of no field."""
        if self.term is None and self.function == "count":
            return len(rows)
        term = self.term
        values = [row.value for row in rows] if term is None else [v for row in rows for v in term.values(row, meter)]
        try:
            return aggregate_named(self.function)([value for value in values if value is not None])
        except QueryRefused as error:
            raise QueryRefused(f"{self.name}: {error}") from None


def aggregated(rows: Sequence[Place], aggregates: Sequence[Aggregate], meter: Meter) -> dict[str, Any]:
    """All of them over all rows."""
    return {aggregate.name: aggregate.of(rows, meter) for aggregate in aggregates}


def grouped(
    rows: Sequence[Place], by: Sequence[tuple[str, Term]], aggregates: Sequence[Aggregate], meter: Meter
) -> list[Any]:
    """One object for each group, the largest first, then in order of what they are grouped by.

    A row with several values of a field belongs to a group for each.
    """
    groups: dict[Any, tuple[tuple[Any, ...], list[Place]]] = {}
    for row in rows:
        choices = [list({identity(v): v for v in term.values(row, meter)}.values()) or [None] for _, term in by]
        for position, values in enumerate(product(*choices)):
            if position >= COMBINATIONS:
                raise QueryRefused("group_by: a row belongs to too many groups; give a narrower path")
            meter.spend()
            known = tuple(identity(value) for value in values)
            groups.setdefault(known, (values, []))[1].append(row)
    found = list(groups.values())
    for position in reversed(range(len(by))):
        key = order_by([values[position] for values, _ in found])
        found.sort(key=lambda group, key=key, position=position: key(group[0][position]))
    found.sort(key=lambda group: -len(group[1]))
    names = [name for name, _ in by]
    return [dict(zip(names, values, strict=True)) | aggregated(members, aggregates, meter) for values, members in found]


def sorted_rows(rows: Sequence[Place], keys: Sequence[SortKey], meter: Meter) -> list[Place]:
    """The rows in order; equal ones as they stood, those without a value last.

    Of several values in a row the lowest counts, or the highest if it is the other way round.
    """
    ordered = list(rows)
    for key in reversed(keys):
        several = [[v for v in key.term.values(row, meter) if v is not None] for row in ordered]
        by = order_by([value for values in several for value in values])
        chosen = max if key.is_descending else min
        keyed = [(by(chosen(values, key=by)), row) for values, row in zip(several, ordered, strict=True) if values]
        keyed.sort(key=lambda pair: pair[0], reverse=key.is_descending)
        missing = [row for values, row in zip(several, ordered, strict=True) if not values]
        ordered = [row for _, row in keyed] + missing
    return ordered


def columns_only(keys: Sequence[SortKey], rows: Sequence[Any]) -> None:
    """Refuse keys that rows of groups do not have.

    Raises:
        QueryRefused: names the columns.
    """
    names = list(rows[0]) if rows else []
    for key in keys:
        if rows and key.term.text not in names:
            raise QueryRefused(
                f"sort: groups have no '{key.term.text}'; they have: {known_names(key.term.text, names)}"
            )
