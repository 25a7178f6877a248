"""A row of numbers as the points of a small line. Pure."""

from collections.abc import Sequence

WIDTH, HEIGHT = 120.0, 24.0
"""Of the box that it is drawn in."""
_MARGIN = 1.5
"""Above and below, so that the line is not cut."""


def polyline(numbers: Sequence[float]) -> str:
    """The `points` of a line from left to right, from 0 at the bottom to the largest at the top; empty: no numbers."""
    if not numbers:
        return ""
    most = max(*numbers, 1)
    step = WIDTH / max(len(numbers) - 1, 1)
    usable = HEIGHT - 2 * _MARGIN
    return " ".join(
        f"{place * step:.1f},{HEIGHT - _MARGIN - max(number, 0) / most * usable:.1f}"
        for place, number in enumerate(numbers)
    )
