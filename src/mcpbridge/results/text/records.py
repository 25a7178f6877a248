"""Records in a text: blocks of `Key: value` lines with the same keys, one after the other, as `git log` writes them."""

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

from msgspec import Struct, field

from mcpbridge.results.text.lines import Fact, Lines, cut, many, tally

LEAST = 3
"""Records below which they are shown as any text."""

COMMON = 0.6
"""The part of the records that have a key which is shown."""

LONGEST = 200
"""Lines of a record, on average, from which on it is no record."""

FEW = 8
"""Distinct values of a key up to which each is counted."""

FIRST = 5
"""Records that are shown from the first."""

_LINE = re.compile(r"([A-Za-z][\w ./()-]{0,40}?)\s{0,20}:\s{1,20}(\S.*)|(commit) ([0-9a-f]{7,64})\b.*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?(Z|[+-]\d\d:?\d\d)?")
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,9})?")


class Records(Struct):
    """The records of a text."""

    keys: list[str]
    """Those that most records have, in the order of the first of them; the first begins each record."""
    count: int = 0
    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """All that is said under each of the keys."""
    rows: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The first records, and the last one at the end; under an empty name the first line that has no key."""
    places: list[int] = field(default_factory=list[int])
    """Where these begin."""
    rest: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Lines that are none of the keys, and where they are."""


def records_of(every: Sequence[str], width: int) -> Records | None:
    """The records of lines, of which `width` characters count; none if the text is something else."""
    found = [
        _LINE.fullmatch(line[:width].rstrip()) if ":" in line or line.startswith("commit ") else None for line in every
    ]
    names = [(match[1] or match[3]) if match else None for match in found]
    counts = Counter(name for name in names if name)
    first = next((name for name in names if name and counts[name] >= LEAST), None)
    if first is None:
        return None
    total = counts[first]
    keys = [name for name, count in counts.items() if total * COMMON <= count <= total * 1.5]
    filled = sum(1 for line in every if line and not line.isspace())
    if len(keys) < 2 or keys[0] != first:
        return None
    if sum(counts[key] for key in keys) * 4 < filled and not _begin_alike(names, keys, filled):
        return None
    records = Records(keys, values={key: [] for key in keys})
    known = set(keys)
    for at, (match, name) in enumerate(zip(found, names, strict=True)):
        if match is None or name not in known:
            if every[at] and not every[at].isspace():
                records.rest.append((at, every[at][:width]))
                if records.rows:
                    records.rows[-1].setdefault("", every[at][:width].strip())
            continue
        _take(records, at, name or "", match[2] or match[4])
    return records


def _begin_alike(names: Sequence[str | None], keys: Sequence[str], filled: int) -> bool:
    """Whether records with long texts begin alike: with two of the keys, one after the other."""
    begun = sum(1 for one, other in pairwise(names) if one == keys[0] and other in keys[1:])
    total = names.count(keys[0])
    return begun >= total * COMMON and total * LONGEST >= filled


def _take(records: Records, at: int, name: str, value: str) -> None:
    if name == records.keys[0]:
        records.count += 1
        if len(records.rows) > FIRST:
            records.rows.pop()
            records.places.pop()
        records.rows.append({})
        records.places.append(at)
    if records.rows:
        records.rows[-1].setdefault(name, value)
    records.values[name].append(value)


def record_facts(records: Records, lines: Lines) -> list[Fact]:
    """The facts of records: how many, what their keys say, the first of them and the last."""
    facts = [Fact(0, f"{many(records.count, 'record')} of {', '.join(cut(key, 40) for key in records.keys)}")]
    unlike = [key for key in records.keys if len(set(records.values[key])) == len(records.values[key])]
    facts += [Fact(1, told, share=0.3) for key in records.keys if (told := _value_counts(key, records.values[key]))]
    if unlike:
        facts.append(Fact(2, f"all different: {', '.join(cut(key, 40) for key in unlike)}", share=0.2))
    rows = [_row(records, lines, at) for at in range(len(records.rows))]
    facts.append(Fact(2, "first: ", rows[:-1], "\n  ", share=0.3, of=records.count - 1))
    facts.append(Fact(1, f"last: {rows[-1]}", share=0.2))
    return facts


def _row(records: Records, lines: Lines, at: int) -> str:
    row = records.rows[at]
    cells = [cut(row.get(key, "-"), 80) for key in records.keys]
    cells += [cut(row[""], 80)] if row.get("") else []
    return f"L{lines.number(records.places[at])} {' | '.join(cells)}"


def _value_counts(key: str, values: Sequence[str]) -> str:
    """Counts of few values; the range of dates and of numbers; of others how many there are, and the most frequent.

    Nothing of others that are all different.
    """
    counts = Counter(values)
    head = f"{cut(key, 40)}: "
    if len(counts) <= FEW and len(counts) < len(values):
        return head + ", ".join(tally(counts.most_common(), 60))
    zones = {match[1] if (match := _DATE.fullmatch(value)) else "?" for value in counts}
    if len(zones) == 1 and "?" not in zones and len({len(value) for value in counts}) == 1:
        return f"{head}{min(counts)} to {max(counts)}"
    if all(_NUMBER.fullmatch(value) for value in counts):
        numbers = [Decimal(value) for value in values]
        return f"{head}{min(numbers)}–{max(numbers)}, sum {sum(numbers)}"
    often = [each for each in counts.most_common(3) if each[1] * 20 >= len(values) and each[1] > 2]
    if len(counts) == len(values):
        return ""
    if not often:
        return f"{head}{len(counts)} distinct"
    return f"{head}{len(counts)} distinct, most often {', '.join(tally(often, 60))}"
