"""Looking for texts in values: where each stands, and what is around it."""

from collections.abc import Iterator

from mcpbridge.results.path_steps import Deep
from mcpbridge.results.paths import Path, Place
from mcpbridge.results.query_refused import Meter, clipped
from mcpbridge.results.query_regex import Finder
from mcpbridge.results.query_values import written

__all__ = ["excerpt", "has_match", "matches", "shown"]

AROUND = 100
"""Characters of a long text that are shown on either side of what was found."""

WHOLE = 300
"""Characters up to which a text is shown whole."""

_ALL = Path("**", (Deep(),))


def has_match(row: Place, finder: Finder, meter: Meter) -> bool:
    """Whether a text or a number in the row has it."""
    return next(matches(row, finder, meter), None) is not None


def matches(row: Place, finder: Finder, meter: Meter) -> Iterator[tuple[Place, str, tuple[int, int]]]:
    """Every text or number in a value that has it, in order; the text, and where in the text."""
    for place in _ALL.places(row, meter):
        value = place.value
        if isinstance(value, list | dict | bool) or value is None:
            continue
        text = value if isinstance(value, str) else written(value)
        span = finder.first(text)
        if span is not None:
            yield place, text, span


def excerpt(text: str, span: tuple[int, int], whole: int = WHOLE) -> str:
    """A text, cut to what is around a part of it where it is long; on one line."""
    if len(text) > whole:
        start, end = max(0, span[0] - AROUND), min(len(text), max(span[1], span[0] + 1) + AROUND)
        end = min(end, start + whole)
        text = f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
    return text.replace("\r", "").replace("\n", "\\n")


def shown(place: Place, text: str, span: tuple[int, int]) -> str:
    """A match as answers show it: its path, what it is in if that is nested, an excerpt."""
    path = place.path
    trail = place.parent.trail if path.count("[") > 1 and place.parent is not None else ""
    return f"{path}{f' ({clipped(trail, 100)})' if '/' in trail else ''}: {excerpt(text, span)}"
