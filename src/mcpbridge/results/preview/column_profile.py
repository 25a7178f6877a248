"""The profile of one column, and which columns identify a row.

A profile has the sort of the values, how often each occurs, how large they are, and how the column relates to others.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact, localcontext
from itertools import islice
from typing import Any, Literal

from msgspec import Struct

from mcpbridge.results.preview.flatten import Column
from mcpbridge.results.preview.wording import is_long_id, value_text

Number = int | Decimal
Sort = Literal["empty", "constant", "flag", "category", "number", "ident", "time", "id", "url", "text", "mixed"]
"""`empty`: nothing but null and missing; `flag`: true and false; `ident`: numbers that name something (ids, ports,
years), whose sum means nothing; `id`: strings, each of which occurs once; `mixed`: strings and numbers together."""

_NAMES_SOMETHING_LISTED = (
    "id ids no num nr number code port version year month day hour uid gid pid index idx seq sequence zip "
    "phone line lat lon lng latitude longitude x y z timestamp ts time date epoch status rank position "
    "row col column level priority key build revision schema order page mode"
)
_NAMES_SOMETHING = frozenset(_NAMES_SOMETHING_LISTED.split())
_TIMES_LISTED = "at ts time date timestamp epoch created updated modified start end expires mtime ctime"
_TIMES = frozenset(_TIMES_LISTED.split())
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_TIME = re.compile(r"\d{4}-\d\d(-\d\d)?([T ]\d\d:\d\d(:\d\d)?([.,]\d+)?( ?(Z|UTC|[+-]\d\d:?\d\d))?)?")
_DECIMAL = re.compile(r"-?\d{1,30}\.\d{1,30}")
_URL = re.compile(r"[a-z][a-z0-9+.-]{1,10}://\S+")
_PLENTY = Context(prec=200, traps=[])


class ColumnProfile(Struct):
    """A column, looked at."""

    column: Column
    sort: Sort
    present: list[Any]
    """The values that say something: neither null nor the empty string."""
    rows: Sequence[int]
    """The row of each of them."""
    counts: Counter[Any]
    """How often each value occurs."""
    nulls: int
    empties: int
    """Empty strings."""
    numbers: Sequence[Number] = ()
    """Of numbers, also those written as strings with a decimal point: the values, one for each of `present`."""
    low: Number = 0
    """The least of the numbers, if there are any."""
    high: Number = 0
    """The largest of them."""
    same_as: str = ""
    """The path of an earlier column that distinguishes the same rows."""

    @property
    def path(self) -> str:
        """The field."""
        return self.column.path

    @property
    def every(self) -> bool:
        """Each row has exactly one value."""
        return self.present is self.column.values and isinstance(self.rows, range) and not self.column.missing

    @property
    def all_different(self) -> bool:
        """No value occurs twice, and there are several."""
        return len(self.counts) == len(self.present) > 1


def profile_of(column: Column) -> ColumnProfile:
    """Look at a column: one pass over its values for each question."""
    values, rows = column.values, column.rows
    counts = Counter[Any](values)
    nulls, empties = counts.pop(None, 0), counts.pop("", 0)
    if nulls or empties:
        kept = [place for place, value in enumerate(values) if value is not None and value != ""]
        values, rows = [values[i] for i in kept], [rows[i] for i in kept]
    profile = ColumnProfile(column, "mixed", values, rows, counts, nulls, empties)
    profile.sort = _sort_of(profile)
    return profile


def _sort_of(profile: ColumnProfile) -> Sort:
    values, counts = profile.present, profile.counts
    if not values:
        return "empty"
    types = set(map(type, values))
    if len(types) > 1 and types != {int, Decimal}:
        return "mixed"
    if len(counts) == 1 and len(values) > 1 and len(values) == profile.column.possible:
        return "constant"
    if types == {bool}:
        return "flag"
    if types == {str}:
        return _sort_of_texts(profile)
    profile.numbers, profile.low, profile.high = values, min(counts), max(counts)
    return _sort_of_numbers(profile)


def _sort_of_numbers(profile: ColumnProfile) -> Sort:
    numbers, distinct = profile.numbers, len(profile.counts)
    words = [word.lower() for word in _WORDS.findall(profile.path)][-1:]
    low, high = profile.low, profile.high
    whole = set(map(type, numbers)) == {int}
    if whole and ((10**9 <= low <= high <= 2 * 10**9) or (10**12 <= low <= high <= 2 * 10**12)):
        spread = (high - low) * 5 < high
        if spread and ({*words} & _TIMES or profile.path.endswith("[0]") or (len(numbers) > 2 and _rising(numbers))):
            return "time"
    if {*words} & _NAMES_SOMETHING and not _measured(numbers):
        return "category" if distinct <= 30 and distinct * 3 <= len(numbers) else "ident"
    if whole and distinct == len(numbers) > 3 and low >= 0 and _evenly_rising(numbers):
        return "ident"
    return "number"


def _measured(numbers: Sequence[Number]) -> bool:
    return any(type(number) is Decimal for number in numbers[:100])


def _rising(numbers: Sequence[Number]) -> bool:
    return all(map(int.__le__, numbers, numbers[1:])) or all(map(int.__ge__, numbers, numbers[1:]))  # type: ignore[arg-type] - whole numbers, all of them


def _evenly_rising(numbers: Sequence[Number]) -> bool:
    """As counted up or down, with no large gaps: 1001, 1002, 1004."""
    if not _rising(numbers):
        return False
    span = abs(numbers[-1] - numbers[0])
    return span <= 20 * len(numbers)


def _sort_of_texts(profile: ColumnProfile) -> Sort:
    values, counts = profile.present, profile.counts
    distinct = len(counts)
    first = values[0]
    if _TIME.match(first) and all(map(_TIME.fullmatch, counts)):
        return "time"
    if _DECIMAL.fullmatch(first) and all(map(_DECIMAL.fullmatch, values)):
        read = {text: Decimal(text) for text in counts}
        profile.numbers = list(map(read.__getitem__, values))
        profile.low, profile.high = min(read.values()), max(read.values())
        words = {word.lower() for word in _WORDS.findall(profile.path.rpartition(".")[2])}
        return "time" if words & _TIMES and 10**9 <= profile.low <= 2 * 10**9 else "number"
    if _URL.match(first) and all(map(_URL.match, counts)):
        return "url" if distinct > 8 or distinct * 2 > len(values) else "category"
    longest = max(map(len, counts))
    if distinct * 2 <= len(values) or (distinct <= 12 and distinct < len(values)):
        return "category" if longest <= 80 else "text"
    spaced = sum(" " in value for value in counts)
    if longest <= 90 and spaced * 4 <= distinct and distinct == len(values):
        return "id"
    if longest <= 60 and spaced * 2 <= distinct:
        return "category"
    return "text"


def exact_sum(numbers: Sequence[Number]) -> Number | None:
    """The sum to the last digit; None where no number of a sensible length says it."""
    if Decimal not in set(map(type, numbers)):
        return sum(numbers)
    with localcontext(_PLENTY) as context:
        total = Decimal(sum(numbers, Decimal(0)))
        return total if not context.flags[Inexact] and total.is_finite() else None


_CALLED_BY = {
    "{key}": 6.0,
    "name": 3.0,
    "id": 2.6,
    "number": 3.2,
    "key": 2.5,
    "path": 2.4,
    "title": 2.0,
    "login": 2.0,
    "sha": 2.4,
    "slug": 1.5,
    "sku": 1.5,
    "url": 1.0,
    "email": 1.0,
    "file": 1.5,
    "code": 1.0,
    "label": 1.0,
    "subject": 1.2,
}
_DERIVED = {"last": 0.8, "max": 0.7, "min": 0.55, "≈mean": 0.5, "first": 0.4}
_WORD = re.compile(r"[A-Za-z][a-z]*")


def identities(profiles: Sequence[ColumnProfile]) -> list[ColumnProfile]:
    """The columns with a different value in every row, best first."""
    ranked = [
        (-_rank(profile), place)
        for place, profile in enumerate(profiles)
        if _distinguishes_rows(profile) and not profile.same_as
    ]
    ranked.sort()
    return [profiles[place] for _, place in ranked]


def row_columns(profiles: Sequence[ColumnProfile], chosen: list[ColumnProfile]) -> list[tuple[ColumnProfile, float]]:
    """The columns worth showing of single rows, with their worth, best first: what the row is called, then the rest."""
    columns: list[tuple[ColumnProfile, float]] = []
    for place, profile in enumerate(chosen[:6]):
        worth = 1.0 if place == 0 else 0.7 if profile.sort == "text" else 0.5 / place
        if place and (_follows_from(profile, profiles) if profile.sort == "url" else _within(profile, chosen[0])):
            continue
        if place and (
            profile.column.path.endswith(("node_id", "uid", "etag"))
            or _is_location(profile)
            or is_long_id(profile.present[0])
        ):
            worth = 0.15
        columns.append((profile, worth))
    known = {id(profile) for profile in chosen}
    for profile in profiles:
        if id(profile) in known or profile.sort in {"constant", "empty"} or profile.same_as:
            continue
        if profile.sort == "url" and _follows_from(profile, profiles):
            continue
        if profile.column.derived:
            columns.append((profile, _DERIVED.get(profile.path.rpartition(" ")[2], 0.3)))
            continue
        if profile.numbers and not isinstance(profile.rows, range) and len(profile.rows) > 1.6 * len(set(profile.rows)):
            continue
        depth = profile.path.count(".") + 2 * profile.path.count("[]")
        long = profile.sort == "text" and max(map(len, profile.counts), default=0) > 80
        worth = (0.1 if long else 0.3) / (1 + 0.3 * depth)
        columns.append((profile, worth * 1.15 if profile.sort in {"category", "id", "text"} else worth))
    columns.sort(key=lambda entry: -entry[1])
    return columns


def cell(profile: ColumnProfile, row: int, limit: int = 56, say: Callable[[Any, int], str] = value_text) -> str:
    """What the row has in this column; several values of a list with `+` between them, nothing as `-`."""
    rows = profile.rows
    if isinstance(rows, range):
        values = profile.present[row : row + 1]
    else:
        begin = bisect_left(rows, row)
        values = profile.present[begin : min(bisect_right(rows, row), begin + 4)]
    return "+".join(say(value, limit) for value in values) if values else "-"


def mark_copies(profiles: Sequence[ColumnProfile]) -> None:
    """Note of columns that group the rows as another one does, such as a login and its number."""
    _mark_equal(profiles)
    groups: dict[tuple[int, ...], list[ColumnProfile]] = {}
    for profile in profiles:
        distinct = len(profile.counts)
        if profile.sort in {"category", "url", "text", "id", "ident", "time"} and 1 < distinct < len(profile.present):
            place = -len(profile.rows) if isinstance(profile.rows, range) else id(profile.rows)
            groups.setdefault((place, distinct, *sorted(profile.counts.values())), []).append(profile)
    for group in groups.values():
        if len(group) < 2:
            continue
        told: dict[tuple[int, ...], ColumnProfile] = {}
        for profile in sorted(group, key=_plainness):
            numbers = {value: number for number, value in enumerate(dict.fromkeys(profile.present))}
            pattern = tuple(map(numbers.__getitem__, profile.present))
            first = told.setdefault(pattern, profile)
            if first is not profile:
                profile.same_as = first.path


def _mark_equal(profiles: Sequence[ColumnProfile]) -> None:
    """Columns with the same values throughout."""
    alike: dict[tuple[Any, ...], list[ColumnProfile]] = {}
    for profile in profiles:
        if profile.all_different:
            alike.setdefault((len(profile.present), *profile.present[:3]), []).append(profile)
    for group in alike.values():
        if len(group) < 2:
            continue
        first, *others = sorted(group, key=_plainness)
        for profile in others:
            if first.present == profile.present and first.rows == profile.rows:
                profile.same_as = first.path


def _distinguishes_rows(profile: ColumnProfile) -> bool:
    if not profile.every or profile.sort in {"mixed", "flag", "constant", "empty"}:
        return False
    if profile.all_different:
        if profile.sort in {"number", "time"}:
            return False
    elif len(profile.counts) < 0.8 * len(profile.present) or profile.path.rpartition(".")[2].lower() not in _CALLED_BY:
        return False
    return profile.sort != "text" or max(map(len, islice(profile.present, 200))) <= 160


def _rank(profile: ColumnProfile) -> float:
    rank = {"id": 3.0, "ident": 2.6, "category": 2.5, "text": 1.2, "url": 0.6}.get(profile.sort, 1.0)
    name = profile.path.rpartition(".")[2]
    rank += _CALLED_BY[name.lower()] if name.lower() in _CALLED_BY else _CALLED_BY.get(_last_word(name), 0.0) / 2
    rank -= 0.8 * profile.path.count(".")
    if not profile.all_different:
        rank -= 0.3
    if _is_location(profile):
        rank -= 3.0
    sample = [len(value_text(value, 200)) for value in islice(profile.present, 20)]
    return rank - sum(sample) / len(sample) / 22


def _is_location(profile: ColumnProfile) -> bool:
    """It counts the rows, and so says of each only where it stands, which is known."""
    present = profile.present
    return profile.sort == "ident" and present[0] in {0, 1} and present[-1] in {len(present), len(present) - 1}


def _plainness(profile: ColumnProfile) -> tuple[bool, bool, bool, int, int, str]:
    """Plain columns first: names before ids, text before numbers, shallow before deep, short before long."""
    values = list(islice(profile.counts, 20))
    return (
        profile.sort == "url",
        not isinstance(values[0], str),
        _last_word(profile.path) not in {"name", "login", "title", "username"},
        profile.path.count("."),
        sum(len(value_text(value, 200)) for value in values),
        profile.path,
    )


def _within(profile: ColumnProfile, first: ColumnProfile) -> bool:
    """Its values can be read in those of the first column: a prefix of the name."""
    values, names = profile.present[:4], first.present[:4]
    texts = [(value_text(value, 200), value_text(name, 200)) for value, name in zip(values, names, strict=True)]
    return all(len(value) > 2 and value in name for value, name in texts)


def _last_word(path: str) -> str:
    words = _WORD.findall(path.rpartition(".")[2])
    return words[-1].lower() if words else ""


def _follows_from(profile: ColumnProfile, others: Sequence[ColumnProfile]) -> bool:
    """A URL that holds what another column says."""
    urls = profile.present[:4]
    for other in others:
        if other is profile or other.sort not in {"id", "ident", "category"} or not other.every or not profile.every:
            continue
        said_there = [value_text(value, 200) for value in other.present[:4]]
        if all(len(value) > 2 and value in url for value, url in zip(said_there, urls, strict=True)):
            return True
    return False
