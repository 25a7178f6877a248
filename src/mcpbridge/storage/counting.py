"""Numbers that processes add up, by day and what they are counted of: the rows of `Store.count`."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from mcpbridge.storage.store import Tallies

if TYPE_CHECKING:  # the standard library's; loaded with the first file
    from sqlite3 import Connection

__all__ = ["MAX_DAYS", "MAX_TALLIES", "add", "add_rows", "forget_rows", "oldest_day", "read_rows"]

MAX_DAYS = 400
"""Days that numbers are kept."""
MAX_TALLIES = 100_000
"""Keys of all ledgers together."""


def add(to: Tallies, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
    """Add numbers to those of the same keys, column by column."""
    for key, numbers in rows.items():
        to[key] = _sum(to.get(key, ()), numbers)


def oldest_day(now: float) -> str:
    """The first day that is still kept."""
    return (datetime.fromtimestamp(now, UTC) - timedelta(days=MAX_DAYS)).date().isoformat()


def add_rows(connection: "Connection", ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
    """As `add`, in the file. The transaction holds the write lock, so nobody adds between reading and writing."""
    for key, numbers in rows.items():
        day, *rest = key
        name = (ledger, day, json.dumps(rest))
        found = connection.execute(_FIND, name).fetchone()
        total = _sum(() if found is None else _numbers(found[0]), numbers)
        connection.execute("INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?)", (*name, json.dumps(total)))


def read_rows(connection: "Connection", ledger: str, since: str) -> Tallies:
    """What is in the file, from the day `since` on."""
    query = "SELECT day, key, numbers FROM tally WHERE ledger = ? AND day >= ?"
    rows = connection.execute(query, (ledger, since))
    return {(day, *map(str, _list(rest))): _numbers(numbers) for day, rest, numbers in rows}


def forget_rows(connection: "Connection", before: str) -> None:
    """Remove the days before that one, and the oldest of what is too much."""
    connection.execute("DELETE FROM tally WHERE day < ?", (before,))
    (count,) = connection.execute("SELECT count(*) FROM tally").fetchone()
    if count > MAX_TALLIES:
        connection.execute(_FORGET_OLDEST, (count - MAX_TALLIES,))


_FIND = "SELECT numbers FROM tally WHERE ledger = ? AND day = ? AND key = ?"
_FORGET_OLDEST = """
    DELETE FROM tally WHERE (ledger, day, key) IN (SELECT ledger, day, key FROM tally ORDER BY day LIMIT ?)
"""


def _numbers(text: str) -> list[int]:
    return [number for number in _list(text) if isinstance(number, int)]


def _list(text: str) -> list[object]:
    """Of a damaged row nothing: what is counted from now on is better than nothing ever."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return []
    return cast("list[object]", found) if isinstance(found, list) else []


def _sum(one: Sequence[int], two: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip_longest(one, two, fillvalue=0)]
