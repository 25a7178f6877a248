"""One result as a page shows it: rows as a table with a chart, a value as a tree, text by lines, pictures. Pure."""

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from mcpbridge.protocol.body import Body
from mcpbridge.results.content import contents_of
from mcpbridge.results.document import Document
from mcpbridge.results.errors import Meter, QueryRefused
from mcpbridge.results.json_path import Place
from mcpbridge.results.query.query import answer, select
from mcpbridge.results.query.request import Query, read_query

QUERY_FIELDS = ("path", "where", "select", "group_by", "aggregate", "sort", "find", "offset", "limit")
"""The parts of a query that the page has a box for; they mean what they mean to `recall`."""

ROWS = 200
"""Rows of one page of a table."""
COLUMNS = 40
_CHARTED = 6
"""Numeric columns that are drawn."""
_TEXT_LINES = 2000
_NODES, _DEPTH, _MEMBERS = 1500, 8, 100
"""Of a tree: nodes in all, levels, and members of one value that are shown."""
_ANSWER = 20_000
"""Characters of the answer to a query over text."""
_PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
"""Kinds that can hold no script."""
_LARGEST_PICTURE = 2 * 1024**2


class Node(Struct, frozen=True):
    """One value of a tree."""

    name: str
    kind: str
    """`object`, `list`, `text`, `number`, `other`."""
    text: str
    """What is shown beside its name: the value, or how many members it has."""
    children: tuple["Node", ...] = ()
    is_cut: bool = False
    """It has more members than are shown."""


class Picture(Struct, frozen=True):
    """An image of the result."""

    address: str
    """A `data:` address; empty: it is of a kind, or a size, that is not shown."""
    text: str


class ResultView(Struct, frozen=True):
    """What is shown of one result."""

    kind: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    total: int = 0
    """Rows in all."""
    start: int = 0
    """The number of the first row that is shown."""
    tree: Node | None = None
    text: str = ""
    lines: int = 0
    pictures: Sequence[Picture] = ()
    chart: Mapping[str, Any] | None = None
    problem: str = ""
    """Why the query cannot be answered."""
    note: str = ""
    numeric: Sequence[str] = field(default_factory=list[str])
    """Columns of numbers, to be aligned."""


def view_of(data: bytes, asked: Mapping[str, str]) -> ResultView:
    """What a result shows under a query. Never raises: what is wrong with the query is `problem`."""
    contents = contents_of(Body(data))
    document, pictures = contents.document(), _pictures(data)
    try:
        query = read_query(_arguments(asked))
        view = _answered(document, query)
    except QueryRefused as error:
        view = ResultView(kind=document.kind, problem=str(error))
    except RecursionError:
        view = ResultView(kind=document.kind, problem="This value is nested too deep to be shown: give a path into it.")
    return msgspec.structs.replace(view, pictures=pictures)


def _arguments(asked: Mapping[str, str]) -> dict[str, Any]:
    """The boxes as arguments of `recall`; several terms in one box are separated by commas."""
    given: dict[str, Any] = {name: value for name, value in asked.items() if value}
    for name in ("offset", "limit"):
        if (value := given.get(name)) is not None and value.isdecimal():
            given[name] = int(value)
    return given


def _answered(document: Document, query: Query) -> ResultView:
    if not document.is_structured:
        if query.is_empty:
            return _text(document.text)
        return _text(answer(query, {"result": document}, _ANSWER).text)
    if query.finder is not None and not query.asks_rows:
        return _text(answer(query, {"result": document}, _ANSWER).text)
    found = select(query, [Place(None, "", document.value)], Meter())
    if not found.is_one:
        values = [found.shape(row) for row in found.rows[query.offset or 0 :][: min(query.limit or ROWS, ROWS)]]
        return _rows(document.kind, values, len(found.rows), query.offset or 0, found.note)
    value = found.shape(found.rows[0]) if found.rows else None
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in cast("list[Any]", value)):
        rows = cast("list[Any]", value)
        start = query.offset or 0
        return _rows(document.kind, rows[start : start + min(query.limit or ROWS, ROWS)], len(rows), start, found.note)
    if isinstance(value, str):
        return _text(value)
    return ResultView(kind=document.kind, tree=_Tree().node("", value, 0), note=found.note)


def _rows(kind: str, values: Sequence[Any], total: int, start: int, note: str) -> ResultView:
    """Rows as a table: one column for each member, the most common first seen first."""
    if not all(isinstance(row, Mapping) for row in values):
        columns = ["value"]
        table = [[value] for value in values]
    else:
        rows = cast("Sequence[Mapping[str, Any]]", values)
        columns = list(dict.fromkeys(name for row in rows for name in row))[:COLUMNS]
        table = [[row.get(name, "") for name in columns] for row in rows]
    numbers = {
        name: [row[at] for row in table]
        for at, name in enumerate(columns)
        if table
        and all(_is_number(row[at]) or row[at] in ("", None) for row in table)
        and any(_is_number(row[at]) for row in table)
    }
    chart = None
    if numbers and len(table) > 1:
        drawn = [name for name in numbers if name.lower() not in ("id", "index", "number")][:_CHARTED] or list(numbers)
        series = [[float(one) if _is_number(one) else None for one in numbers[name]] for name in drawn]
        chart = {"names": drawn, "x": list(range(start, start + len(table))), "series": series}
    cells = [[_cell(value) for value in row] for row in table]
    return ResultView(
        kind=kind, columns=columns, rows=cells, total=total, start=start, chart=chart, note=note, numeric=list(numbers)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return str(value) if isinstance(value, Decimal) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_number)


def _number(value: object) -> object:
    """What `json` does not know: a Decimal, which loses no digit that a page shows."""
    return float(value) if isinstance(value, Decimal) else str(value)


def _text(text: str) -> ResultView:
    lines = text.splitlines()
    return ResultView(kind="text", text="\n".join(lines[:_TEXT_LINES]), lines=len(lines))


class _Tree:
    """Builds the nodes of one value, so many at most."""

    def __init__(self) -> None:
        self._left = _NODES

    def node(self, name: str, value: Any, depth: int) -> Node:
        self._left -= 1
        if isinstance(value, Mapping):
            members = list(cast("Mapping[str, Any]", value).items())
            return self._whole(name, "object", f"{len(members):,} members", members, depth)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return self._whole(name, "list", f"{len(items):,} elements", list(enumerate(items)), depth)
        kind = "text" if isinstance(value, str) else "number" if _is_number(value) else "other"
        return Node(name, kind, _json(value))

    def _whole(self, name: str, kind: str, text: str, members: Sequence[tuple[Any, Any]], depth: int) -> Node:
        if depth >= _DEPTH:
            return Node(name, kind, text, is_cut=bool(members))
        children: list[Node] = []
        for key, value in members[:_MEMBERS]:
            if self._left <= 0:
                break
            children.append(self.node(str(key), value, depth + 1))
        return Node(name, kind, text, tuple(children), is_cut=len(children) < len(members))


class _ImageBlock(Struct):
    type: str = ""
    mime: str = msgspec.field(default="", name="mimeType")
    data: str = ""


def _pictures(data: bytes) -> list[Picture]:
    try:
        blocks = cast("dict[str, Any]", msgspec.json.decode(data)).get("content", [])
        images = [
            msgspec.convert(block, _ImageBlock, strict=False)
            for block in blocks
            if isinstance(block, dict) and cast("dict[str, Any]", block).get("type") == "image"
        ]
    except (
        msgspec.DecodeError,
        msgspec.ValidationError,
        UnicodeDecodeError,
        RecursionError,
        AttributeError,
        TypeError,
    ):
        return []
    return [_picture(image) for image in images[:20]]


def _picture(image: _ImageBlock) -> Picture:
    mime = image.mime.partition(";")[0].strip().lower()
    size = len(image.data) * 3 // 4
    text = f"{mime or 'an image of no kind'}, {size:,} bytes"
    if mime not in _PICTURES or size > _LARGEST_PICTURE:
        return Picture("", f"{text}; not shown")
    try:
        base64.b64decode(image.data, validate=True)
    except ValueError:
        return Picture("", f"{text}; it is no valid base64")
    return Picture(f"data:{mime};base64,{image.data}", text)
