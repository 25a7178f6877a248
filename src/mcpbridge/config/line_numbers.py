"""The line on which a key of a configuration file is, for error messages.

The parsers of the standard library do not report it. The search here is exact for JSON. For TOML it reads headers and
assignments only, so it may return None, for instance inside an inline table over several lines.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence

_TOML_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_TOML_PATH = rf"{_TOML_KEY}(?:\s*\.\s*{_TOML_KEY})*"
_TOML_HEADER = re.compile(rf"\s*\[\[?\s*({_TOML_PATH})\s*\]\]?\s*(?:#.*)?")
_TOML_ASSIGNMENT = re.compile(rf"\s*({_TOML_PATH})\s*=")
_BLANK = re.compile(r"\s*")


def toml_line(text: str, key: Sequence[str]) -> int | None:
    """The line, from 1, of the innermost table or assignment of a TOML text that holds `key`, or that makes it."""
    wanted, best, best_line = tuple(key), 0, None
    for line, found in _toml_keys(text):
        shared = min(len(found), len(wanted))
        if shared > best and found[:shared] == wanted[:shared]:
            best, best_line = shared, line
    return best_line


def _toml_keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    table: tuple[str, ...] = ()
    seen = Counter[tuple[str, ...]]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TOML_HEADER.fullmatch(line):
            table = _split(header[1])
            if line.lstrip().startswith("[["):
                seen[table] += 1
                table = (*table, str(seen[table] - 1))
            yield number, table
        elif assignment := _TOML_ASSIGNMENT.match(line):
            yield number, table + _split(assignment[1])


def _split(dotted: str) -> tuple[str, ...]:
    """The parts of a TOML key, unquoted by the TOML parser itself."""
    try:
        value: object = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return ()  # it looked like a key inside a string over several lines
    parts: list[str] = []
    while isinstance(value, dict):
        name, value = next(iter(value.items()))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - parsed TOML
        parts.append(str(name))  # pyright: ignore[reportUnknownArgumentType] - parsed TOML
    return tuple(parts)


def json_line(text: str, key: Sequence[str]) -> int | None:
    """The line, from 1, of the innermost member of a JSON text that holds `key`. The text must be valid."""
    position: int | None = None
    start = _skip(text, 0)
    for part in key:
        place = _json_member(text, start, part)
        if place is None:
            break
        position, start = place
    return None if position is None else text.count("\n", 0, position) + 1


def _json_member(text: str, start: int, wanted: str) -> tuple[int, int] | None:
    """Where the member `wanted` of the object or array at `start` begins, and where its value does."""
    decoder = json.JSONDecoder()
    opening, index, found = text[start], 0, None
    if opening not in "{[":
        return None
    at = _skip(text, start + 1)
    while text[at] not in "}]":
        begin, name = at, str(index)
        if opening == "{":
            name, at = decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)  # over the colon
        if name == wanted:
            found = (begin, at)  # of two members with one name the last one counts
        _, at = decoder.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1
    return found


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at
