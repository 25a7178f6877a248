"""The format of the call log: the record of a call, the tables of the file, and how a record becomes a row.

A row has sizes and digests; content only where the configuration asks for it. Calls under way have theirs in `running`
(`running.py`). Rows of calls and events are never changed: triggers refuse that, and refuse to delete rows
that the table `forgotten` does not name first, as retention does (`retention.py`). So a reader of the file
sees how far retention went, and numbers missing elsewhere were taken out. This guards against accidents, not against
somebody who has the file and means to change it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Raw, Struct

from mcpbridge.base.masking.known_values import known_only
from mcpbridge.protocol.canonical_json import canonical_digest
from mcpbridge.storage.sqlite.database import Schema

if TYPE_CHECKING:
    from sqlite3 import Connection


Outcome = Literal["ok", "tool_error", "refused", "failed", "cancelled", "asked", "interrupted"]
"""`tool_error`: a result with `isError`; `refused`: by the bridge, unsent; `failed`: at the server or on the way;
`asked`: the answer was a question, the call goes on with another request; `interrupted`: the bridge was killed after it
sent the call, so nobody knows whether that took effect."""


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
    result: bytes | Raw
    """Empty if there is none."""
    keeps_content: bool = False
    facts: dict[str, object] | None = None
    """What stages noted: `retries`, `cache`, `coerced`, `approval`, and so on."""
    sent: int = 0
    """Bytes of the arguments; also where they themselves are left out, as in events."""
    received: int = 0
    """Bytes of the result; likewise."""
    running: int = 0
    """Its number among the calls under way of this process (`CallLog.begin`); 0: it has no row there."""


Redact = Callable[[str], str]

CALL_COLUMNS = (
    "at, seconds, method, server, tool, client, principal, session, run, outcome, error, arguments_size,"
    " arguments_digest, result_size, result_digest, arguments, result, facts"
)
"""What the tables `call` and `running` have in common, in the order of `call_row`."""

CALL_MARKS = ", ".join("?" * len(CALL_COLUMNS.split(",")))
_INSERT_CALL = f"INSERT INTO call ({CALL_COLUMNS}) VALUES ({CALL_MARKS})"  # noqa: S608 - constants

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
        ],
        [
            """
            CREATE TABLE running (
                owner TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, seconds REAL NOT NULL,
                method TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, client TEXT NOT NULL,
                principal TEXT NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL, outcome TEXT NOT NULL,
                error TEXT NOT NULL, arguments_size INTEGER NOT NULL, arguments_digest BLOB NOT NULL,
                result_size INTEGER NOT NULL, result_digest BLOB NOT NULL, arguments BLOB, result BLOB, facts TEXT,
                PRIMARY KEY (owner, number)
            ) WITHOUT ROWID
            """,
        ],
    ],
)

_LONGEST_NAME = 1000
_LONGEST_TEXT = 500
"""Characters; clients and servers name things, and errors tell things, as long as they like."""
_LONGEST_FACTS = 16 * 1024
_MARGIN = 4096
"""Bytes of content that are looked at beyond what is kept, so that a secret at the edge is not kept in part."""


def insert_calls(connection: "Connection", records: Sequence[CallRecord], redact: Redact, max_content: int) -> None:
    """Append calls. `max_content`: bytes of arguments, and of the result, that are kept where they are."""
    rows = [call_row(record, redact, max_content) for record in records]
    connection.executemany(_INSERT_CALL, rows)


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


def call_row(record: CallRecord, redact: Redact, max_content: int) -> tuple[object, ...]:
    """What is kept of a call, in the order of `CALL_COLUMNS`."""
    keeps, known = record.keeps_content, known_only(redact)
    return (
        record.at,
        record.seconds,
        _text(record.method, known, _LONGEST_NAME),
        record.server,
        _text(record.tool, known, _LONGEST_NAME),
        _text(record.client, known, _LONGEST_NAME),
        _text(record.principal, known, _LONGEST_NAME),
        _text(record.session, known, _LONGEST_NAME),
        _text(record.run, known, _LONGEST_NAME),
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


def _content(data: bytes | Raw, redact: Redact, limit: int) -> bytes:
    text = redact(bytes(memoryview(data)[: limit + _MARGIN]).decode("utf-8", errors="replace"))
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
