"""Rows of any shape, taken apart into columns: one list of values for each field path.

Paths are written so that an expression can be made of them: `user.login`, `labels[].name` (any element of a list),
`[0]` (the first of a list that is a row), `quota.*.used` (any member of an object whose names are data).
"""

import re
from collections.abc import Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, cast

from msgspec import Struct, field

__all__ = ["Column", "Lists", "Table", "joined", "table_of"]

_DEEPEST = 12
"""Levels of nesting that are looked into; what is deeper counts as one opaque value."""
_MOST_COLUMNS = 300
_MOST_NAMES = 40
"""An object in rows that has more names than this over all rows, and few in each, is a map: its names are data."""
_PLAIN_NAME = re.compile(r"[^\s.\[\]\"{},:|]{1,80}")


class Column(Struct):
    """The scalar values at one path, in the order of the rows."""

    path: str
    values: list[Any]
    rows: Sequence[int]
    """The row of each value. Ascending; twice the same for paths through lists."""
    possible: int
    """How many values there would be if none were missing."""
    derived: bool = False
    """Ours, such as the last of a list; there is no such field."""

    @property
    def missing(self) -> int:
        """How many rows (or elements of lists) have no such field."""
        return self.possible - len(self.values)


class Lists(Struct):
    """The lists at one path."""

    path: str
    lists: list[list[Any]]
    rows: Sequence[int]


class Table(Struct):
    """Rows and their columns, in the order in which the fields come."""

    rows: Sequence[Any]
    columns: list[Column] = field(default_factory=list[Column])
    lists: list[Lists] = field(default_factory=list[Lists])
    full: bool = False
    """There are more columns than are looked at."""


def joined(path: str, name: str) -> str:
    """The path of a member of what is at `path`."""
    if not _PLAIN_NAME.fullmatch(name):
        short = name if len(name) <= 60 else name[:59] + "…"
        return path + '["' + short.replace('"', '\\"').replace("\n", "\\n") + '"]'
    return f"{path}.{name}" if path else name


def table_of(rows: Sequence[Any], leave_out: str | None = None) -> Table:
    """Take rows apart. `leave_out`: a member of the rows that is not looked at."""
    table = Table(rows)
    values = list(rows)
    _walk(table, "", values, range(len(values)), 0, leave_out)
    return table


def _walk(
    table: Table, path: str, values: list[Any], rows: Sequence[int], depth: int, leave_out: str | None = None
) -> None:
    """Add the columns of the values at a path."""
    if len(table.columns) >= _MOST_COLUMNS:
        table.full = True
        return
    types = set(map(type, values))
    if depth >= _DEEPEST and types & {dict, list}:
        table.columns.append(Column(path, ["…"] * len(values), rows, len(values)))
        return
    if not types & {dict, list}:
        table.columns.append(Column(path, values, rows, len(values)))
        return
    if types == {dict}:
        _walk_objects(table, path, values, rows, depth, leave_out)
        return
    if types == {list}:
        _walk_lists(table, path, values, rows, depth)
        return
    for kinds in ((dict,), (list,)):
        chosen = [place for place, value in enumerate(values) if isinstance(value, kinds)]
        if chosen:
            _walk(table, path, [values[i] for i in chosen], [rows[i] for i in chosen], depth, leave_out)
    rest = [place for place, value in enumerate(values) if not isinstance(value, (dict, list))]
    if rest and any(values[i] is not None for i in rest):
        table.columns.append(Column(path, [values[i] for i in rest], [rows[i] for i in rest], len(values)))


def _walk_objects(
    table: Table, path: str, values: list[dict[str, Any]], rows: Sequence[int], depth: int, leave_out: str | None
) -> None:
    if _alike_members(values):
        _walk_map(table, path, values, rows, depth)
        return
    members = _members_of_all(values)
    if members is not None:
        for name, column in members.items():
            if name != leave_out or depth:
                _walk(table, joined(path, name), column, rows, depth + 1)
        return
    names: dict[str, None] = dict.fromkeys(chain.from_iterable(values))
    if path and len(names) > _MOST_NAMES and sum(map(len, values)) < len(names) * len(values) / 4:
        _walk_map(table, path, values, rows, depth)
        return
    for name in names:
        if name == leave_out and not depth:
            continue
        if len(table.columns) >= _MOST_COLUMNS:
            table.full = True
            return
        present = [place for place, value in enumerate(values) if name in value]
        before = len(table.columns)
        _walk(table, joined(path, name), [values[i][name] for i in present], [rows[i] for i in present], depth + 1)
        for column in table.columns[before:]:
            if column.rows and "[]" not in column.path[len(path) :]:
                column.possible = max(column.possible, len(values))


def _members_of_all(values: list[dict[str, Any]]) -> dict[str, list[Any]] | None:
    """The members of objects that have the same names, by name; None if they have not."""
    if len(set(map(len, values))) > 1:
        return None
    try:
        return {name: list(map(itemgetter(name), values)) for name in values[0]}
    except KeyError:
        return None


def _walk_map(table: Table, path: str, values: list[dict[str, Any]], rows: Sequence[int], depth: int) -> None:
    """An object whose names are data."""
    owners = list(chain.from_iterable(map(repeat, rows, map(len, values))))
    names = list(chain.from_iterable(values))
    table.columns.append(Column(f"{path}.{{key}}" if path else "*", names, owners, len(names)))
    members = list(chain.from_iterable(value.values() for value in values))
    _walk(table, f"{path}.*" if path else "*", members, owners, depth + 1)


def _alike_members(values: list[dict[str, Any]]) -> bool:
    """All members are objects of about the same shape, under several names: `get`, `put`, `post`, `delete`."""
    some = values[:50]
    if not all(isinstance(member, dict) for value in some for member in value.values()):
        return False
    names = set(chain.from_iterable(some))
    if len(names) < 4:
        return False
    members = [cast("dict[str, Any]", member) for value in some for member in value.values()]
    inner = set(chain.from_iterable(members))
    return (
        bool(inner)
        and sum(map(len, members)) >= 0.6 * len(inner) * len(members)
        and not any(not isinstance(member, dict) for value in values for member in value.values())
    )


def _walk_lists(table: Table, path: str, values: list[list[Any]], rows: Sequence[int], depth: int) -> None:
    if _are_tuples(path, values):
        for place in range(len(values[0])):
            _walk(table, f"{path}[{place}]", [value[place] for value in values], rows, depth + 1)
        return
    table.lists.append(Lists(path, values, rows))
    elements = list(chain.from_iterable(values))
    if elements:
        owners = list(chain.from_iterable(map(repeat, rows, map(len, values))))
        _walk(table, f"{path}[]", elements, owners, depth + 1)


def _are_tuples(path: str, values: list[list[Any]]) -> bool:
    """The lists are rows of the same few fields: coordinates, points of a series, lines of a table."""
    width = len(values[0])
    if not 2 <= width <= 30 or len(values) < 3 or (path and not path.endswith("[]")):
        return False
    if any(len(value) != width for value in values):
        return False
    return not path or all(
        not isinstance(member, (list, dict)) for value in values[:50] for member in cast("list[object]", value)
    )
