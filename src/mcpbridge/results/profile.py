"""What one column holds: which sort of values, how often each, how large, and how it compares with its neighbours."""

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Context, Decimal, Inexact, localcontext
from typing import Any, Literal

from msgspec import Struct

from mcpbridge.results.columns import Column

__all__ = ["Number", "Profile", "Sort", "exact_sum", "profile_of"]

Number = int | Decimal
Sort = Literal["empty", "constant", "flag", "category", "number", "ident", "time", "id", "url", "text", "mixed"]
"""`empty`: nothing but null and missing; `flag`: true and false; `ident`: numbers that name something (ids, ports,
years), whose sum means nothing; `id`: strings, each of which stands once; `mixed`: strings and numbers together."""

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


class Profile(Struct):
    """A column, looked at."""

    column: Column
    sort: Sort
    present: list[Any]
    """The values that say something: neither null nor the empty string."""
    rows: Sequence[int]
    """The row of each of them."""
    counts: Counter[Any]
    """How often each value stands."""
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
    """The path of an earlier column that tells the same rows apart."""

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
        """No value stands twice, and there are several."""
        return len(self.counts) == len(self.present) > 1


def profile_of(column: Column) -> Profile:
    """Look at a column: one pass over its values for each question."""
    values, rows = column.values, column.rows
    counts = Counter[Any](values)
    nulls, empties = counts.pop(None, 0), counts.pop("", 0)
    if nulls or empties:
        kept = [place for place, value in enumerate(values) if value is not None and value != ""]
        values, rows = [values[i] for i in kept], [rows[i] for i in kept]
    profile = Profile(column, "mixed", values, rows, counts, nulls, empties)
    profile.sort = _sort_of(profile)
    return profile


def _sort_of(profile: Profile) -> Sort:
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


def _sort_of_numbers(profile: Profile) -> Sort:
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
    return all(map(int.__le__, numbers, numbers[1:])) or all(map(int.__ge__, numbers, numbers[1:]))  # type: ignore[arg-type]


def _evenly_rising(numbers: Sequence[Number]) -> bool:
    """As counted up or down, with no large gaps: 1001, 1002, 1004."""
    if not _rising(numbers):
        return False
    span = abs(numbers[-1] - numbers[0])
    return span <= 20 * len(numbers)


def _sort_of_texts(profile: Profile) -> Sort:
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
