"""The terms of a query: fields, functions of a field, aggregates, and how values compare.

A term is a field, or a function of one, such as `len(labels)` and `max(values[][1])`. Beside the fields of a row there
are `$index` and `$key` (where it is in its list or object), `$path`, `$trail` (the names of what it is in) and
`$handle`.

Numbers compare exactly, and as numbers too where one side is a text that holds one. Times in ISO form compare as
texts. Aggregates are counts, exact sums, averages, extremes and distinct values.
"""

import re
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, InvalidOperation
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.errors import Meter, QueryRefused, clipped, known_names
from mcpbridge.results.exact_json import NotReadable, write_json
from mcpbridge.results.json_path import Path, Place, parse_path
from mcpbridge.results.query.limits import DISTINCT_SHOWN, MEAN_DIGITS, SUM_DIGITS

_NUMERIC = re.compile(r"\s*-?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,4})?\s*", re.ASCII)
_HALVES = re.compile("[\ud800-\udfff]")


def number_of(value: Any) -> int | Decimal | None:
    """The number that a value is, or that a text says; None if it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | Decimal):
        return value
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, str) and len(value) < 20 and value.isdigit() and value.isascii():
        return int(value)
    if isinstance(value, str) and len(value) < 900 and _NUMERIC.fullmatch(value):
        try:
            return Decimal(value.strip())
        except InvalidOperation:
            return None
    return None


def equal(one: Any, other: Any) -> bool:
    """Whether they are the same value: texts that say numbers equal those numbers, "true" equals true."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, bool) or isinstance(other, bool):
        return _truth(one) == _truth(other) if isinstance(one, bool | str) and isinstance(other, bool | str) else False
    if isinstance(one, list | dict) or isinstance(other, list | dict) or one is None or other is None:
        return isinstance(one, list) == isinstance(other, list) and cast("Any", one) == other
    mine, theirs = number_of(one), number_of(other)
    return mine is not None and mine == theirs


def compare(one: Any, other: Any) -> int | None:
    """Below 0, 0 or above 0, as `one` comes before `other`; None if they cannot be compared."""
    if isinstance(one, str) and isinstance(other, str):
        return (one > other) - (one < other)
    mine, theirs = number_of(one), number_of(other)
    return None if mine is None or theirs is None else (mine > theirs) - (mine < theirs)


def contains(whole: Any, part: Any) -> bool:
    """A text has that piece, a list that element (or an object with a member of that value), an object that name."""
    if isinstance(whole, str):
        return part is not None and (part if isinstance(part, str) else written(part)) in whole
    if isinstance(whole, list):
        return any(equal(item, part) or _has_value(item, part) for item in cast("list[Any]", whole))
    if isinstance(whole, dict):
        return isinstance(part, str) and part in whole
    return isinstance(part, str) and not isinstance(whole, bool | None) and part in written(whole)


def identity(value: Any) -> Any:
    """Something hashable that two values share when they are the same."""
    if isinstance(value, bool) or value is None:
        return str(value), value
    if isinstance(value, list | dict):
        return "json", written(value)
    return "number" if not isinstance(value, str) else "", value


def order_by(values: list[Any]) -> Callable[[Any], Any]:
    """A sort key for these values and no others: a total order over mixed types.

    Numbers, then texts, then true and false, then the rest, then null. Texts that say numbers count as numbers if all
    texts do.
    """
    texts = [value for value in values if isinstance(value, str)]
    numeric = all(number_of(text) is not None for text in texts)

    def key(value: Any) -> Any:
        if value is None:
            return 4, 0
        if isinstance(value, bool):
            return 2, value
        if isinstance(value, str):
            return (0, number_of(value)) if numeric else (1, value)
        if isinstance(value, list | dict):
            return 3, written(value)
        return 0, number_of(value)

    return key


def written(value: Any) -> str:
    """A value as short JSON. Half characters, which JSON in UTF-8 cannot say, become `\ufffd`."""
    try:
        return write_json(value)
    except NotReadable:
        return write_json(_whole(value))


def without_halves(text: str) -> str:
    """The text with every half of a character (a lone surrogate) replaced by `\ufffd`; as long as before."""
    return _HALVES.sub("\ufffd", text)


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return without_halves(value)
    if isinstance(value, list):
        return [_whole(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {without_halves(name): _whole(member) for name, member in members.items()}
    return value


def _truth(value: bool | str) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if len(value) < 6 else None


def _has_value(item: Any, part: Any) -> bool:
    if not isinstance(item, dict):
        return False
    return any(
        not isinstance(member, list | dict) and equal(member, part) for member in cast("dict[str, Any]", item).values()
    )


_exact = Context(prec=SUM_DIGITS, Emax=10**15, Emin=-(10**15), traps=[])


def aggregate_named(name: str) -> Callable[[list[Any]], Any]:
    """The aggregate of that name (a key of `AGGREGATES`): from the values that are not null to one."""
    return AGGREGATES[name.lower()]


def by_frequency(values: list[Any]) -> list[tuple[Any, int]]:
    """Distinct values and how often each occurs there, the most frequent first, then in order."""
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
    digits = max(value.adjusted() + 1, 0) + MEAN_DIGITS
    short = Context(prec=min(digits, SUM_DIGITS), traps=[]).plus(value)
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
    """Split at commas outside of brackets and quotes."""
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
