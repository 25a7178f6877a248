"""What was used of quotas, in a file that all bridges of a user share: so they last, and are counted once.

What is used is added before a call is sent, in one transaction with the look whether there is room, and corrected when
the call is over. So calls at the same time, of several processes too, never use more than there is. What a killed
process had added stays. Where the store is a server, bridges on several machines count there (`redis/quotas.py`).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from mcpbridge.storage.sqlite.database import Database, Schema

if TYPE_CHECKING:
    from sqlite3 import Connection

_T = TypeVar("_T")

Used = tuple[str, str, float, int]
"""What may still count: subject, what is counted, slot and amount."""

SCHEMA = Schema(
    0x6D637175,  # "mcqu"
    [
        [
            """
            CREATE TABLE used (
                subject TEXT NOT NULL, counted TEXT NOT NULL, slot REAL NOT NULL, amount INTEGER NOT NULL,
                expires REAL NOT NULL, PRIMARY KEY (subject, counted, slot)
            ) WITHOUT ROWID
            """,
            "CREATE INDEX used_expires ON used (expires)",
        ],
    ],
)
_SWEEP = 200
"""Rows that are over and are removed with one reservation, at most."""


class Wanted(Struct, frozen=True):
    """What a call wants of one quota of one subject."""

    subject: str
    """Whose it is: a person or a team."""
    counted: str
    """Which quota; see `Quota.counted`."""
    slot: float
    """Where it is added."""
    first: float
    """The first slot that counts."""
    expires: float
    """When it counts no more."""
    limit: int
    amount: int
    at_least: int
    """There is room if so much is free; then as much is taken of `amount` as there is."""


class Taken(Struct, frozen=True):
    """What was taken of it."""

    wanted: Wanted
    amount: int
    used: int
    """All that counts, with this."""


class Full(Struct, frozen=True):
    """There was no room."""

    wanted: Wanted
    slots: Sequence[tuple[float, int]]
    """What counts, and where."""


class QuotaLedger(Protocol):
    """Keeps what was used."""

    is_shared: bool
    """Bridges on several machines count together: while that cannot be done, nobody may use more."""

    async def take(
        self, groups: Sequence[Sequence[Wanted]], now: float, *, is_checked: bool = True
    ) -> "list[Taken] | list[Full]":
        """Take what is wanted of each group that has room for all of it.

        Returns what was taken; or, if no group has room, what is full. Not `is_checked`: it is taken in any case.
        Cancelling is not safe: it may be taken.

        Raises:
            StoreFailed: it cannot be counted.
        """
        ...

    def settle(self, charges: Sequence[Taken], amounts: Sequence[int]) -> None:
        """These amounts were used in truth. What cannot be written stays as it was taken."""
        ...

    async def used(self, now: float) -> list[Used]:
        """All that may still count. Cancelling is safe.

        Raises:
            StoreFailed: it cannot be read.
        """
        ...

    async def close(self) -> None:
        """Write what waits, and close what is open. Cancelling is safe: that takes seconds at most."""
        ...


class QuotaStore:
    """Keeps what was used in a file, which is opened with the first use. See `QuotaLedger`. For one event loop."""

    is_shared = False

    def __init__(self, locate: Callable[[], Path] | None) -> None:
        """`locate` returns where the file is; None: nothing outlives the process."""
        self._locate = locate
        self._database: Database | None = None
        self._memory: Connection | None = None

    async def take(
        self, groups: Sequence[Sequence[Wanted]], now: float, *, is_checked: bool = True
    ) -> "list[Taken] | list[Full]":
        """Take what is wanted. Cancelling is not safe: it may be taken."""
        return await self._run(lambda connection: _take(connection, groups, now, is_checked=is_checked))

    def settle(self, charges: Sequence[Taken], amounts: Sequence[int]) -> None:
        """These amounts were used in truth. What cannot be written stays as it was taken."""

        def work(connection: "Connection") -> None:
            connection.executemany(
                "UPDATE used SET amount = max(0, amount + ?) WHERE subject = ? AND counted = ? AND slot = ?",
                [
                    (amount - one.amount, one.wanted.subject, one.wanted.counted, one.wanted.slot)
                    for one, amount in zip(charges, amounts, strict=True)
                    if amount != one.amount
                ],
            )

        if self._locate is None:
            work(self._in_memory)
        else:
            self._file.post(work)

    async def used(self, now: float) -> list[Used]:
        """All that may still count. Cancelling is safe."""
        return await self._run(lambda connection: read_used(connection, now))

    async def close(self) -> None:
        """Write what waits, and close the file. Cancelling is safe: that takes seconds at most."""
        if self._database is not None:
            await self._database.close()

    async def _run(self, work: "Callable[[Connection], _T]") -> _T:
        return work(self._in_memory) if self._locate is None else await self._file.run(work)

    @property
    def _file(self) -> Database:
        if self._database is None:
            assert self._locate is not None, "else it is kept in memory"
            self._database = Database(self._locate(), SCHEMA)
        return self._database

    @property
    def _in_memory(self) -> "Connection":
        if self._memory is None:
            import sqlite3

            self._memory = sqlite3.connect(":memory:", isolation_level=None)
            for step in SCHEMA.steps:
                for statement in step:
                    self._memory.execute(statement)
        return self._memory


def read_used(connection: "Connection", now: float) -> list[Used]:
    """See `QuotaStore.used`."""
    query = "SELECT subject, counted, slot, amount FROM used WHERE expires > ? AND amount > 0"
    return [tuple(row) for row in connection.execute(query, (now,))]


def _take(
    connection: "Connection", groups: Sequence[Sequence[Wanted]], now: float, *, is_checked: bool
) -> list[Taken] | list[Full]:
    taken, full = list[Taken](), list[Full]()
    for group in groups:
        slots = [_slots(connection, one) for one in group]
        used = [sum(amount for _, amount in of) for of in slots]
        over = [
            Full(one, of)
            for one, of, sum_ in zip(group, slots, used, strict=True)
            if is_checked and one.limit - sum_ < one.at_least
        ]
        full += over
        if not over:
            for one, sum_ in zip(group, used, strict=True):
                amount = min(one.amount, one.limit - sum_) if is_checked else one.amount
                taken.append(Taken(one, amount, sum_ + amount))
    if taken or not full:
        connection.executemany(
            "INSERT INTO used VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (subject, counted, slot) DO UPDATE SET amount = amount + excluded.amount",
            [
                (one.wanted.subject, one.wanted.counted, one.wanted.slot, one.amount, one.wanted.expires)
                for one in taken
            ],
        )
        connection.execute(
            "DELETE FROM used WHERE (subject, counted, slot) IN"
            " (SELECT subject, counted, slot FROM used WHERE expires <= ? LIMIT ?)",
            (now, _SWEEP),
        )
        return taken
    return full


def _slots(connection: "Connection", one: Wanted) -> list[tuple[float, int]]:
    query = "SELECT slot, amount FROM used WHERE subject = ? AND counted = ? AND slot >= ? AND amount > 0"
    return [tuple(row) for row in connection.execute(query, (one.subject, one.counted, one.first))]
