"""Tables written as text: CSV in its dialects, and Markdown tables."""

import csv
import re
from decimal import Decimal
from io import StringIO
from typing import Any

from mcpbridge.results.embedded import Embedded

__all__ = ["read_csv", "read_markdown_table"]

_WHOLE = re.compile(r"-?(0|[1-9]\d{0,200})")
_BROKEN = re.compile(r"-?(0|[1-9]\d{0,100})\.\d{1,100}")
_PADDED = re.compile(r"-?0\d+")
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
        rows = [line.split(delimiter) for line in text.replace("\r", "\n").split("\n") if line]
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
    return _records(names, rows[1:])


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


def _records(names: list[str], rows: list[list[str]]) -> list[dict[str, Any]]:
    columns = [_numbers(column) for column in zip(*rows, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _numbers(column: tuple[str, ...]) -> list[Any] | tuple[str, ...]:
    """The cells, numbers as numbers."""
    different = dict.fromkeys(column)
    if any(map(_PADDED.fullmatch, different)):
        return column
    read: dict[str, Any] = {}
    found = False
    for cell in different:
        if _WHOLE.fullmatch(cell) and cell != "-0":
            read[cell], found = int(cell), True
        elif _BROKEN.fullmatch(cell) and str(Decimal(cell)) == cell:
            read[cell], found = Decimal(cell), True
        else:
            read[cell] = cell
    return list(map(read.__getitem__, column)) if found else column


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
    rows = [(_cells(line) + [""] * width)[:width] for line in lines[ahead + 1 : end]]
    return Embedded(_records(names, rows), (before, after))


def _cells(line: str) -> list[str]:
    line = line.strip()
    line = line.removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)]
