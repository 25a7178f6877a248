"""The words of the table form: cells and the names of columns, as they are written and read again.

A cell is a value as JSON, or a string without its quotes where that cannot be taken for anything else. Between `|` in
a line, and between `,` or `;` inside the brackets of a list that stands in a cell (`inline`).
"""

import re
from decimal import Decimal
from json import JSONDecoder
from typing import Any, Final, TypeGuard

from mcpbridge.results.exact_json import write_json

__all__ = [
    "KEY",
    "MISSING",
    "Path",
    "cell_text",
    "is_list",
    "is_object",
    "path_text",
    "read_cell",
    "read_path",
    "read_template_text",
    "stops",
]

Path = tuple[str | int, ...]
"""Names of members and places in lists, from a record inwards; () is the record itself."""


class _Missing:
    """What a record does not have. Unlike null."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()


class _Below(str):
    __slots__ = ()


BELOW: Final = _Below("+")
"""Stands for a list whose records are rows of their own, below the row that has it."""
KEY = "*"
"""The column that holds the names, in a table made of an object; a member of that name is written in quotes."""


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """A JSON object."""
    return type(value) is dict


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """A JSON array."""
    return type(value) is list


_LITERALS = {"null": None, "true": True, "false": False}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BARE = re.compile(r'[^\s"\[{|\x00-\x1f\x7f](?:[^|\x00-\x1f\x7f]*[^\s|\x00-\x1f\x7f])?')
_BARE_INLINE = re.compile(r'[^\s"\[\]{|,;\x00-\x1f\x7f](?:[^|,;\[\]\x00-\x1f\x7f]*[^\s|,;\[\]\x00-\x1f\x7f])?')
_STOP, _STOP_INLINE = re.compile(r"\||$"), re.compile(r"[,;\]]|$")
_NAME = re.compile(r"(?:[^\W\d]|[$+/-])[\w$+/-]*")
_INDEX = re.compile(r"\[([0-9]+)\]")
_decoder = JSONDecoder(parse_float=Decimal)


def stops(inline: bool) -> "re.Pattern[str]":
    """Where a bare cell ends."""
    return _STOP_INLINE if inline else _STOP


def cell_text(value: Any, *, inline: bool = False, strings: bool = False) -> str:
    """A value as a cell; empty if it is missing. `strings`: the column says that its cells are strings (or null)."""
    if value is MISSING:
        return ""
    if isinstance(value, str) and (_BARE_INLINE if inline else _BARE).fullmatch(value):
        means_more = value == "null" if strings else value in _LITERALS or _NUMBER.fullmatch(value)
        if not means_more:
            return value
    return write_json(value)


def read_cell(text: str, at: int, *, inline: bool = False, strings: bool = False) -> tuple[Any, int]:
    """The value of the cell that begins there, and where it ends.

    Raises:
        ValueError: there is none.
    """
    if text[at : at + 1] in ('"', "[", "{"):
        return _decoder.raw_decode(text, at)
    found = stops(inline).search(text, at)
    end = found.start() if found else len(text)
    word = text[at:end]
    if not word:
        return MISSING, end
    if strings:
        return (None if word == "null" else word), end
    if word in _LITERALS:
        return _LITERALS[word], end
    if _NUMBER.fullmatch(word):
        return (int(word) if word.lstrip("-").isdigit() else Decimal(word)), end
    return word, end


def read_template_text(text: str, at: int, *, inline: bool) -> tuple[str, int]:
    """The text after `~`: up to the next separator, or a JSON string."""
    if text[at : at + 1] == '"':
        return _decoder.raw_decode(text, at)
    found = stops(inline).search(text, at)
    end = found.start() if found else len(text)
    return text[at:end], end


def path_text(path: Path) -> str:
    """The name of a column: `user.login`, `containers[0].name`; `.` for the whole record."""
    if not path:
        return "."
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _NAME.fullmatch(step) or path == (KEY,) else write_json(step))
    return text


def read_path(text: str, at: int) -> tuple[Path, int]:
    """The name of a column that begins there, and where it ends.

    Raises:
        ValueError: there is none.
    """
    if text.startswith(KEY, at):
        return (KEY,), at + 1
    if text.startswith(".", at):
        return (), at + 1
    path: list[str | int] = []
    while True:
        index = _INDEX.match(text, at)
        if index:
            path.append(int(index[1]))
            at = index.end()
            continue
        if path and text[at : at + 1] != ".":
            return tuple(path), at
        at += bool(path)
        if text[at : at + 1] == '"':
            name, at = _decoder.raw_decode(text, at)
        elif found := _NAME.match(text, at):
            name, at = found[0], found.end()
        else:
            raise ValueError(f"no name at {at}")
        path.append(name)
