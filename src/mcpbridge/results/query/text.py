"""Searches texts: matches with what is around them, lines by number, and pages of lines or characters.

Lines of a text can be rows: those that match, with their numbers and what a pattern captured. Of a very long line each
match is a row of its own, with what is around it in place of the line.
"""

from collections.abc import Callable, Iterator
from typing import Any

from mcpbridge.results.document import Document
from mcpbridge.results.errors import Meter, QueryRefused, clipped
from mcpbridge.results.json_path import Deep, Path, Place
from mcpbridge.results.query.find_text import Finder, Regex
from mcpbridge.results.query.limits import LONG_LINE, MATCH_CONTEXT, MATCHES_PER_LINE, SCANNED_CHARACTERS, WHOLE_TEXT
from mcpbridge.results.query.page import characters, fitted
from mcpbridge.results.query.request import Query
from mcpbridge.results.query.terms import written

_ALL = Path("**", (Deep(),))


def has_match(row: Place, finder: Finder, meter: Meter) -> bool:
    """Whether a text or a number in the row has it."""
    return next(matches(row, finder, meter), None) is not None


def matches(row: Place, finder: Finder, meter: Meter) -> Iterator[tuple[Place, str, tuple[int, int]]]:
    """Every text or number in a value that has it, in order; the text, and where in the text."""
    for place in _ALL.places(row, meter):
        value = place.value
        if isinstance(value, list | dict | bool) or value is None:
            continue
        text = value if isinstance(value, str) else written(value)
        span = finder.first(text)
        if span is not None:
            yield place, text, span


def excerpt(text: str, span: tuple[int, int], whole: int = WHOLE_TEXT) -> str:
    """A text, cut to what is around a part of it where it is long; on one line."""
    if len(text) > whole:
        start, end = max(0, span[0] - MATCH_CONTEXT), min(len(text), max(span[1], span[0] + 1) + MATCH_CONTEXT)
        end = min(end, start + whole)
        text = f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
    return text.replace("\r", "").replace("\n", "\\n")


def match_text(place: Place, text: str, span: tuple[int, int]) -> str:
    """A match as answers show it: its path, what it is in if that is nested, an excerpt."""
    path = place.path
    trail = place.parent.trail if path.count("[") > 1 and place.parent is not None else ""
    return f"{path}{f' ({clipped(trail, 100)})' if '/' in trail else ''}: {excerpt(text, span)}"


def lines_of(text: str) -> list[str]:
    """The lines of a text, without their ends; an end of the last line begins no other."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def text_page(text: str, query: Query, room: int) -> str:
    """Some of a text as it is: whole lines from `offset` on, or characters if a line is longer than the room."""
    lines = lines_of(text)
    if any(len(line) > room - 100 for line in lines):
        return characters(text, query.offset or 0, query.limit, room)
    start = query.offset or 0
    end = len(lines) if query.limit is None else min(len(lines), start + query.limit)
    if start == 0 and end == len(lines) and len(text) <= room:
        return text
    return _some_lines(lines, (start, end), room, lambda at: f"offset={at} for the next", until=len(lines))


def numbered(text: str, query: Query, room: int, note: str = "") -> str:
    """The lines that `query.lines` names.

    Raises:
        QueryRefused: there are not so many.
    """
    lines = lines_of(text)
    first, last = query.lines or (1, None)
    start = max(0, len(lines) + first) if first < 0 else first - 1
    end = len(lines) if last is None else min(last, len(lines))
    if start >= len(lines):
        raise QueryRefused(f"lines: there are {len(lines):,}")
    if start + 1 == end:
        what = f"{note}line {end} of {len(lines):,}"
        return characters(lines[start], query.offset or 0, query.limit, room, what)
    start = min(end, start + (query.offset or 0))
    end = end if query.limit is None else min(end, start + query.limit)
    return _some_lines(lines, (start, end), room, lambda at: f'lines="{at + 1}-{end}" for the next', note)


def matching_lines(text: str, finder: Finder, query: Query, room: int) -> str:
    """The lines that hold what is looked for, with their numbers and `context` lines around each."""
    lines = lines_of(text)
    hits = [number for number, line in enumerate(lines) if finder.first(line) is not None]
    start = query.offset or 0
    end = len(hits) if query.limit is None else min(len(hits), start + query.limit)
    if start >= end:
        return fitted(f"[found in {len(hits):,} of {len(lines):,} lines]", room)
    space = room - len(f"\n[matches {len(hits)}-{len(hits)} of {len(hits):,}; offset={len(hits)} for the next]")
    shown, at, written_to = list[str](), start, -1
    for at in range(start, end):
        block = list(_block(lines, hits[at], query.context, written_to, finder, room))
        space -= sum(len(line) + 1 for line in block)
        if space < 0 and at > start:
            break
        shown += block
        written_to = max(written_to, hits[at] + query.context)
    else:
        at = end
    rest = f"; offset={at} for the next" if at < len(hits) else ""
    which = (
        f"all {len(hits):,} matching lines" if start == 0 and not rest else f"matches {start}-{at - 1} of {len(hits):,}"
    )
    last = f"[{which}{rest}]"
    body = "\n".join(shown)
    return f"{fitted(body, room - len(last) - 1)}\n{last}"


def _block(lines: list[str], hit: int, context: int, after: int, finder: Finder, room: int) -> Iterator[str]:
    """A line that was found, and those around it that were not written yet."""
    start = max(hit - context, after + 1, 0)
    if context and after >= 0 and start > after + 1:
        yield "--"
    for number in range(start, min(len(lines), hit + context + 1)):
        sign = ":" if number == hit or finder.first(lines[number]) else "-"
        yield from _line(number, lines[number], sign, finder, room)


def _line(number: int, line: str, sign: str, finder: Finder, room: int) -> Iterator[str]:
    if len(line) <= max(300, room // 3):
        yield f"{number + 1}{sign} {line}"
        return
    at = 0
    for _ in range(MATCHES_PER_LINE):  # so a pattern is tried on a long line so many times at most
        span = finder.first(line, at)
        if span is None:
            return
        yield f"{number + 1}{sign} char {span[0]}: {excerpt(line, span)}"
        at = max(span[1], span[0] + 1)


def _some_lines(
    lines: list[str], span: tuple[int, int], room: int, onward: Callable[[int], str], note: str = "", until: int = 0
) -> str:
    """Lines of a span, as many as fit; `onward` says how to go on before `until`, or the end of the span."""
    (start, end), total = span, len(lines)
    space = room - len(f"\n[{note}lines {total}-{total} of {total:,}; {onward(total)}]") - 10
    at = start
    while at < end and space >= len(lines[at]) + 1:
        space -= len(lines[at]) + 1
        at += 1
    if at == start and at < end:
        last = f'[{note}line {at + 1} of {total:,} is cut: lines="{at + 1}" with offset pages through it]'
        return f"{fitted(lines[at], max(0, room - len(last) - 1))}\n{last}"
    if at == start:
        return fitted(f"[{note}no lines from {start} on, of {total:,}]", room)
    rest = f"; {onward(at)}" if at < max(end, until) else ""
    return "\n".join(lines[start:at]) + f"\n[{note}lines {start + 1}-{at} of {total:,}{rest}]"


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
    return list(_matching_lines(lines, query.finder))


def _matching_lines(lines: list[str], finder: Finder) -> Iterator[dict[str, Any]]:
    left = max(SCANNED_CHARACTERS, 2 * sum(map(len, lines)))
    for number, line in enumerate(lines, 1):
        at, is_long = 0, len(line) > LONG_LINE
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
