"""What a preview says of a table and of a tree.

Of a table: its columns, the rows of extremes and exceptions, sums by group. Of a tree: how many nodes and leaves, how
deep, the first level with what is below, and an outline.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import Struct, field

from mcpbridge.results.preview.column_profile import (
    ColumnProfile,
    cell,
    identities,
    mark_copies,
    profile_of,
    row_columns,
)
from mcpbridge.results.preview.column_statistics import column_line, group_lines, worth_of
from mcpbridge.results.preview.facts import Line, Lines, series_columns
from mcpbridge.results.preview.flatten import Column, Lists, Table, table_of
from mcpbridge.results.preview.limits import CONSTANT_LENGTH, SHORT_TREE, TABLE_VALUES, TREE_LENGTH, TREE_NODES
from mcpbridge.results.preview.rows import Rows
from mcpbridge.results.preview.wording import Field, cut, number, plural, type_name, value_text

_STATES_LISTED = "status state phase health result outcome severity level conclusion ready ok success error paid failed"
_STATES = frozenset(_STATES_LISTED.split())


class Section(Struct):
    """One part of what a preview says: a table, a tree, or the plain fields of an object."""

    title: str
    lines: Lines = field(default_factory=list[Line])
    fields: list[Field] = field(default_factory=list[Field])
    rows: Rows | None = None
    values: Sequence[Any] = ()
    """The rows themselves, of a table."""
    weight: float = 1.0
    """Against other sections; about how much of the document it is."""


def table_section(
    title: str, rows: Sequence[Any], keys: Sequence[str] | None = None, leave_out: str | None = None
) -> Section:
    """A table. `keys`: the names of the rows, of an object whose members are rows."""
    heading = _heading(rows)
    if heading:
        rows = rows[1:]
    step = _step(rows)
    seen = _each(rows, step)
    note = f" (statistics of a sample: one row in {step}, and the last)" if step > 1 else ""
    table = table_of(seen, leave_out)
    if heading:
        note += "; names in the first"
        for column in table.columns:
            column.path = _named(column.path, heading)
    if keys is not None:
        table.columns.insert(0, Column("{key}", list(_each(keys, step)), range(len(seen)), len(seen)))
    table.columns.extend(series_columns(table))
    profiles = [profile_of(column) for column in table.columns]
    mark_copies(profiles)
    columns = row_columns(profiles, identities(profiles))
    section = Section(title + note, values=seen)
    section.lines = _lines(profiles, columns, table)
    section.fields = _fields(profiles, section.lines, table)
    if columns:
        start = None if keys is not None or step > 1 else int(bool(heading))
        section.rows = Rows(columns, len(seen), start)
    return section


def _lines(profiles: Sequence[ColumnProfile], columns: Sequence[tuple[ColumnProfile, float]], table: Table) -> Lines:
    """What can be said of the columns, one by one, in groups, and of the lengths of lists."""
    lines: Lines = []
    for profile in profiles:
        if profile.column.derived:
            continue
        line = column_line(profile)
        _add_extremes(line, profile, columns)
        lines.append(line)
        _add_exceptions(lines, profile, columns)
    lines.extend(group_lines(profiles))
    for lists in table.lists:
        _add_lists(lines, lists)
    return lines


def _fields(profiles: Sequence[ColumnProfile], lines: Lines, table: Table) -> list[Field]:
    """All fields of the rows; lists where nothing is said of what is in them."""
    paths = [profile for profile in profiles if not profile.column.derived and profile.path not in {"", "{key}"}]
    fields = [_field(profile) for profile in paths]
    listed = {line.names for line in lines}
    fields.extend(
        Field(f"{lists.path}[]", "list", 0.8)
        for lists in table.lists
        if lists.path and not any(path.startswith(lists.path + "[") for path in listed)
    )
    return fields


def _heading(rows: Sequence[Any]) -> list[str]:
    """The names of columns, where the first of several lists holds them."""
    if len(rows) < 4 or not all(isinstance(row, list) for row in rows[:4]):
        return []
    first, second = rows[0], rows[1]
    if (
        len(first) != len(second)
        or not first
        or not all(isinstance(name, str) and 0 < len(name) <= 60 for name in first)
    ):
        return []
    return first if len(set(first)) == len(first) and any(not isinstance(cell, str) for cell in second) else []


def _named(path: str, heading: Sequence[str]) -> str:
    place = path.removeprefix("[").partition("]")[0]
    return f"{path} {heading[int(place)]}" if place.isdecimal() and int(place) < len(heading) else path


def _step(rows: Sequence[Any]) -> int:
    """Each how many-th row is looked at: each one, unless there are very many values."""
    most = max(2000, TABLE_VALUES // max(1, _size(rows[0], 3))) if rows else 1
    return max(1, -(-len(rows) // most))


def _each(rows: Sequence[Any], step: int) -> Sequence[Any]:
    """Rows at even distances, and the last one."""
    if step == 1:
        return rows
    chosen = list(rows[::step])
    if (len(rows) - 1) % step:
        chosen.append(rows[-1])
    return chosen


def _size(value: Any, depth: int) -> int:
    if depth and isinstance(value, dict):
        members: list[Any] = list(value.values())[:100]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of any JSON
        return sum(_size(member, depth - 1) for member in members) or 1
    if depth and isinstance(value, list):
        return max(1, len(value) * _size(value[0], depth - 1)) if value else 1  # pyright: ignore[reportUnknownArgumentType] - of any JSON
    return 1


def _add_extremes(line: Line, profile: ColumnProfile, columns: Sequence[tuple[ColumnProfile, float]]) -> None:
    """In which row the largest number is, and the smallest."""
    if profile.sort != "number" or len(profile.numbers) < 2:
        return
    worth = worth_of(profile)
    for best, name, weight in ((profile.high, "max", 5.0), (profile.low, "min", 1.5)):
        if profile.numbers.count(best) > 2:
            continue
        row = profile.rows[list(profile.numbers).index(best)]
        called = [f"{other.path} {cell(other, row, 40)}" for other in _callers(columns, profile)]
        if called:
            line.add(f"{name} {number(best)} at {called[0]}", weight * worth)
        if len(called) > 1 and name == "max":
            line.add(f"({', '.join(called[1:])})", 3.5 * worth, joint=True)


def _callers(columns: Sequence[tuple[ColumnProfile, float]], profile: ColumnProfile) -> list[ColumnProfile]:
    """What to call a row by: its first column, and two more that say who or what it is."""
    plain = [
        other
        for other, _ in columns
        if other is not profile and other.every and not other.column.derived and _short(other)
    ]
    return (
        plain[:1] + [other for other in plain[1:6] if other.sort not in {"time", "ident"} and len(other.counts) > 2][:2]
    )


def _short(profile: ColumnProfile) -> bool:
    if profile.sort == "text":
        return max(map(len, profile.counts)) <= 80
    return profile.sort in {"id", "ident", "category", "url", "time"}


def _add_exceptions(lines: Lines, profile: ColumnProfile, columns: Sequence[tuple[ColumnProfile, float]]) -> None:
    """Which rows differ where most are alike: pods that do not run, requests that failed, counts above zero."""
    counts, total = profile.counts, len(profile.present)
    if not profile.every or total < 5 or len(counts) < 2 or not columns:
        return
    if profile.sort in {"text", "url", "id", "time", "ident"}:
        return
    usual, times = counts.most_common(1)[0]
    odd = total - times
    if odd > min(16, total * 0.4):
        return
    name = columns[0][0]
    if name is profile or not _short(name):
        return
    rows = [row for row, value in enumerate(profile.present) if value != usual]
    called: dict[str, list[str]] = {}
    for row in rows:
        called.setdefault(value_text(profile.present[row], 24), []).append(cell(name, row, 40))
    title = f"{profile.path} not {value_text(usual, 24)}"
    if len(called) == 1:
        title = f"{profile.path} {next(iter(called))}"
        texts = [", ".join(names) for names in called.values()]
    else:
        texts = [f"{value}: {', '.join(names)}" for value, names in called.items()]
    last = profile.path.rpartition(".")[2].lower()
    strong = bool({last} & _STATES)
    line = Line(f"{title} ({odd}), {name.path}")
    line.add("; ".join(texts), (8.0 + 4.0 * odd if strong else 3.0) * worth_of(profile))
    lines.append(line)


def _add_lists(lines: Lines, lists: Lists) -> None:
    """How long the lists are."""
    if not lists.path:
        return
    lengths = Counter(map(len, lists.lists))
    line = Line(lists.path)
    if len(lengths) == 1:
        length = next(iter(lengths))
        line.add(f"{length} in each of {len(lists.lists)} lists", 2.5 if length > 1 else 0.3)
    else:
        total = sum(map(len, lists.lists))
        line.add(f"lists of {min(lengths)}–{max(lengths)}, {total} in all", 2.5)
        line.add(f"{lengths[0]} empty" if lengths[0] else "", 2.0)
    lines.append(line)


def _field(profile: ColumnProfile) -> Field:
    kind = type_name(profile.present[0]) if profile.present else "str" if profile.empties else "null"
    if profile.sort == "mixed":
        kind = "mixed"
    elif profile.sort == "id" and profile.all_different and profile.path.count(".") < 2 and "[]" not in profile.path:
        kind = "unique"
    return Field(profile.path, kind, worth_of(profile) * (0.5 if profile.sort == "empty" else 1.0), _always(profile))


def _always(profile: ColumnProfile) -> str:
    """The one value of a column, as JSON; empty if there are several, or none in some rows."""
    if profile.sort == "constant":
        value = profile.present[0]
        return (
            json.dumps(cut(value, CONSTANT_LENGTH), ensure_ascii=False) if isinstance(value, str) else value_text(value)
        )
    if profile.sort == "empty" and not profile.column.missing and not (profile.nulls and profile.empties):
        return "null" if profile.nulls else '""'
    return ""


_NAMED = ("name", "title", "label", "path", "id", "key", "text", "type")


class _Node(Struct):
    value: dict[str, Any]
    depth: int
    above: int
    """The place of the node above; -1 at the top."""
    below: int = 0
    """Leaves under it."""
    leaf: bool = True


def tree_section(title: str, roots: Sequence[Any], branch: str) -> Section:
    """A tree whose nodes hold what is below them in the member `branch`. All nodes together are shown as a table."""
    nodes, more = _nodes(roots, branch)
    section = table_section(title, [node.value for node in nodes], leave_out=branch)
    leaves = sum(node.leaf for node in nodes)
    counts = Line(f"tree by {branch}[]")
    deepest = 1 + max(node.depth for node in nodes)
    counts.add(
        f"{plural(len(nodes), 'node')}{' (and more, not looked at)' if more else ''}, {leaves} without {branch}, "
        f"{len(nodes) - leaves} with, {plural(deepest, 'level')}; top level: {plural(len(roots), 'entry')}".replace(
            "entrys", "entries"
        ),
        40.0,
    )
    name = _name_of(nodes)
    lines = [counts]
    if name:
        _count_leaves(nodes)
        tops = [node for node in nodes if not node.depth]
        first = Line("top level in order")
        first.add(", ".join(_top(node, name) for node in tops[:40]) + (", …" if len(tops) > 40 else ""), 12.0)
        lines.append(first)
        if len(tops) == 1:
            second = [node for node in nodes if node.depth == 1]
            below = Line(f"below {value_text(tops[0].value.get(name))}")
            below.add(", ".join(_top(node, name) for node in second[:40]) + (", …" if len(second) > 40 else ""), 10.0)
            lines.append(below)
    section.lines = [*lines, *section.lines]
    if name:
        section.rows, section.values = None, ()
        outline = list(_outline(nodes, name))
        if sum(len(line.title) + len(line.facts[0].text) for line in outline) <= SHORT_TREE:
            for line in outline:
                line.facts[0].worth *= 4
        section.lines.extend(outline)
    section.fields.append(Field(f"{branch}[]", "list", 2.0))
    return section


def _nodes(roots: Sequence[Any], branch: str) -> tuple[list[_Node], bool]:
    """All nodes, each before what is below it, and whether there are more than are looked at."""
    nodes: list[_Node] = []
    waiting: list[tuple[Any, int, int]] = [(root, 0, -1) for root in reversed(roots)]
    while waiting:
        if len(nodes) >= TREE_NODES:
            return nodes, True
        value, depth, above = waiting.pop()
        if not isinstance(value, dict):
            continue
        node = _Node(cast("dict[str, Any]", value), depth, above)
        below = node.value.get(branch)
        if isinstance(below, list):
            inner = cast("list[Any]", below)
            node.leaf = not inner
            place = len(nodes)
            waiting.extend((child, depth + 1, place) for child in reversed(inner))
        nodes.append(node)
    return nodes, False


def _name_of(nodes: Sequence[_Node]) -> str:
    """The member that nodes are called by."""
    first = nodes[0].value
    for name in _NAMED:
        if isinstance(first.get(name), str):
            return name
    return next((name for name, value in first.items() if isinstance(value, str)), "")


def _count_leaves(nodes: Sequence[_Node]) -> None:
    for node in reversed(nodes):
        if node.above >= 0:
            nodes[node.above].below += node.below + node.leaf


def _top(node: _Node, name: str) -> str:
    called = value_text(node.value.get(name, "?"), 40)
    return called if node.leaf else f"{called} ({node.below})"


def _outline(nodes: Sequence[_Node], name: str) -> Iterator[Line]:
    """The whole tree in short, as much of it as there is room for: `src/{a.py,lib/{b.py}}`, a line for each top."""
    line, written = Line("leaves below"), 0
    parts: list[str] = []
    for node in nodes:
        called = cut(str(node.value.get(name, "?")), 60)
        if not node.depth or (len(parts) > 24 and not node.leaf):
            if parts:
                yield _closed(line, parts)
            line, parts = Line(_path(nodes, node, name)), []
            written += len(called)
        else:
            parts.append(called if node.leaf else called + "/")
        written += len(called) + 2
        if written > TREE_LENGTH:
            break
    if parts:
        yield _closed(line, parts)


def _closed(line: Line, parts: Sequence[str]) -> Line:
    line.add(", ".join(parts), 0.12 * len(parts))
    return line


def _path(nodes: Sequence[_Node], node: _Node, name: str) -> str:
    steps: list[str] = []
    while True:
        steps.append(cut(str(node.value.get(name, "?")), 60))
        if node.above < 0 or len(steps) > 40:
            return "/".join(reversed(steps)) + "/"
        node = nodes[node.above]
