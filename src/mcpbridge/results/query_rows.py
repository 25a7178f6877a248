"""The rows that a query selects of values: path, where, find, groups or sort."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from msgspec import Struct, structs

from mcpbridge.results.path_steps import Each, Name
from mcpbridge.results.paths import Path, Place
from mcpbridge.results.query_find import has_match
from mcpbridge.results.query_refused import Meter
from mcpbridge.results.query_request import Column, Query
from mcpbridge.results.query_sorting import Aggregate, aggregated, columns_only, grouped, sorted_rows
from mcpbridge.results.query_terms import Term, check_known, term_of

__all__ = ["Selection", "select"]

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
        """All of it, `offset` and `limit` applied."""
        if self.is_one:
            return self.shape(self.rows[0])
        start = query.offset or 0
        return [self.shape(row) for row in self.rows[start : None if query.limit is None else start + query.limit]]


def select(query: Query, roots: Sequence[Place], meter: Meter, *, is_filter: bool = False) -> Selection:
    """Answer the parts of a query that are about values. `roots`: one for each document.

    What is to be found chooses rows if something about rows is asked, or `is_filter` says so.

    Raises:
        QueryRefused: what cannot be, and what there is instead.
    """
    found = [place for root in roots for place in (query.path.found(root, meter) if query.path else (root,))]
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
