"""Queries with the tools that are right for them, out of a file that people write. Pure.

JSON lines, `{"query": "open an issue", "tool": "github/create_issue"}`, or a table with commas or tabs, `query,tool`.
A request that needs several tools has a list in place of the tool, one entry a need, and where several tools meet a
need alike, a list of these: `[["github/create_issue", "gitlab/create_issue"], ["slack/post_message"]]`.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.errors import UnknownName

__all__ = ["Asked", "Flaw", "read_queries", "with_ids"]

_QUERY = ("query", "text")
_TOOL = ("tool", "gold")
_SHOWN = 60
"""Characters of a cell that is told of."""

Needs = tuple[tuple[str, ...], ...]
"""What a request needs: for each need the tools of which any one meets it."""


class Asked(Struct, frozen=True):
    """One query."""

    text: str
    needs: Needs
    """Names of tools; once they were looked up, their ids (`server/tool`)."""
    line: int = 0
    """Where it stands in its file, from 1; 0: in none."""


class Flaw(NamedTuple):
    """What is wrong with a line of a file."""

    line: int
    what: str


class _Wrong(ValueError):
    """A line that cannot be read; says why."""


def read_queries(text: str) -> tuple[list[Asked], list[Flaw]]:
    """The queries of a file, and the lines that are none. Which of the forms it has is seen from the first line."""
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1)]
    lines = [(number, line) for number, line in lines if line.strip()]
    asked: list[Asked] = []
    flaws: list[Flaw] = []
    read = _from_json if not lines or lines[0][1].lstrip().startswith("{") else _Table(lines[0][1])
    for number, line in lines:
        try:
            found = read(line)
        except _Wrong as error:
            flaws.append(Flaw(number, str(error)))
        else:
            asked += [replace(found, line=number)] if found is not None else []
    return asked, flaws


def with_ids(asked: Sequence[Asked], id_of: Callable[[str], str]) -> tuple[list[Asked], list[Flaw]]:
    """The queries with ids in place of names, without those for which there is no right tool; and unknown names.

    `id_of` finds the tool of a name, or raises UnknownName. Of several tools that are right alike one is enough.
    """
    kept: list[Asked] = []
    flaws: list[Flaw] = []
    for one in asked:
        needs: list[tuple[str, ...]] = []
        for need in one.needs:
            ids: list[str] = []
            for name in need:
                try:
                    ids.append(id_of(name))
                except UnknownName as error:
                    flaws.append(Flaw(one.line, str(error)))
            needs += [tuple(dict.fromkeys(ids))] if ids else []
        if len(needs) == len(one.needs):
            kept.append(replace(one, needs=tuple(needs)))
    return kept, flaws


# -- JSON lines


def _from_json(line: str) -> Asked:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise _Wrong("not JSON") from None
    if not isinstance(found, dict):
        raise _Wrong("not a JSON object")
    members = cast("Mapping[str, Any]", found)
    text = next((members[name] for name in _QUERY if name in members), None)
    if not isinstance(text, str) or not text.strip():
        raise _Wrong("`query` is missing, or no text")
    text = text.encode(errors="replace").decode()  # half a character has no UTF-8 form
    return Asked(text, _needs(next((members[name] for name in _TOOL if name in members), None)))


def _needs(value: object) -> Needs:
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    groups = [cast("list[object]", one) if isinstance(one, list) else [one] for one in listed]
    needs = tuple(tuple(name for name in group if isinstance(name, str) and name.strip()) for group in groups)
    if not needs or any(not names or len(names) < len(group) for names, group in zip(needs, groups, strict=True)):
        raise _Wrong("`tool` must be the name of a tool, or a list with one entry for each tool that is needed")
    return needs


# -- tables


class _Table:
    """Reads the lines of a table; its first line may name the columns."""

    def __init__(self, first: str) -> None:
        self._delimiter = "\t" if "\t" in first else ","
        self._query, self._tool, self._columns = 0, 1, 2
        self._header = ""
        try:
            names = [cell.strip().casefold() for cell in _cells(first, self._delimiter)]
        except csv.Error:  # told of when it is read as a row
            names = []
        places = [next(_places(names, known), None) for known in (_QUERY, _TOOL)]
        if places[0] is not None and places[1] is not None:
            self._query, self._tool = places[0], places[1]
            self._columns, self._header = len(names), first

    def __call__(self, line: str) -> Asked | None:
        """One line; None for the names of the columns."""
        if line == self._header:
            return None
        try:
            cells = _cells(line, self._delimiter)
        except csv.Error as error:
            raise _Wrong(f"cannot be read as a row: {error}") from None
        if len(cells) != self._columns:
            why = "; a query with commas must stand in quotes" if self._delimiter == "," else ""
            raise _Wrong(f"{len(cells)} columns instead of {self._columns}{why}")
        text, tool = cells[self._query].strip(), cells[self._tool].strip()
        if not text or not tool:
            raise _Wrong(f"{'the query' if not text else 'the tool'} is missing: {line.strip()[:_SHOWN]}")
        return Asked(text, ((tool,),))


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, strict=True))


def _places(names: Sequence[str], known: Sequence[str]) -> Iterator[int]:
    return (names.index(name) for name in known if name in names)
