"""What rows are asked for: a field, or a function of one, such as `len(labels)` and `max(values[][1])`.

Beside the fields of a row there are `$index` and `$key` (where it stands in its list or object), `$path`, `$trail` (the
names of what it is in) and `$handle`.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.paths import Path, Place, parse_path
from mcpbridge.results.query_aggregates import AGGREGATES, aggregate_named
from mcpbridge.results.query_refused import Meter, QueryRefused, clipped, known_names

__all__ = ["FUNCTIONS", "Term", "check_known", "function_named", "parse_term", "split_terms", "term_of"]

_CALL = re.compile(r"([A-Za-z_]+)\s*\((.*)\)", re.DOTALL)
_ABOUT: dict[str, Callable[[Place], Any]] = {
    "$index": lambda place: place.key,
    "$key": lambda place: place.key,
    "$path": lambda place: place.path,
    "$trail": lambda place: place.trail,
    "$handle": lambda place: place.handle,
}


def _length(values: list[Any]) -> Any:
    if len(values) != 1:
        return len(values)
    value = values[0]
    return len(cast("list[Any]", value)) if isinstance(value, list | dict | str) else 0 if value is None else 1


def _lower(values: list[Any]) -> Any:
    return values[0].lower() if len(values) == 1 and isinstance(values[0], str) else None


FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "len": _length,
    "length": _length,
    "size": _length,
    "count": _length,
    "lower": _lower,
}
"""Functions of the values that a path leads to, beside the aggregates; `len` of one list, object or text is its own."""


def function_named(name: str) -> Callable[[list[Any]], Any] | None:
    """The function of that name; None if there is none."""
    known = name.lower()
    if known in FUNCTIONS:
        return FUNCTIONS[known]
    return _of_elements(aggregate_named(known)) if known in AGGREGATES else None


class Term(Struct, frozen=True):
    """Something to ask of each row."""

    text: str
    path: Path
    function: Callable[[list[Any]], Any] | None = None
    about: Callable[[Place], Any] | None = None
    """For `$index` and the like."""

    @property
    def is_many(self) -> bool:
        """It may have several values a row."""
        return self.path.is_many and self.function is None

    def values(self, row: Place, meter: Meter) -> list[Any]:
        """Its values for a row; none where the field is missing."""
        if self.about is not None:
            return [self.about(row)]
        values = self.path.values(row, meter)
        return values if self.function is None else [self.function(values)]

    def value(self, row: Place, meter: Meter) -> Any:
        """Its value for a row: null where missing, a list if the path leads to several."""
        values = self.values(row, meter)
        return values if self.is_many or len(values) > 1 else values[0] if values else None


def term_of(path: Path, function: Callable[[list[Any]], Any] | None = None, text: str = "") -> Term:
    """The term of a parsed path."""
    return Term(text or path.text, path, function, _ABOUT.get(path.text) if function is None else None)


def parse_term(text: str) -> Term:
    """Read a term that stands alone.

    Raises:
        QueryRefused: it is none.
    """
    written = text.strip()
    if not written:
        raise QueryRefused("an empty field name")
    if called := _CALL.fullmatch(written):
        function = function_named(called.group(1))
        if function is None:
            functions = known_names(called.group(1), [*FUNCTIONS, *AGGREGATES])
            raise QueryRefused(f"no function '{called.group(1)}'; there are: {functions}")
        return term_of(parse_path(called.group(2)), function, written)
    return term_of(parse_path(written))


def split_terms(text: str) -> list[str]:
    """Split at commas that stand in no brackets or quotes."""
    parts, depth, quote, start = list[str](), 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and depth:
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def check_known(terms: Iterable[Term], rows: list[Place], meter: Meter) -> None:
    """Refuse a term that none of the rows has.

    Raises:
        QueryRefused: names the fields that rows have.
    """
    if not rows:
        return
    for term in terms:
        if term.about is not None or any(term.path.values(row, meter) for row in rows):
            continue
        names = [name for row in rows[:50] for name in _members(row.value)]
        if names:
            there = known_names(term.path.first_name or "", names)
            raise QueryRefused(f"no row has '{clipped(term.path.text)}' (a text needs quotes); the rows have: {there}")
        if term.path.steps:
            raise QueryRefused(f"no row has '{term.path.text}': the rows are no objects; `$` is the row itself")


def _members(value: Any) -> list[str]:
    if isinstance(value, list):
        value = cast("list[Any]", value)[0] if value else None
    return list(cast("dict[str, Any]", value)) if isinstance(value, dict) else []


def _of_elements(aggregate: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def function(values: list[Any]) -> Any:
        is_list = len(values) == 1 and isinstance(values[0], list)
        return aggregate(cast("list[Any]", values[0]) if is_list else values)

    return function
