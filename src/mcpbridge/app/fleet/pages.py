"""Pages of calls of several bridges as one, and what says where the next one begins. Pure.

Each bridge numbers its calls by itself, so a place among those of all is a number for each bridge. Pages in a browser
get it as an opaque text.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec import Struct

from mcpbridge.app.fleet.together import missing_of
from mcpbridge.fleet.call_logs import Said

Row = Mapping[str, Any]

_LONGEST = 20_000
"""Characters of a text that says a place: that of a fleet of some hundred bridges."""
_MOST = 1 << 62


class Place(Struct, frozen=True):
    """A place among the calls of all bridges."""

    numbers: Mapping[str, int]
    """By the id of a bridge, the number of a call."""
    at: float = 0.0
    """When the last call before it began, in seconds since 1970: for bridges that have no number."""
    missing: Sequence[str] = ()
    """The bridges that did not answer."""

    def __str__(self) -> str:
        text = json.dumps([self.numbers, self.at, sorted(self.missing)], separators=(",", ":"))
        return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_place(text: str) -> Place | None:
    """The place that a text says; None: none."""
    if not text or len(text) > _LONGEST:
        return None
    with suppress(ValueError, RecursionError, TypeError, AttributeError):
        numbers, at, missing = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        known = {str(id_): number for id_, number in numbers.items() if type(number) is int and 0 <= number < _MOST}
        return Place(known, min(max(float(at), 0.0), 1e12), [str(name) for name in missing])
    return None


class FleetPage(Struct, frozen=True):
    """Some calls of all bridges, newest first; each row has the name of its `bridge`."""

    rows: Sequence[Row]
    before: Place | None
    """Where older ones are; None: there are none."""
    after: Place
    """Where newer ones will be."""
    missing: Sequence[Mapping[str, str]]
    """Bridges that do not say what they have, and why."""


def merged_pages(
    answers: Sequence[Said], limit: int, older: Place | None, newer: Place | None, *, when: str = "at"
) -> FleetPage:
    """One page of the pages of all. `older`, `newer`: where they began, if not with the newest call.

    `when`: what of a row says when it was.
    """
    taken: list[Row] = []
    said = [one for one in answers if one.rows]
    left = [list(cast("Sequence[Row]", one.rows[0]["rows"])) for one in said]
    while len(taken) < limit and any(left):
        # Within one bridge the order of the file holds: the order in which the calls have ended.
        place = max((number for number, rows in enumerate(left) if rows), key=lambda number: left[number][0][when])
        taken.append({**left[place].pop(0), "bridge": said[place].name})
    before: dict[str, int] = dict(older.numbers) if older is not None else {}
    after: dict[str, int] = dict(newer.numbers) if newer is not None else {}
    has_more = False
    for one, rows in zip(said, left, strict=True):
        end = rows[0]["id"] + 1 if rows else one.rows[0]["before"]
        has_more = has_more or end > 0
        for id_ in one.ids:
            before[id_] = end or 1  # no call has a lower number
            after[id_] = max(after.get(id_, 0), one.rows[0]["after"])
    missing = missing_of(answers)
    last = min((datetime.fromisoformat(row[when]).timestamp() for row in taken), default=0.0)
    names = [one["bridge"] for one in missing]
    return FleetPage(taken, Place(before, last) if has_more else None, Place(after, missing=names), missing)


def page_of(answer: Said, limit: int, *, is_newest_first: bool) -> Said:
    """An answer that has at most so many rows, in the form of those that have a page."""
    rows = answer.rows if is_newest_first else answer.rows[::-1]
    before = rows[-1]["id"] if len(rows) == limit else 0
    return msgspec.structs.replace(answer, rows=[{"rows": rows, "before": before, "after": 0}])
