"""Questions about texts that have no value: lines found, lines by number, pages of lines or of characters."""

from collections.abc import Callable, Iterator

from mcpbridge.results.query_find import excerpt
from mcpbridge.results.query_page import characters, fitted
from mcpbridge.results.query_refused import QueryRefused
from mcpbridge.results.query_regex import Finder
from mcpbridge.results.query_request import Query

__all__ = ["found_lines", "lines_of", "numbered", "text_page"]

PER_LINE = 20
"""Places of one very long line that are shown."""


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


def found_lines(text: str, finder: Finder, query: Query, room: int) -> str:
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
    for _ in range(PER_LINE):  # so a pattern is tried on a long line so many times at most
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
