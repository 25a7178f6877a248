"""Retention of the call log: removes what is too old or too much, oldest first.

How old and how much is set in `[call_log]` (`storage/settings.py`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

_AT_ONCE = 5000
"""Rows that one transaction removes at most; others want to write too."""


def forget(connection: "Connection", before: float, max_rows: int) -> bool:
    """Remove what is older than `before` (seconds since 1970) and what is beyond `max_rows`; True: there is more."""
    calls = _forget(
        connection,
        "call",
        "SELECT id FROM call WHERE at >= ? ORDER BY id LIMIT 1",
        "SELECT max(id) FROM call",
        "DELETE FROM call WHERE id <= ?",
        (before, max_rows),
    )
    events = _forget(
        connection,
        "event",
        "SELECT id FROM event WHERE at >= ? ORDER BY id LIMIT 1",
        "SELECT max(id) FROM event",
        "DELETE FROM event WHERE id <= ?",
        (before, max_rows),
    )
    return calls or events


def _forget(
    connection: "Connection", log: str, first_kept: str, newest: str, delete: str, bounds: tuple[float, int]
) -> bool:
    before, max_rows = bounds
    (last,) = connection.execute(newest).fetchone()
    if last is None:
        return False
    kept = connection.execute(first_kept, (before,)).fetchone()
    (done,) = connection.execute("SELECT through FROM forgotten WHERE log = ?", (log,)).fetchone()
    due = max(last if kept is None else kept[0] - 1, last - max_rows)
    through = min(due, done + _AT_ONCE)
    if through > done:
        connection.execute("UPDATE forgotten SET through = ? WHERE log = ?", (through, log))
        connection.execute(delete, (through,))
    return due > through


RETENTION_INTERVAL = 3600.0
"""Seconds between two times that what is too old is removed."""
