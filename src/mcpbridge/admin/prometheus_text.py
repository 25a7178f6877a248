"""The text formats of Prometheus (0.0.4) and OpenMetrics (1.0.0), as far as both spell counts and durations alike.

Written by hand: the client library takes 10 µs for each line, and a bridge with two thousand tools has 100,000. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

__all__ = ["Page", "labels"]

_PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Line = tuple[str, float]
"""Labels, and the number."""


def labels(names: Sequence[str], values: Iterable[str]) -> str:
    """Labels of one line, as they stand between the braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))


class Page:
    """One document in the making. Names are without what the format appends to them; help texts are plain words."""

    def __init__(self, accept: str = "") -> None:
        """`accept`: the header of that name; OpenMetrics is for who names it."""
        self._is_open = "application/openmetrics-text" in accept
        self._lines: list[str] = []

    @property
    def kind(self) -> str:
        """Its media type."""
        return _OPEN if self._is_open else _PLAIN

    def gauges(self, name: str, text: str, lines: Iterable[Line]) -> None:
        """Numbers that go up and down."""
        self._head(name, "gauge", text)
        self._lines += [f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n" for labels, value in lines]

    def counters(self, name: str, text: str, lines: Iterable[Line]) -> None:
        """Numbers that only grow."""
        self._head(name if self._is_open else f"{name}_total", "counter", text)
        self._lines += [f"{name}_total{{{labels}}} {value}\n" for labels, value in lines]

    def histograms(
        self, name: str, text: str, bounds: Sequence[str], lines: Iterable[tuple[str, Sequence[int], float]]
    ) -> None:
        """Of each: labels, how many were within each bound (the last is no bound), and the sum of all."""
        self._head(name, "histogram", text)
        for labels, within, whole in lines:
            start = f'{name}_bucket{{{labels},le="'
            self._lines += [f'{start}{bound}"}} {count}\n' for bound, count in zip(bounds, within, strict=True)]
            self._lines.append(f"{name}_count{{{labels}}} {within[-1]}\n{name}_sum{{{labels}}} {whole}\n")

    def written(self) -> bytes:
        """The whole document."""
        return "".join([*self._lines, "# EOF\n"] if self._is_open else self._lines).encode()

    def _head(self, name: str, kind: Literal["gauge", "counter", "histogram"], text: str) -> None:
        self._lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")
