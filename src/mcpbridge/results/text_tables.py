"""Facts of a table whose cells are strings, as pages and documents have them."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from mcpbridge.results.text_facts import Fact, cut, many, tally

__all__ = ["table_facts"]

COLUMNS = 20
"""Columns of which anything is told."""

FEW = 12
"""Distinct values of a column up to which each is counted."""


def table_facts(name: str, rows: Sequence[Sequence[str]], items: int, rank: int) -> list[Fact]:
    """The facts of a table whose first row names its columns: how many rows, columns, rows from both ends."""
    if not rows or not any(rows):
        return []
    header, body = rows[0], [row for row in rows[1:] if row]
    width = len(header)
    facts = [
        Fact(rank - 1, f"{name}: {many(len(body), 'row')} × {many(width, 'column')}: {cut(' | '.join(header), 300)}")
    ]
    if body:
        columns = [[row[at] if at < len(row) else "" for row in body] for at in range(min(width, COLUMNS))]
        told = [text for title, column in zip(header, columns, strict=False) if (text := _column(title or "?", column))]
        if told:
            facts.append(Fact(rank, "  ", told, "; ", share=0.2, is_counted=width <= COLUMNS))
        lines = [cut("|".join(row), 300) for row in body]
        facts.append(Fact(rank + 2, "  rows:\n", lines, "\n", share=max(0.1, 0.08 * items)))
        facts.append(Fact(rank + 1, f"  last row: {lines[-1]}", share=0.15))
    return [fact for fact in facts if fact.items or fact.head.strip()]


def _column(title: str, column: Sequence[str]) -> str:
    """Counts of few values, the range and the sum of numbers, else how many values there are if some are equal."""
    counts = Counter(column)
    numbers = _numbers(column)
    if numbers and len(counts) > 3:
        low, high, total = min(numbers), max(numbers), sum(numbers)
        return f"{cut(title, 40)} {low}–{high}, sum {total}"
    if len(counts) <= FEW and len(counts) < len(column):
        return f"{cut(title, 40)} " + " ".join(tally(sorted(counts.items(), key=lambda each: (-each[1], each[0])), 40))
    return f"{cut(title, 40)} {len(counts)} values" if len(counts) < len(column) else ""


def _numbers(column: Sequence[str]) -> list[Decimal]:
    """The numbers of a column, exactly; none if any cell is none."""
    try:
        found = [Decimal(cell.replace(",", "")[:40]) for cell in column]
    except InvalidOperation:
        return []
    return found if all(each.is_finite() and each.adjusted() < 30 for each in found) else []
