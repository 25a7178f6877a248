"""The figures of one run: kept by row, subject and metric, one value a round; medians and ratios of them. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

__all__ = ["Book"]


class Book:
    """What was measured, and what could not be."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.failures: list[tuple[str, str, str]] = []
        """Row, subject, reason."""
        self.unsupported: list[tuple[str, str, str]] = []
        """The same, for what a subject does not offer."""

    def add(self, row: str, subject: str, **metrics: float | None) -> None:
        """The values of one more round."""
        for metric, value in metrics.items():
            if value is not None:
                self._values[row, subject][metric].append(value)

    def forget(self, row: str, subject: str) -> None:
        """Drop what was measured of a subject that failed later: half a series is no basis for a ratio."""
        self._values.pop((row, subject), None)

    def subjects(self, row: str) -> list[str]:
        return [subject for known, subject in self._values if known == row]

    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for row, _ in self._values))

    def value(self, row: str, subject: str, metric: str) -> float | None:
        """The median over the rounds; None where it was not measured."""
        values = self._series(row, subject, metric)
        return median(values) if values else None

    def ratio(self, row: str, subject: str, metric: str, base: str) -> float | None:
        """How many times the value of `base`: the median of the ratios of each round, so that slow drift cancels."""
        return self._paired(row, subject, metric, base, lambda a, b: a / b)

    def cheapest_ratio(self, row: str, subject: str, metric: str, base: str) -> float | None:
        """The same of the cheapest round of each: for small differences of a cost that noise can only raise."""
        values, bases = self._series(row, subject, metric), self._series(row, base, metric)
        return min(values) / min(bases) if values and bases else None

    def added(self, row: str, subject: str, metric: str, base: str) -> float | None:
        """What comes on top of the value of `base`, in the same manner."""
        return self._paired(row, subject, metric, base, lambda a, b: a - b)

    def as_json(self) -> dict[str, Any]:
        figures = [
            {"row": row, "subject": subject, "median": {name: median(values) for name, values in metrics.items()}}
            | {"rounds": metrics}
            for (row, subject), metrics in self._values.items()
        ]
        return {"figures": figures, "failures": _named(self.failures), "unsupported": _named(self.unsupported)}

    def _series(self, row: str, subject: str, metric: str) -> list[float]:
        return self._values.get((row, subject), {}).get(metric, [])

    def _paired(
        self, row: str, subject: str, metric: str, base: str, combine: Callable[[float, float], float]
    ) -> float | None:
        pairs = list(zip(self._series(row, subject, metric), self._series(row, base, metric), strict=False))
        return median(combine(a, b) for a, b in pairs) if pairs else None


def _named(entries: Iterable[tuple[str, str, str]]) -> list[dict[str, str]]:
    return [{"row": row, "subject": subject, "reason": reason} for row, subject, reason in entries]
