"""Cuts a result so that its beginning remains and is whole: the strategy `truncate`.

Of a JSON value lists keep their first items, texts their beginning, objects as much of each member. What fits stays as
it is. Nothing deeper than what had to be cut is visited, so the cost goes with what is kept, not with what was sent.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import NotReadable, write_json
from mcpbridge.results.text.lines import ends

DEPTH = 40
"""Levels that are cut within; what is nested deeper is left out where it does not fit."""

LEAST = 24
"""Characters below which a text or a member is not worth its room."""

WEIGHED = 32
"""How many times the room a value is measured to, when room is dealt out in proportion."""


class Cut(Struct, frozen=True):
    """One list or object that lost something."""

    path: str
    """Where it is, such as `items[0].tags`; empty for the whole."""
    kept_count: int
    total: int
    what: str
    """`items` or `members`."""


def shrunk(value: Any, room: int, cuts: list[Cut], path: str = "", depth: int = 0) -> Any:
    """The value, such that `write_json` of it has at most `room` characters.

    At least 2 of them are needed, and what is neither a text nor holds others cannot be cut: it becomes null. What was
    cut is added to `cuts`, the outermost first.

    Raises:
        NotReadable: the value cannot be written.
    """
    if _fits(value, room):
        return value
    if isinstance(value, str):
        return _text(value, room)
    if isinstance(value, list):
        return _list(cast("list[Any]", value), room, cuts, path, depth)
    if isinstance(value, dict):
        return _object(cast("dict[str, Any]", value), room, cuts, path, depth)
    return None


def _list(value: Sequence[Any], room: int, cuts: list[Cut], path: str, depth: int) -> list[Any]:
    kept: list[Any] = []
    left = room - 2
    for item in value:
        if not _fits(item, left - (1 if kept else 0)):
            break
        left -= len(write_json(item)) + (1 if kept else 0)
        kept.append(item)
    inner: list[Cut] = []
    if not kept and left >= LEAST and depth < DEPTH and _can_be_cut(value[0]):
        kept = [shrunk(value[0], left, inner, f"{path}[0]", depth + 1)]
    if len(kept) < len(value):
        cuts.append(Cut(path, len(kept), len(value), "items"))
    cuts += inner
    return kept


def _object(value: Mapping[str, Any], room: int, cuts: list[Cut], path: str, depth: int) -> dict[str, Any]:
    """Small members whole; the others share what is left, in proportion to what they would need."""
    names: dict[str, int] = {}
    left = room - 2
    for name in value:
        cost = len(write_json(name)) + 2
        if cost + 2 > left:
            break
        left -= cost + 2  # at least two characters for what it holds
        names[name] = cost
    left += 2 * len(names)
    shares = _shares({name: _measure(value[name], room * WEIGHED) for name in names}, left)
    if (min(shares.values(), default=LEAST) < LEAST and len(names) < len(value)) or _too_thin(value, shares):
        shares = _first_ones(value, names, room - 2)
        names = {name: names[name] for name in shares}
    kept: dict[str, Any] = {}
    inner: list[Cut] = []
    for name in names:
        member, share = value[name], shares[name]
        if _fits(member, share):
            kept[name] = member
        elif depth < DEPTH and share >= 2 and _can_be_cut(member):
            where = f"{path}.{name}" if path else name
            kept[name] = shrunk(member, share, inner, where, depth + 1)
        elif share >= 2 and isinstance(member, list | dict):
            where = f"{path}.{name}" if path else name
            sized = cast("list[Any] | dict[str, Any]", member)
            kept[name] = type(sized)()
            inner.append(Cut(where, 0, len(sized), "items" if isinstance(sized, list) else "members"))
    if len(kept) < len(value):
        cuts.append(Cut(path, len(kept), len(value), "members"))
    cuts += inner
    return kept


def _shares(weights: Mapping[str, int], room: int) -> dict[str, int]:
    """Room for each: what it needs if that is less than an equal part of the room, else in proportion to its need."""
    left, others = room, sorted(weights, key=lambda name: -weights[name])
    shares: dict[str, int] = {}
    while others and weights[others[-1]] <= left // len(others):
        name = others.pop()
        shares[name] = weights[name]
        left -= weights[name]
    needed = sum(weights[name] for name in others)
    spare = left - 2 * len(others)
    for name in others:
        shares[name] = 2 + spare * weights[name] // needed if needed else 2
    return shares


def _too_thin(value: Mapping[str, Any], shares: Mapping[str, int]) -> bool:
    """Most members hold others and would lose all they hold: then some of them whole tell more."""
    emptied = sum(
        1
        for name, share in shares.items()
        if share < LEAST and isinstance(value[name], list | dict) and not _fits(value[name], share)
    )
    return emptied * 2 > len(value)


def _first_ones(value: Mapping[str, Any], names: Mapping[str, int], room: int) -> dict[str, int]:
    """Room for the first members alone, each whole; what is left for the first that has to be cut."""
    shares: dict[str, int] = {}
    left = room
    for name, cost in names.items():
        need = len(write_json(value[name])) if _measure(value[name], left) <= left else left + 1
        if cost + need > left:
            if not shares and left - cost >= 2:
                shares[name] = left - cost
            break
        shares[name] = need
        left -= cost + need
    return shares


def _text(value: str, room: int) -> str:
    """The beginning of a text and how much is missing; nothing at all if there is no room even for that."""
    mark = f"…[+{len(value)} chars]"
    end = room - 2 - len(mark)
    while end > 0:
        kept = f"{value[:end]}…[+{len(value) - end} chars]"
        excess = len(write_json(kept)) - room
        if excess <= 0:
            return kept
        end -= max(1, min(excess, end * excess // (room + excess)))
    return "…" if room >= 3 else ""


def _can_be_cut(value: Any) -> bool:
    return value not in ("", [], {}) and isinstance(value, str | list | dict)


def _fits(value: Any, room: int) -> bool:
    return _measure(value, room) <= room and len(write_json(value)) <= room


def _measure(value: Any, most: int) -> int:
    """About how many characters it is written in: never more than the truth, and little more than `most` is counted."""
    count, todo = 0, [value]
    while todo and count <= most:
        now = todo.pop()
        if isinstance(now, str):
            count += len(now) + 2
        elif isinstance(now, dict):
            members = cast("dict[str, Any]", now)
            count += 2 + max(0, 4 * len(members) - 1)
            if count <= most:
                count += sum(len(str(name)) for name in members)
                todo.extend(members.values())
        elif isinstance(now, list):
            items = cast("list[Any]", now)
            count += 2 + max(0, len(items) - 1)
            if count <= most:
                todo.extend(items)
        elif now is None or now is True:
            count += 4
        elif now is False:
            count += 5
        else:
            count += 1 if isinstance(now, int) and now.bit_length() > 10_000 else len(str(now))
    return count


NOTES = 8
"""Cuts that are listed one by one."""


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
                return _rows(document, room, _ends_of_records(text, room), "rows") or _truncated_text(text, room)
            case "table":
                heading = _heading_of_table(text)
                return _rows(document, room, _ends_of_lines(text, room, heading), "rows") or _truncated_text(text, room)
            case _:
                return _truncated_text(text, room)
    except NotReadable:
        return _truncated_text(text, room)


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
    return body + notes if len(body) + len(notes) <= room else _truncated_text(document.text, room)


def _notes(cuts: list[Cut], room: int) -> str:
    """A line for each cut, the outermost first; of many the first, and how many more there are."""
    told = ""
    for at, cut in enumerate(cuts):
        counts = f"{cut.kept_count:,} of {cut.total:,}"
        more = f"{cut.total - cut.kept_count:,} more omitted"
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


def _truncated_text(text: str, room: int) -> str:
    """Whole lines from the beginning; of a line too long for that as much as fits."""
    total = len(text)
    reserve = len(f"\n[Showing {total:,} of {total:,} characters — {total:,} more omitted]")
    start = text[: max(room - reserve, 0)]
    at = start.rfind("\n")
    start = start[:at] if at > len(start) // 2 else start
    note = f"\n[Showing {len(start):,} of {total:,} characters — {total - len(start):,} more omitted]"
    return (start + note)[:room]
