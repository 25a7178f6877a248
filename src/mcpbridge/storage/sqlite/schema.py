"""The tables of the store's file, the statements on them, and how a value becomes a row and comes back.

The facts of a value and its bytes are two tables: listing values, adding up their sizes and choosing which go first
touches none of the bytes. Statements run inside a transaction of `storage/sqlite/database.py`. `wrap` and `unwrap`
compress and seal; they are pure and take long for large values, so they belong on a worker thread.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from mcpbridge.storage.compression import PLAIN, Unreadable, pack, unpack
from mcpbridge.storage.encryption import NOT_SEALED, Seal, body_binding, label_binding, number_of, seal_for
from mcpbridge.storage.sqlite.database import Schema, give_back_room
from mcpbridge.storage.store import BytesLike, forget_rows, next_to_shrink, oldest_day

if TYPE_CHECKING:
    from sqlite3 import Connection


Name = tuple[str, str, str]
"""Kind, principal and handle. A handle names a value of one principal: nobody can replace, or hide, another's."""

ROOM = 512
"""Bytes that a value takes besides its own, roughly, so that many empty ones are bounded too."""
SLACK = 16
"""A bound is looked after when this part of it was written anew, and leaves as much room."""

_DRAFT = "(draft)"
"""The kind of values that are not written to their end."""
_DRAFT_SECONDS = 3600.0

SCHEMA = Schema(
    0x6D637073,  # "mcps"
    [
        [
            """
            CREATE TABLE value (
                kind TEXT NOT NULL, handle TEXT NOT NULL, principal TEXT NOT NULL,
                size INTEGER NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, body BLOB NOT NULL,
                UNIQUE (kind, principal, handle)
            )
            """,
            "CREATE INDEX value_kind ON value (kind)",
            "CREATE INDEX value_expires ON value (expires)",
        ],
        [
            """
            CREATE TABLE entry (
                number INTEGER PRIMARY KEY, kind TEXT NOT NULL, principal TEXT NOT NULL, handle TEXT NOT NULL,
                size INTEGER NOT NULL, room INTEGER NOT NULL, created REAL NOT NULL, used REAL NOT NULL,
                expires REAL NOT NULL, form INTEGER NOT NULL, seal INTEGER NOT NULL, label BLOB NOT NULL,
                UNIQUE (kind, principal, handle)
            )
            """,
            """
            CREATE TABLE body (
                entry INTEGER NOT NULL, part INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (entry, part)
            )
            """,
            """
            INSERT INTO entry
            SELECT rowid, kind, principal, handle, size, size + 512, created, created, expires, 0, 0, x'' FROM value
            """,
            "INSERT INTO body SELECT rowid, 0, body FROM value",
            "DROP TABLE value",
            # Each index ends with the row's number, which is the order of arrival.
            "CREATE INDEX entry_created ON entry (kind, created)",
            "CREATE INDEX entry_used ON entry (kind, used)",
            "CREATE INDEX entry_room ON entry (kind, room)",
            "CREATE INDEX entry_expires ON entry (expires)",
            "CREATE TRIGGER entry_gone AFTER DELETE ON entry BEGIN DELETE FROM body WHERE entry = OLD.number; END",
            """
            CREATE TABLE tally (
                ledger TEXT NOT NULL, day TEXT NOT NULL, key TEXT NOT NULL, numbers TEXT NOT NULL,
                PRIMARY KEY (ledger, day, key)
            ) WITHOUT ROWID
            """,
            "CREATE INDEX tally_day ON tally (day)",
            "CREATE TABLE salt (value BLOB NOT NULL)",
            "INSERT INTO salt VALUES (randomblob(16))",
        ],
    ],
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of `entry`, in the order of its columns."""

    number: int | None
    """None: it is not in the file yet."""
    kind: str
    principal: str
    handle: str
    size: int
    room: int
    created: float
    used: float
    expires: float
    form: int
    """How the bytes are written, see `storage/compression.py`."""
    seal: int
    """`Seal.id` of the key that they were sealed with; 0: they are not."""
    label: bytes

    @property
    def name(self) -> Name:
        """What it is found by."""
        return self.kind, self.principal, self.handle


_INSERT = "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_PART = """
    INSERT INTO body SELECT number, ?, ? FROM entry WHERE kind = ? AND principal = ? AND handle = ?
"""
_PUBLISH = """
    UPDATE entry SET kind = ?, principal = ?, handle = ?, created = ?, used = ?, expires = ?
    WHERE kind = ? AND principal = ? AND handle = ?
"""
_DELETE = "DELETE FROM entry WHERE kind = ? AND principal = ? AND handle = ?"
_SELECT = """
    SELECT number, kind, principal, handle, size, room, created, used, expires, form, seal, CAST(label AS BLOB)
    FROM entry WHERE
"""
_FIND = f"{_SELECT} kind = ? AND principal = ? AND handle = ? AND expires > ?"
_BODY = "SELECT CAST(data AS BLOB) FROM body WHERE entry = ? ORDER BY part"
_TOUCH = """
    UPDATE entry SET used = max(used, ?), expires = max(expires, ?) WHERE kind = ? AND principal = ? AND handle = ?
"""
_RENEW = "UPDATE entry SET created = ?, used = ?, expires = max(expires, ?), label = ?, room = ? WHERE number = ?"
_LIST = f"""
    {_SELECT} kind = ? AND expires > ? AND seal IN (0, ?) AND (? IS NULL OR principal = ?)
    ORDER BY created, number LIMIT ?
"""
_LIST_NEWEST = _LIST.replace("created, number", "created DESC, number DESC")


def insert(connection: "Connection", row: Row, data: BytesLike) -> None:
    """Write a value, in place of what had its name."""
    delete(connection, row.name)
    number = connection.execute(_INSERT, astuple(row)).lastrowid
    connection.execute("INSERT INTO body VALUES (?, 0, ?)", (number, data))


def draft_of(row: Row, name: str) -> Row:
    """What stands for a large value while it is written in parts. Drafts that nobody finishes expire."""
    return replace(row, kind=_DRAFT, principal="", handle=name, expires=row.created + _DRAFT_SECONDS)


def add_part(connection: "Connection", draft: Row, part: int, data: memoryview) -> None:
    """Write a part of a draft's value. Parts of a draft that is gone are gone as well."""
    connection.execute(_ADD_PART, (part, data, *draft.name))


def publish(connection: "Connection", draft: Row, row: Row) -> bool:
    """Make a draft the value that it was written for, in place of what had that name. False: the draft is gone."""
    delete(connection, row.name)
    values = (*row.name, row.created, row.used, row.expires)
    return connection.execute(_PUBLISH, (*values, *draft.name)).rowcount > 0


def delete(connection: "Connection", name: Name) -> bool:
    """Remove a value. False if there was none, whether or not it had expired."""
    return connection.execute(_DELETE, name).rowcount > 0


def find(connection: "Connection", name: Name, now: float) -> Row | None:
    """What is known of a value that has not expired."""
    row = connection.execute(_FIND, (*name, now)).fetchone()
    return None if row is None else Row(*row)


def read_body(connection: "Connection", row: Row) -> bytes:
    """The bytes of a row that was found, as they were written; empty if they are lost."""
    parts: list[bytes] = [data for (data,) in connection.execute(_BODY, (row.number,))]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def list_rows(
    connection: "Connection",
    kind: str,
    principal: str | None,
    now: float,
    *,
    seal: int,
    limit: int | None,
    newest_first: bool,
) -> list[Row]:
    """The rows of a kind that `seal` can open, see `Store.entries`."""
    query = _LIST_NEWEST if newest_first else _LIST
    most = -1 if limit is None else max(0, limit)
    return [Row(*row) for row in connection.execute(query, (kind, now, seal, principal, principal, most))]


def touch(connection: "Connection", name: Name, now: float, expires: float) -> None:
    """A value was used, and lives until then at least."""
    connection.execute(_TOUCH, (now, expires, *name))


def renew(connection: "Connection", row: Row, now: float, expires: float, label: bytes) -> None:
    """A value that was found is treated as if it were put now."""
    room = row.room - len(row.label) + len(label)
    connection.execute(_RENEW, (now, now, expires, label, room, row.number))


def salt_of(connection: "Connection") -> bytes:
    """What the keys of this file are made with, besides the configured secret."""
    found = connection.execute("SELECT value FROM salt").fetchone()
    return b"" if found is None else bytes(found[0])


def count_foreign(connection: "Connection", seal: int) -> int:
    """How many values were sealed with another key than that one."""
    (count,) = connection.execute("SELECT count(*) FROM entry WHERE seal NOT IN (0, ?)", (seal,)).fetchone()
    return count


def sweep(connection: "Connection", now: float, max_bytes: int, bounds: Mapping[str, int]) -> None:
    """Remove what has expired, and what is beyond the bounds: of the kinds, and of all together."""
    connection.execute("DELETE FROM entry WHERE expires <= ?", (now,))
    by_kind = dict[str, int](connection.execute("SELECT kind, sum(room) FROM entry GROUP BY kind").fetchall())
    for kind, bound in bounds.items():
        surplus = by_kind.get(kind, 0) - (bound - bound // SLACK)
        if surplus > 0:
            by_kind[kind] -= _evict(connection, kind, surplus)
    surplus = sum(by_kind.values()) - (max_bytes - max_bytes // SLACK)
    while surplus > 0:
        # What is being written is spared: it is newer than all else, and its writing would fail. Within a bound, since
        # else a flood of it would wash away the rest.
        spared = {_DRAFT: max_bytes * 3 // 4}
        kind, most = next_to_shrink(by_kind, surplus, spared)
        gone = _evict(connection, kind, most)  # rows are of any size, so this is about right
        if gone <= 0:  # a damaged file need not add up
            break
        by_kind[kind] -= gone
        surplus -= gone
    forget_rows(connection, oldest_day(now))
    give_back_room(connection)


def _evict(connection: "Connection", kind: str, surplus: int) -> int:
    """Remove what was not used for longest, until so many bytes are free; how many it were."""
    gone = 0
    numbers: list[tuple[int]] = []
    rows = connection.execute("SELECT number, room FROM entry WHERE kind = ? ORDER BY used, number", (kind,))
    for number, room in rows:
        numbers.append((number,))
        gone += room
        if gone >= surplus:
            break
    rows.close()
    connection.executemany("DELETE FROM entry WHERE number = ?", numbers)
    return gone


def wrap(name: Name, body: BytesLike, label: bytes, seal: Seal | None) -> tuple[Row, BytesLike]:
    """The row of a value, without its times, and the bytes to write."""
    form, data = pack(body)
    if seal is not None:
        data = seal.close(data, *body_binding(name, form, len(body)))
    kept_label = wrap_label(name, label, seal)
    kind, principal, handle = name
    room = ROOM + len(data) + len(kept_label)
    return Row(None, kind, principal, handle, len(body), room, 0, 0, 0, form, number_of(seal), kept_label), data


def unwrap(row: Row, data: bytes, seal: Seal | None) -> bytes:
    """The value of a row.

    Raises:
        OtherKey: it was sealed with another key.
        Unreadable: it is damaged.
    """
    opener = seal_for(row.seal, seal)
    if opener is not None:
        data = opener.open(data, *body_binding(row.name, row.form, row.size))
    return unpack(row.form, data, row.size)


def wrap_label(name: Name, label: bytes, seal: Seal | None) -> bytes:
    """A label to write; an empty one says nothing and stays empty."""
    return label if seal is None or not label else seal.close(label, *label_binding(name))


def open_label(row: Row, seal: Seal | None) -> Row:
    """The row with its label readable, empty if it is damaged.

    Raises:
        OtherKey: it was sealed with another key.
    """
    opener = seal_for(row.seal, seal)
    if opener is None or not row.label:
        return row
    try:
        return replace(row, label=opener.open(row.label, *label_binding(row.name)))
    except Unreadable:
        return replace(row, label=b"")


def is_plain(row: Row) -> bool:
    """Whether its bytes are the value, and its label the label."""
    return row.form == PLAIN and row.seal == NOT_SEALED
