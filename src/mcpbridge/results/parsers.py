"""Parsers of texts that hold values in other forms than plain JSON.

Python values as Python prints them, which some servers send for JSON (`[{'id': 1, 'at': None}]`); JSON with a heading,
in a fence, or one value a line; CSV in its dialects; Markdown tables. Which parser is tried when is decided in
`document.py`.
"""

import ast
import csv
import json
import re
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from io import StringIO
from itertools import repeat
from math import isfinite
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.exact_json import NotReadable, parse_json

_TOKEN = re.compile(
    r"""
    (?P<string>'[^'\\\n]*(?:\\.[^'\\\n]*)*'?|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?)
    |(?P<call>(?:datetime\.)?(?:datetime|date|time|timedelta)\([^()\n]{0,200}\)|(?:Decimal|UUID)\('[^'\n]{0,200}'\))
    |(?P<bytes>\b[bB](?:'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"))
    |(?P<word>\b(?:True|False|None)\b|(?<![\w.])-?(?:inf|nan)\b)
    |(?P<tuple>(?:,|(?<![\s,]))\s*\)|\()
    |(?P<other>(?<![\d.])[A-Za-z_]\w*)
    """,
    re.VERBOSE,
)
_LONGEST_TREE = 500_000
"""Characters that are parsed as Python where the fast way fails (sets, numbers as names, text in several pieces)."""
_STRING = re.compile(r"""('[^'\\\n]*(?:\\.[^'\\\n]*)*'?|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?)""")
"""Also one without an end, lest its rest be searched for strings again and again."""
_BEFORE_TEXT = re.compile(r"\0(?<=[\w)]\0)")
"""The text of a call, or one with a prefix; `\0` stands for a text."""
_BEHIND_TEXT = re.compile(r"\0\s*[\w(\0]")
"""Two texts side by side, or something else that belongs to the text."""
_NOT_PLAIN = re.compile(r"[A-DF-Za-df-z_()]|(?<![0-9])[Ee]")
_LETTER = re.compile(r"[A-Za-z_()]")
"""What `_NOT_PLAIN` finds has one of these, which are found several times as fast."""
_PLAIN_WORDS = {"True": "true", "False": "false", "None": "null"}
_WORDS = {**_PLAIN_WORDS, "nan": '"nan"', "inf": '"inf"', "-inf": '"-inf"'}
"""And what they are in JSON, which has no such numbers as the last: those are strings."""
_COMMON_ESCAPES = re.compile(r"""(?:[^\\\x00-\x1f]|\\[\\nrt'"])*""")
"""Python and JSON mean the same by them."""


class _NotPlain(Exception):
    """Something that the fast way does not know."""


def read_python(text: str) -> Any:
    """The value: tuples and sets are lists, dates are strings as ISO 8601 has them. None if it is no such text."""
    stripped = text.strip()
    if stripped[:1] + stripped[-1:] not in {"[]", "{}", "()"}:
        return None
    for way in (_quoted, _by_tokens):
        try:
            return parse_json(way(stripped))
        except (_NotPlain, NotReadable, ArithmeticError):
            continue
    return _by_syntax_tree(stripped)


def _by_tokens(text: str) -> str:
    """The text as JSON, token by token."""
    return _TOKEN.sub(_as_json, text)


def _quoted(text: str) -> str:
    """The text as JSON where all strings stand by themselves, as most do: what is between them is looked at at once."""
    if "\0" in text:
        raise _NotPlain
    if '"' in text or "\\" in text:
        pieces = _STRING.split(text)
        pieces[1::2] = map(_string, pieces[1::2])
    else:
        pieces = text.split("'")
        pieces[1::2] = [f'"{inner}"' for inner in pieces[1::2]]
    code = "\0".join(pieces[::2])
    if len(pieces) % 2 == 0 or _BEFORE_TEXT.search(code) or _BEHIND_TEXT.search(code):
        raise _NotPlain
    pieces[::2] = _code(code).split("\0")
    return "".join(pieces)


def _code(code: str) -> str:
    """What is between strings, as JSON."""
    without_words, as_json = code, code
    for word, json_word in _PLAIN_WORDS.items():
        without_words = without_words.replace(word, "")
        as_json = as_json.replace(word, json_word)
    is_plain = not _LETTER.search(without_words) or not _NOT_PLAIN.search(without_words)
    return as_json if is_plain else _TOKEN.sub(_as_json, code)


def _as_json(match: re.Match[str]) -> str:
    token = match[0]
    match match.lastgroup:
        case "string":
            return _string(token)
        case "word":
            return _WORDS.get(token, f'"{token}"')
        case "bytes":
            return json.dumps(token, ensure_ascii=False)
        case "tuple":
            return "]" if token.endswith(")") else "["
        case "call":
            return _call(token)
        case _:
            raise _NotPlain
    return token


def _string(token: str) -> str:
    """A string as JSON. Control characters stay: JSON has none, so such a text is read in another way."""
    quote, inner = token[0], token[1:-1]
    if token[1:][-1:] != quote:
        raise _NotPlain
    if "\\" not in inner:
        return token if quote == '"' else json.dumps(inner, ensure_ascii=False) if '"' in inner else f'"{inner}"'
    if _COMMON_ESCAPES.fullmatch(inner):
        if quote == '"' and "\\'" not in inner:
            return token
        if quote == "'" and '"' not in inner:
            # Each `'` in it has the backslash that keeps it from ending the string.
            return '"' + inner.replace("\\'", "'") + '"'
    try:
        return json.dumps(ast.literal_eval(token), ensure_ascii=False)
    except (ValueError, SyntaxError) as error:
        raise _NotPlain from error


def _call(token: str) -> str:
    name, _, inner = token[:-1].partition("(")
    if name in {"Decimal", "UUID"}:
        inside = inner.strip("'")
        return inside if name == "Decimal" and re.fullmatch(r"-?\d+(\.\d+)?", inside) else f'"{inside}"'
    return f'"{_time(name.rpartition(".")[2], inner)}"'


def _time(name: str, inner: str) -> str:
    """A date or time in ISO 8601; what it does not know stays as Python has it."""
    from datetime import date, datetime, time

    parts = [part.strip() for part in inner.split(",") if part.strip()]
    numbers = [int(part) for part in parts if part.isdecimal()]
    zone = "+00:00" if any("utc" in part.lower() for part in parts) else ""
    kinds: dict[str, Callable[..., Any]] = {"datetime": datetime, "date": date, "time": time}
    if len(numbers) + bool(zone) < len(parts) or name not in kinds:
        return f"{name}({inner})".replace('"', "'").replace("\\", "")
    try:
        return kinds[name](*numbers).isoformat() + zone
    except (ValueError, TypeError, OverflowError):
        return f"{name}({inner})"


def _by_syntax_tree(text: str) -> Any:
    if len(text) > _LONGEST_TREE:
        return None
    try:
        value = ast.literal_eval(text)
        return _value(value, 0) if isinstance(value, (dict, list, tuple, set)) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def _value(value: Any, depth: int) -> Any:
    """The value as JSON has them."""
    if depth > 200:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {
            name if isinstance(name, str) else str(name): _value(member, depth + 1) for name, member in members.items()
        }
    if isinstance(value, (list, tuple)):
        return [_value(member, depth + 1) for member in cast("list[Any]", value)]
    if isinstance(value, (set, frozenset)):
        return sorted((_value(member, depth + 1) for member in cast("set[Any]", value)), key=repr)
    if isinstance(value, float):
        return Decimal(repr(value)) if isfinite(value) else str(value)
    if isinstance(value, (bytes, complex)) or value is ...:
        return repr(cast("object", value))
    return value


_FENCE = re.compile(r"^```[ \t]*(?:json[c5l]*)?[ \t]*\r?\n", re.MULTILINE | re.IGNORECASE)
_OPENING = re.compile(r"^[ \t]*[{\[]", re.MULTILINE)
_AROUND_AT_MOST = 4000
"""Characters of other text; with more, it is a text that holds some JSON."""
_ODD_LINES = 0.1
"""Share of JSON lines that may be something else, such as a note that the output was cut."""
_TRIES = 3


class Embedded(Struct, frozen=True):
    """A value, and the text before and after it."""

    value: Any
    around: tuple[str, str]


def read_embedded(text: str) -> Embedded | None:
    """A JSON object or array with little text around it; None if there is none."""
    fence = _FENCE.search(text[:_AROUND_AT_MOST])
    if fence:
        end = text.rfind("\n```")
        if end > fence.end():
            return _value_in(text, fence.end(), end, fence.start(), min(len(text), end + 4))
        return None
    start = -1
    for _ in range(_TRIES):
        found = _OPENING.search(text, start + 1, _AROUND_AT_MOST)
        if not found:
            return None
        start = found.end() - 1
        end = text.rfind("}" if text[start] == "{" else "]") + 1
        if end > start:
            value = _value_in(text, start, end, start, end)
            if value is not None:
                return value
    return None


def _value_in(text: str, start: int, end: int, before: int, after: int) -> Embedded | None:
    if len(text) - after > _AROUND_AT_MOST or (end - start) * 2 < len(text) or end - start < 40:
        return None
    try:
        value = parse_json(text[start:end])
    except (NotReadable, ArithmeticError):
        return None
    if not isinstance(value, (dict, list)):
        return None
    return Embedded(value, (text[:before].strip("\r\n"), text[after:].strip("\r\n")))


def read_lines(text: str) -> list[Any] | None:
    """JSON lines; lines that are no JSON are strings in the list, so that places match. None if it is something else.

    One line in ten may be odd, the first may not; there are two lines at least.
    """
    lines = [line for line in text.split("\n") if line and not line.isspace()]
    if len(lines) < 2 or not _whole(lines[0]):
        return None
    if all(map(_whole, lines)):
        try:
            values = parse_json(f"[{','.join(lines)}]")
        except (NotReadable, ArithmeticError):
            values: list[Any] = []
        if len(values) == len(lines):
            return values
    return _line_by_line(lines)


def _whole(line: str) -> bool:
    line = line.strip("\ufeff \t\r")
    return line[:1] + line[-1:] in {"{}", "[]"}


def _line_by_line(lines: list[str]) -> list[Any] | None:
    allowed = len(lines) * _ODD_LINES
    values: list[Any] = []
    odd = 0
    for line in lines:
        try:
            value = parse_json(line) if _whole(line) else None
        except (NotReadable, ArithmeticError):
            value = None
        if value is None:
            odd += 1
            value = line
            if odd > allowed or not values:
                return None
        values.append(value)
    return values


_WHOLE = re.compile(r"-?(0|[1-9]\d{0,200})")
_BROKEN = re.compile(r"-?(0|[1-9]\d{0,100})\.\d{1,100}")
_PADDED = re.compile(r"-?0\d+")
_MAYBE_NUMBER = re.compile(r"^-?\d+(?:\.\d+)?$", re.MULTILINE)
_DIGITS = re.compile(r"[0-9.\n-]*")
_LONGEST = 200
"""Characters of numbers that are read all at once."""
_NAME = re.compile(r"[^\W\d][\w .%/()#°$€&'+-]{0,59}|\d{1,3}")
_RULE = re.compile(r"\|?[ \t]*:?-{2,}:?[ \t]*(\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*")
_MAX_TEXT_AROUND_TABLE = 1500
_HEAD = 20_000
"""Characters by which a dialect is found."""


def read_csv(text: str, mime: str = "") -> list[dict[str, Any]] | None:
    """The rows of a CSV text, under the names of its first line; None if it is none.

    Delimited by comma, semicolon, tab or bar, each line with the same number of cells. Cells are strings, and numbers
    where writing them back gives the same text; a column with padded numbers (`007`) stays text.
    """
    said = mime in {"text/csv", "application/csv", "text/tab-separated-values"}
    text = text.lstrip("\ufeff")
    delimiter = _delimiter(text, is_declared=said)
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


def _delimiter(text: str, *, is_declared: bool) -> str | None:
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
    if best is not None and most == 2 and not is_declared and not _regular(lines, best):
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
    if "|" not in text[:_MAX_TEXT_AROUND_TABLE] or len(text) > 20_000_000:
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
    if len(before) + len(after) > _MAX_TEXT_AROUND_TABLE or (len(before) + len(after)) * 3 > len(text):
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
