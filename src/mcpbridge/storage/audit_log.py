"""What is remembered of one call: the value that observers make and the call log keeps.

The tables of the call log, and how a call becomes a row: by size and digest, content only where that is asked for.

Rows are never changed. Triggers refuse it, and refuse to delete what `forgotten` does not name first, which is what
retention does: whoever looks at the file sees how far it went, and numbers that are missing elsewhere were taken out.
That keeps from accidents, not from somebody who has the file and wants to.

The call log: what was called, by whom, how it went, in a file that only grows.

Appending is handing over: sizes, digests and encoding are the database thread's work, a tenth of a second later and
many at a time. A killed process loses what it had not handed over yet, never the file. If the disk cannot follow,
records are dropped and counted; calls never wait for their log.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Struct

from mcpbridge.base.log import get_logger
from mcpbridge.protocol.json_values import canonical_digest
from mcpbridge.storage.settings import CallLogSettings
from mcpbridge.storage.sqlite.database import Database, Schema, give_back_room

if TYPE_CHECKING:
    from sqlite3 import Connection


Outcome = Literal["ok", "tool_error", "refused", "failed", "cancelled", "asked"]
"""`tool_error`: a result with `isError`; `refused`: by the bridge, unsent; `failed`: at the server or on the way;
`asked`: the answer was a question, the call goes on with another request."""


class CallRecord(Struct, frozen=True):
    """One call, as far as it can be told without looking at what people said. Nothing here is encoded or hashed yet."""

    at: float
    """Seconds since 1970, when it began."""
    seconds: float
    method: str
    server: str
    tool: str
    """The tool's id; the prompt's name or the resource's URI for other requests."""
    client: str
    """`clientInfo.name`."""
    principal: str
    session: str
    run: str
    """Run id, if the call has one."""
    outcome: Outcome
    error: str
    """Class of the error, or what the tool's own result says; empty if there was none."""
    arguments: bytes
    """As sent, after all changes. The call log keeps size and digest, the bytes themselves only if `keeps_content`."""
    result: bytes
    """Empty if there is none."""
    keeps_content: bool = False
    facts: dict[str, object] | None = None
    """What stages noted: `retries`, `cache`, `coerced`, `approval`, and so on."""
    sent: int = 0
    """Bytes of the arguments; also where they themselves are left out, as in events."""
    received: int = 0
    """Bytes of the result; likewise."""


Redact = Callable[[str], str]

SCHEMA = Schema(
    0x6D63706C,  # "mcpl"
    [
        [
            """
            CREATE TABLE call (
                id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, seconds REAL NOT NULL,
                method TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, client TEXT NOT NULL,
                principal TEXT NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL, outcome TEXT NOT NULL,
                error TEXT NOT NULL, arguments_size INTEGER NOT NULL, arguments_digest BLOB NOT NULL,
                result_size INTEGER NOT NULL, result_digest BLOB NOT NULL, arguments BLOB, result BLOB, facts TEXT
            )
            """,
            """
            CREATE TABLE event (
                id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, tool TEXT NOT NULL,
                client TEXT NOT NULL, principal TEXT NOT NULL, session TEXT NOT NULL, arguments_digest BLOB,
                who TEXT NOT NULL, detail TEXT NOT NULL, facts TEXT
            )
            """,
            "CREATE TABLE forgotten (log TEXT PRIMARY KEY, through INTEGER NOT NULL)",
            "INSERT INTO forgotten VALUES ('call', 0), ('event', 0)",
            """
            CREATE TRIGGER call_is_final BEFORE UPDATE ON call
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
            """
            CREATE TRIGGER event_is_final BEFORE UPDATE ON event
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
            """
            CREATE TRIGGER call_stays BEFORE DELETE ON call
            WHEN OLD.id > (SELECT through FROM forgotten WHERE log = 'call')
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
            """
            CREATE TRIGGER event_stays BEFORE DELETE ON event
            WHEN OLD.id > (SELECT through FROM forgotten WHERE log = 'event')
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
        ]
    ],
)

_LONGEST_NAME = 1000
_LONGEST_TEXT = 500
"""Characters; clients and servers name things, and errors tell things, as long as they like."""
_LONGEST_FACTS = 16 * 1024
_MARGIN = 4096
"""Bytes of content that are looked at beyond what is kept, so that a secret at the edge is not kept in part."""
_AT_ONCE = 5000
"""Rows that one transaction removes at most; others want to write too."""


def insert_calls(connection: "Connection", records: Sequence[CallRecord], redact: Redact, max_content: int) -> None:
    """Append calls. `max_content`: bytes of arguments, and of the result, that are kept where they are."""
    rows = [_row(record, redact, max_content) for record in records]
    connection.executemany(
        "INSERT INTO call (at, seconds, method, server, tool, client, principal, session, run, outcome, error,"
        " arguments_size, arguments_digest, result_size, result_digest, arguments, result, facts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def insert_event(connection: "Connection", at: float, kind: str, facts: Mapping[str, object], redact: Redact) -> None:
    """Append what happened beside the calls. See `CallLog.append_event` for the facts that have a column."""
    rest = dict(facts)
    names = [_text(str(rest.pop(key, "")), redact, _LONGEST_NAME) for key in ("tool", "client", "principal", "session")]
    told = [_text(str(rest.pop(key, "")), redact, _LONGEST_TEXT) for key in ("who", "detail")]
    arguments = rest.pop("arguments", None)
    digest = bytes.fromhex(canonical_digest(arguments)) if isinstance(arguments, bytes) else None
    connection.execute(
        "INSERT INTO event (at, kind, tool, client, principal, session, arguments_digest, who, detail, facts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (at, kind, *names, digest, *told, _facts(rest, redact)),
    )


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


def _row(record: CallRecord, redact: Redact, max_content: int) -> tuple[object, ...]:
    keeps = record.keeps_content
    return (
        record.at,
        record.seconds,
        _text(record.method, redact, _LONGEST_NAME),
        record.server,
        _text(record.tool, redact, _LONGEST_NAME),
        _text(record.client, redact, _LONGEST_NAME),
        _text(record.principal, redact, _LONGEST_NAME),
        _text(record.session, redact, _LONGEST_NAME),
        _text(record.run, redact, _LONGEST_NAME),
        record.outcome,
        _text(record.error, redact, _LONGEST_TEXT),
        len(record.arguments),
        bytes.fromhex(canonical_digest(record.arguments)),
        len(record.result),
        sha256(record.result).digest(),
        _content(record.arguments, redact, max_content) if keeps else None,
        _content(record.result, redact, max_content) if keeps else None,
        _facts(record.facts, redact) if record.facts else None,
    )


def _text(text: str, redact: Redact, limit: int) -> str:
    """What is kept of a text. A lone surrogate, which JSON can hold, has no UTF-8 form and would cost the whole row."""
    kept = redact(text)[:limit]
    return kept if kept.isascii() else kept.encode(errors="replace").decode()


def _content(data: bytes, redact: Redact, limit: int) -> bytes:
    text = redact(data[: limit + _MARGIN].decode("utf-8", errors="replace"))
    return text.encode()[:limit]


def _facts(facts: Mapping[str, object], redact: Redact) -> str | None:
    if not facts:
        return None
    try:
        text = json.dumps(_masked(facts, redact))
    except Exception:  # noqa: BLE001 - hooks may note anything; the row, and those beside it, are worth more
        return None
    return text if len(text) <= _LONGEST_FACTS else json.dumps({"left_out": sorted(facts)})


def _masked(value: object, redact: Redact) -> object:
    """The same as JSON knows it, without secrets in its strings; numbers stay numbers."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {str(key): _masked(item, redact) for key, item in members.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(item, redact) for item in cast("Sequence[object]", value)]
    return redact(str(value))


log = get_logger("mcpbridge.storage")

_GATHER = 0.1
"""Seconds in which records are gathered into one transaction."""
_MOST_WAITING = 10_000
"""Records that wait at most while the disk is slow."""
_MOST_BYTES = 64 * 1024**2
"""Bytes of arguments and results that wait with them; one record may be larger."""
_RETENTION = 3600.0
"""Seconds between two times that what is too old is removed."""


class CallLog:
    """Appends calls and events to a file, which is opened with the first of them. For one event loop."""

    def __init__(
        self,
        locate: Callable[[], Path],
        settings: CallLogSettings,
        *,
        redact: Callable[[str], str] = str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`locate` tells where the file is, when it is needed; `redact` masks secrets in what is kept."""
        self.dropped = 0
        """Records that were not written."""
        self._settings = settings
        self._redact = redact
        self._clock = clock
        self._locate = locate
        self._waiting: list[CallRecord] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_writing = False
        self._retention: asyncio.TimerHandle | None = None
        self._is_closed = self._has_complained = False

    @cached_property
    def _database(self) -> Database:
        return Database(self._locate(), SCHEMA)

    def configure(self, settings: CallLogSettings) -> None:
        """Other settings from now on; the file stays the same."""
        self._settings = settings

    def append(self, record: CallRecord) -> None:
        """Log a call, some time soon."""
        waiting = self._waiting
        size = self._bytes + len(record.arguments) + len(record.result)
        if self._is_closed or (waiting and (size > _MOST_BYTES or len(waiting) >= _MOST_WAITING)):
            self._lost(1, "is closed" if self._is_closed else "more calls than can be written")
            return
        self._bytes = size
        waiting.append(record)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self._hand_over)

    def append_event(self, kind: str, facts: Mapping[str, object]) -> None:
        """Log what is no call, such as an approval that was asked for or granted.

        Of the facts, `tool`, `client`, `principal`, `session`, `who` and `detail` are texts with columns of their own;
        `arguments` are the bytes of a call's arguments, of which the same digest is kept as of the call's; `at` is when
        it happened, if not now. Others are kept as JSON.
        """
        if self._is_closed:
            self._lost(1, "is closed")
            return
        rest = dict(facts)
        at = rest.pop("at", None)
        when = at if isinstance(at, int | float) else self._clock()
        self._post(lambda connection: insert_event(connection, when, kind, rest, self._redact), 1)

    async def close(self) -> None:
        """Write what waits, within seconds, and close the file."""
        for timer in (self._timer, self._retention):
            if timer is not None:
                timer.cancel()
        if self._waiting:
            self._write()
        self._is_closed = True
        if "_database" in self.__dict__:
            await self._database.close()

    def _hand_over(self) -> None:
        self._timer = None
        if self._waiting and not self._is_writing:  # else they wait, bounded, until the disk is through
            self._write()

    def _write(self) -> None:
        records, self._waiting, self._bytes = self._waiting, [], 0
        self._is_writing = True

        def write(connection: "Connection") -> None:
            insert_calls(connection, records, self._redact, self._settings.max_content)

        self._post(write, len(records), self._written)

    def _written(self) -> None:
        self._is_writing = False
        if self._waiting and self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self._hand_over)

    def _post(self, work: "Callable[[Connection], None]", count: int, then: Callable[[], None] | None = None) -> None:
        def done(error: Exception | None) -> None:
            if error is not None:
                self._lost(count, getattr(error, "what", "") or repr(error))
            elif self._retention is None and not self._is_closed:
                self._keep_retention()  # the file is open now
            if then is not None:
                then()

        self._database.post(work, done)

    def _lost(self, count: int, reason: str) -> None:
        self.dropped += count
        if not self._has_complained:
            self._has_complained = True
            log.warning("entries are missing in the call log", file=str(self._locate()), reason=reason)

    # -- retention

    def _keep_retention(self) -> None:
        self._retention = asyncio.get_running_loop().call_later(_RETENTION, self._keep_retention)
        self._forget()

    def _forget(self) -> None:
        before = self._clock() - self._settings.keep
        is_more = False

        def work(connection: "Connection") -> None:
            nonlocal is_more
            is_more = forget(connection, before, self._settings.max_rows)
            give_back_room(connection)

        def done(error: Exception | None) -> None:
            if is_more and error is None and not self._is_closed:
                self._database.post(work, done)

        self._database.post(work, done)
