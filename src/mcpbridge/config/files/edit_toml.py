"""Edits TOML: puts one table in or takes one out, by ranges of characters.

A table is added at the end of the file, where it cannot come between others and their comments. tomlkit would write
the file anew, and does not keep every one as it was. The reader finds where statements and members of inline tables
are. It gets only texts that the TOML parser has accepted, so it looks only for where things end. Blank lines and
comments belong to no statement.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from mcpbridge.config.files.edit import Edit, NotEditable, Splice, Spot

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
    """Where the value of an assignment is."""


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
        name, value = next(iter(value.items()))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - parsed TOML
        parts.append(str(name))  # pyright: ignore[reportUnknownArgumentType] - parsed TOML
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


_BLANK_LINE = re.compile(r"(?:(?<=\n)|^)[ \t]*\r?\n\Z")
"""As the last of a text."""
_LINE_END = re.compile(r"[ \t]*(?:\r?\n|\Z)")


class TomlEditor:
    """TOML. See `Editor`."""

    def parse(self, text: str) -> object:
        """The document as plain values."""
        try:
            return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"^(.*) \(at (?:line (\d+), column \d+|end of document)\)$", str(error), re.DOTALL)
            what, line = found.groups() if found else (str(error), None)
            number = int(line) if line else text.count("\n") + 1
            raise NotEditable(f"not valid TOML: {what[:1].lower()}{what[1:]}", number) from error
        except RecursionError as error:
            raise NotEditable("nested too deeply") from error

    def to_put(self, text: str, spot: Spot, value: Mapping[str, object]) -> Iterator[Edit]:
        """In the place of what is there; else as a table of its own at the end; else as a line among the first."""
        if spot.in_list:
            raise NotEditable("lists in TOML are not edited")
        newline = "\r\n" if "\r\n" in text else "\n"
        path = (*spot.table, spot.name)
        known = list(statements(text))
        for regions in (_headed(known, path), _assigned(known, path)):
            if regions and regions[0][2]:
                yield _in_place(text, regions, _table(path, value, newline), newline)
            elif regions:
                yield (Splice(*regions[0][:2], _line(path[regions[0][3] :], value) + newline),)
        for found in _containers(known, spot.table):
            yield (_into_inline(text, found, path[len(found.path) :], value),)
        yield (_at_the_end(text, _table(path, value, newline), newline),)
        first = next((statement.start for statement in known if statement.is_header), len(text))
        yield (Splice(first, first, f"{_line(path, value)}{newline}"),)

    def to_cut(self, text: str, spot: Spot) -> Edit:
        """The tables and lines of the entry go; comments before and behind them stay."""
        path = (*spot.table, spot.name)
        known = list(statements(text))
        regions = _headed(known, path)
        if regions:
            return tuple(Splice(*_with_gap(text, start, end), "") for start, end, *_ in regions)
        if regions := _assigned(known, path):
            return tuple(Splice(start, end, "") for start, end, *_ in regions)
        for found in _containers(known, spot.table):
            members = list(inline_members(text, found.value[0]))
            wanted = path[len(found.path) :]
            for number, member in enumerate(members):
                if member.path[: len(wanted)] == wanted:
                    return (_out_of_inline(text, members, number),)
        raise NotEditable("the entry is in a place from which it cannot be removed alone")


Region = tuple[int, int, bool, int]
"""From, to, whether it is a table of its own, and how many keys of the path its table has."""


def _headed(known: list[Statement], path: tuple[str, ...]) -> list[Region]:
    """Where tables with a header hold the entry; those that follow one another as one."""
    regions: list[Region] = []
    is_ours, goes_on = False, False
    for statement in known:
        if statement.is_header:
            is_ours = statement.path[: len(path)] == path
        if is_ours:
            start = regions.pop()[0] if goes_on else statement.start
            regions.append((start, statement.end, True, 0))
        goes_on = is_ours
    return regions


def _assigned(known: list[Statement], path: tuple[str, ...]) -> list[Region]:
    """The lines that hold the entry, in tables that hold more."""
    regions: list[Region] = []
    table: tuple[str, ...] = ()
    for statement in known:
        if statement.is_header:
            table = statement.path
        elif len(table) < len(path) and statement.path[: len(path)] == path:
            regions.append((statement.start, statement.end, False, len(table)))
    return regions


def _containers(known: list[Statement], table: tuple[str, ...]) -> list[Statement]:
    """Assignments of inline tables in which the entries stand."""
    return [one for one in known if not one.is_header and one.path == table[: len(one.path)]]


def _in_place(text: str, regions: list[Region], block: str, newline: str) -> Edit:
    start, end, *_ = regions[0]
    block = block if text[:end].endswith("\n") else block.removesuffix(newline)
    return (Splice(start, end, block), *(Splice(*_with_gap(text, *region[:2]), "") for region in regions[1:]))


def _with_gap(text: str, start: int, end: int) -> tuple[int, int]:
    """The range with the blank line before it, if what follows is apart from it anyway."""
    gap = _BLANK_LINE.search(text, 0, start)
    follows = _LINE_END.match(text, end)
    if gap and follows:
        start = gap.start()
    if end == len(text) and not text.endswith("\n"):  # the file ends without a line end, then as now
        start -= len(text[:start]) - len(text[:start].removesuffix("\n").removesuffix("\r"))
    return start, end


def _at_the_end(text: str, block: str, newline: str) -> Splice:
    at = len(text)
    if not text.strip("\ufeff"):
        return Splice(at, at, block)
    if not text.endswith("\n"):
        return Splice(at, at, newline + newline + block.removesuffix(newline))
    is_apart = _BLANK_LINE.search(text)
    return Splice(at, at, block if is_apart else newline + block)


def _into_inline(text: str, statement: Statement, path: tuple[str, ...], value: Mapping[str, object]) -> Splice:
    """One more member of an inline table, or in the place of the one with that path."""
    start, end = statement.value
    members = list(inline_members(text, start)) if text[start] == "{" else []
    for member in members:
        if member.path == path:
            return Splice(*member.value, as_value(value))
    if members:
        return Splice(members[-1].value[1], members[-1].value[1], f", {_line(path, value)}")
    return Splice(start, end, f"{{ {_line(path, value)} }}")


def _out_of_inline(text: str, members: list[InlineMember], number: int) -> Splice:
    member = members[number]
    if number + 1 < len(members):
        return Splice(member.start, members[number + 1].start, "")
    if number:
        return Splice(members[number - 1].value[1], member.value[1], "")
    before = len(text[: member.start]) - len(text[: member.start].rstrip(" \t"))
    after = len(text[member.value[1] :]) - len(text[member.value[1] :].lstrip(" \t"))
    return Splice(member.start - before, member.value[1] + after, "")


def _table(path: tuple[str, ...], value: Mapping[str, object], newline: str) -> str:
    lines = [f"[{'.'.join(map(as_key, path))}]", *(f"{as_key(key)} = {as_value(item)}" for key, item in value.items())]
    return newline.join(lines) + newline


def _line(path: tuple[str, ...], value: Mapping[str, object]) -> str:
    return f"{'.'.join(map(as_key, path))} = {as_value(value)}"
