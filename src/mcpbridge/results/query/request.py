"""A query, and how it is read from the arguments of a call; the sorting and grouping that it asks for.

Arguments are read generously, as models write them: lists and objects may come as JSON in a string, single values in
place of lists, numbers as strings.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import Any, TypeVar, cast

from msgspec import Struct

from mcpbridge.results.errors import Meter, QueryRefused, clipped, known_names
from mcpbridge.results.json_path import Path, Place, parse_path
from mcpbridge.results.query.find_text import Finder, Plain, Regex
from mcpbridge.results.query.limits import FIND_LENGTH, GROUPS_PER_ROW, QUERY_PARTS
from mcpbridge.results.query.predicates import Where
from mcpbridge.results.query.terms import AGGREGATES, Term, aggregate_named, identity, order_by, parse_term, split_terms
from mcpbridge.results.query.where import where_of


class SortKey(Struct, frozen=True):
    """One thing to sort by."""

    term: Term
    is_descending: bool = False


class Aggregate(Struct, frozen=True):
    """One thing to know of many rows."""

    name: str
    """What it is called in the answer."""
    function: str
    """A key of `AGGREGATES`."""
    term: Term | None
    """What of each row; None: the row itself."""

    def of(self, rows: Sequence[Place], meter: Meter) -> Any:
        """Its value. Nulls do not count, but for `count` of no field."""
        if self.term is None and self.function == "count":
            return len(rows)
        term = self.term
        values = [row.value for row in rows] if term is None else [v for row in rows for v in term.values(row, meter)]
        try:
            return aggregate_named(self.function)([value for value in values if value is not None])
        except QueryRefused as error:
            raise QueryRefused(f"{self.name}: {error}") from None


def aggregated(rows: Sequence[Place], aggregates: Sequence[Aggregate], meter: Meter) -> dict[str, Any]:
    """All of them over all rows."""
    return {aggregate.name: aggregate.of(rows, meter) for aggregate in aggregates}


def grouped(
    rows: Sequence[Place], by: Sequence[tuple[str, Term]], aggregates: Sequence[Aggregate], meter: Meter
) -> list[Any]:
    """One object for each group, the largest first, then in order of what they are grouped by.

    A row with several values of a field belongs to a group for each.
    """
    groups: dict[Any, tuple[tuple[Any, ...], list[Place]]] = {}
    for row in rows:
        choices = [list({identity(v): v for v in term.values(row, meter)}.values()) or [None] for _, term in by]
        for position, values in enumerate(product(*choices)):
            if position >= GROUPS_PER_ROW:
                raise QueryRefused("group_by: a row belongs to too many groups; give a narrower path")
            meter.spend()
            known = tuple(identity(value) for value in values)
            groups.setdefault(known, (values, []))[1].append(row)
    found = list(groups.values())
    for position in reversed(range(len(by))):
        key = order_by([values[position] for values, _ in found])
        found.sort(key=lambda group, key=key, position=position: key(group[0][position]))
    found.sort(key=lambda group: -len(group[1]))
    names = [name for name, _ in by]
    return [dict(zip(names, values, strict=True)) | aggregated(members, aggregates, meter) for values, members in found]


def sorted_rows(rows: Sequence[Place], keys: Sequence[SortKey], meter: Meter) -> list[Place]:
    """The rows in order; equal ones as they stood, those without a value last.

    Of several values in a row the lowest counts, or the highest if it is the other way round.
    """
    ordered = list(rows)
    for key in reversed(keys):
        several = [[v for v in key.term.values(row, meter) if v is not None] for row in ordered]
        by = order_by([value for values in several for value in values])
        chosen = max if key.is_descending else min
        keyed = [(by(chosen(values, key=by)), row) for values, row in zip(several, ordered, strict=True) if values]
        keyed.sort(key=lambda pair: pair[0], reverse=key.is_descending)
        missing = [row for values, row in zip(several, ordered, strict=True) if not values]
        ordered = [row for _, row in keyed] + missing
    return ordered


def columns_only(keys: Sequence[SortKey], rows: Sequence[Any]) -> None:
    """Refuse keys that rows of groups do not have.

    Raises:
        QueryRefused: names the columns.
    """
    names = list(rows[0]) if rows else []
    for key in keys:
        if rows and key.term.text not in names:
            raise QueryRefused(
                f"sort: groups have no '{key.term.text}'; they have: {known_names(key.term.text, names)}"
            )


T = TypeVar("T")


_RENAMED = re.compile(r"(.*\S)\s+as\s+(\S.*)", re.DOTALL | re.IGNORECASE)
_DIRECTION = re.compile(r"(.*\S)(?:\s+|:)(asc|desc|ascending|descending)", re.DOTALL | re.IGNORECASE)
_CALL = re.compile(r"([A-Za-z_]+)\s*\((.*)\)", re.DOTALL)
_COLON = re.compile(r"([A-Za-z_]+)\s*(?::|\s)\s*(\S.*)", re.DOTALL)
_LINES = re.compile(r"\s*(-?\d{1,12})\s*(?:(?:-|:|\.\.|,|to)\s*(\d{1,12})?)?\s*", re.ASCII)


_BESIDE_LINES = ("where", "select", "sort", "aggregate", "group_by", "find", "regex")
"""What is not asked together with lines: they are lines of the text, not rows."""


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the rows that are answered."""

    name: str
    term: Term
    is_named: bool = False
    """The query gives it its name."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of results. Applied in this order: path, where, find, groups or sort, offset and limit, select."""

    path: Path | None = None
    where: Where | None = None
    select: tuple[Column, ...] = ()
    sort: tuple[SortKey, ...] = ()
    offset: int | None = None
    limit: int | None = None
    aggregates: tuple[Aggregate, ...] = ()
    group_by: tuple[tuple[str, Term], ...] = ()
    finder: Finder | None = field(default=None, compare=False)
    """What `find` or `regex` look for."""
    context: int = 0
    """Lines around each that is found."""
    lines: tuple[int, int | None] | None = None
    """First and last line, from 1, the last included; the first below 0: so many of the end. None: to the end."""

    @property
    def asks_rows(self) -> bool:
        """Something in it is about rows."""
        return bool(self.where or self.select or self.sort or self.aggregates or self.group_by)

    @property
    def is_empty(self) -> bool:
        """Nothing is asked but to be shown what there is."""
        return self == Query() and self.finder is None


def read_query(arguments: Mapping[str, Any]) -> Query:
    """The query that the arguments of a call ask; unknown ones are nobody's here.

    Raises:
        QueryRefused: which argument is wrong, and why.
    """
    given = {name: value for name, value in arguments.items() if value is not None and value != ""}
    if "find" in given and "regex" in given:
        raise QueryRefused("find and regex: give one of them")
    if "lines" in given and (others := [name for name in _BESIDE_LINES if name in given]):
        raise QueryRefused(f"lines and {others[0]}: give one of them; lines are shown as they are")

    def read(name: str, reader: Callable[[Any], T], default: T) -> T:
        if name not in given:
            return default
        try:
            return reader(given[name])
        except QueryRefused as error:
            text = str(error)
            raise QueryRefused(text if text.startswith(name) else f"{name}: {text}") from None

    return Query(
        path=read("path", _path, None),
        where=read("where", lambda value: where_of(loosened(value)), None),
        select=read("select", _columns, ()),
        sort=read("sort", _sort_keys, ()),
        offset=read("offset", _count, None),
        limit=read("limit", _count, None),
        aggregates=read("aggregate", _aggregates, ()),
        group_by=read("group_by", _groups, ()),
        finder=read("find", lambda value: Plain(_text(value)), None)
        or read("regex", lambda value: Regex(_text(value)), None),
        context=read("context", _count, 0),
        lines=read("lines", _lines, None),
    )


def loosened(value: Any) -> Any:
    """A value that may have come as JSON in a string: that list or object, else as it is."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{") and len(value) < 20_000:
        try:
            parsed = json.loads(value, parse_float=Decimal)
        except (ValueError, ArithmeticError, RecursionError):
            return value
        return cast("Any", parsed) if isinstance(parsed, list | dict) else value
    return value


def _path(value: Any) -> Path:
    if not isinstance(value, str):
        raise QueryRefused("a path is a text such as items[0].name")
    return parse_path(value)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
    if not 0 < len(text) <= FIND_LENGTH:
        raise QueryRefused(f"a text of at most {FIND_LENGTH} characters")
    return text


def _count(value: Any) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() and len(value) < 16 else value
    if isinstance(number, float | Decimal) and abs(number) < 10**15 and number == int(number):
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise QueryRefused(f"a number from 0, not {clipped(repr(value))}")
    return number


def _named(value: Any) -> list[tuple[str, str]]:
    """Texts and the names they are given, empty where they are given none: of a text, a list, or an object."""
    value = loosened(value)
    if isinstance(value, dict):
        pairs = [(name, text) for name, text in cast("dict[str, Any]", value).items()]
    else:
        parts = split_terms(value) if isinstance(value, str) else value
        if not isinstance(parts, list):
            raise QueryRefused("a text, a list of texts, or an object of names and texts")
        pairs = list[tuple[str, Any]]()
        for part in cast("list[Any]", parts):
            if isinstance(part, dict):
                pairs += _named(part)
            elif isinstance(part, str) and (renamed := _RENAMED.fullmatch(part)):
                pairs.append((renamed.group(2), renamed.group(1)))
            else:
                pairs.append(("", part))
    if not 0 < len(pairs) <= QUERY_PARTS:
        raise QueryRefused(f"between 1 and {QUERY_PARTS} of them" if pairs else "it is empty")
    for _, text in pairs:
        if not isinstance(text, str):
            raise QueryRefused(f"texts, not {clipped(repr(text))}")
    return pairs


def _columns(value: Any) -> tuple[Column, ...]:
    return tuple(Column(name or text, parse_term(text), bool(name)) for name, text in _named(value))


def _groups(value: Any) -> tuple[tuple[str, Term], ...]:
    return tuple((name or text, parse_term(text)) for name, text in _named(value))


def _sort_keys(value: Any) -> tuple[SortKey, ...]:
    value = loosened(value)
    if isinstance(value, dict):  # {"comments": "desc"}, {"comments": -1}
        members = cast("dict[str, Any]", value).items()
        value = [f"-{name}" if str(way).lower() in ("-1", "desc", "descending") else name for name, way in members]
    return tuple(_sort_key(text) for _, text in _named(value))


def _sort_key(text: str) -> SortKey:
    is_descending = False
    if found := _DIRECTION.fullmatch(text):
        text, is_descending = found.group(1), found.group(2).lower().startswith("desc")
    if text.startswith("-"):
        text, is_descending = text[1:], not is_descending
    return SortKey(parse_term(text.removeprefix("+")), is_descending)


def _aggregates(value: Any) -> tuple[Aggregate, ...]:
    return tuple(_aggregate(name, text) for name, text in _named(value))


def _aggregate(name: str, text: str) -> Aggregate:
    found = _CALL.fullmatch(text) or _COLON.fullmatch(text)
    function, of = (found.group(1), found.group(2).strip()) if found else (text.strip(), "")
    if function.lower() not in AGGREGATES:
        if name.lower() in AGGREGATES:  # {"sum": "amount"}
            return _aggregate("", f"{name}({text})")
        raise QueryRefused(f"no '{clipped(function)}'; there are: {known_names(function, AGGREGATES)}")
    term = parse_term(of) if of not in ("", "*") else None
    return Aggregate(name or (f"{function}({of})" if term else function), function.lower(), term)


def _lines(value: Any) -> tuple[int, int | None]:
    value = loosened(value)
    if isinstance(value, list):
        value = "-".join(str(part) for part in cast("list[Any]", value)[:3])
    found = _LINES.fullmatch(str(value))
    if found is None:
        raise QueryRefused(f"100-150, 100, or -20 for the last 20, not {clipped(str(value))!r}")
    first, last = int(found.group(1)), found.group(2)
    if first < 0:
        return first, None
    has_end = bool(str(value)[found.end(1) :].strip())
    end = int(last) if last else None if has_end else first
    if first == 0 or (end is not None and end < first):
        raise QueryRefused("lines count from 1, and the last comes after the first")
    return first, end
