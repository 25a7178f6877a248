"""Calls under way in the call log: a row from before a call is sent until its record is written.

A process that is killed leaves these rows behind: calls of which nobody knows whether they took effect. `recover` makes
records of them, with the outcome `interrupted`. Several bridges share one file, so each row names its owner, and an
owner holds a lock for as long as it lives, on a file beside the log. The system frees the lock when the process dies,
whatever killed it; a process id would not do, as it is given out again, and means nothing in another container.
"""

from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from mcpbridge.storage.call_log.format import CALL_COLUMNS, CALL_MARKS, CallRecord, CallRows, Redact, next_id
from mcpbridge.storage.file_locks import OwnedFile, is_owned

if TYPE_CHECKING:
    from sqlite3 import Connection


_INSERT = f"INSERT INTO running (owner, number, {CALL_COLUMNS}, arguments, asked) VALUES (?, ?, {CALL_MARKS}, ?, ?)"
_MOVE = (
    f"INSERT INTO call (id, {CALL_COLUMNS}) SELECT ? + row_number() OVER (ORDER BY number), {CALL_COLUMNS}"
    " FROM running WHERE owner = ? ORDER BY number"
)
_MOVE_CONTENT = (
    "INSERT INTO content (call, arguments, asked) SELECT id, arguments, asked FROM"
    " (SELECT ? + row_number() OVER (ORDER BY number) AS id, arguments, asked FROM running WHERE owner = ?)"
    " WHERE arguments IS NOT NULL"
)


class RunningCalls:
    """The rows of one process's calls under way. Used on the database's thread; `close` is for the end."""

    def __init__(self) -> None:
        self._owner = uuid4().hex
        self._file: OwnedFile | None = None
        self._connection: Connection | None = None

    def insert(self, connection: "Connection", records: Sequence[CallRecord], redact: Redact, max_content: int) -> None:
        """Add calls that are about to be sent; `running` is the number of each."""
        if self._connection is not connection:  # the file may have been removed and made anew, and ours with it
            self.close()
            self._file, self._connection = OwnedFile(_owner_file(_path_of(connection), self._owner)), connection
        rows = CallRows(redact, max_content)
        values = [
            (
                *(self._owner, record.running, *rows.row(record)),
                *(rows.contents([record])[0][:2] if record.keeps_content else (None, None)),
            )
            for record in records
        ]
        connection.executemany(_INSERT, values)

    def delete(self, connection: "Connection", numbers: Sequence[int]) -> None:
        """Remove calls that have ended, in the transaction that adds their records."""
        rows = [(self._owner, number) for number in numbers]
        connection.executemany("DELETE FROM running WHERE owner = ? AND number = ?", rows)

    def close(self) -> None:
        """From now on, what is left counts as interrupted."""
        if self._file is not None:
            self._file.close()
        self._file = self._connection = None


def recover(connection: "Connection") -> int:
    """Make records of the calls whose process is no more; says how many there were."""
    path, count = _path_of(connection), 0
    for owner in _owners(connection):
        file = _owner_file(path, owner)
        if not is_owned(file):
            last = next_id(connection) - 1
            connection.execute(_MOVE_CONTENT, (last, owner))
            count += connection.execute(_MOVE, (last, owner)).rowcount
            connection.execute("DELETE FROM running WHERE owner = ?", (owner,))
            with suppress(OSError):
                file.unlink(missing_ok=True)
    return count + _recover_sent(connection, path)


def _recover_sent(connection: "Connection", path: Path) -> int:
    from mcpbridge.storage.call_log.journal import left_behind  # nothing is found when the first call comes

    rows, journals = left_behind(connection, path)
    for id_, row in enumerate(rows, next_id(connection)):
        marks = ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO call (id, {', '.join(row)}) VALUES (?, {marks})", (id_, *row.values()))
    if not rows:  # else the next time, when these rows are certain to be in the file
        for journal in journals:
            with suppress(OSError):
                journal.unlink(missing_ok=True)
    return len(rows)


def live_owners(connection: "Connection") -> list[str]:
    """The processes that have calls under way, without those that died."""
    path = _path_of(connection)
    return [owner for owner in _owners(connection) if is_owned(_owner_file(path, owner))]


def _owners(connection: "Connection") -> list[str]:
    with closing(connection.cursor()) as cursor:
        cursor.row_factory = None
        return [owner for (owner,) in cursor.execute("SELECT DISTINCT owner FROM running")]


def _path_of(connection: "Connection") -> Path:
    with closing(connection.cursor()) as cursor:
        cursor.row_factory = None
        return Path(cursor.execute("PRAGMA database_list").fetchone()[2])


def _owner_file(path: Path, owner: str) -> Path:
    return path.with_name(f"{path.name}.{owner}.running")
