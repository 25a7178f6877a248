"""Which parts a value has: tables, maps, trees and plain fields, each with its path."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, Literal, cast

from msgspec import Struct

from mcpbridge.results.columns import joined

__all__ = ["Part", "branch_of", "is_map", "parts_of"]

_DEEPEST = 12
_DATA_IN_NAME = re.compile(r"[\d/@:.\s#-]")
_SHORT_LIST = 5
_LONG_TEXT = 100


class Part(Struct):
    """One part of a value."""

    path: str
    sort: Literal["list", "map", "tree", "plain"]
    value: Any
    """Of `list` and `tree` the rows, of `map` the object, of `plain` pairs of path and value."""
    branch: str = ""
    """Of a tree: the member that holds what is below."""

    @property
    def size(self) -> int:
        """Rows."""
        return len(self.value)


def parts_of(value: Any) -> list[Part]:
    """The parts of a list or object, in the order in which they come; plain fields of objects are one part, first."""
    plain: list[tuple[str, Any]] = []
    parts: list[Part] = []
    single = _single(value)
    if single:
        _collect("[0]", single, plain, parts, 1)
    elif _is_long_text(value):
        plain.append(("[0]", value[0]))
    elif isinstance(value, list):
        return [_of_rows("", cast("list[Any]", value))]
    else:
        _collect("", value, plain, parts, 0)
    return ([Part("", "plain", plain)] if plain else []) + parts


def _collect(path: str, value: dict[str, Any], plain: list[tuple[str, Any]], parts: list[Part], depth: int) -> None:
    if is_map(value):
        parts.append(Part(path, "map", value))
        return
    branch = branch_of([value])
    if branch:
        parts.append(Part(path, "tree", [value], branch))
        return
    for name, member in value.items():
        below = joined(path, name)
        inner, single = _object(member), _single(member)
        if depth < _DEEPEST and inner:
            _collect(below, inner, plain, parts, depth + 1)
        elif depth < _DEEPEST and single:
            _collect(f"{below}[0]", single, plain, parts, depth + 1)
        elif _is_table(member):
            parts.append(_of_rows(below, member))
        elif _is_long_text(member):
            plain.append((f"{below}[0]", member[0]))
        else:
            plain.append((below, member))


def _object(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _single(value: Any) -> dict[str, Any] | None:
    """The one object of a list, which is told as if it were no list."""
    members = cast("list[Any]", value) if isinstance(value, list) else []
    return cast("dict[str, Any]", members[0]) if len(members) == 1 and isinstance(members[0], dict) else None


def _is_long_text(value: Any) -> bool:
    """A list of one long text and nothing else."""
    members = cast("list[Any]", value) if isinstance(value, list) else []
    return len(members) == 1 and isinstance(members[0], str) and len(members[0]) > _LONG_TEXT


def _is_table(value: Any) -> bool:
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    return len(rows) > _SHORT_LIST or any(row and isinstance(row, (dict, list)) for row in rows)


def _of_rows(path: str, rows: list[Any]) -> Part:
    branch = branch_of(rows)
    return Part(path, "tree" if branch else "list", rows, branch)


def branch_of(rows: Sequence[Any]) -> str:
    """The member that makes rows a tree: a list of objects like the one that holds it. Empty if there is none."""
    for row in islice(rows, 200):
        if not isinstance(row, dict):
            return ""
        known = cast("dict[str, Any]", row)
        for name, member in known.items():
            if not isinstance(member, list) or not member:
                continue
            first: Any = cast("list[Any]", member)[0]
            if not isinstance(first, dict):
                continue
            inner = cast("dict[str, Any]", first)
            if name in inner or (len(inner) > 1 and set(inner) < set(known)):
                return name
    return ""


def is_map(value: dict[str, Any]) -> bool:
    """The names are data: many members of one shape, under ids, paths, dates."""
    if len(value) < 3:
        return False
    odd = sum(1 for name in value if _DATA_IN_NAME.search(name))
    data = odd * 10 >= 6 * len(value)
    types = set(map(type, value.values()))
    if types == {dict}:
        members = cast("list[dict[str, Any]]", list(islice(value.values(), 500)))
        names = Counter(chain.from_iterable(members))
        if not names:
            return data
        alike = sum(map(len, members)) / (len(names) * len(members))
        return alike >= (0.15 if data else 0.6 if len(value) >= 4 else 0.8)
    if types == {list}:
        return len(value) >= (3 if data else 10)
    return len(value) >= (8 if data else 20) and not types & {dict, list} and len(types - {type(None)}) == 1
