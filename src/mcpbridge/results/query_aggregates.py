"""Many values to one: counts, exact sums, averages, extremes, distinct values."""

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from mcpbridge.results.query_refused import QueryRefused
from mcpbridge.results.query_values import identity, number_of, order_by

__all__ = ["AGGREGATES", "aggregate_named", "by_frequency"]

DIGITS = 700
"""Digits of a sum; beyond that it is rounded, which takes numbers such as 1e800 and 1 together."""

FRACTION = 6
"""Digits of an average behind its point, or in all if it is below 1."""

DISTINCT_SHOWN = 50
"""Distinct values that are listed, the most frequent first."""

_exact = Context(prec=DIGITS, Emax=10**15, Emin=-(10**15), traps=[])


def aggregate_named(name: str) -> Callable[[list[Any]], Any]:
    """The aggregate of that name (a key of `AGGREGATES`): from the values that are not null to one."""
    return AGGREGATES[name.lower()]


def by_frequency(values: list[Any]) -> list[tuple[Any, int]]:
    """Distinct values and how often each stands there, the most frequent first, then in order."""
    seen: dict[Any, list[Any]] = {}
    for value in values:
        entry = seen.setdefault(identity(value), [value, 0])
        entry[1] += 1
    key = order_by([value for value, _ in seen.values()])
    ordered = sorted(seen.values(), key=lambda entry: key(entry[0]))
    return [(value, times) for value, times in sorted(ordered, key=lambda entry: -entry[1])]


def _numbers(values: list[Any]) -> list[int | Decimal]:
    numbers = [number for value in values if (number := number_of(value)) is not None]
    if values and not numbers:
        raise QueryRefused("there are no numbers to add up")
    return numbers


def _sum(values: list[Any]) -> int | Decimal:
    whole, parts = 0, list[Decimal]()
    for number in _numbers(values):
        if isinstance(number, int):
            whole += number
        else:
            parts.append(number)
    total = Decimal(whole)
    for part in parts:
        total = _exact.add(total, part)
    return total if parts else whole


def _average(values: list[Any]) -> int | Decimal | None:
    numbers = _numbers(values)
    return _rounded(_exact.divide(Decimal(_sum(numbers)), Decimal(len(numbers)))) if numbers else None


def _median(values: list[Any]) -> int | Decimal | None:
    numbers = sorted(_numbers(values))
    if not numbers:
        return None
    middle = len(numbers) // 2
    if len(numbers) % 2:
        return numbers[middle]
    both = _exact.add(Decimal(numbers[middle - 1]), Decimal(numbers[middle]))
    return _rounded(_exact.divide(both, Decimal(2)))


def _rounded(value: Decimal) -> int | Decimal:
    """Without the digits that nobody reads."""
    digits = max(value.adjusted() + 1, 0) + FRACTION
    short = Context(prec=min(digits, DIGITS), traps=[]).plus(value)
    if -40 < short.adjusted() < 40:
        text = format(short, "f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return Decimal(text) if "." in text else int(text)
    return short


def _lowest(values: list[Any]) -> Any:
    return min(values, key=order_by(values)) if values else None


def _highest(values: list[Any]) -> Any:
    """The last of the order that holds values which compare: a text after all numbers is not the highest of them."""
    return max(values, key=order_by(values)) if values else None


def _distinct(values: list[Any]) -> Any:
    found = by_frequency(values)
    return {"count": len(found), "values": [value for value, _ in found[:DISTINCT_SHOWN]]}


AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": _sum,
    "total": _sum,
    "avg": _average,
    "average": _average,
    "mean": _average,
    "min": _lowest,
    "max": _highest,
    "median": _median,
    "distinct": _distinct,
    "unique": _distinct,
    "count_distinct": lambda values: len(by_frequency(values)),
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
}
"""By name; each gets values that are not null, in order."""
