"""Applies a query to kept results and answers it in so many characters. Nothing of a query is executed: it is data.

A query is applied in the order path, where, group_by and aggregate or sort, offset and limit, select. Rows are the
elements of the list that `path` leads to (of the document itself without one: for CSV, tables and JSON lines its rows).
`find` and `regex` look through what path and where leave, or choose the rows where something about rows is asked too.
Texts without a value are answered by lines. Several documents are one list of rows where they have rows, each with its
handle as `$handle`, and else are answered one after the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from mcpbridge.results.document import Document
from mcpbridge.results.errors import Meter, QueryRefused
from mcpbridge.results.json_path import Each, Name, Path, Place
from mcpbridge.results.preview.preview import headline
from mcpbridge.results.query.find_text import Finder
from mcpbridge.results.query.limits import LINE_AVERAGE
from mcpbridge.results.query.page import Row, characters, fitted, outline, rows_page
from mcpbridge.results.query.request import (
    Aggregate,
    Column,
    Query,
    aggregated,
    columns_only,
    grouped,
    sorted_rows,
)
from mcpbridge.results.query.terms import Term, check_known, number_of, term_of, without_halves, written
from mcpbridge.results.query.text import (
    excerpt,
    has_match,
    lines_of,
    match_text,
    matches,
    matching_lines,
    numbered,
    rows_of_text,
    text_page,
)

_EACH = Path("[]", (Each(),))
_COUNT = Aggregate("count", "count", None)


class Selection(Struct, frozen=True):
    """What was selected: rows, or one value."""

    rows: list[Place]
    """The rows, all of them; of one value, that."""
    shape: Callable[[Place], Any]
    """What is shown of a row."""
    is_one: bool = False
    """It is one value and no list of rows."""
    note: str = ""
    """What should be said of it."""

    def value(self, query: Query) -> Any:
        """All of it, `offset` and `limit` applied; None if it is one value in which nothing was found."""
        if self.is_one:
            return self.shape(self.rows[0]) if self.rows else None
        start = query.offset or 0
        return [self.shape(row) for row in self.rows[start : None if query.limit is None else start + query.limit]]


def select(query: Query, roots: Sequence[Place], meter: Meter, *, is_filter: bool = False) -> Selection:
    """Answer the parts of a query that are about values. `roots`: one for each document.

    What is to be found chooses rows if something about rows is asked, or `is_filter` says so.

    Raises:
        QueryRefused: what cannot be, and what there is instead.
    """
    found = [place for root in roots for place in (query.path.resolve(root, meter) if query.path else (root,))]
    is_one = len(roots) == 1 and len(found) == 1 and not (query.path and query.path.is_many)
    note = ""
    if not (query.path and query.path.is_many) and all(isinstance(place.value, list) for place in found):
        found = [row for place in found for row in _EACH.places(place, meter)]
        is_one = False
    elif is_one and query.asks_rows and isinstance(found[0].value, dict):
        found, note = _rows_of(query, found[0], meter)
        is_one = not note and not query.aggregates and not query.group_by and not query.where
    rows = _matching(query, found, meter, is_filter=is_filter or query.asks_rows)
    if query.group_by or query.aggregates:
        return _together(query, rows, note, meter)
    check_known([key.term for key in query.sort], rows, meter)
    check_known([column.term for column in query.select], rows, meter)
    return Selection(sorted_rows(rows, query.sort, meter), _shape(query.select, meter), is_one, note)


def _matching(query: Query, rows: list[Place], meter: Meter, *, is_filter: bool) -> list[Place]:
    kept = rows
    if query.where is not None:
        where = query.where
        check_known(where.terms, rows, meter)
        kept = [row for row in rows if where.test(row, meter)]
    if query.finder is not None and is_filter:
        finder = query.finder
        kept = [row for row in kept if has_match(row, finder, meter)]
    return kept


def _together(query: Query, rows: list[Place], note: str, meter: Meter) -> Selection:
    check_known([one.term for one in query.aggregates if one.term is not None], rows, meter)
    check_known([term for _, term in query.group_by], rows, meter)
    if not query.group_by:
        total = f"of {len(rows):,} rows" + (f" of {note}" if note else "")
        value = Place(None, "", aggregated(rows, query.aggregates, meter))
        return Selection([value], lambda row: row.value, is_one=True, note=total)
    groups = grouped(rows, query.group_by, query.aggregates or (_COUNT,), meter)
    columns_only(query.sort, groups)
    places = [Place(None, index, group) for index, group in enumerate(groups)]
    ordered = sorted_rows(places, [structs.replace(key, term=_column(key.term)) for key in query.sort], meter)
    note = f"groups of {len(rows):,} rows" + (f" of {note}" if note else "")
    columns = tuple(replace(column, term=_column(column.term)) for column in query.select)
    check_known([column.term for column in columns], ordered, meter)
    return Selection(ordered, _shape(columns, meter), note=note)


def _column(term: Term) -> Term:
    """The column of groups that a term names: `sum(amount)` is one, and no longer a function."""
    return term_of(Path(term.text, (Name(term.text),)))


def _shape(columns: tuple[Column, ...], meter: Meter) -> Callable[[Place], Any]:
    if not columns:
        return lambda row: row.value
    if len(columns) == 1 and not columns[0].is_named:
        return lambda row: columns[0].term.value(row, meter)
    return lambda row: {column.name: column.term.value(row, meter) for column in columns}


def _rows_of(query: Query, place: Place, meter: Meter) -> tuple[list[Place], str]:
    """The rows of an object when a query asks for rows, and which they are.

    The object itself if it has one of the fields, else its only list, else its members if all are objects.
    """
    members = cast("dict[str, Any]", place.value)
    terms = _terms(query)
    if any(term.about is None and term.path.steps and term.path.values(place, meter) for term in terms):
        return [place], ""
    lists = [name for name, value in members.items() if isinstance(value, list)]
    if len(lists) == 1:
        inside = Place(place, lists[0], members[lists[0]])
        return list(_EACH.places(inside, meter)), inside.path
    if len(members) > 1 and all(isinstance(value, dict) for value in members.values()):
        return list(_EACH.places(place, meter)), f"the members of {place.path}"
    return [place], ""


def _terms(query: Query) -> list[Term]:
    terms = [column.term for column in query.select] + [key.term for key in query.sort]
    terms += [one.term for one in query.aggregates if one.term is not None] + [term for _, term in query.group_by]
    return terms + list(query.where.terms if query.where else ())


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
            return _answer_text(query, select(query, roots, meter), room)
        if all(document.is_structured for document in documents.values()) and not query.is_empty:
            roots = [Place(None, handle, document.value) for handle, document in documents.items()]
            found = select(query, roots, meter)
            if len(found.rows) != len(roots) or query.path is None:
                return _answer_text(query, found, room)
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
    is_field_of_text = query.path is not None and query.path.steps and not document.is_structured
    if query.lines is not None and is_field_of_text:
        raise QueryRefused(f"path: this is {document.kind}, which has no fields; give lines alone")
    if query.lines is not None:
        return _lines(query, document, room)
    if query.asks_rows or (document.is_structured and query.finder is None):
        found = select(query, [_root(handle, document, query)], meter)
        if not query.is_empty:
            return _answer_text(query, found, room)
        head = fitted(headline(document), room // 3)
        return f"{head}\n{_answer_text(query, found, room - len(head) - 1)}"
    if document.is_structured:
        return _findings(query, _root(handle, document, query), document.around, room, meter)
    if query.path is not None and query.path.steps:
        raise QueryRefused(f"path: this is {document.kind}, which has no fields; use find, regex, lines or offset")
    if query.finder is not None:
        return matching_lines(document.text, query.finder, query, room)
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
    found = list(islice(query.path.resolve(Place(None, handle, document.value), meter), 2))
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


def _answer_text(query: Query, selection: Selection, room: int) -> str:
    if not selection.is_one or not selection.rows:
        rows = Row(
            len(selection.rows),
            lambda index: selection.shape(selection.rows[index]),
            lambda index: selection.rows[index].path,
        )
        return rows_page(rows, query.offset or 0, query.limit, room, selection.note)
    value = selection.shape(selection.rows[0])
    if isinstance(value, str):
        if query.offset is None and _looks_like_json(value):
            return written(value)
        return characters(value, query.offset or 0, query.limit, room)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        base = selection.rows[0].path
        rows = Row(len(items), items.__getitem__, lambda index: "" if query.select else f"{base}[{index}]")
        return rows_page(rows, query.offset or 0, query.limit, room, selection.note)
    text = written(value)
    if query.offset is not None or query.limit is not None:
        return characters(text, query.offset or 0, query.limit, room, "as JSON")
    note = f"\n[{selection.note}]" if selection.note else ""
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
    for found in _matches_in(query, query.finder, root, around, meter):
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


def _matches_in(
    query: Query, finder: Finder, root: Place, around: tuple[str, str], meter: Meter
) -> Iterator[Callable[[], str]]:
    """All that is found, in the order of the text; each is written only if it is shown."""
    before, after = around if query.path is None or not query.path.steps else ("", "")
    yield from _line_matches("before the value", before, finder)
    for place in query.path.resolve(root, meter) if query.path else (root,):
        for one, text, span in matches(place, finder, meter):
            yield partial(match_text, one, text, span)
    yield from _line_matches("after the value", after, finder)


def _line_matches(where: str, text: str, finder: Finder) -> Iterator[Callable[[], str]]:
    for number, line in enumerate(lines_of(text), 1):
        span = finder.first(line)
        if span is not None:
            yield partial("({}, line {}): {}".format, where, number, excerpt(line, span))


def _lines(query: Query, document: Document, room: int) -> str:
    text, note = document.text, ""
    if document.kind == "json" and len(text) > LINE_AVERAGE * (text.count("\n") + 1):
        try:
            text = msgspec.json.format(text.encode(), indent=1).decode()
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return numbered(text, query, room)
        note = "JSON written readably, "
    return numbered(text, query, room, note)
