"""The beginning of a result, cut so that what remains is whole: the strategy `truncate`."""

import csv
from collections.abc import Iterable, Iterator
from itertools import accumulate

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import NotReadable, write_json
from mcpbridge.results.shrink import Cut, shrunk
from mcpbridge.results.text_ends import ends

__all__ = ["shorten_error", "truncate"]

NOTES = 8
"""Cuts that are told one by one."""


def truncate(document: Document, room: int) -> str:
    """As much of the beginning as fits into `room` characters (100 or more), with notes of what was left out.

    JSON stays JSON: lists keep their first items, objects a part of every member, and the notes follow on lines of
    their own. JSON lines, CSV and tables keep whole rows and their heading, other texts whole lines.
    """
    text = document.text
    if len(text) <= room:
        return text
    try:
        match document.kind:
            case "json" | "repr":
                return _json(document, room)
            case "ndjson":
                return _rows(document, room, _ends_of_lines(text, room, 0), "items") or _json(document, room)
            case "csv":
                return _rows(document, room, _ends_of_records(text, room), "rows") or _text(text, room)
            case "table":
                heading = _heading_of_table(text)
                return _rows(document, room, _ends_of_lines(text, room, heading), "rows") or _text(text, room)
            case _:
                return _text(text, room)
    except NotReadable:
        return _text(text, room)


def shorten_error(text: str, room: int) -> str:
    """An error in at most `room` characters, with what is missing said.

    It keeps the beginning, where the message is, and the end, where a trace names the cause.
    """
    return ends(text, room, head=0.5)


def _json(document: Document, room: int) -> str:
    """The value cut to what the notes leave of the room. The notes are known only after, hence the second look."""
    reserve = 0
    body = notes = ""
    for _ in range(4):
        cuts: list[Cut] = []
        body = write_json(shrunk(document.value, max(room - reserve, 2), cuts))
        notes = _notes(cuts, max(room // 3, 60))
        if len(body) + len(notes) <= room:
            return body + notes
        reserve = max(len(notes), reserve + 1)
    notes = "\n[Shortened: not all of it is shown]"
    body = write_json(shrunk(document.value, max(room - len(notes), 2), []))
    return body + notes if len(body) + len(notes) <= room else _text(document.text, room)


def _notes(cuts: list[Cut], room: int) -> str:
    """A line for each cut, the outermost first; of many the first, and how many more there are."""
    told = ""
    for at, cut in enumerate(cuts):
        counts = f"{cut.kept:,} of {cut.total:,}"
        more = f"{cut.total - cut.kept:,} more omitted"
        name = " ".join(cut.path.split())[:80]
        line = f"\n[{name}: showing {counts} — {more}]" if name else f"\n[Showing {counts} {cut.what} — {more}]"
        rest = f"\n[and {len(cuts) - at} more lists or objects cut]"
        is_last = at + 1 == len(cuts)
        if at and (at >= NOTES or len(told) + len(line) + (0 if is_last else len(rest)) > room):
            return told + rest
        told += line
    return told or "\n[Texts in it are shortened, as marked]"


def _rows(document: Document, room: int, ends: Iterable[tuple[int, bool]], what: str) -> str:
    """Whole rows; nothing if not even one fits. `ends`: where rows end, and whether each counts as one."""
    total = len(document.value)
    reserve = len(f"\n[Showing {total:,} of {total:,} {what} — {total:,} more omitted]")
    kept = used = 0
    for end, counts in ends:
        if end > room - reserve:
            break
        kept, used = kept + counts, end
    if not kept or kept > total:
        return ""
    return f"{document.text[:used]}\n[Showing {kept:,} of {total:,} {what} — {total - kept:,} more omitted]"


def _ends_of_lines(text: str, room: int, heading: int) -> Iterator[tuple[int, bool]]:
    """Where lines end. `heading`: lines, not blank, that stand before the first row."""
    end = seen = 0
    for line in text[: room + 1].split("\n")[:-1]:
        end += len(line)
        seen += bool(line.strip())
        yield end, bool(line.strip()) and seen > heading
        end += 1


def _ends_of_records(text: str, room: int) -> Iterator[tuple[int, bool]]:
    """Where the records of CSV end, which may go over several lines. The first one names the columns."""
    lines = text[: room + 1].split("\n")[:-1]
    header = lines[0] if lines else ""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=max(",;\t|", key=header.count))
    ends = [0, *accumulate(len(line) + 1 for line in lines)]
    is_header = True
    try:
        for record in reader:
            yield ends[reader.line_num] - 1, bool(record) and not is_header
            is_header = is_header and not record
    except csv.Error:
        return


def _heading_of_table(text: str) -> int:
    """How many lines stand before the first row of a Markdown table."""
    seen = 0
    for line in text[:20_000].splitlines():
        seen += bool(line.strip())
        if line.strip() and set(line.strip()) <= set("|:- ") and "-" in line:
            return seen
    return 0


def _text(text: str, room: int) -> str:
    """Whole lines from the beginning; of a line too long for that as much as fits."""
    total = len(text)
    reserve = len(f"\n[Showing {total:,} of {total:,} characters — {total:,} more omitted]")
    start = text[: max(room - reserve, 0)]
    at = start.rfind("\n")
    start = start[:at] if at > len(start) // 2 else start
    note = f"\n[Showing {len(start):,} of {total:,} characters — {total - len(start):,} more omitted]"
    return (start + note)[:room]
