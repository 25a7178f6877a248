"""Decides how each column of a table is written in the fewest characters.

A column may need no cells, because it is constant, counts up, or follows from whether a row has others below it; it
may be put together from other columns; else its cells are written. `notation.py` says how either looks.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from mcpbridge.results.lossless.flatten import Column, spread
from mcpbridge.results.lossless.notation import (
    BELOW,
    HOLE,
    KEY,
    MISSING,
    Path,
    Spec,
    cell_text,
    derive,
    fill,
    is_list,
    is_object,
    path_text,
    spec_text,
    template_text,
)


def cell_free_spec(
    path: Path, values: list[Any], places: Sequence[int], below: Path | None, there: list[bool]
) -> Spec | None:
    """How a column is described without cells; None if it needs cells, or other columns.

    `places`: of each row, how many records of its list come before it. `below`: the member whose lists are rows of
    their own, and `there`: whether a row has such.
    """
    if path in ((KEY,), below):
        return None
    if _constant(values):
        return Spec(path, "constant", value=values[0], has_cell=False)
    if steps := _steps(values, places):
        return Spec(path, "steps", steps=steps, has_cell=False)
    if below is not None and (branches := _branches(values, there)):
        return Spec(path, "branch", source=below, branches=branches, has_cell=False)
    return None


def _constant(values: list[Any]) -> bool:
    first: Any = values[0]
    if first is MISSING or type(first) is dict or values[-1] != first:
        return False
    if not all(type(value) is type(first) and value == first for value in values):
        return False
    # Equal Decimals may be written differently, and lists hold anything.
    return isinstance(first, str | int | None) or len({cell_text(value) for value in values}) == 1


def _steps(values: list[Any], places: Sequence[int]) -> tuple[int, int] | None:
    """The first number and the distance, of numbers that are equally far from each other."""
    if len(values) < 4 or not all(type(value) is int for value in values):
        return None
    step: int = next((values[row] - values[row - 1] for row, place in enumerate(places) if place == 1), 0)
    start: int = values[0]
    if step and all(value == start + place * step for value, place in zip(values, places, strict=True)):
        return start, step
    return None


def _branches(values: list[Any], there: list[bool]) -> tuple[Any, Any] | None:
    """The one value of rows that have rows below, and the one of the others."""
    if not all(isinstance(value, str | int | None) for value in values) or any(value is BELOW for value in values):
        return None
    yes = [value for value, is_there in zip(values, there, strict=True) if is_there]
    no = [value for value, is_there in zip(values, there, strict=True) if not is_there]
    return (yes[0], no[0]) if yes and no and _constant(yes) and _constant(no) else None


_DEEPEST = 4
"""Lists of records in cells of lists of records; deeper ones are JSON."""
_LONGEST = 2000
"""Characters of texts that are compared with other columns; longer ones are prose."""
_SOURCES = 60
"""Columns that others may follow from; more cost too much time."""


class Keys(Struct, frozen=True):
    """Objects that are written once, in a table of their own, and named by a key elsewhere."""

    table: str
    texts: dict[int, Any]
    """`id` of an object: its key."""


class ColumnPlan(Struct):
    """One column, ready to be written."""

    spec: Spec
    cells: list[str] = field(default_factory=list[str])
    """A text per row; none if the column has no cells."""


KeysOf = Callable[[list[Any]], Keys | None]
"""The keys of objects that all are in one table of their own; None where they do not."""


def plan(
    columns: list[Column], places: Sequence[int], keys_of: KeysOf, *, depth: int = 0, below: Path | None = None
) -> list[ColumnPlan]:
    """All columns, in the given order.

    `places`: of each row, how many records of its list come before it. `below`: the member whose lists are rows of
    their own. `depth`: in how many lists in cells these records are.
    """
    planned: list[ColumnPlan | None] = []
    there = [value is BELOW for path, values in columns if path == below for value in values]
    for path, values in columns:
        spec = cell_free_spec(path, values, places, below, there)
        planned.append(ColumnPlan(spec) if spec else None)
    _plan_equal(columns, planned)
    _plan_templates(columns, planned, inline=depth > 0)
    for i, (path, values) in enumerate(columns):
        if planned[i] is None:
            planned[i] = _cells(path, values, keys_of, depth=depth, below=below)
    return [entry for entry in planned if entry is not None]


def _plan_equal(columns: list[Column], planned: list[ColumnPlan | None]) -> None:
    """Find columns that are as one before them."""
    known: dict[tuple[Any, ...], Path] = {}
    for i, (path, values) in enumerate(columns):
        if planned[i] is None and not any(isinstance(value, dict | list) for value in values):
            same = known.setdefault(tuple((type(value), str(value)) for value in values), path)
            if same is not path:
                planned[i] = ColumnPlan(Spec(path, "same", source=same, has_cell=False))


def _plan_templates(columns: list[Column], planned: list[ColumnPlan | None], *, inline: bool) -> None:
    """Find columns of strings that can be told from shorter ones."""
    texts: dict[int, list[Any]] = {}
    for i, (_, values) in enumerate(columns):
        scalars = all(type(v) in (str, int) or v is None or v is MISSING for v in values)
        done = planned[i]
        if (done is None or done.spec.how == "steps") and scalars and any(type(v) in (str, int) for v in values):
            texts[i] = [str(v) if type(v) is int else v for v in values]
    order = sorted(texts, key=lambda i: (sum(len(t) for t in texts[i] if isinstance(t, str)), i))
    names = [path_text(path) for path, _ in columns]
    sources: list[int] = []
    for i in order:
        values = columns[i][1]
        if planned[i] is None and all(isinstance(v, str) or v is None or v is MISSING for v in values):
            planned[i] = _template(i, columns, texts, sources[:_SOURCES], names, inline=inline)
        if not any(brace in names[i] for brace in "{}"):
            sources.append(i)


def _template(
    i: int, columns: list[Column], texts: dict[int, list[Any]], sources: list[int], names: list[str], *, inline: bool
) -> ColumnPlan | None:
    path, values = columns[i]
    rows = [row for row, value in enumerate(values) if isinstance(value, str)]
    if len(rows) < 2 or any(len(values[row]) > _LONGEST for row in rows):
        return None
    ends = (rows[0], rows[-1])
    given = [
        (s, [texts[s][row] for row in rows])
        for s in sources
        if all(isinstance(texts[s][row], str) and texts[s][row] in values[row] for row in ends)
        and all(isinstance(texts[s][row], str) and texts[s][row] for row in rows)
    ]
    parts = derive([values[row] for row in rows], given)
    if parts is None:
        return None
    used = [part for part in parts if isinstance(part, int) and part != HOLE]
    spec = Spec(path, "template", value=template_text(parts, names), has_cell=HOLE in parts)
    cells: list[Any] = values
    if spec.has_cell:
        kept = [_hole(parts, [texts[s][row] for s in used], values[row]) for row in range(len(values))]
        if any(cell is None and value is not None for cell, value in zip(kept, values, strict=True)):
            return None
        cells = kept
    for row, value in enumerate(values):
        if fill(parts, [texts[s][row] for s in used], cells[row]) != value:
            return None
    written = [cell_text(cell, inline=inline, strings=True) for cell in cells] if spec.has_cell else []
    plain = sum(len(cell_text(value, inline=inline)) for value in values)
    if len(spec_text(spec, inline=inline)) + sum(map(len, written)) >= plain + len(names[i]):
        return None
    return ColumnPlan(spec, written)


def _hole(parts: list[Any], given: list[Any], value: Any) -> Any:
    """What the cell must hold for the template to make this value."""
    if not isinstance(value, str):
        return value
    texts = iter(given)
    lengths = [len(part if isinstance(part, str) else "" if part == HOLE else next(texts)) for part in parts]
    at = parts.index(HOLE)
    return value[sum(lengths[:at]) : len(value) - sum(lengths[at:])]


def _cells(path: Path, values: list[Any], keys_of: KeysOf, *, depth: int, below: Path | None) -> ColumnPlan:
    inline = depth > 0
    present = [value for value in values if value is not MISSING and value is not None]
    if path == below:
        plain = all(value is BELOW or value is MISSING for value in values)
        cells = [] if plain else [str(v) if v is BELOW else cell_text(v, inline=inline) for v in values]
        return ColumnPlan(Spec(path, "below", has_cell=not plain), cells)
    if all(isinstance(value, str) for value in present):
        plain = [cell_text(value, inline=inline) for value in values]
        strings = [cell_text(value, inline=inline, strings=True) for value in values]
        if sum(map(len, strings)) + 4 < sum(map(len, plain)):
            return ColumnPlan(Spec(path, kind="str"), strings)
        return ColumnPlan(Spec(path), plain)
    if all(is_object(value) for value in present) and (keys := keys_of(present)):
        cells = [cell_text(_key(keys, value), inline=inline) for value in values]
        return ColumnPlan(Spec(path, kind="ref", table=keys.table), cells)
    if all(is_list(value) for value in present):
        found = _lists(path, values, present, keys_of, depth)
        if found:
            return found
    return ColumnPlan(Spec(path), [cell_text(value, inline=inline) for value in values])


def _key(keys: Keys, value: Any) -> Any:
    return value if value is None or value is MISSING else keys.texts[id(value)]


def _lists(path: Path, values: list[Any], present: list[Any], keys_of: KeysOf, depth: int) -> ColumnPlan | None:
    items = [item for value in present for item in value]
    if items and all(is_object(item) for item in items) and (keys := keys_of(items)):
        spec = Spec(path, kind="refs", table=keys.table)
        texts = keys.texts
        return ColumnPlan(spec, [_bracketed(v, lambda item: cell_text(texts[id(item)], inline=True)) for v in values])
    if items and depth < _DEEPEST and all(isinstance(item, dict | list) for item in items):
        return _records(path, values, present, items, keys_of, depth + 1)
    if items and not any(isinstance(item, dict | list) for item in items):
        return ColumnPlan(Spec(path, kind="list"), [_bracketed(v, lambda i: cell_text(i, inline=True)) for v in values])
    return None


def _bracketed(value: Any, write: Callable[[Any], str]) -> str:
    if value is MISSING or value is None:
        return cell_text(value)
    return f"[{','.join(map(write, value))}]"


def _records(
    path: Path, values: list[Any], present: list[Any], items: list[Any], keys_of: KeysOf, depth: int
) -> ColumnPlan | None:
    """Lists of records, with one head for all of them; None if JSON is as short."""
    places = [place for value in present for place in range(len(value))]
    columns = list(spread((), items, lambda found: stays_whole(found, keys_of)))
    inner = plan(columns, places, keys_of, depth=depth)
    spec = Spec(path, kind="records", inner=[entry.spec for entry in inner])
    written = [entry.cells for entry in inner if entry.spec.has_cell]
    if not written:
        return None
    rows = [",".join(cells) for cells in zip(*written, strict=True)]
    if len(written) == 1 and "" in rows:
        return None
    cells: list[str] = []
    at = 0
    for value in values:
        if value is MISSING or value is None:
            cells.append(cell_text(value))
        else:
            cells.append(f"[{';'.join(rows[at : at + len(value)])}]")
            at += len(value)
    plain = sum(len(cell_text(value)) for value in values)
    return ColumnPlan(spec, cells) if len(spec_text(spec)) + sum(map(len, cells)) < plain else None


def stays_whole(values: list[Any], keys_of: KeysOf) -> bool:
    """Whether these values of a column are named by keys, instead of being spread into columns."""
    present = [value for value in values if value is not MISSING and value is not None]
    if present and all(is_object(value) for value in present):
        return keys_of(present) is not None
    return False
