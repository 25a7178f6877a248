"""Lays out selected rows and values in so many characters, and says how to get the rest.

Rows are a JSON list if they are plain values, else JSON one a line, or CSV where that is much shorter: a header, then
cells. A text that holds a comma, a quote or a line end, or that could be read as another JSON value, is written as a
JSON string; lists and objects are JSON in such a string; an empty cell is a missing member.
"""

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.errors import clipped
from mcpbridge.results.query.limits import CSV_SHARE, OUTLINE_MEMBER, OUTLINE_NESTED, SAMPLE_ROWS
from mcpbridge.results.query.terms import without_halves, written

_BARE = re.compile(r'[^\s",\[\]{}][^",\n\r]*')
_LITERAL = re.compile(r"true|false|null|-?\d[\d.eE+-]*", re.ASCII)


class Row(Struct, frozen=True):
    """What a page needs of the rows: how many, the value of each, and where each is."""

    total: int
    value: Callable[[int], Any]
    path: Callable[[int], str]


class _Form(Struct, frozen=True):
    """How rows are written."""

    name: str
    opening: str
    write: Callable[[Any], str]
    between: str = "\n"
    closing: str = ""

    def length(self, values: Sequence[Any]) -> int:
        return len(self.opening) + sum(len(self.write(value)) + len(self.between) for value in values)


def rows_page(rows: Row, offset: int, limit: int | None, room: int, note: str = "") -> str:
    """As many whole rows from `offset` as fit, and what remains. Never longer than `room`, if that is 200 or more."""
    end = rows.total if limit is None else min(rows.total, offset + limit)
    if offset >= end:
        return fitted(
            _closing(
                note,
                f"no rows from {offset:,} on, of {rows.total:,}"
                if rows.total and offset
                else f"{rows.total:,} rows, none shown"
                if rows.total
                else "no rows",
            ),
            room,
        )
    form = _form([rows.value(index) for index in range(offset, min(end, offset + SAMPLE_ROWS))])
    longest = _remaining(rows.total, rows.total, rows.total - 1, form, note)  # with every part that it may have
    space = room - len(longest) - len(form.opening) - len(form.closing) - 2
    parts, at = list[str](), offset
    while at < end:
        text = form.write(rows.value(at))
        space -= len(text) + len(form.between)
        if space < -len(form.between):
            break
        parts.append(text)
        at += 1
    if not parts:
        return _cut_row(rows, offset, room, note)
    body = form.opening + form.between.join(parts) + form.closing
    return f"{body}\n{_remaining(rows.total, offset, at, form, note)}"


def outline(value: Any, room: int) -> str:
    """A value in so many characters: what is short of it whole, of the rest how much it is. No JSON any more."""
    if isinstance(value, str):
        return _cut_text(value, room)
    if not isinstance(value, dict | list):
        return clipped(written(value), room)
    pairs = list(cast("dict[str, Any]", value).items()) if isinstance(value, dict) else None
    items = [member for _, member in pairs] if pairs is not None else cast("list[Any]", value)
    names = [f"{written(name)}:" for name, _ in pairs] if pairs is not None else [""] * len(items)
    is_nested = pairs is None and any(isinstance(item, dict | list) for item in items[:3])
    count = min(len(items), max(1, room // (2 * OUTLINE_NESTED if is_nested else OUTLINE_MEMBER)))
    share = _share([_size(item, room) + len(names[at]) + 1 for at, item in enumerate(items[:count])], room - 30)
    parts, used = list[str](), 0
    for at, item in enumerate(items[:count]):
        part = names[at] + _summed_up(item, max(OUTLINE_MEMBER, share - len(names[at])))
        used += len(part) + 1
        if used + (20 if at + 1 < len(items) else 2) > room:
            break
        parts.append(part)
    if len(parts) < len(items):
        parts.append(f"… {len(items) - len(parts):,} more")
    opening, closing = "[]" if pairs is None else "{}"
    return fitted(opening + ",".join(parts) + closing, room)


def characters(text: str, offset: int, limit: int | None, room: int, what: str = "", more: str = "offset") -> str:
    """A piece of a long text, and where the next one begins. `what` is said of the text, before the numbers."""
    prefix = f"{what}: " if what else ""
    end = len(text) if limit is None else min(len(text), offset + limit)
    if offset == 0 and end == len(text) and len(text) <= room:
        return without_halves(text)
    if offset >= len(text):
        return fitted(f"[{prefix}no characters from {offset:,} on, of {len(text):,}]", room)
    longest = len(f"\n[{prefix}chars {len(text)}-{len(text)} of {len(text):,}; {more}={len(text)} for the next]")
    end = min(end, offset + max(1, room - longest))
    rest = f"; {more}={end} for the next" if end < len(text) else ", the end"
    return f"{without_halves(text[offset:end])}\n[{prefix}chars {offset}-{end} of {len(text):,}{rest}]"


def fitted(text: str, room: int) -> str:
    """The text, cut if it is too long after all."""
    return text if len(text) <= room else f"{text[: max(0, room - 1)]}…"


def _form(values: list[Any]) -> _Form:
    if not any(isinstance(value, dict | list) for value in values):
        return _Form("", "[", written, ",", "]")
    lines = _Form("JSON lines", "", written)
    if len(values) < 2 or not all(isinstance(value, dict) and bool(cast("object", value)) for value in values):
        return lines
    names = list(dict.fromkeys(name for value in values for name in value))
    table = _Form("CSV", ",".join(_cell(name) for name in names) + "\n", lambda value: _record(value, names))
    return table if table.length(values) < CSV_SHARE * lines.length(values) else lines


def _record(value: Any, names: list[str]) -> str:
    if not isinstance(value, dict) or not value.keys() <= set(names):
        return written(value)  # a row of another kind: a line that begins with a brace or so, as no cell does
    members = cast("dict[str, Any]", value)
    cells = [_cell(members[name]) if name in members else "" for name in names]
    return ",".join(cells) if len(cells) > 1 or cells[0] else " "


def _cell(value: Any) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value) and not _LITERAL.fullmatch(value) and value == value.strip():
        return without_halves(value)
    text = written(value)
    return written(text) if isinstance(value, dict | list) else text


def _share(sizes: list[int], room: int) -> int:
    """Characters for each of several texts, so that they fill the room together; short ones leave more to others."""
    left = room
    for position, size in enumerate(ordered := sorted(sizes)):
        share = left // (len(ordered) - position)
        if size > share:
            return share
        left -= size
    return room


def _size(value: Any, most: int) -> int:
    """About how many characters a value takes as JSON; no further than `most`."""
    waiting, size = [value], 0
    while waiting and size < most:
        one = waiting.pop()
        if isinstance(one, dict):
            members = cast("dict[str, Any]", one)
            size += 2 + sum(len(name) + 4 for name in islice(members, most))
            waiting.extend(islice(members.values(), most))
        elif isinstance(one, list):
            items = cast("list[Any]", one)
            size += 2 + min(len(items), most)
            waiting.extend(items[:most])
        else:
            size += len(one) + 2 if isinstance(one, str) else len(written(one))
    return size


def _summed_up(value: Any, share: int) -> str:
    """A member of an outline: whole if that is short, else an outline itself, else how much it is."""
    if isinstance(value, str):
        return _cut_text(value, share, quoted=True)
    if not isinstance(value, dict | list):
        return clipped(written(value), share)
    inside = cast("dict[str, Any] | list[Any]", value)
    if _size(inside, share + 1) <= share and len(text := written(inside)) <= share:
        return text
    if share >= OUTLINE_NESTED:
        return outline(inside, share)
    return f"{{… {len(inside):,} members}}" if isinstance(inside, dict) else f"[… {len(inside):,} elements]"


def _cut_text(text: str, room: int, *, quoted: bool = False) -> str:
    if len(text) <= room and (not quoted or len(written(text)) <= room):
        return written(text) if quoted else without_halves(text)
    shown = max(10, room - 25)
    head = text[:shown]
    if quoted:
        head = written(head)
        head = head if len(head) <= room else written(text[: shown // 2])
    return f"{without_halves(head)}… (of {len(text):,} characters)"


def _cut_row(rows: Row, at: int, room: int, note: str) -> str:
    path = rows.path(at)
    where = f"; path={written(path)} for all of it" if path and len(path) < 100 else ""
    rest = f"; offset={at + 1} for the next" if at + 1 < rows.total else ""
    last = _closing(note, f"row {at} of {rows.total:,}, cut{where}{rest}")
    return fitted(f"{outline(rows.value(at), max(0, room - len(last) - 1))}\n{last}", room)


def _remaining(total: int, start: int, at: int, form: _Form, note: str) -> str:
    """The last line: which rows these are, in which form, and how to go on. Rows `start` to before `at`."""
    name = f" as {form.name}" if form.name == "CSV" else ""
    if start == 0 and at == total:
        return _closing(note, f"all {total:,} rows{name}" if total > 1 else "1 row")
    rest = f"; offset={at} for the next" if at < total else ""
    return _closing(note, f"rows {start}-{at - 1} of {total:,}{name}{rest}")


def _closing(note: str, text: str) -> str:
    return f"[{f'{clipped(note, 120)}: ' if note else ''}{text}]"
