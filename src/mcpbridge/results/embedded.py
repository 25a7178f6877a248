"""JSON among other text: one value with a heading or in a fence, or one value a line."""

import re
from typing import Any

from msgspec import Struct

from mcpbridge.results.exact_json import NotReadable, parse_json

__all__ = ["Embedded", "read_embedded", "read_lines"]

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
