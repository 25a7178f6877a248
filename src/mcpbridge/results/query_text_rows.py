"""Lines of a text as rows: those that are found, with their numbers, and what a pattern caught in them.

Of a very long line each place that is found is a row of its own, with what is around it in place of the line.
"""

from collections.abc import Iterator
from typing import Any

from mcpbridge.results.document import Document
from mcpbridge.results.query_find import excerpt
from mcpbridge.results.query_refused import QueryRefused
from mcpbridge.results.query_regex import Finder, Regex
from mcpbridge.results.query_request import Query
from mcpbridge.results.query_text import lines_of

__all__ = ["rows_of_text"]

LONG = 1000
"""Characters of a line from which its matches are rows of their own."""

SCANNED = 300_000_000
"""Characters that are scanned for all of them; each match scans the rest of its line again, in the worst case."""


def rows_of_text(document: Document, query: Query) -> list[Any]:
    """The lines of a text that `find` or `regex` choose, all without one: `line`, `text`, and the groups of the regex.

    Raises:
        QueryRefused: the query asks for fields, and there is no pattern that makes some; or there is too much to scan.
    """
    if query.path is not None and query.path.steps:
        raise QueryRefused(f"path: this is {document.kind}, which has no fields; use find, regex or lines")
    if query.where is not None and not isinstance(query.finder, Regex):
        raise QueryRefused(
            f"where: this is {document.kind}, which has no fields; use find or regex, whose groups "
            "(?P<name>…) are fields, and aggregate=count to count lines"
        )
    lines = lines_of(document.text)
    if query.finder is None:
        if query == Query(aggregates=query.aggregates) and all(one.term is None for one in query.aggregates):
            return lines  # they are only counted, and there may be millions
        return [{"line": number, "text": line} for number, line in enumerate(lines, 1)]
    return list(_found(lines, query.finder))


def _found(lines: list[str], finder: Finder) -> Iterator[dict[str, Any]]:
    left = max(SCANNED, 2 * sum(map(len, lines)))
    for number, line in enumerate(lines, 1):
        at, is_long = 0, len(line) > LONG
        while (span := finder.first(line, at)) is not None:
            text = excerpt(line, span) if is_long else line
            groups = finder.groups(line, at) if isinstance(finder, Regex) else {}
            yield {"line": number, "text": text, **groups}
            left -= len(line)
            if left < 0:
                raise QueryRefused("too many matches in very long lines: use _transform, or a rarer text")
            if not is_long:
                break
            at = max(span[1], span[0] + 1)
