"""Retention of the call log: removes what is too old or too much, oldest first.

How old and how much is set in `[call_log]` (`storage/settings.py`).
"""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from sqlite3 import Connection

_AT_ONCE = 5000
"""Rows that one transaction removes at most; others want to write too."""

MINUTE_DAYS = 90
"""For how long sums of minutes are kept: they are small, and say how things went before."""
MOST_MINUTES = 500_000
"""Rows of them."""
_SHARE = 0.95
"""Of the largest size; when that is reached, rows go until so much is left, so that it is not reached again at once."""


class Limits(Struct, frozen=True):
    """What is kept."""

    before: float
    """Seconds since 1970: calls and events that are older go."""
    max_rows: int
    max_bytes: int
    """Of the whole file."""
    minutes_before: float


def forget(connection: "Connection", limits: Limits) -> bool:
    """Remove what is older, or more, than the limits say; True: there is more."""
    calls = _forget(connection, "call", limits.before, min(limits.max_rows, _rows_that_fit(connection, limits)))
    events = _forget(connection, "event", limits.before, limits.max_rows)
    minutes = _forget(connection, "minute", limits.minutes_before, MOST_MINUTES)
    return calls or events or minutes


def _rows_that_fit(connection: "Connection", limits: Limits) -> int:
    """How many calls are left if the file is to be small enough; what they take is taken as equal."""
    (pages,), (free,), (size,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    used = (pages - free) * size
    (first, last) = connection.execute("SELECT min(id), max(id) FROM call").fetchone()
    if used <= limits.max_bytes or first is None:
        return limits.max_rows
    return int((last - first + 1) * _SHARE * limits.max_bytes / used)


def _forget(connection: "Connection", log: str, before: float, max_rows: int) -> bool:
    (last,) = connection.execute(f"SELECT max(id) FROM {log}").fetchone()
    if last is None:
        return False
    query = f"SELECT id FROM {log} WHERE at >= ? ORDER BY id LIMIT 1"
    kept = connection.execute(query, (before,)).fetchone()
    (done,) = connection.execute("SELECT through FROM forgotten WHERE log = ?", (log,)).fetchone()
    due = max(last if kept is None else kept[0] - 1, last - max_rows)
    through = min(due, done + _AT_ONCE)
    if through > done:
        connection.execute("UPDATE forgotten SET through = ? WHERE log = ?", (through, log))
        connection.execute(f"DELETE FROM {log} WHERE id <= ?", (through,))
        if log == "call":
            connection.execute("DELETE FROM content WHERE call <= ?", (through,))
    return due > through


RETENTION_INTERVAL = 3600.0
"""Seconds between two times that what is too old is removed."""
