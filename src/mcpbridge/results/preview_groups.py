"""Numbers by group: sums of the main quantity for each value of the main categories, and for pairs of them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mcpbridge.results.preview_columns import is_added_up, is_rate, worth_of
from mcpbridge.results.preview_facts import Line, Lines
from mcpbridge.results.preview_words import mean_said, number, said
from mcpbridge.results.profile import Number, Profile, exact_sum

__all__ = ["group_lines"]

_WORTH_OF_PAIRS = 16.0
_MOST_GROUPS = 8
_MOST_CELLS = 24


def group_lines(profiles: Sequence[Profile]) -> Lines:
    """Lines for the first categories and quantities of a table whose rows have one value each."""
    categories = [profile for profile in profiles if _groups(profile)][:4]
    quantities = [profile for profile in profiles if profile.sort == "number" and profile.every and profile.present]
    quantities = [profile for profile in quantities if worth_of(profile) > 0.3 and not profile.column.derived]
    quantities.sort(key=is_rate)
    added = [profile for profile in quantities if is_added_up(profile)][:1]
    lines: Lines = []
    for category in categories:
        for quantity in quantities[:1]:
            lines.append(_sums(category, quantity))
    for place, one in enumerate(categories[:3]):
        for other in categories[place + 1 : 3]:
            if len(one.counts) * len(other.counts) <= _MOST_CELLS:
                lines.append(
                    _pairs(
                        one,
                        other,
                        added[0] if added else None,
                        (_WORTH_OF_PAIRS if added else 8.0) if not place else 4.0,
                    )
                )
    return lines


def _groups(profile: Profile) -> bool:
    if not profile.every or profile.same_as or profile.column.derived:
        return False
    return profile.sort in {"category", "flag"} and 2 <= len(profile.counts) <= _MOST_GROUPS


def _sums(category: Profile, quantity: Profile) -> Line:
    groups: dict[Any, list[Number]] = {value: [] for value, _ in category.counts.most_common()}
    for value, figure in zip(category.present, quantity.numbers, strict=True):
        groups[value].append(figure)
    tell = _mean if is_rate(quantity) else _sum
    line = Line(f"{quantity.path} {'mean' if is_rate(quantity) else 'sum'} by {category.path}")
    line.add(", ".join(f"{said(value, 24)} {tell(figures)}" for value, figures in groups.items()), 4.0)
    line.add("max " + ", ".join(f"{said(value, 24)} {number(max(figures))}" for value, figures in groups.items()), 1.0)
    return line


def _pairs(one: Profile, other: Profile, quantity: Profile | None, worth: float) -> Line:
    counts = Counter(zip(one.present, other.present, strict=True))
    cells: dict[tuple[Any, Any], list[Number]] = {pair: [] for pair in counts}
    if quantity is not None:
        for row, column, figure in zip(one.present, other.present, quantity.numbers, strict=True):
            cells[row, column].append(figure)
    what = f"count and {quantity.path} sum" if quantity is not None else "count"
    names = ", ".join(said(column, 20) for column in other.counts)
    line = Line(f"{what} by {one.path} × {other.path} ({names})")
    parts: list[str] = []
    for row in one.counts:
        within = (
            str(counts[row, column]) + (f" {_sum(cells[row, column])}" if quantity and counts[row, column] else "")
            for column in other.counts
        )
        parts.append(f"{said(row, 24)} {', '.join(within)}")
    line.add("; ".join(parts), worth)
    return line


def _mean(figures: Sequence[Number]) -> str:
    total = exact_sum(figures)
    return mean_said(total, len(figures)) if total is not None else "?"


def _sum(figures: Sequence[Number]) -> str:
    total = exact_sum(figures)
    return number(total) if total is not None else "?"
