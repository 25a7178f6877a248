"""Series within rows: lists of numbers, or of points in time with their values, told by first, last, least and most."""

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from mcpbridge.results.columns import Column, Lists, Table
from mcpbridge.results.preview_words import mean_of
from mcpbridge.results.profile import Number, exact_sum

__all__ = ["series_columns"]

_SHORTEST = 8
"""Points; shorter lists are lists."""


def series_columns(table: Table) -> list[Column]:
    """Columns of ours for each series: what its first, last, least and most value is, and the mean."""
    columns: list[Column] = []
    for lists in table.lists:
        if not lists.path or "[]" in lists.path or len(lists.lists) > 20_000:
            continue
        picked = _reader(lists)
        if picked is not None:
            columns.extend(_told(lists, *picked))
    return columns


def _reader(lists: Lists) -> tuple[str, Callable[[Any], Any]] | None:
    """How a point's value is read: the point itself, or the second of a pair; None if these are no series."""
    long = [entry for entry in lists.lists if len(entry) >= _SHORTEST]
    if not long or len(long) * 2 < len(lists.lists):
        return None
    point = long[0][0]
    if _number(point) is not None:
        return "", _itself
    if isinstance(point, list) and len(point) == 2 and _number(point[0]) is not None and _number(point[1]) is not None:  # pyright: ignore[reportUnknownArgumentType]
        return "[1]", _second
    return None


def _itself(point: Any) -> Any:
    return point


def _second(point: Any) -> Any:
    return point[1] if isinstance(point, list) and len(point) == 2 else None  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _told(lists: Lists, suffix: str, read: Callable[[Any], Any]) -> list[Column]:
    rows: list[int] = []
    told: dict[str, list[Any]] = {"last": [], "max": [], "min": [], "≈mean": [], "first": []}
    for row, points in zip(lists.rows, lists.lists, strict=True):
        values = list(map(read, points))
        numbers = [_number(value) for value in values]
        known = [value for value in numbers if value is not None]
        if len(known) < len(numbers) or not known:
            continue
        rows.append(row)
        total = exact_sum(known)
        told["first"].append(values[0])
        told["last"].append(values[-1])
        told["min"].append(values[known.index(min(known))])
        told["max"].append(values[known.index(max(known))])
        told["≈mean"].append(mean_of(total, len(known)) if total is not None else None)
    whole: Sequence[int] = range(len(rows)) if rows == list(range(len(rows))) else rows
    return [
        Column(f"{lists.path}[]{suffix} {name}", figures, whole, len(lists.lists), derived=True)
        for name, figures in told.items()
        if figures
    ]


def _number(value: Any) -> Number | None:
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and 0 < len(value) <= 40 and value[0] in "-0123456789":
        try:
            read = Decimal(value)
        except InvalidOperation:
            return None
        return read if read.is_finite() else None
    return None
