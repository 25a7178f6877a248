"""Finds lines that say the same with other values, counts them, and describes their values.

Lines are equal when they differ in digits only. Lines of as many words which then agree in most words are merged, and
where they differ there are counts of few values, the range of numbers, or else the number of different values.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from mcpbridge.results.text.lines import cut

MERGED = 1_500
"""Distinct lines that are compared with each other; what is rarer than those counts as one more kind."""

FAMILY = 60
"""Templates of the same length that a line is compared with."""

_DIGITS = re.compile(r"\d+")
_ZEROS = str.maketrans(dict.fromkeys("123456789", "0"))
_NUMBER = re.compile(r"([^\d\-+]*?)(-?\d{1,15}(?:\.\d{1,9})?)([^\d]{0,12})")


class Template(Struct, frozen=True):
    """Lines that say the same."""

    text: str
    """Their words; `{…}` where they differ, with what is there."""
    count: int
    first: int
    """Which of the given lines was the first of them."""
    last: int
    """Which was the last."""
    slowest: tuple[float, int] | None = None
    """Its longest duration in milliseconds, and the line where that is."""
    numbers: Sequence[int] = ()
    """All of these lines, in no order."""


def templates_of(lines: Sequence[tuple[int, str]], most: int = 400) -> list[Template]:
    """The templates of numbered lines, of which `most` characters count; the most frequent first."""
    if not lines:
        return []
    texts = [text[:most] for _, text in lines]
    groups: dict[str, list[int]] = {}
    for at, shape in enumerate(_shapes(texts)):
        if shape in groups:
            groups[shape].append(at)
        else:
            groups[shape] = [at]
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    merged: list[tuple[list[str], list[int]]] = []
    families: dict[int, list[int]] = {}
    for shape, members in ordered[:MERGED]:
        words = shape.split()
        family = families.setdefault(len(words), [])
        home = next((at for at in family if _agree(merged[at][0], words)), None)
        if home is None:
            if len(family) < FAMILY:
                family.append(len(merged))
            merged.append((words, members))
        else:
            kept = merged[home][0]
            merged[home] = ([a if a == b else "\0" for a, b in zip(kept, words, strict=True)], merged[home][1])
            merged[home][1].extend(members)
    found = [
        _template([lines[at][0] for at in members], [texts[at] for at in members], len(words))
        for words, members in merged
    ]
    rest = [lines[at][0] for _, members in ordered[MERGED:] for at in members]
    if rest:
        found.append(Template("(lines of other forms)", len(rest), min(rest), max(rest)))
    return sorted(found, key=lambda template: (-template.count, template.first))


def _shapes(texts: Sequence[str]) -> list[str]:
    """Each text with every number in it as one 0: all at once, which is several times as fast as one by one."""
    whole = "\n".join(texts)
    if not whole.isascii():
        return _DIGITS.sub("0", whole).split("\n")
    whole = whole.translate(_ZEROS)
    for many in ("00000000", "0000", "00", "00", "00"):
        whole = whole.replace(many, "0")
    while "00" in whole:
        whole = whole.replace("00", "0")
    return whole.split("\n")


def _agree(pattern: list[str], words: list[str]) -> bool:
    """Most words are the same, the first among them, if there are enough to tell."""
    if len(words) < 2 or pattern[0] != words[0]:
        return False
    same = sum(map(str.__eq__, pattern, words))
    return same * 2 >= len(words) if len(words) > 2 else same == len(words)


def _template(numbers: list[int], texts: Sequence[str], width: int) -> Template:
    """Of lines of the same number of words."""
    flat = " ".join(texts).split()
    columns = [flat[at::width] for at in range(width)]
    text = " ".join(column[0] if len(column) == 1 else _slot(column) for column in columns)
    durations = [found for column in columns if _DURATION.fullmatch(column[0]) for found in _durations(column, numbers)]
    slowest = max(durations, default=None, key=lambda each: each[0])
    return Template(text, len(numbers), min(numbers), max(numbers), slowest, numbers)


_DURATION = re.compile(r"[^\d]{0,30}?(\d{1,12}(?:\.\d{1,9})?)(ms|s|us|µs)[^\w]{0,2}")
_MILLISECONDS = {"ms": 1.0, "s": 1000.0, "us": 0.001, "µs": 0.001}


def _durations(column: Sequence[str], numbers: Sequence[int]) -> list[tuple[float, int]]:
    matches = zip(map(_DURATION.fullmatch, column), numbers, strict=True)
    return [(float(match[1]) * _MILLISECONDS[match[2]], number) for match, number in matches if match]


def _slot(column: Sequence[str]) -> str:
    """What stands at one place of all lines of a template."""
    if column.count(column[0]) == len(column):
        return column[0]
    counts = Counter(column)
    numbers = _numbers(counts) if len(counts) > 6 else None
    if numbers:
        start, low, high, unit = numbers
        return f"{start}{{{low}–{high}}}{unit}"
    start = _shared(counts)
    if len(counts) <= 6:
        values = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        told = (cut(value[len(start) :], 30) + (f"×{count}" if values[0][1] > 1 else "") for value, count in values)
        return start + "{" + " ".join(told) + "}"
    value, count = max(counts.items(), key=lambda each: (each[1], each[0]))
    often = f" {cut(value[len(start) :], 24)}×{count}" if count * 8 > len(column) and count > 2 else ""
    return f"{start}{{{len(counts)} values{often}}}"


def _shared(counts: Iterable[str]) -> str:
    """The common beginning of values up to a sign that sets off a name, such as `table=` or `/api/v1/`."""
    low, high = min(counts), max(counts)
    end = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    while end and low[end - 1] not in "=:/([\"'":
        end -= 1
    return low[:end]


def _numbers(counts: Collection[str]) -> tuple[str, str, str, str] | None:
    """What stands before, the smallest and the largest as written, and the unit, if all are numbers of one unit."""
    example = _NUMBER.fullmatch(next(iter(counts)))
    if example is None:
        return None
    start, unit = example[1], example[3]
    whole = _whole_numbers(counts, start, unit)
    if whole:
        return start, *whole, unit
    found: list[tuple[float, str]] = []
    around: tuple[str, str] | None = None
    for value in counts:
        match = _NUMBER.fullmatch(value)
        if match is None or (around is not None and around != (match[1], match[3])):
            return None
        around = (match[1], match[3])
        found.append((float(match[2]), match[2]))
    return (around[0], min(found)[1], max(found)[1], around[1]) if around else None


def _whole_numbers(counts: Collection[str], start: str, unit: str) -> tuple[str, str] | None:
    """The smallest and the largest as written, if all are digits between these two; far faster than by patterns."""
    digits = counts
    if start or unit:
        first, less = len(start), -len(unit) or None
        digits = [value[first:less] for value in counts if value.startswith(start) and value.endswith(unit)]
    joined = "".join(digits)
    if len(digits) != len(counts) or "" in digits or not (joined.isascii() and joined.isdecimal()):
        return None
    if max(map(len, digits)) > 15:
        return None
    numbers = list(map(int, digits))
    low, high = min(numbers), max(numbers)
    written = list(zip(numbers, digits, strict=True))
    return min([text for number, text in written if number == low]), max(
        [text for number, text in written if number == high]
    )
