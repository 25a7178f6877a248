"""Which columns tell one row from the others, and which of them a reader would call it by."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from mcpbridge.results.preview_words import is_long_id, said
from mcpbridge.results.profile import Profile

__all__ = ["cell", "identities", "mark_copies", "row_columns"]

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


def identities(profiles: Sequence[Profile]) -> list[Profile]:
    """The columns with a different value in every row, best first."""
    ranked = [
        (-_rank(profile), place)
        for place, profile in enumerate(profiles)
        if _tells_rows_apart(profile) and not profile.same_as
    ]
    ranked.sort()
    return [profiles[place] for _, place in ranked]


def row_columns(profiles: Sequence[Profile], chosen: list[Profile]) -> list[tuple[Profile, float]]:
    """The columns worth showing of single rows, with their worth, best first: what the row is called, then the rest."""
    columns: list[tuple[Profile, float]] = []
    for place, profile in enumerate(chosen[:6]):
        worth = 1.0 if place == 0 else 0.7 if profile.sort == "text" else 0.5 / place
        if place and (_told_by(profile, profiles) if profile.sort == "url" else _within(profile, chosen[0])):
            continue
        if place and (
            profile.column.path.endswith(("node_id", "uid", "etag"))
            or _says_where(profile)
            or is_long_id(profile.present[0])
        ):
            worth = 0.15
        columns.append((profile, worth))
    known = {id(profile) for profile in chosen}
    for profile in profiles:
        if id(profile) in known or profile.sort in {"constant", "empty"} or profile.same_as:
            continue
        if profile.sort == "url" and _told_by(profile, profiles):
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


def cell(profile: Profile, row: int, limit: int = 56, say: Callable[[Any, int], str] = said) -> str:
    """What the row has in this column; several values of a list with `+` between them, nothing as `-`."""
    rows = profile.rows
    if isinstance(rows, range):
        values = profile.present[row : row + 1]
    else:
        begin = bisect_left(rows, row)
        values = profile.present[begin : min(bisect_right(rows, row), begin + 4)]
    return "+".join(say(value, limit) for value in values) if values else "-"


def mark_copies(profiles: Sequence[Profile]) -> None:
    """Note of columns that group the rows as another one does, such as a login and its number."""
    _mark_equal(profiles)
    groups: dict[tuple[int, ...], list[Profile]] = {}
    for profile in profiles:
        distinct = len(profile.counts)
        if profile.sort in {"category", "url", "text", "id", "ident", "time"} and 1 < distinct < len(profile.present):
            place = -len(profile.rows) if isinstance(profile.rows, range) else id(profile.rows)
            groups.setdefault((place, distinct, *sorted(profile.counts.values())), []).append(profile)
    for group in groups.values():
        if len(group) < 2:
            continue
        told: dict[tuple[int, ...], Profile] = {}
        for profile in sorted(group, key=_plainness):
            seen: dict[Any, int] = {}
            pattern = tuple(seen.setdefault(value, len(seen)) for value in profile.present)
            first = told.setdefault(pattern, profile)
            if first is not profile:
                profile.same_as = first.path


def _mark_equal(profiles: Sequence[Profile]) -> None:
    """Columns with the same values throughout."""
    seen: dict[tuple[Any, ...], Profile] = {}
    for profile in sorted((profile for profile in profiles if profile.all_different), key=_plainness):
        key = (len(profile.present), *profile.present[:3])
        first = seen.setdefault(key, profile)
        if first is not profile and first.present == profile.present and first.rows == profile.rows:
            profile.same_as = first.path


def _tells_rows_apart(profile: Profile) -> bool:
    if not profile.every or profile.sort in {"mixed", "flag", "constant", "empty"}:
        return False
    if profile.all_different:
        if profile.sort in {"number", "time"}:
            return False
    elif len(profile.counts) < 0.8 * len(profile.present) or profile.path.rpartition(".")[2].lower() not in _CALLED_BY:
        return False
    return profile.sort != "text" or max(map(len, islice(profile.present, 200))) <= 160


def _rank(profile: Profile) -> float:
    rank = {"id": 3.0, "ident": 2.6, "category": 2.5, "text": 1.2, "url": 0.6}.get(profile.sort, 1.0)
    name = profile.path.rpartition(".")[2]
    rank += _CALLED_BY[name.lower()] if name.lower() in _CALLED_BY else _CALLED_BY.get(_last_word(name), 0.0) / 2
    rank -= 0.8 * profile.path.count(".")
    if not profile.all_different:
        rank -= 0.3
    if _says_where(profile):
        rank -= 3.0
    sample = [len(said(value, 200)) for value in islice(profile.present, 20)]
    return rank - sum(sample) / len(sample) / 22


def _says_where(profile: Profile) -> bool:
    """It counts the rows, and so says of each only where it stands, which is known."""
    present = profile.present
    return profile.sort == "ident" and present[0] in {0, 1} and present[-1] in {len(present), len(present) - 1}


def _plainness(profile: Profile) -> tuple[bool, bool, bool, int, int, str]:
    """Plain columns first: names before ids, text before numbers, shallow before deep, short before long."""
    values = list(islice(profile.counts, 20))
    return (
        profile.sort == "url",
        not isinstance(values[0], str),
        _last_word(profile.path) not in {"name", "login", "title", "username"},
        profile.path.count("."),
        sum(len(said(value, 200)) for value in values),
        profile.path,
    )


def _within(profile: Profile, first: Profile) -> bool:
    """Its values can be read in those of the first column: a prefix of the name."""
    values, names = profile.present[:4], first.present[:4]
    texts = [(said(value, 200), said(name, 200)) for value, name in zip(values, names, strict=True)]
    return all(len(value) > 2 and value in name for value, name in texts)


def _last_word(path: str) -> str:
    words = _WORD.findall(path.rpartition(".")[2])
    return words[-1].lower() if words else ""


def _told_by(profile: Profile, others: Sequence[Profile]) -> bool:
    """A URL that holds what another column says."""
    urls = profile.present[:4]
    for other in others:
        if other is profile or other.sort not in {"id", "ident", "category"} or not other.every or not profile.every:
            continue
        said_there = [said(value, 200) for value in other.present[:4]]
        if all(len(value) > 2 and value in url for value, url in zip(said_there, urls, strict=True)):
            return True
    return False
