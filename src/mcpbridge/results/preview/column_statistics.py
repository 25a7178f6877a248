"""What a preview says of columns: counts of values, ranges, sums, times, beginnings of texts, and sums by group.

Sums by group are those of the main quantity for each value of the main categories, and for pairs of them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from mcpbridge.results.preview.column_profile import ColumnProfile, Number, exact_sum
from mcpbridge.results.preview.facts import Line, Lines
from mcpbridge.results.preview.limits import (
    COUNTED_VALUES,
    GROUP_CELLS,
    GROUPS,
    MOST_BEGINNINGS,
    MOST_ENDINGS,
    PAIRS_WORTH,
    SAMPLE_VALUES,
)
from mcpbridge.results.preview.wording import mean_text, number, time_text, type_name, value_text

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_BEGINNING = re.compile(r"[^\W\d_][\w'’]{2,39}(?![\w'’])")
"""A whole word of three letters at least."""
_EXTENSION = re.compile(r"[^/.\s]\.([A-Za-z][A-Za-z0-9]{0,5})$")
_EXTENSION_LENGTH = 9
"""Characters at the end of a name that contain all that the pattern finds, an end of line included."""


def worth_of(profile: ColumnProfile) -> float:
    """How much the column matters against others, 1 being usual: less the deeper it lies, and for copies of others."""
    depth = profile.path.count(".") + profile.path.count("[]")
    worth = 1.0 / (1 + 0.12 * max(0, depth - 1))
    if profile.same_as:
        worth *= 0.15
    if profile.sort in {"constant", "empty", "url"}:
        worth *= 0.3
    if profile.sort == "category" and "[]" in profile.path and len(set(profile.counts.values())) == 1:
        worth *= 0.3
    if profile.column.path.endswith(("_id", "Id", ".id")) and profile.sort != "id":
        worth *= 0.6
    return worth


def column_line(profile: ColumnProfile) -> Line:
    """All that can be said of a column by itself, apart from the rows of its extremes."""
    line = Line(profile.path or "values", names=profile.path)
    worth = worth_of(profile)
    if profile.same_as:
        line.add(f"as {profile.same_as}", 0.5)
        return line
    _presence(line, profile, worth)
    match profile.sort:
        case "flag":
            line.add(counted(profile.counts, 2), 9 * worth)
        case "category" | "mixed":
            _categories(line, profile, worth)
        case "number":
            _quantity(line, profile, worth)
        case "ident":
            different = profile.all_different
            span = f"{number(profile.low)}–{number(profile.high)}"
            line.add(span + ", all different" * different, (4.0 if different else 1.6) * worth)
        case "time":
            low, high = min(profile.counts), max(profile.counts)
            line.add(f"{time_text(low)} – {time_text(high)}", 6 * worth)
        case "id":
            line.add(_extensions(profile), 5 * worth)
            line.add(_beginnings(profile), 3 * worth)
            if profile.path != "{key}":
                line.add(_span(profile), 2.2 * worth)
        case "url" | "text":
            _texts(line, profile, worth)
        case _:
            pass
    return line


def _span(profile: ColumnProfile) -> str:
    """From which to which short ids of one length go."""
    low, high = min(profile.counts), max(profile.counts)
    alike = len(set(map(len, profile.counts))) == 1 and len(low) <= 24 and low[-1:].isdigit() and low[:2] == high[:2]
    return f"{low}–{high}, all different" if alike else ""


def is_rate(profile: ColumnProfile) -> bool:
    """A quantity that nobody adds up, such as a score or a temperature."""
    return not _RATES.isdisjoint(_words(profile))


def is_added_up(profile: ColumnProfile) -> bool:
    """A quantity whose sums by two categories somebody may want, such as money."""
    words = _words(profile)
    return not _ADDED_UP.isdisjoint(words) and _RATES.isdisjoint(words)


def _words(profile: ColumnProfile) -> list[str]:
    return [word.lower() for word in _WORD.findall(profile.path)]


def counted(counts: Counter[Any], most: int = COUNTED_VALUES, limit: int = 48) -> str:
    """`open 30, closed 17`, the most frequent first; `… +5 more` where there are more."""
    shown = ", ".join(f"{value_text(value, limit)} {count}" for value, count in counts.most_common(most))
    more = len(counts) - most
    return shown + (f", … +{more} more" if more > 0 else "")


def _presence(line: Line, profile: ColumnProfile, worth: float) -> None:
    column, present = profile.column, len(profile.present)
    if profile.sort == "empty":
        line.add(
            "null or empty" if profile.nulls and profile.empties else "null" if profile.nulls else "empty", 0.7 * worth
        )
        return
    parts: list[str] = []
    if profile.nulls:
        parts.append(f"{profile.nulls} null")
    if profile.empties:
        parts.append(f"{profile.empties} empty")
    if parts:
        if column.missing > 0:
            parts.append(f"{column.missing} without")
        line.add(f"{present} set, {', '.join(parts)}", 5 * worth)
    elif column.missing > 0:
        line.add(f"in {present}", 2.5 * worth)
    elif len(profile.rows) != profile.rows[-1] + 1:
        line.add(f"{present} in all", 1.2 * worth)


def _categories(line: Line, profile: ColumnProfile, worth: float) -> None:
    counts = profile.counts
    distinct = len(counts)
    if profile.sort == "mixed":
        kinds = Counter(map(type_name, profile.present))
        line.add("mixed types: " + counted(kinds), 3 * worth)
        numbers = [value for value in profile.present if type_name(value) in {"int", "number"}]
        if numbers:
            line.add(f"numbers {number(min(numbers))} to {number(max(numbers))}", 4 * worth)
            total = exact_sum(numbers)
            line.add(f"sum {number(total)}" if total is not None else "", 4 * worth, joint=True)
    if distinct > 2:
        line.add(f"{distinct} distinct", 4 * worth)
    top = counts.most_common(1)[0][1]
    if top == 1:
        return
    often = sum(1 for _, times in counts.most_common(8) if times > 1)
    first = often if top * 10 >= len(profile.present) else min(often, 4)
    shares = 10 if distinct <= 8 else 7 if distinct <= COUNTED_VALUES else 4
    if distinct <= COUNTED_VALUES:
        line.add(counted(counts), shares * worth * (1 + 0.08 * distinct))
    elif top > 1:
        line.add(counted(counts, first), (shares if top * 20 >= len(profile.present) else 1.5) * worth)
        if type(next(iter(counts))) is str and profile.sort == "category":
            line.add(_extensions(profile), 8 * worth)
            line.add(_beginnings(profile), 3 * worth)
    if profile.numbers and profile.sort == "category" and distinct > 2:
        line.add(f"{number(profile.low)}–{number(profile.high)}", 2 * worth)


_RATES_LISTED = (
    "score rate ratio percent pct avg mean average temp temperature confidence probability similarity "
    "relevance weight rating age humidity pressure speed voltage load usage utilization lat lon latitude longitude"
)
_RATES = frozenset(_RATES_LISTED.split())
"""Quantities that nobody adds up."""
_ADDED_UP_LISTED = (
    "amount total subtotal price cost cents revenue sales spend spent budget tax fee balance profit income charge "
    "qty quantity units sold hours minutes duration bytes size volume"
)
_ADDED_UP = frozenset(_ADDED_UP_LISTED.split())
"""Quantities that are kept to be added up."""


def _quantity(line: Line, profile: ColumnProfile, worth: float) -> None:
    numbers, counts, low, high = profile.numbers, profile.counts, profile.low, profile.high
    line.add(f"{number(low)}–{number(high)}" if low >= 0 else f"{number(low)} to {number(high)}", 9 * worth)
    total = exact_sum(numbers)
    if total is not None and len(numbers) > 1:
        summed = not is_rate(profile) and len(numbers) <= 20 * (profile.rows[-1] + 1)
        line.add(f"sum {number(total)}", (7 if summed else 1.5) * worth)
        mean = mean_text(total, len(numbers))
        line.add(f"mean {mean}" if mean else "", 2 * worth)
    if len(counts) <= 8 and len(counts) * 2 <= len(numbers):
        line.add(counted(counts), 4 * worth)
    elif len(counts) < len(numbers):
        top, times = counts.most_common(1)[0]
        if times * 3 >= len(numbers):
            line.add(f"{value_text(top)} in {times}", 2 * worth)


def _texts(line: Line, profile: ColumnProfile, worth: float) -> None:
    values = profile.present
    if profile.sort == "text":
        line.add(_beginnings(profile), 5 * worth)
        line.add(_extensions(profile), 4 * worth)
        if len(profile.counts) < len(values):
            line.add(f"{len(profile.counts)} distinct", 2 * worth)
            top, times = profile.counts.most_common(1)[0]
            line.add(f"{times} times {value_text(top, 40)}", 1.5 * worth)
        lengths = list(map(len, values))
        line.add(f"{min(lengths)}–{max(lengths)} chars", (1.2 if max(lengths) > 100 else 0.4) * worth)
        return
    if profile.all_different:
        line.add("urls, all different", 1.0 * worth)
    else:
        line.add(f"urls, {len(profile.counts)} distinct", 1.5 * worth)
    hosts = Counter(value.split("/", 3)[2] if value.count("/") > 1 else value for value in islice(values, 5000))
    if 1 < len(hosts) <= 30 and len(hosts) * 2 < len(values):
        line.add("hosts " + counted(hosts, 5), 2 * worth)


def _beginnings(profile: ColumnProfile) -> str:
    """How often texts begin with the same word, where few words begin most of them: kinds of commits, prefixes."""
    total = len(profile.present)
    if total < 8:
        return ""
    heads = _heads(profile.present)
    if not 2 <= len(heads) <= MOST_BEGINNINGS or len(heads) * 3 > total or heads.total() < 0.6 * total:
        return ""
    rest = total - heads.total()
    return "begin " + counted(heads, MOST_BEGINNINGS, 24) + (f", other {rest}" if rest else "")


def _heads(values: Sequence[str]) -> Counter[str]:
    """How often each first word stands; not all of it where there are too many of them."""
    heads, rest = Counter[str](), iter(values)
    while len(heads) <= MOST_BEGINNINGS and (some := list(islice(rest, SAMPLE_VALUES))):
        # A blank ends a word, and the same words stand before it in many texts: each is looked at once.
        for start, times in Counter([value.partition(" ")[0] for value in some]).items():
            match = _BEGINNING.match(start)
            if match:
                heads[match[0]] += times
    return heads


def _extensions(profile: ColumnProfile) -> str:
    """How often names end the same way, as those of files do."""
    total = len(profile.present)
    if total < 4:
        return ""
    values = iter(profile.counts.items())
    ends = Counter[str]()
    _count_ends(islice(values, SAMPLE_VALUES), ends)
    if ends:
        _count_ends(values, ends)
    if ends.total() * 3 < total or len(ends) > MOST_ENDINGS or ends.total() < 4:
        return ""
    rest = total - ends.total()
    return counted(ends, 10) + (f", other {rest}" if rest else "")


def _count_ends(counts: Iterable[tuple[str, int]], ends: Counter[str]) -> None:
    """Count the extensions of these names into `ends`; not all of them where there are too many."""
    tails = Counter[str]()
    for value, times in counts:
        tail = value[-_EXTENSION_LENGTH:]
        if "." in tail:
            tails[tail] += times
    for tail, times in tails.items():
        match = _EXTENSION.search(tail)
        if match:
            ends["." + match[1]] += times
            if len(ends) > MOST_ENDINGS:
                break


def group_lines(profiles: Sequence[ColumnProfile]) -> Lines:
    """Lines for the first categories and quantities of a table whose rows have one value each."""
    categories = [profile for profile in profiles if _groups(profile)][:4]
    quantities = [profile for profile in profiles if profile.sort == "number" and profile.every and profile.present]
    quantities = [profile for profile in quantities if worth_of(profile) > 0.3 and not profile.column.derived]
    quantities.sort(key=is_rate)
    added = [profile for profile in quantities if is_added_up(profile)][:1]
    lines: Lines = []
    for category in categories:
        for quantity in quantities[:1]:
            lines.append(_sums(category, quantity))
    for place, one in enumerate(categories[:3]):
        for other in categories[place + 1 : 3]:
            if len(one.counts) * len(other.counts) <= GROUP_CELLS:
                lines.append(
                    _pairs(
                        one,
                        other,
                        added[0] if added else None,
                        (PAIRS_WORTH if added else 8.0) if not place else 4.0,
                    )
                )
    return lines


def _groups(profile: ColumnProfile) -> bool:
    if not profile.every or profile.same_as or profile.column.derived:
        return False
    return profile.sort in {"category", "flag"} and 2 <= len(profile.counts) <= GROUPS


def _sums(category: ColumnProfile, quantity: ColumnProfile) -> Line:
    groups: dict[Any, list[Number]] = {value: [] for value, _ in category.counts.most_common()}
    for value, figure in zip(category.present, quantity.numbers, strict=True):
        groups[value].append(figure)
    tell = _mean if is_rate(quantity) else _sum
    line = Line(f"{quantity.path} {'mean' if is_rate(quantity) else 'sum'} by {category.path}")
    line.add(", ".join(f"{value_text(value, 24)} {tell(figures)}" for value, figures in groups.items()), 4.0)
    line.add(
        "max " + ", ".join(f"{value_text(value, 24)} {number(max(figures))}" for value, figures in groups.items()), 1.0
    )
    return line


def _pairs(one: ColumnProfile, other: ColumnProfile, quantity: ColumnProfile | None, worth: float) -> Line:
    counts = Counter(zip(one.present, other.present, strict=True))
    cells: dict[tuple[Any, Any], list[Number]] = {pair: [] for pair in counts}
    if quantity is not None:
        for row, column, figure in zip(one.present, other.present, quantity.numbers, strict=True):
            cells[row, column].append(figure)
    what = f"count and {quantity.path} sum" if quantity is not None else "count"
    names = ", ".join(value_text(column, 20) for column in other.counts)
    line = Line(f"{what} by {one.path} × {other.path} ({names})")
    parts: list[str] = []
    for row in one.counts:
        within = (
            str(counts[row, column]) + (f" {_sum(cells[row, column])}" if quantity and counts[row, column] else "")
            for column in other.counts
        )
        parts.append(f"{value_text(row, 24)} {', '.join(within)}")
    line.add("; ".join(parts), worth)
    return line


def _mean(figures: Sequence[Number]) -> str:
    total = exact_sum(figures)
    return mean_text(total, len(figures)) if total is not None else "?"


def _sum(figures: Sequence[Number]) -> str:
    total = exact_sum(figures)
    return number(total) if total is not None else "?"
