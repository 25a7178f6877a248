"""The notation of the lossless table form: cells, names, templates, and what the head says of each column.

A cell is a value as JSON, or a string without its quotes where it cannot be mistaken for anything else. Cells are
between `|` in a line, and between `,` or `;` inside the brackets of a list in a cell (`inline`).

A template puts strings together from other columns: `https://host/{owner}/{name}`. It is a list of parts: strings,
sources (columns that have a value in every row where the string is one), and at most one `HOLE` for the cell.

The head says where the values of a column come from, and how its cells are written:

login             cells
size:str          cells that are strings, even if they look like numbers
tags[]            cells are lists of scalars: `[a,b]`
ports[port,name]  cells are lists of records: `[80,http;443,https]`
user&user         cells are keys of rows in the table `user`; `users[&user]`: lists of those
type=file         the same in all rows
id={number}       as in the column `number`
at={5+60*i}       counted: 5, 65, 125, from the first row (of a list in a cell: from its first record)
url~host/{id}/{}  put together from other columns, `{}` being the cell; literal braces are doubled
children^         the rows below that are indented one deeper
type={children?"directory":"file"}    follows from whether the row has those
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from json import JSONDecoder
from typing import Any, Final, Literal, TypeGuard

from msgspec import Struct, field

from mcpbridge.results.exact_json import write_json

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


HOLE = -1
Part = str | int
"""A literal, the number of a source, or HOLE."""

_PARTS = 12
"""Of a template; what has more is described by its cell."""
_PLACES = 8
"""Where a source is looked for in the first text."""


def derive(texts: Sequence[str], sources: Sequence[tuple[int, Sequence[str]]]) -> list[Part] | None:
    """A template of these texts, or None if none of it would be shared. `sources`: a number and a text per text."""
    parts: list[Part] = []
    at = [0] * len(texts)
    while len(parts) < _PARTS and (found := _next_source(texts, at, sources)):
        skip, number, values = found
        parts += [texts[0][at[0] : at[0] + skip], number] if skip else [number]
        at = [place + skip + len(value) for place, value in zip(at, values, strict=True)]
    rests = [text[place:] for text, place in zip(texts, at, strict=True)]
    if all(rest == rests[0] for rest in rests):
        return [*parts, rests[0]] if rests[0] else parts
    prefix = _whole_words(_shared_start(rests), rests[0])
    cut = [rest[len(prefix) :] for rest in rests]
    suffix = _whole_words(_shared_start([rest[::-1] for rest in cut]), cut[0][::-1])[::-1]
    if not parts and not prefix and not suffix:
        return None
    return [*parts, *([prefix] if prefix else []), HOLE, *([suffix] if suffix else [])]


def _next_source(
    texts: Sequence[str], at: list[int], sources: Sequence[tuple[int, Sequence[str]]]
) -> tuple[int, int, Sequence[str]] | None:
    """The nearest source in what remains of all texts, after as much of the same text; of equally near the longest."""
    best: tuple[int, int, int, Sequence[str]] | None = None
    first, begin = texts[0], at[0]
    second = texts[-1][at[-1] :]
    shared = len(_shared_start((first[begin:], second)))
    for number, values in sources:
        place = first.find(values[0], begin, begin + shared + len(values[0]))
        for _ in range(_PLACES):
            if place < 0:
                break
            skip = place - begin
            rank = (skip, -len(values[0]))
            if best and rank >= best[:2]:
                break
            if second.startswith(values[-1], skip) and _everywhere(texts, at, values, first[begin:place]):
                best = (*rank, number, values)
                break
            place = first.find(values[0], place + 1, begin + shared + len(values[0]))
    return (best[0], best[2], best[3]) if best else None


def _everywhere(texts: Sequence[str], at: list[int], values: Sequence[str], before: str) -> bool:
    length = len(before)
    for text, place, value in zip(texts, at, values, strict=True):
        if not (text.startswith(before, place) and text.startswith(value, place + length)):
            return False
    return True


def _shared_start(texts: Sequence[str]) -> str:
    """The longest beginning that all have."""
    low, high = min(texts), max(texts)
    end = 0
    for a, b in zip(low, high, strict=False):
        if a != b:
            break
        end += 1
    return low[:end]


def _whole_words(shared: str, example: str) -> str:
    """As much of a shared beginning as does not cut a word or a number of the example in two."""
    end = len(shared)
    while 0 < end < len(example) and _kind(example[end - 1]) and _kind(example[end - 1]) == _kind(example[end]):
        end -= 1
    return shared[:end]


def _kind(char: str) -> int:
    return 1 if char.isdigit() else 2 if char.isalpha() else 0


def fill(parts: Sequence[Part], values: Sequence[Any], cell: Any) -> Any:
    """The value of a template in a row, given those of its sources, in order, and its cell. Absence is handed on."""
    if HOLE in parts and not isinstance(cell, str):
        return cell
    texts = iter(values)
    out: list[str] = []
    for part in parts:
        if isinstance(part, str):
            out.append(part)
        elif part == HOLE:
            out.append(cell)
        else:
            value = next(texts)
            if value is MISSING or value is None:
                return value
            out.append(str(value))
    return "".join(out)


def template_text(parts: Sequence[Part], names: Sequence[str]) -> str:
    """As it is written: literals with their braces doubled, sources by name in braces, `{}` for the hole."""
    return "".join(
        part.replace("{", "{{").replace("}", "}}")
        if isinstance(part, str)
        else "{}"
        if part == HOLE
        else f"{{{names[part]}}}"
        for part in parts
    )


def read_template(text: str) -> Iterator[tuple[bool, str]]:
    """The parts again: (False, literal) or (True, name of a source, empty for the hole)."""
    at, literal = 0, ""
    while at < len(text):
        char = text[at]
        if char in "{}" and text[at + 1 : at + 2] == char:
            literal, at = literal + char, at + 2
        elif char == "{":
            end = text.index("}", at)
            if literal:
                yield False, literal
            yield True, text[at + 1 : end]
            literal, at = "", end + 1
        else:
            literal, at = literal + char, at + 1
    if literal:
        yield False, literal


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
    """The column that it is the same as, or follows from."""
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
            return spec, _read_derived(text, at + 2, spec)
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


def _read_derived(text: str, at: int, spec: Spec) -> int:
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
