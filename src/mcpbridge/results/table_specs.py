"""What the head of a table says of each column: where its values come from, and how its cells are written.

login             cells
size:str          cells that are strings, even if they look like numbers
tags[]            cells are lists of scalars: `[a,b]`
ports[port,name]  cells are lists of records: `[80,http;443,https]`
user&user         cells are keys of rows in the table `user`; `users[&user]`: lists of those
type=file         the same in all rows
id={number}       as in the column `number`
at={5+60*i}       counted: 5, 65, 125, from the first row (of a list in a cell: from its first record)
url~host/{id}/{}  put together from other columns, `{}` being the cell; braces that are meant are doubled
children^         the rows below that are indented one deeper
type={children?"directory":"file"}    told by whether the row has those
"""

import re
from typing import Any, Literal

from msgspec import Struct, field

from mcpbridge.results.exact_json import write_json
from mcpbridge.results.table_notation import Path, cell_text, path_text, read_cell, read_path, read_template_text
from mcpbridge.results.table_templates import read_template

__all__ = ["How", "Kind", "Spec", "read_specs", "spec_text"]

How = Literal["cell", "constant", "same", "steps", "template", "below", "branch"]
Kind = Literal["any", "str", "list", "records", "ref", "refs"]

_STEPS = re.compile(r"(-?[0-9]+)([+-][0-9]+)\*i\}")
_TABLE = re.compile(r"\w+")


class Spec(Struct):
    """One column."""

    path: Path
    how: How = "cell"
    kind: Kind = "any"
    """How its cells are written."""
    inner: "list[Spec]" = field(default_factory=list["Spec"])
    """The columns of `records`."""
    table: str = ""
    """Where keys point to, of `ref` and `refs`."""
    value: Any = None
    """The constant, or the text of the template."""
    source: Path = ()
    """The column that it is the same as, or told by."""
    steps: tuple[int, int] = (0, 0)
    """The first number and what is added each time."""
    branches: tuple[Any, Any] = (None, None)
    """The value where `source` is there, and where it is not."""
    has_cell: bool = True
    """Whether rows have a cell for it."""


def spec_text(spec: Spec, *, inline: bool = False) -> str:
    """The column as the head says it."""
    name = path_text(spec.path)
    match spec.how:
        case "constant":
            return f"{name}={cell_text(spec.value, inline=inline)}"
        case "same":
            return f"{name}={{{path_text(spec.source)}}}"
        case "steps":
            return f"{name}={{{spec.steps[0]}{spec.steps[1]:+d}*i}}"
        case "branch":
            there, not_there = map(write_json, spec.branches)
            return f"{name}={{{path_text(spec.source)}?{there}:{not_there}}}"
        case "template":
            return f"{name}~{_template(spec.value, inline)}"
        case "below":
            return f"{name}^{'+' if spec.has_cell else ''}"
        case "cell":
            return name + _kind_text(spec)


def _template(text: str, inline: bool) -> str:
    opened = text.startswith("{")
    # What begins with a brace is no bare cell, but after `~` nothing else can be meant.
    bare = cell_text("_" + text if opened else text, inline=inline, strings=True)
    return text if not bare.startswith('"') else write_json(text)


def _kind_text(spec: Spec) -> str:
    match spec.kind:
        case "any":
            return ""
        case "str":
            return ":str"
        case "list":
            return "[]"
        case "records":
            return f"[{','.join(spec_text(inner, inline=True) for inner in spec.inner)}]"
        case "ref":
            return f"&{spec.table}"
        case "refs":
            return f"[&{spec.table}]"


def read_specs(text: str, at: int = 0, *, inline: bool = False) -> tuple[list[Spec], int]:
    """The columns of a head, or of the records in a cell; and where they end.

    Raises:
        ValueError: it is no head.
    """
    specs: list[Spec] = []
    while True:
        spec, at = _read_spec(text, at, inline)
        specs.append(spec)
        if text[at : at + 1] != ("," if inline else "|"):
            return specs, at
        at += 1


def _read_spec(text: str, at: int, inline: bool) -> tuple[Spec, int]:
    path, at = read_path(text, at)
    spec = Spec(path)
    sign = text[at : at + 1]
    if sign == "=":
        spec.has_cell = False
        if text[at + 1 : at + 2] == "{" and text[at + 2 : at + 3] != "}":
            return spec, _read_told(text, at + 2, spec)
        spec.how = "constant"
        spec.value, at = read_cell(text, at + 1, inline=inline)
    elif sign == "~":
        spec.how = "template"
        spec.value, at = read_template_text(text, at + 1, inline=inline)
        spec.has_cell = (True, "") in read_template(spec.value)
    elif sign == "^":
        spec.how = "below"
        spec.has_cell = text.startswith("+", at + 1)
        at += 1 + spec.has_cell
    else:
        at = _read_kind(text, at, spec)
    return spec, at


def _read_told(text: str, at: int, spec: Spec) -> int:
    if found := _STEPS.match(text, at):
        spec.how, spec.steps = "steps", (int(found[1]), int(found[2]))
        return found.end()
    spec.how = "same"
    spec.source, at = read_path(text, at)
    if text[at : at + 1] == "?":
        spec.how = "branch"
        first, at = _read_scalar(text, at + 1, ":")
        second, at = _read_scalar(text, at + 1, "}")
        spec.branches = (first, second)
    return at + 1


def _read_scalar(text: str, at: int, end: str) -> tuple[Any, int]:
    if text[at : at + 1] == '"':
        return read_cell(text, at)
    stop = text.index(end, at)
    return read_cell(text[at:stop], 0)[0], stop


def _read_kind(text: str, at: int, spec: Spec) -> int:
    if text.startswith(":str", at):
        spec.kind = "str"
        return at + 4
    if text.startswith("&", at) or text.startswith("[&", at):
        spec.kind = "ref" if text[at] == "&" else "refs"
        found = _TABLE.match(text, at + (1 if spec.kind == "ref" else 2))
        if not found:
            raise ValueError(f"no table at {at}")
        spec.table = found[0]
        return found.end() + (spec.kind == "refs")
    if text.startswith("[]", at):
        spec.kind = "list"
        return at + 2
    if text.startswith("[", at):
        spec.kind = "records"
        spec.inner, at = read_specs(text, at + 1, inline=True)
        return at + 1
    return at
