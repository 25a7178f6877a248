"""Where the statements of a TOML text stand: headers, assignments, and the members of inline tables.

Reads texts that the TOML parser has accepted, so it looks only for where things end. Blank lines and comments belong
to no statement.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

__all__ = ["InlineMember", "Statement", "as_key", "as_value", "inline_members", "statements"]

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*")
_REST_OF_LINE = re.compile(r"[^\r\n]*(?:\r?\n)?")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}' r"|'''(?:[^']|'(?!''))*'{3,5}" r'|"(?:[^"\\]|\\.)*"' r"|'[^']*'", re.DOTALL
)
_NESTING = re.compile(r"[\[\]{}#,]|[\"']")
_SCALAR = re.compile(r"[^,\]}#\r\n]*[^,\]}#\s]")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Statement:
    """A header with its line, or an assignment with the lines of its value; up to and with the line end."""

    path: tuple[str, ...]
    """The whole, from the root."""
    start: int
    end: int
    is_header: bool
    value: tuple[int, int] = (0, 0)
    """Where the value of an assignment stands."""


@dataclass(frozen=True, slots=True)
class InlineMember:
    """One assignment in an inline table."""

    path: tuple[str, ...]
    start: int
    value: tuple[int, int]


def statements(text: str) -> Iterator[Statement]:
    """All statements, in their order."""
    table: tuple[str, ...] = ()
    at = _blank(text, 1 if text.startswith("\ufeff") else 0)
    while at < len(text):
        start = text.rfind("\n", 0, at) + 1
        if text[at] == "[":
            opening = 2 if text.startswith("[[", at) else 1
            at = _blank(text, at + opening)
            table, at = _key(text, at)
            end = _line_end(text, at)
            yield Statement(table, start, end, is_header=True)
        else:
            key, at = _key(text, at)
            first = _blank(text, text.index("=", at) + 1)
            last = _value_end(text, first)
            end = _line_end(text, last)
            yield Statement(table + key, start, end, is_header=False, value=(first, last))
        at = _blank(text, end)


def inline_members(text: str, start: int) -> Iterator[InlineMember]:
    """The members of the inline table that begins at `start`."""
    at = _blank(text, start + 1)
    while text[at] != "}":
        begin = at
        key, at = _key(text, at)
        first = _blank(text, text.index("=", at) + 1)
        last = _value_end(text, first)
        yield InlineMember(key, begin, (first, last))
        at = _blank(text, last)
        at = _blank(text, at + 1) if text[at] == "," else at


def as_key(name: str) -> str:
    """A name as it is written before `=`."""
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_value(value: object) -> str:
    """A value as it is written after `=`, on one line."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return f"{{ {', '.join(f'{as_key(key)} = {as_value(item)}' for key, item in members)} }}" if members else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_value, cast('list[object]', value)))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(text: str, at: int) -> tuple[tuple[str, ...], int]:
    found = _KEY.match(text, at)
    if not found:
        return (), at
    value: object = tomllib.loads(f"{found[0]} = 0")
    parts: list[str] = []
    while isinstance(value, dict):
        name, value = next(iter(value.items()))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        parts.append(str(name))  # pyright: ignore[reportUnknownArgumentType]
    return tuple(parts), found.end()


def _value_end(text: str, at: int) -> int:
    if text[at] not in "[{":
        found = _STRING.match(text, at) or _SCALAR.match(text, at)
        return found.end() if found else at
    depth = 0
    while found := _NESTING.search(text, at):
        at = found.end()
        match found[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
                if not depth:
                    return at
            case "#":
                at = _line_end(text, at)
            case '"' | "'":
                string = _STRING.match(text, found.start())
                at = string.end() if string else at
            case _:
                pass
    return len(text)


def _line_end(text: str, at: int) -> int:
    found = _REST_OF_LINE.match(text, at)
    return found.end() if found else at


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
