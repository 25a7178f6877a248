"""Takes values apart: rows into columns, one list of values for each field path, and a value into its parts.

The parts are tables, maps, trees and plain fields, each with its path. Paths are written so that an expression can be
made of them: `user.login`, `labels[].name` (any element of a list), `[0]` (the first of a list that is a row),
`quota.*.used` (any member of an object whose names are data).
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Any, Literal, cast

from msgspec import Struct, field

from mcpbridge.results.preview.limits import MAP_NAMES, NESTING_DEPTH, PLAIN_LIST, PLAIN_LIST_TEXT, TABLE_COLUMNS

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
    if len(table.columns) >= TABLE_COLUMNS:
        return
    types = set(map(type, values))
    if depth >= NESTING_DEPTH and types & {dict, list}:
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
            if name != leave_out:
                _walk(table, joined(path, name), column, rows, depth + 1)
        return
    names: dict[str, None] = dict.fromkeys(chain.from_iterable(values))
    if path and len(names) > MAP_NAMES and sum(map(len, values)) < len(names) * len(values) / 4:
        _walk_map(table, path, values, rows, depth)
        return
    for name in names:
        if name == leave_out and not depth:
            continue
        if len(table.columns) >= TABLE_COLUMNS:
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


_DATA_IN_NAME = re.compile(r"[\d/@:.\s#-]")


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
        if depth < NESTING_DEPTH and inner:
            _collect(below, inner, plain, parts, depth + 1)
        elif depth < NESTING_DEPTH and single:
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
    return len(members) == 1 and isinstance(members[0], str) and len(members[0]) > PLAIN_LIST_TEXT


def _is_table(value: Any) -> bool:
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    return len(rows) > PLAIN_LIST or any(row and isinstance(row, (dict, list)) for row in rows)


def _of_rows(path: str, rows: list[Any]) -> Part:
    branch = branch_of(rows)
    return Part(path, "tree" if branch else "list", rows, branch)


def branch_of(rows: Sequence[Any]) -> str:
    """The member that makes rows a tree: a list of objects like the one that holds it. Empty if there is none."""
    for row in islice(rows, 200):
        if not isinstance(row, dict):
            return ""
        known = cast("dict[str, Any]", row)
        if list not in map(type, known.values()):
            continue
        for name, member in known.items():
            if type(member) is not list or not member or type(member[0]) is not dict:  # pyright: ignore[reportUnknownArgumentType] - of any JSON
                continue
            inner = cast("dict[str, Any]", member[0])
            if name in inner or (len(inner) > 1 and inner.keys() < known.keys()):
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
