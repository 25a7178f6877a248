"""The Store protocol: values that must outlive a call or a process, by kind and handle; and counts by day.

Values are bytes. Each belongs to a principal and nobody else gets it. It expires, and has a handle that cannot be
guessed unless the caller names one. A value that does not exist, has expired, cannot be read any more (written with
another key, damaged), or belongs to another principal looks the same from outside.

Counts are numbers that processes add up, by day and subject: the rows of `Store.count`.
"""

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

if TYPE_CHECKING:
    from sqlite3 import Connection


DailyCounts = dict[tuple[str, ...], list[int]]
"""Numbers by what they count; the first part of each key is the day, `YYYY-MM-DD`."""


class Entry(Struct, frozen=True):
    """What is known of one value without reading it. Times are seconds since 1970."""

    handle: str
    principal: str
    size: int
    """Bytes of the value."""
    created: float
    """When it was put, or renewed."""
    expires: float
    room: int = 0
    """Bytes that it takes as it is kept (compressed, with its label), which is what limits are about."""
    used: float = 0.0
    """When it was used last, to a minute."""
    label: bytes = b""
    """What was given with it."""


BytesLike = bytes | memoryview
"""Bytes, or a view of bytes that do not change."""


class Store(Protocol):
    """Values by kind (`result`, `grant`, `approval`, …) and handle. Handles given by the store are `[a-z2-7]{26}`."""

    async def put(
        self, kind: str, body: BytesLike, *, principal: str, expires_in: float, handle: str = "", label: bytes = b""
    ) -> str:
        """Keep a value for so many seconds; returns its handle.

        A given handle replaces what it named before for this principal. `label`: a few kilobytes that `entries`
        returns. The store is bounded: beyond that those values go that were not used for longest, which is the oldest
        where nothing is ever used; first of the kind that takes the most room.

        Raises:
            ValueTooLarge: it is larger than all that may be kept.
            StoreFailed: it cannot be kept now. Not from the bridge's own store, which then keeps it in memory.
        """
        ...

    async def put_if_absent(
        self, kind: str, body: bytes, *, principal: str, expires_in: float, handle: str, label: bytes = b""
    ) -> bytes:
        """The value that is there, which is `body` if there was none: all who do this at once get the same.

        For small values. Raises as `put`.
        """
        ...

    async def get(self, kind: str, handle: str, *, principal: str, renew: float | None = None) -> bytes | None:
        """The value; None if there is none, or none any more, or it is another principal's.

        `renew`: this counts as a use, and the value lives for at least so many seconds from now. That is written down
        at most once a minute for each value, or ten times in `renew`.
        """
        ...

    async def renew(
        self, kind: str, handle: str, *, principal: str, expires_in: float, label: bytes | None = None
    ) -> bool:
        """Treat a value as if it were put now, for at least so many seconds, with this label if one is given.

        The value is neither read nor written, so this is cheap. False: there is none, or it has to be put again since
        a key was configured meanwhile.
        """
        ...

    async def take(self, kind: str, handle: str, *, principal: str) -> bytes | None:
        """As `get`, and it is gone afterwards: of several takers exactly one gets it."""
        ...

    async def drop(self, kind: str, handle: str, *, principal: str) -> bool:
        """Forget a value. False if there was none."""
        ...

    async def entry(self, kind: str, handle: str, *, principal: str) -> Entry | None:
        """What is known of one value; None as for `get`. It does not count as a use."""
        ...

    async def entries(
        self, kind: str, *, principal: str | None, limit: int | None = None, newest_first: bool = False
    ) -> list[Entry]:
        """What there is of a kind, oldest first; no value is read. `principal` None: of everybody, for administrators.

        `limit`: at most so many, from that end with which the list begins: the oldest, or with `newest_first` the
        newest.
        """
        ...

    def bound(self, kind: str, max_bytes: int) -> None:
        """From now on the values of a kind take at most so many bytes together, whatever room the store has left."""
        ...

    async def count(self, ledger: str, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
        """Add numbers to those that are kept under the same keys; several processes add up.

        `ledger` distinguishes what is counted. Keys begin with the day, `YYYY-MM-DD`. They are kept for 400 days, and
        of all ledgers at most 100,000 keys; beyond that the oldest days go.

        Raises:
            StoreFailed: they cannot be kept now, and none was added. Not from the bridge's own store.
        """
        ...

    async def read_counts(self, ledger: str, *, since: str = "") -> DailyCounts:
        """The counts from the day `since` on."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of files and connections."""
        ...


_BYTES = 16
"""128 random bits."""


def new_handle() -> str:
    """A new name of 26 letters and digits: one word for models and shells alike, and never an option."""
    return base64.b32encode(secrets.token_bytes(_BYTES)).decode().rstrip("=").lower()


_NOTHING: Mapping[str, int] = {}


def next_to_shrink(rooms: Mapping[str, int], surplus: int, spared: Mapping[str, int] = _NOTHING) -> tuple[str, int]:
    """The kind that values are taken from next, and how many bytes of it, at least 1 and at most `surplus`.

    It is the kind that takes the most room, no further than to where another kind takes the most. Kinds with a bound of
    their own are held to it first; each store removes what was not used for longest, in its own way.

    `rooms`: bytes by kind. `spared`: so many bytes of a kind do not count.
    """
    weights = {kind: max(0, room - spared.get(kind, 0)) for kind, room in rooms.items()}
    kind = max(weights, key=weights.__getitem__)
    second = max((room for other, room in weights.items() if other != kind), default=0)
    return kind, min(surplus, max(1, weights[kind] - second))


MAX_DAYS = 400
"""Days that numbers are kept."""
MAX_COUNTS = 100_000
"""Keys of all ledgers together."""


def add(to: DailyCounts, rows: Mapping[tuple[str, ...], Sequence[int]]) -> None:
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
        total = _sum(() if found is None else numbers_in(found[0]), numbers)
        connection.execute("INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?)", (*name, json.dumps(total)))


def read_rows(connection: "Connection", ledger: str, since: str) -> DailyCounts:
    """What is in the file, from the day `since` on."""
    query = "SELECT day, key, numbers FROM tally WHERE ledger = ? AND day >= ?"
    rows = connection.execute(query, (ledger, since))
    return {(day, *map(str, list_in(rest))): numbers_in(numbers) for day, rest, numbers in rows}


def forget_rows(connection: "Connection", before: str) -> None:
    """Remove the days before that one, and the oldest of what is too much."""
    connection.execute("DELETE FROM tally WHERE day < ?", (before,))
    (count,) = connection.execute("SELECT count(*) FROM tally").fetchone()
    if count > MAX_COUNTS:
        connection.execute(_FORGET_OLDEST, (count - MAX_COUNTS,))


_FIND = "SELECT numbers FROM tally WHERE ledger = ? AND day = ? AND key = ?"
_FORGET_OLDEST = """
    DELETE FROM tally WHERE (ledger, day, key) IN (SELECT ledger, day, key FROM tally ORDER BY day LIMIT ?)
"""


def numbers_in(text: str | bytes) -> list[int]:
    """The numbers of a kept count."""
    return [number for number in list_in(text) if isinstance(number, int)]


def list_in(text: str | bytes) -> list[object]:
    """A kept list. Of a damaged one nothing: what is counted from now on is better than nothing ever."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return []
    return cast("list[object]", found) if isinstance(found, list) else []


def _sum(one: Sequence[int], two: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip_longest(one, two, fillvalue=0)]
