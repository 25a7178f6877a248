"""Reads the call log, while bridges write it and when none runs."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpbridge.base.errors import StoreFailed
from mcpbridge.storage.call_log.format import SCHEMA, Outcome
from mcpbridge.storage.call_log.running import live_owners
from mcpbridge.storage.sqlite.database import BUSY_SECONDS

if TYPE_CHECKING:  # the standard library's; loaded with the first file
    from sqlite3 import Connection


Row = dict[str, Any]
"""A record as JSON values; what is not known is left out."""

RUNNING = "running"
"""The outcome of a call that has none yet."""
INTERRUPTED: Outcome = "interrupted"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records to read; None: all. Texts are globs."""

    tool: str | None = None
    """Of the tool's id, or of its name at its server."""
    server: str | None = None
    client: str | None = None
    principal: str | None = None
    outcome: str | None = None
    since: float | None = None
    """Seconds since 1970."""


def read_calls(path: Path, which: Filter, *, limit: int, after: int = 0, content: bool = False) -> list[Row]:
    """The newest calls, oldest first, at most `limit`. `after`: the number of the last one that is known already.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    return [_call(row, content=content) for row in _rows(path, _CALLS, which, limit, after)]


def read_running(path: Path, which: Filter, *, limit: int, content: bool = False) -> list[Row]:
    """The newest calls that have no record yet, oldest first; they have no `id`.

    Their outcome is `running`, or `interrupted` if their process was killed and no bridge made a record of it since.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    wanted = replace(which, outcome=None)
    rows = [_call(row, content=content) for row in _rows(path, _RUNNING, wanted, limit, 0)]
    return [row for row in rows if which.outcome in (None, row["outcome"])]


def read_events(path: Path, which: Filter, *, limit: int, after: int = 0) -> list[Row]:
    """The newest events, as `read_calls`; client and outcome of the filter mean nothing here.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    return [_event(row) for row in _rows(path, _EVENTS, which, limit, after)]


_WANTED = """
    (:since IS NULL OR at >= :since)
        AND (:tool IS NULL OR tool GLOB :tool OR substr(tool, length(server) + 2) GLOB :tool)
        AND (:server IS NULL OR server GLOB :server) AND (:client IS NULL OR client GLOB :client)
        AND (:principal IS NULL OR principal GLOB :principal) AND (:outcome IS NULL OR outcome = :outcome)
"""
_CALLS = f"SELECT * FROM call WHERE id > :after AND {_WANTED} ORDER BY id DESC LIMIT :limit"  # noqa: S608 - constants
_RUNNING = f"SELECT * FROM running WHERE {_WANTED} ORDER BY at DESC, number DESC LIMIT :limit"  # noqa: S608 - constants
_EVENTS = """
    SELECT * FROM event
    WHERE id > :after AND (:since IS NULL OR at >= :since)
        AND (:tool IS NULL OR tool GLOB :tool OR substr(tool, instr(tool, '/') + 1) GLOB :tool)
        AND (:server IS NULL OR substr(tool, 1, instr(tool, '/') - 1) GLOB :server)
        AND (:client IS NULL OR client GLOB :client)
        AND (:principal IS NULL OR principal GLOB :principal)
    ORDER BY id DESC LIMIT :limit
"""


def _rows(path: Path, query: str, which: Filter, limit: int, after: int) -> Sequence[Row]:
    import sqlite3

    try:
        with closing(_open(path)) as connection:
            connection.row_factory = sqlite3.Row
            if query == _RUNNING and not _has_running(connection):
                return []
            wanted = {**asdict(which), "limit": limit, "after": after}
            rows = [dict(row) for row in connection.execute(query, wanted)][::-1]
            if query == _RUNNING:
                alive = live_owners(connection)
                for row in rows:
                    row["outcome"] = RUNNING if row["owner"] in alive else row["outcome"]
            return rows
    except sqlite3.Error as error:
        raise StoreFailed(str(error), file=str(path)) from error


def _open(path: Path) -> "Connection":
    """A connection that changes nothing. Read-only it may not be: after a crash the first reader has to clean up."""
    import sqlite3

    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=BUSY_SECONDS, uri=True)
    try:
        (kind,) = connection.execute("PRAGMA application_id").fetchone()
        if kind != SCHEMA.id:
            raise StoreFailed("this is no call log", file=str(path))
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(SCHEMA.steps):
            raise StoreFailed("a newer mcpbridge made it", file=str(path))
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _has_running(connection: "Connection") -> bool:
    """An older bridge may have made the file, and none of this version has opened it yet."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'running'").fetchone() is not None


def _call(row: Row, *, content: bool) -> Row:
    has_ended = row["outcome"] not in (RUNNING, INTERRUPTED)
    unknown = () if has_ended else ("seconds",)
    names = ("id", "at", "seconds", "method", "server", "tool", "client")
    call = {key: row[key] for key in names if key in row and key not in unknown}
    call["at"] = _iso(row["at"])
    call |= {key: row[key] for key in ("principal", "session", "run", "outcome", "error") if row[key]}
    for side in ("arguments", "result") if has_ended else ("arguments",):
        call[side] = {"size": row[f"{side}_size"], "sha256": row[f"{side}_digest"].hex()}
        if content and row[side] is not None:
            call[side]["content"] = row[side].decode("utf-8", errors="replace")
    return _with_facts(call, row)


def _event(row: Row) -> Row:
    event = {"id": row["id"], "at": _iso(row["at"]), "event": row["kind"]}
    event |= {key: row[key] for key in ("tool", "client", "principal", "session", "who", "detail") if row[key]}
    if row["arguments_digest"] is not None:
        event["arguments"] = {"sha256": row["arguments_digest"].hex()}
    return _with_facts(event, row)


def _with_facts(record: Row, row: Row) -> Row:
    return {**record, "facts": json.loads(row["facts"])} if row["facts"] else record


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
