"""Tables written as text: CSV in its dialects, and Markdown tables."""

import csv
import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from io import StringIO
from itertools import repeat
from typing import Any

from mcpbridge.results.embedded import Embedded

__all__ = ["read_csv", "read_markdown_table"]

_WHOLE = re.compile(r"-?(0|[1-9]\d{0,200})")
_BROKEN = re.compile(r"-?(0|[1-9]\d{0,100})\.\d{1,100}")
_PADDED = re.compile(r"-?0\d+")
_MAYBE_NUMBER = re.compile(r"^-?\d+(?:\.\d+)?$", re.MULTILINE)
_DIGITS = re.compile(r"[0-9.\n-]*")
_LONGEST = 200
"""Characters of numbers that are read all at once."""
_NAME = re.compile(r"[^\W\d][\w .%/()#°$€&'+-]{0,59}|\d{1,3}")
_RULE = re.compile(r"\|?[ \t]*:?-{2,}:?[ \t]*(\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*")
_AROUND_AT_MOST = 1500
_HEAD = 20_000
"""Characters by which a dialect is found."""


def read_csv(text: str, mime: str = "") -> list[dict[str, Any]] | None:
    """The rows of a CSV text, under the names of its first line; None if it is none.

    Delimited by comma, semicolon, tab or bar, each line with the same number of cells. Cells are strings, and numbers
    where writing them back gives the same text; a column with padded numbers (`007`) stays text.
    """
    said = mime in {"text/csv", "application/csv", "text/tab-separated-values"}
    text = text.lstrip("\ufeff")
    delimiter = _delimiter(text, said=said)
    if delimiter is None:
        return None
    if '"' not in text:
        lines = [line for line in text.replace("\r", "\n").split("\n") if line]
        columns = _even_columns(lines, delimiter)
        if columns is not None:
            lines.clear()  # the collector of garbage would go through them again and again
            return _records([column.pop(0).strip() for column in columns], columns)
        rows = [line.split(delimiter) for line in lines]
    else:
        try:
            rows = [row for row in csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True) if row]
        except csv.Error:
            return None
    names = [name.strip() for name in rows[0]]
    width = len(names)
    uneven = sum(1 for row in rows if len(row) != width)
    if uneven:
        if uneven * 50 > len(rows):
            return None
        rows = [(row + [""] * width)[:width] for row in rows]
    return _records(names, list(zip(*rows[1:], strict=True)))


def _even_columns(lines: list[str], delimiter: str) -> list[list[str]] | None:
    """The columns, each with its name first, of lines without quotes; None if they have not as many cells each.

    All at once: a list for each line would take twice the time.
    """
    if len(set(map(str.count, lines, repeat(delimiter)))) > 1:
        return None
    width = lines[0].count(delimiter) + 1
    cells = delimiter.join(lines).split(delimiter)
    return [cells[place::width] for place in range(width)]


def _delimiter(text: str, *, said: bool) -> str | None:
    """The delimiter; None where lines do not agree on one, or the first has no names."""
    head = text[:_HEAD]
    lines = head.splitlines(keepends=True)
    if len(text) > _HEAD:
        lines = lines[:-1]
    lines = lines[:60]
    if len(lines) < 3:
        return None
    best, most = None, 1
    for delimiter in ",\t;|":
        if delimiter not in lines[0]:
            continue
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter, strict=True) if row]
        except csv.Error:
            # A quoted cell with line breaks may be cut at the end of what is looked at.
            continue
        width = len(rows[0])
        if any(len(row) != width for row in rows) or len(rows) < 3 or width <= most:
            continue
        names = [name.strip() for name in rows[0]]
        if len(set(names)) == width and all(map(_NAME.fullmatch, names)) and not all(map(str.isdigit, names)):
            best, most = delimiter, width
    if best is not None and most == 2 and not said and not _regular(lines, best):
        return None
    return best


def _regular(lines: list[str], delimiter: str) -> bool:
    """Two columns could be prose with one comma in each line: cells are short, or one column has numbers."""
    rows = [line.rstrip("\r\n").split(delimiter) for line in lines[1:]]
    if delimiter == "\t":
        return True
    return all(len(cell) <= 24 and cell.count(" ") <= 2 and cell[:1] != " " for row in rows for cell in row)


def _records(names: Sequence[str], columns: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """The rows as objects."""
    rows: list[dict[str, Any]] = [{} for _ in columns[0]] if columns else []
    for name, column in zip(names, columns, strict=bool(columns)):
        # Column by column takes half the time of `dict(zip(names, row))`.
        for row, value in zip(rows, _numbers(column), strict=True):
            row[name] = value
    return rows


def _numbers(column: Sequence[str]) -> Sequence[Any]:
    """The cells, numbers as numbers."""
    different = dict.fromkeys(column)
    lines = "\n".join(different)
    if not _MAYBE_NUMBER.search(lines):
        return column
    read = _all_numbers(different, lines) or _some_numbers(different)
    if not read:
        return column
    return list(read.values()) if len(read) == len(column) else list(map(read.__getitem__, column))


def _all_numbers(cells: Collection[str], lines: str) -> dict[str, Any]:
    """The numbers of cells that are nothing else; empty if one is not. `lines`: the cells, with line breaks between.

    Cells are tried all at once, which is several times as fast as one by one; writing the numbers back tells.
    """
    if not _DIGITS.fullmatch(lines) or max(map(len, cells)) > _LONGEST:
        return {}
    try:
        if "." not in lines:
            read: dict[str, Any] = dict(zip(cells, map(int, cells), strict=True))
        elif lines.count(".") == len(cells):
            read = dict(zip(cells, map(Decimal, cells), strict=True))
        else:
            read = {cell: Decimal(cell) if "." in cell else int(cell) for cell in cells}
    except (ValueError, ArithmeticError):
        return {}
    return read if "\n".join(map(str, read.values())) == lines else {}


def _some_numbers(cells: Collection[str]) -> dict[str, Any]:
    """What cells stand for, where some may be numbers; empty if none is, or one is padded."""
    if any(map(_PADDED.fullmatch, cells)):
        return {}
    read: dict[str, Any] = {}
    found = False
    for cell in cells:
        if _WHOLE.fullmatch(cell) and cell != "-0":
            read[cell], found = int(cell), True
        elif _BROKEN.fullmatch(cell) and str(Decimal(cell)) == cell:
            read[cell], found = Decimal(cell), True
        else:
            read[cell] = cell
    return read if found else {}


def read_markdown_table(text: str) -> Embedded | None:
    """The rows of a Markdown table with little text around it; None if there is none."""
    if "|" not in text[:_AROUND_AT_MOST] or len(text) > 20_000_000:
        return None
    lines = text.splitlines()
    ahead = next(
        (place for place, line in enumerate(lines[1:60], 1) if "|" in line and _RULE.fullmatch(line.strip())), 0
    )
    if not ahead:
        return None
    names = _cells(lines[ahead - 1])
    end = next((place for place in range(ahead + 1, len(lines)) if "|" not in lines[place]), len(lines))
    before, after = "\n".join(lines[: ahead - 1]).strip(), "\n".join(lines[end:]).strip()
    if len(before) + len(after) > _AROUND_AT_MOST or (len(before) + len(after)) * 3 > len(text):
        return None
    if end - ahead < 4 or len(set(names)) != len(names) or not all(names):
        return None
    width = len(names)
    columns = _plain_columns(lines[ahead + 1 : end], width)
    if columns is None:
        rows = [(_cells(line) + [""] * width)[:width] for line in lines[ahead + 1 : end]]
        columns = list(zip(*rows, strict=True))
    return Embedded(_records(names, columns), (before, after))


def _plain_columns(lines: list[str], width: int) -> list[list[str]] | None:
    """The columns of rows between bars, with as many cells each and no bar within a cell; None if they are others."""
    if any("\\" in line for line in lines):
        return None
    columns = _even_columns(lines, "|")
    if columns is None or len(columns) != width + 2:
        return None
    first, *columns, last = [list(map(str.strip, column)) for column in columns]
    return None if any(first) or any(last) else columns


def _cells(line: str) -> list[str]:
    line = line.strip()
    line = line.removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)]
