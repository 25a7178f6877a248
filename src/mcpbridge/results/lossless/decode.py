"""Turns a lossless form back into the value: this proves that nothing is lost."""

import re
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.exact_json import NotReadable, parse_json
from mcpbridge.results.lossless.flatten import PATHS, assemble, paths_restored
from mcpbridge.results.lossless.notation import (
    BELOW,
    HOLE,
    MISSING,
    Part,
    Path,
    Spec,
    fill,
    is_list,
    is_object,
    read_cell,
    read_path,
    read_specs,
    read_template,
)

_BLOCK = re.compile(r"([@&])(\w+)(\{\}|\((.*)\))? ([0-9]+)")
_PLACES = re.compile(r'"(?:[^"\\]|\\.)*"|@(\w+)(?:\{\})?')
_MARK = "\0table "


class _Table(Struct):
    sign: str
    is_map: bool
    key: Path | None
    count: int
    specs: list[Spec]
    lines: list[str]


def restore(text: str, form: str) -> Any:
    """The value of a text that `shortest` wrote: of `table`, `minified`, or JSON `as sent`; of paths, their text.

    Raises:
        NotReadable: it is no such text.
    """
    if form != "table":
        return parse_json(text)
    if text.startswith(PATHS):
        return paths_restored(text)
    try:
        return _Reader(text).value()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NotReadable(f"no table form: {error}") from error


class _Reader:
    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        self._skeleton = lines[1]
        self._tables = _blocks(lines)
        self._keyed: dict[str, dict[Any, Any]] = {}
        self._values: dict[str, Any] = {}

    def value(self) -> Any:
        for name, table in self._tables.items():
            if table.sign == "&":
                records = self._records(table)
                keys = _column(table.key, records) if table.key is not None else range(1, len(records) + 1)
                self._keyed[name] = dict(zip(keys, records, strict=True))
        for name, table in self._tables.items():
            if table.sign == "@":
                self._values[name] = self._table(table)
        return self._filled(parse_json(_PLACES.sub(_marked, self._skeleton)))

    def _filled(self, value: Any) -> Any:
        """The skeleton, with tables in their places."""
        if isinstance(value, str):
            return self._values[value[len(_MARK) :]] if value.startswith(_MARK) else _unmarked(value)
        if is_list(value):
            return [self._filled(item) for item in value]
        if is_object(value):
            return {_unmarked(name): self._filled(item) for name, item in value.items()}
        return value

    def _table(self, table: _Table) -> Any:
        below = next((spec for spec in table.specs if spec.how == "below"), None)
        if below:
            depths = [len(line) - len(line.lstrip(" ")) for line in table.lines]
            table.lines = [line.lstrip(" ") for line in table.lines]
            return _tree(self._records(table, depths), depths, cast("str", below.path[0]))
        if table.is_map:
            key, *rest = table.specs
            columns = self._columns(table.specs, self._rows(table), table.count, [])
            names = columns[key.path]
            records = assemble([(spec.path, columns[spec.path]) for spec in rest], table.count)
            return dict(zip(names, records, strict=True))
        return self._records(table)

    def _records(self, table: _Table, depths: list[int] | None = None) -> list[Any]:
        columns = self._columns(table.specs, self._rows(table), table.count, depths or [])
        return assemble([(spec.path, columns[spec.path]) for spec in table.specs], table.count)

    def _rows(self, table: _Table) -> list[list[Any]]:
        specs = [spec for spec in table.specs if spec.has_cell]
        rows: list[list[Any]] = []
        for line in table.lines:
            row: list[Any] = []
            at = 0
            for spec in specs:
                if at > len(line):
                    row.append(MISSING)
                    continue
                value, at = self._cell(spec, line, at, inline=False)
                row.append(value)
                if at < len(line) and line[at] != "|":
                    raise ValueError(f"{line[at]!r} after a cell")
                at += 1
            rows.append(row)
        return rows

    def _cell(self, spec: Spec, text: str, at: int, *, inline: bool) -> tuple[Any, int]:
        strings = spec.kind == "str" or spec.how == "template"
        if spec.how == "below" and text.startswith("+", at):
            return BELOW, at + 1
        if spec.kind in ("list", "records", "refs") and text.startswith("[", at):
            return self._list(spec, text, at + 1)
        value, at = read_cell(text, at, inline=inline, strings=strings)
        if spec.kind == "ref" and value is not MISSING and value is not None:
            value = self._keyed[spec.table][value]
        return value, at

    def _list(self, spec: Spec, text: str, at: int) -> tuple[list[Any], int]:
        if text.startswith("]", at):
            return [], at + 1
        inner = [one for one in spec.inner if one.has_cell] if spec.kind == "records" else [Spec(())]
        rows: list[list[Any]] = []
        row: list[Any] = []
        while True:
            value, at = self._cell(inner[len(row)], text, at, inline=True)
            row.append(value)
            if len(row) == len(inner):
                rows.append(row)
                row = []
            sign = text[at : at + 1]
            at += 1
            if sign == "]":
                break
            if sign not in (",", ";"):
                raise ValueError(f"{sign!r} in a list")
        if spec.kind == "records":
            columns = self._columns(spec.inner, rows, len(rows), [])
            return assemble([(one.path, columns[one.path]) for one in spec.inner], len(rows)), at
        items = [row[0] for row in rows]
        return ([self._keyed[spec.table][key] for key in items] if spec.kind == "refs" else items), at

    def _columns(
        self, specs: list[Spec], rows: list[list[Any]], count: int, depths: list[int]
    ) -> dict[Path, list[Any]]:
        """All columns, those that are told from others included."""
        cells = {spec.path: i for i, spec in enumerate(one for one in specs if one.has_cell)}
        columns: dict[Path, list[Any]] = {}
        by_path = {spec.path: spec for spec in specs}

        def column(path: Path) -> list[Any]:
            if path not in columns:
                columns[path] = column_values(by_path[path])
            return columns[path]

        def column_values(spec: Spec) -> list[Any]:
            at = cells.get(spec.path)
            own = [row[at] for row in rows] if at is not None else [MISSING] * count
            match spec.how:
                case "constant":
                    return [spec.value] * count
                case "same":
                    return column(spec.source)
                case "steps":
                    return [spec.steps[0] + i * spec.steps[1] for i in range(count)]
                case "branch":
                    there, not_there = spec.branches
                    return [there if value is BELOW else not_there for value in column(spec.source)]
                case "below" if at is None:
                    deeper = zip(depths, [*depths[1:], 0], strict=True)
                    return [BELOW if after > depth else MISSING for depth, after in deeper]
                case "template":
                    return _filled_in(spec, own, column)
                case _:
                    return own

        for spec in specs:
            column(spec.path)
        return columns


def _marked(match: "re.Match[str]") -> str:
    """The name of a table as a JSON string. Strings of the value that begin as those do get one NUL more."""
    if match[1]:
        return f'"\\u0000table {match[1]}"'
    return f'"\\u0000{match[0][1:]}' if match[0].startswith('"\\u0000') else match[0]


def _unmarked(text: str) -> str:
    return text[1:] if text.startswith("\0\0") else text


def _filled_in(spec: Spec, own: list[Any], column: Any) -> list[Any]:
    parts: list[Part] = []
    sources: list[list[Any]] = []
    for is_source, text in read_template(spec.value):
        if not is_source:
            parts.append(text)
        elif not text:
            parts.append(HOLE)
        else:
            parts.append(len(sources))
            sources.append(column(read_path(text, 0)[0]))
    return [fill(parts, [values[i] for values in sources], cell) for i, cell in enumerate(own)]


def _blocks(lines: list[str]) -> dict[str, _Table]:
    tables: dict[str, _Table] = {}
    at = 2
    while at < len(lines):
        found = _BLOCK.fullmatch(lines[at])
        if not found:
            raise ValueError(f"line {at + 1} begins no table")
        count = int(found[5])
        specs, end = read_specs(lines[at + 1])
        if end != len(lines[at + 1]):
            raise ValueError(f"line {at + 2} is no head")
        height = count if any(spec.has_cell or spec.how == "below" for spec in specs) else 0
        key = read_path(found[4], 0)[0] if found[4] and found[4] != "#" else None
        rows = lines[at + 2 : at + 2 + height]
        tables[found[2]] = _Table(found[1], found[3] == "{}", key, count, specs, rows)
        if len(rows) != height:
            raise ValueError("rows are missing")
        at += 2 + height
    return tables


def _column(path: Path, records: list[Any]) -> list[Any]:
    values: list[Any] = []
    for record in records:
        value = record
        for step in path:
            value = value[step]
        values.append(value)
    return values


def _tree(records: list[Any], depths: list[int], member: str) -> list[Any]:
    roots: list[Any] = []
    path: list[Any] = [roots]
    for record, depth in zip(records, depths, strict=True):
        del path[depth + 1 :]
        path[depth].append(record)
        if record.get(member) is BELOW:
            record[member] = []
            path.append(record[member])
    return roots
