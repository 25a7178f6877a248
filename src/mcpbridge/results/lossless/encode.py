"""A value in fewer characters, without loss: the table form, and the choice of the shortest form.

Lists of objects become tables, objects that repeat are written once, and trees become outlines:

    # how to read it, in one line
    {"total":2,"items":@items}      the value as JSON, tables by name
    &user(login) 2                  objects that are named by `login` elsewhere: how many, head, rows
    login|id
    ann|7
    bob|12
    @items 2                        a table: how many rows, head, rows
    number|title|user&user
    1|Broken|ann
    2|Slow|bob

What a head can say is listed in `notation.py`. `decode.py` turns the form back.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import NotReadable, write_json
from mcpbridge.results.lossless.columns import ColumnPlan, Keys, plan, stays_whole
from mcpbridge.results.lossless.flatten import Column, Shape, shared_objects, spread
from mcpbridge.results.lossless.notation import (
    BELOW,
    KEY,
    Path,
    Spec,
    cell_text,
    is_list,
    is_object,
    path_text,
    spec_text,
)

LEGEND = "# @name n: a table, head and n rows"
"""What the first line of every table form begins with; the rest is what this one needs."""

_SIGNS = {
    "constant": "a=x: x in every row",
    "template": "a~x{b}{}: x, column b, then the cell",
    "steps": "i: rows from 0",
    "ref": "a&t: the row of &t with that key",
    "records": "a[b,c]: list of b,c",
    "below": "a^: the rows indented below",
    "map": "*: the name of the member",
    "absent": "empty cell: absent",
}

_WORK = 6
"""How many times the whole value may be written in trying."""
_LOOKED_AT = 1000
"""Records of which one must have records of its own kind below it, for a list to be a tree."""
_NAME = 24
"""Characters of a name that may stand for an object; longer ones cost more than they say."""


def table_form(value: Any, size: int | None = None) -> str:
    """The value as tables, whether or not that is shorter. `size`: characters of its JSON, if that is known.

    Raises:
        NotReadable, RecursionError: it cannot be written.
    """
    return _Writer(value, len(write_json(value)) if size is None else size).write()


class _Writer:
    def __init__(self, value: Any, size: int) -> None:
        self._value = value
        self._size = size
        self._shared = shared_objects(value, size)
        self._keys: dict[Shape, Keys | None] = {}
        self._blocks: list[str] = []
        self._names: set[str] = set()
        self._signs: set[str] = set()
        self._work = _WORK * size

    def write(self) -> str:
        skeleton = self._place(self._value, "rows")
        said = [words for sign, words in _SIGNS.items() if sign in self._signs]
        return "\n".join(["; ".join([LEGEND, *said]), skeleton, *self._blocks])

    def _place(self, value: Any, name: str) -> str:
        """A value as JSON, with the names of tables in place of what went into them."""
        if self._work < 0 or not _holds_others(value):
            return write_json(value)
        found = self._attempt(value, name)
        if found:
            return found
        if is_list(value):
            return f"[{','.join(self._place(item, name) for item in value)}]"
        members = value
        return f"{{{','.join(f'{write_json(k)}:{self._place(v, k)}' for k, v in members.items())}}}"

    def _attempt(self, value: Any, name: str) -> str | None:
        """The name of the table that it became; None where JSON is as short, or it is no list of records."""
        if is_object(value):
            members = value
            rows = list(members.values())
            if len(rows) < 4 or not all(is_object(row) and row for row in rows):
                return None
            first: list[Column] = [((KEY,), list(members))]
        else:
            rows, first = value, []
            records = sum(isinstance(row, dict | list) for row in rows)
            if (records < 2 and not (records and _tree_member(rows))) or records * 2 < len(rows):
                return None
        before = len(self._blocks), dict(self._keys), set(self._names)
        plain = self._size if value is self._value else len(write_json(value))
        self._work -= plain
        label = self._table(rows, first, name)
        if sum(map(len, self._blocks[before[0] :])) + len(label) < plain:
            return label
        del self._blocks[before[0] :]
        self._keys, self._names = before[1:]
        return None

    def _table(self, rows: list[Any], first: list[Column], name: str) -> str:
        member = None if first else _tree_member(rows)
        depths: list[int] = []
        if member:
            rows, depths = _outline(rows, member)
        columns = [*first, *spread((), rows, lambda values: stays_whole(values, self._keys_of))]
        planned = plan(columns, range(len(rows)), self._keys_of, below=(member,) if member else None)
        label = f"@{self._name(name)}{'{}' if first else ''}"
        self._blocks.append(f"{label} {len(rows)}\n{self._body(planned, len(rows), depths)}")
        return label

    def _keys_of(self, values: list[Any]) -> Keys | None:
        shape = tuple(values[0])
        if shape not in self._shared or any(tuple(value) != shape for value in values):
            return None
        if shape not in self._keys:
            self._keys[shape] = None  # what it holds itself is not named by it
            self._keys[shape] = self._keyed(shape)
        keys = self._keys[shape]
        if keys is None:
            return None
        for value in values:
            if id(value) not in keys.texts:
                group = self._shared[shape].groups.get(write_json(value))
                if group is None:
                    return None
                keys.texts[id(value)] = keys.texts[id(group[0])]
        return keys

    def _keyed(self, shape: Shape) -> Keys:
        groups = list(self._shared[shape].groups.values())
        rows = [group[0] for group in groups]
        columns = list(spread((), rows, lambda values: stays_whole(values, self._keys_of)))
        path, names = _key_column(columns)
        planned = plan(columns, range(len(rows)), self._keys_of)
        table = self._name(self._shared[shape].name)
        head = f"&{table}({path_text(path) if path else '#'}) {len(rows)}"
        self._blocks.append(f"{head}\n{self._body(planned, len(rows), [])}")
        texts = {id(item): key for group, key in zip(groups, names, strict=True) for item in group}
        return Keys(table, texts)

    def _body(self, planned: list[ColumnPlan], count: int, depths: list[int]) -> str:
        """Head and rows."""
        self._signs.update(_signs([entry.spec for entry in planned]))
        head = "|".join(spec_text(entry.spec) for entry in planned)
        written = [entry.cells for entry in planned if entry.cells]
        if not written and not depths:
            return head
        if any("" in cells for cells in written):
            self._signs.add("absent")
        lines = ["|".join(cells).rstrip("|") for cells in zip(*written, strict=True)] if written else [""] * count
        if depths:
            lines = [" " * depth + line for depth, line in zip(depths, lines, strict=True)]
        return "\n".join([head, *lines])

    def _name(self, wanted: str) -> str:
        word = "".join(char for char in wanted if char.isalnum() or char == "_")[:24] or "rows"
        name, number = word, 2
        while name in self._names:
            name, number = f"{word}_{number}", number + 1
        self._names.add(name)
        return name


def _holds_others(value: Any) -> bool:
    """Whether it is a list or an object with lists or objects in it."""
    inner = value.values() if is_object(value) else value if is_list(value) else ()
    return any(isinstance(each, dict | list) for each in inner)


def _signs(specs: list[Spec]) -> Iterator[str]:
    """What of the notation these columns use."""
    for spec in specs:
        yield spec.how
        yield "ref" if spec.kind == "refs" else spec.kind
        if spec.path == (KEY,):
            yield "map"
        yield from _signs(spec.inner)


def _key_column(columns: list[Column]) -> tuple[Path | None, list[Any]]:
    """The column that names a row best, and its values; None and numbers from 1 if none is different in each."""
    best: tuple[bool, int, Path, list[Any]] | None = None
    for path, values in columns:
        kind = next((k for k in (str, int) if all(type(value) is k for value in values)), None)
        if kind and len(set(values)) == len(values):
            length = sum(len(cell_text(value, inline=True)) for value in values)
            # A short name tells the reader something where it stands; a number sends him to the table.
            found = (kind is int or length > _NAME * len(values), length, path, values)
            if best is None or found[:2] < best[:2]:
                best = found
    count = len(columns[0][1])
    return (best[2], best[3]) if best else (None, list(range(1, count + 1)))


def _tree_member(rows: list[Any]) -> str | None:
    """The member that holds records of the same kind as those that hold it."""
    for row in rows[:_LOOKED_AT]:
        if is_object(row):
            for name, value in row.items():
                if is_list(value) and any(is_object(child) and is_list(child.get(name)) for child in value):
                    return name
    return None


def _outline(rows: list[Any], member: str) -> tuple[list[Any], list[int]]:
    """All records of a tree, parents before children, and how deep each lies."""
    out: list[Any] = []
    depths: list[int] = []
    pending = [(row, 0) for row in reversed(rows)]
    while pending:
        row, depth = pending.pop()
        below = row.get(member) if is_object(row) else None
        if below and is_list(below) and all(is_object(child) for child in below):
            pending.extend((child, depth + 1) for child in reversed(below))
            row = {**row, member: BELOW}
        out.append(row)
        depths.append(depth)
    return out, depths


Form = Literal["as sent", "minified", "table"]


class Lossless(Struct, frozen=True):
    """A rewriting that loses nothing."""

    form: Form
    text: str


_LARGEST = 4 * 1024**2
"""Characters of a text above which no table is tried."""
_LARGER = 300
"""How many times the room a text may be at most to be tried: nothing but the plainest counting is shortened more."""
_SAMPLE = 64 * 1024
"""Characters that show whether a text can fit at all, from its beginning, its middle and its end."""


def shortest(document: Document, room: int | None = None) -> Lossless:
    """The shortest of: as it was sent, minified, as a table or an outline. Never longer than the original.

    `room`: what fits, in characters. If nothing does, this is the text as sent, and where that is plain from the first
    it costs next to nothing. A table is only given if it was turned back and was the same value, to the last digit; of
    texts without a value, the same text.
    """
    text = document.text
    if room is not None and _hopeless(text, room):
        return Lossless("as sent", text)
    if document.kind == "listing":
        return _listing(text, room)
    if not document.is_structured:
        return Lossless("as sent", text)
    try:
        plain = write_json(document.value)
    except NotReadable:
        return Lossless("as sent", text)
    best = Lossless("as sent", text)
    if document.kind in ("json", "ndjson", "repr") and len(plain) < len(text):
        best = Lossless("minified", plain)
    most = len(best.text) if room is None else min(room, len(best.text))
    table = _table(document.value, plain, most) if len(text) <= _LARGEST else None
    if table is not None:
        best = Lossless("table", table)
    return best


def _table(value: Any, plain: str, most: int) -> str | None:
    """The table form, if it is no longer than `most` and the way back from it leads to the same value.

    The way back takes as long as the way there, so it is only gone if the table is of use.
    """
    from mcpbridge.results.lossless.decode import restore

    try:
        text = table_form(value, len(plain))
        if len(text) <= most and len(text) < len(plain) and write_json(restore(text, "table")) == plain:
            return text
    except (NotReadable, RecursionError):
        return None
    return None


def _listing(text: str, room: int | None) -> Lossless:
    from mcpbridge.results.lossless.flatten import paths_form, paths_restored

    most = len(text) - 1 if room is None else min(room, len(text) - 1)
    if len(text) <= _LARGEST and text.count("\n") <= most:  # every path keeps a line
        found = paths_form(text)
        if len(found) <= most and paths_restored(found) == text:
            return Lossless("table", found)
    return Lossless("as sent", text)


_PIECE = 8 * 1024
"""Bytes of it that are compressed before it is asked again whether that is too much already."""


def _hopeless(text: str, room: int) -> bool:
    """Whether a text says too much to be told in so much room.

    A measure of what it says is what it can be compressed to: a table holds every word once in full, which takes more
    characters than the bytes of the compressed text. It is wrong for what can be counted on (1, 2, 3, …) and little
    else; such a text gets a preview although a table would do.
    """
    if len(text) > _LARGER * room:
        return True
    part = _SAMPLE // 3
    middle = len(text) // 2
    sample = text if len(text) <= _SAMPLE else text[:part] + text[middle : middle + part] + text[-part:]
    data, packer, packed = sample.encode(errors="replace"), zlib.compressobj(1, memLevel=4), 0
    for start in range(0, len(data), _PIECE):
        packed += len(packer.compress(data[start : start + _PIECE]))
        if packed > 1.5 * room:
            return True
    return packed + len(packer.flush()) > 1.5 * room
