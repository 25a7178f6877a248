"""Answers to queries over kept results, in so many characters. Nothing of a query is executed: it is data.

A query is applied in the order path, where, group_by and aggregate or sort, offset and limit, select. Rows are the
elements of the list that `path` leads to (of the document itself without one: for CSV, tables and JSON lines its rows).
`find` and `regex` look through what path and where leave, or choose the rows where something about rows is asked too.
Texts without a value are answered by lines. Several documents are one list of rows where they have rows, each with its
handle as `$handle`, and else are answered one after the other.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, cast

import msgspec
from msgspec import Struct

from mcpbridge.results.document import Document
from mcpbridge.results.paths import Place
from mcpbridge.results.preview import headline
from mcpbridge.results.query_find import excerpt, matches, shown
from mcpbridge.results.query_page import Row, characters, fitted, outline, rows_page
from mcpbridge.results.query_refused import Meter, QueryRefused
from mcpbridge.results.query_regex import Finder
from mcpbridge.results.query_request import Query, read_query
from mcpbridge.results.query_rows import Selection, select
from mcpbridge.results.query_text import found_lines, lines_of, numbered, text_page
from mcpbridge.results.query_text_rows import rows_of_text
from mcpbridge.results.query_values import number_of, without_halves, written

__all__ = ["Answer", "Query", "QueryRefused", "answer", "read_query", "selected"]

ONE_LINE = 2000
"""Characters of the lines of a text, on average, from which `lines` counts those of its JSON written readably."""


class Answer(Struct, frozen=True):
    """What a query says."""

    text: str


def answer(query: Query, documents: Mapping[str, Document], room: int) -> Answer:
    """Answer a query over documents, by handle, in at most `room` characters (200 or more).

    Raises:
        QueryRefused: it cannot be answered; says why, and what there is.
    """
    try:
        return Answer(without_halves(fitted(_answered(query, documents, room), room)))
    except RecursionError:
        raise QueryRefused("this is nested too deep to be shown whole: give a path into it, or select") from None


def selected(query: Query, documents: Mapping[str, Document]) -> Any:
    """The value that path, where, select and so on leave of documents, all of it: what transforms work on.

    Raises:
        QueryRefused: see `answer`; or a document is a text.
    """
    meter = Meter()
    roots = [_root(handle, document, query) for handle, document in documents.items()]
    try:
        return select(query, roots, meter, is_filter=True).value(query)
    except RecursionError:
        raise QueryRefused("nested too deep") from None


def _answered(query: Query, documents: Mapping[str, Document], room: int) -> str:
    if len(documents) == 1:
        ((handle, document),) = documents.items()
        return _of_one(query, handle, document, room)
    if query.lines is None and (query.finder is None or query.asks_rows):
        meter = Meter()
        if query.asks_rows:
            roots = [_root(handle, document, query) for handle, document in documents.items()]
            return _told(query, select(query, roots, meter), room)
        if all(document.is_structured for document in documents.values()) and not query.is_empty:
            roots = [Place(None, handle, document.value) for handle, document in documents.items()]
            found = select(query, roots, meter)
            if len(found.rows) != len(roots) or query.path is None:
                return _told(query, found, room)
    share = room // len(documents) - 1
    if share < 200:
        raise QueryRefused(f"too many handles for {room} characters: give fewer, or where, sort, select or aggregate")
    parts = [
        fitted(f"[{handle}]\n{_of_one(query, handle, document, share - len(handle) - 3)}", share)
        for handle, document in documents.items()
    ]
    return "\n".join(parts)


def _of_one(query: Query, handle: str, document: Document, room: int) -> str:
    meter = Meter()
    query, document = _inside(query, handle, document, meter)
    if query.lines is not None:
        return _lines(query, document, room)
    if query.asks_rows or (document.is_structured and query.finder is None):
        found = select(query, [_root(handle, document, query)], meter)
        if not query.is_empty:
            return _told(query, found, room)
        head = fitted(headline(document), room // 3)
        return f"{head}\n{_told(query, found, room - len(head) - 1)}"
    if document.is_structured:
        return _findings(query, _root(handle, document, query), document.around, room, meter)
    if query.path is not None and query.path.steps:
        raise QueryRefused(f"path: this is {document.kind}, which has no fields; use find, regex, lines or offset")
    if query.finder is not None:
        return found_lines(document.text, query.finder, query, room)
    if not query.is_empty:
        return text_page(document.text, query, room)
    head = fitted(headline(document), room // 3)
    return f"{head}\n{text_page(document.text, query, room - len(head) - 1)}"


def _inside(query: Query, handle: str, document: Document, meter: Meter) -> tuple[Query, Document]:
    """What lines and finding are about: the text that the path leads to, if it leads to one."""
    if query.path is None or query.asks_rows or (query.lines is None and query.finder is None):
        return query, document
    if not document.is_structured:
        return query, document
    found = list(islice(query.path.found(Place(None, handle, document.value), meter), 2))
    if len(found) == 1 and isinstance(found[0].value, str):
        return replace(query, path=None), Document(found[0].value, "text")
    if query.lines is not None:
        raise QueryRefused("lines: with a path, that must lead to one text; for rows use offset and limit")
    return query, document


def _root(handle: str, document: Document, query: Query) -> Place:
    """The value that a query is about; for texts, their lines as rows, if that is possible."""
    if document.is_structured:
        return Place(None, handle, document.value)
    return Place(None, handle, rows_of_text(document, query))


def _told(query: Query, found: Selection, room: int) -> str:
    if not found.is_one or not found.rows:
        rows = Row(len(found.rows), lambda index: found.shape(found.rows[index]), lambda index: found.rows[index].path)
        return rows_page(rows, query.offset or 0, query.limit, room, found.note)
    value = found.shape(found.rows[0])
    if isinstance(value, str):
        if query.offset is None and _looks_like_json(value):
            return written(value)
        return characters(value, query.offset or 0, query.limit, room)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        base = found.rows[0].path
        rows = Row(len(items), items.__getitem__, lambda index: "" if query.select else f"{base}[{index}]")
        return rows_page(rows, query.offset or 0, query.limit, room, found.note)
    text = written(value)
    if query.offset is not None or query.limit is not None:
        return characters(text, query.offset or 0, query.limit, room, "as JSON")
    note = f"\n[{found.note}]" if found.note else ""
    if len(text) + len(note) <= room:
        return text + note
    last = f"[cut, of {len(text):,} characters as JSON: path for a member; offset=0 for the JSON itself]{note}"
    return f"{outline(value, room - len(last) - 1)}\n{last}"


def _looks_like_json(text: str) -> bool:
    """Shown bare, it would be taken for another value."""
    return len(text) < 1000 and (not text.strip() or text in ("true", "false", "null") or number_of(text) is not None)


def _findings(query: Query, root: Place, around: tuple[str, str], room: int, meter: Meter) -> str:
    """Where something stands in a value, and in the words before and after it where no path leads elsewhere."""
    assert query.finder is not None
    start, total, lines = query.offset or 0, 0, list[str]()
    most = room if query.limit is None else query.limit
    space = room - 90
    for found in _found_in(query, query.finder, root, around, meter):
        total += 1
        if total <= start or space < 0 or len(lines) >= most:
            continue
        line = found()
        space -= len(line) + 1
        if space >= 0 or not lines:
            lines.append(line)
    end = start + len(lines)
    if not lines:
        return f"[found {total:,} times]"
    rest = f"; offset={end} for the next" if end < total else ""
    last = f"[all {total:,} matches]" if not start and not rest else f"[matches {start}-{end - 1} of {total:,}{rest}]"
    body = "\n".join(lines)
    return f"{fitted(body, room - len(last) - 1)}\n{last}"


def _found_in(
    query: Query, finder: Finder, root: Place, around: tuple[str, str], meter: Meter
) -> Iterator[Callable[[], str]]:
    """All that is found, in the order of the text; each is written only if it is shown."""
    before, after = around if query.path is None or not query.path.steps else ("", "")
    yield from _words_found("before the value", before, finder)
    for place in query.path.found(root, meter) if query.path else (root,):
        for one, text, span in matches(place, finder, meter):
            yield partial(shown, one, text, span)
    yield from _words_found("after the value", after, finder)


def _words_found(where: str, text: str, finder: Finder) -> Iterator[Callable[[], str]]:
    for number, line in enumerate(lines_of(text), 1):
        span = finder.first(line)
        if span is not None:
            yield partial("({}, line {}): {}".format, where, number, excerpt(line, span))


def _lines(query: Query, document: Document, room: int) -> str:
    text, note = document.text, ""
    if document.kind == "json" and len(text) > ONE_LINE * (text.count("\n") + 1):
        try:
            text = msgspec.json.format(text.encode(), indent=1).decode()
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return numbered(text, query, room)
        note = "JSON written readably, "
    return numbered(text, query, room, note)
