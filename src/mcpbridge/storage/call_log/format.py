"""The record of a call and of a minute, and how they become rows (`schema.py` has the tables).

A row has sizes and digests; content only where the record says so. Names and texts are masked here, on the database's
thread: it takes most of the time of a record. Calls under way have their rows in `running` (`running.py`).
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Raw, Struct

from mcpbridge.base.masking.known_values import known_only
from mcpbridge.core.recording import ExpressStages
from mcpbridge.protocol.canonical_json import canonical_digest

if TYPE_CHECKING:
    from sqlite3 import Connection


Outcome = Literal["ok", "tool_error", "refused", "failed", "cancelled", "asked", "needed_sign_in", "interrupted"]
"""`tool_error`: a result with `isError`; `refused`: by the bridge, unsent; `failed`: at the server or on the way;
`asked`: the answer was a question, the call continues with another request; `needed_sign_in`: its user has to sign in
to the server first, which is no failure; `interrupted`: the bridge was killed after it sent the call, so nobody knows
whether that took effect."""

StageTime = tuple[str, float, float]
"""Name of a stage, and when it began and ended: seconds since the call began."""

SESSION_BEGAN, SESSION_LISTED, SESSION_ENDED = "session.began", "session.listed", "session.ended"
"""Events of the sessions of clients: its first request, a list of tools that it got, and its end."""


class CallRecord(Struct, frozen=True, gc=False):  # many wait to be written: the collector need not look at each
    """One call, as far as it is known without looking at what people said. Nothing here is encoded or hashed yet."""

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
    """What stages noted: `retries`, `cache`, `coerced`, `approval`, `kept` (the handle of the original), and so on."""
    sent: int = 0
    """Bytes of the arguments; also where they themselves are left out, as in events."""
    received: int = 0
    """Bytes of the result; likewise."""
    running: int = 0
    """Its number among the calls under way of this process (`CallLog.begin`); 0: it has no row there."""
    uid: int = 0
    """What it is known by in all processes, ordered by when calls began; 0: it has none. People see `uid_text`."""
    parent: int = 0
    """The `uid` of the call that made it; 0: none did, or that has none."""
    revision: str = ""
    """The protocol revision that its client speaks."""
    asked: bytes | Raw = b""
    """The arguments as the client sent them, where those that the server got are others; kept as they are."""
    stages: Sequence[StageTime] | ExpressStages = ()
    """In the order in which it left them."""
    arguments_digest: bytes = b""
    """Of the arguments, if it is known already: SHA-256 of their canonical form."""
    tokens: int = 0
    """Of the result, estimated."""
    original_size: int = 0
    """Bytes of the result as the server sent it, where the client got another one; 0: it is that one."""
    original_tokens: int = 0
    rule: str = ""
    """What of the settings decided that it may be made, or may not; empty: nobody asked (`[audit]` and roles do)."""
    user: str = ""
    """Name of the person, as the provider has it (`Identity.name`): for people who read, it decides nothing."""
    address: str = ""
    """The IP address of the client; empty: it came over no network."""
    client_version: str = ""
    """`clientInfo.version`."""
    oauth_client: str = ""
    """The OAuth client that the token was issued to."""
    role: str = ""
    """The first role of the caller that opens the tool; empty: it is kept to no role."""


class SentCall(Struct, frozen=True, gc=False):
    """What is known of a call that is about to be sent, for the journal (`journal.py`)."""

    at: float
    """Seconds since 1970, when it began."""
    uid: int
    parent: int
    arguments_size: int
    asked_size: int
    """0: the client sent the arguments as the server gets them."""
    arguments_digest: bytes
    names: tuple[str, ...]
    """The columns that are texts, as they came, in the order of `NAMES` in `journal.py`."""
    facts: Mapping[str, object] | None = None
    """What stages noted so far."""


class MinuteRecord(Struct, frozen=True):
    """What was counted in a minute of the calls of one tool by one client."""

    at: int
    """Seconds since 1970, when the minute began."""
    server: str
    tool: str
    """The tool's id; empty for requests that call none."""
    client: str
    calls: int
    errors: int
    """Calls that failed, there or on the way, or whose result is an error of the tool."""
    refused: int
    cancelled: int
    seconds: float
    """Of all calls together."""
    upstream_seconds: float
    """What servers took of that."""
    bytes_in: int
    bytes_out: int
    retries: int
    cache_hits: int
    buckets: Sequence[int]
    """How many calls took how long; the bounds are those of the metrics."""


Redact = Callable[[str], str]


_USUAL = (
    "at, seconds, method, server, tool, client, principal, session, run, outcome, error, arguments_size,"
    " arguments_digest, result_size, result_digest, uid, revision, stages, tokens, client_version"
)
_WHO = "user_name, address, oauth_client, role, rule"
_HOW = "facts, parent, asked_size, original_size, original_tokens, handle"
"""What most calls have nothing in, as `_WHO` of calls that came over no network."""
CALL_COLUMNS = f"{_USUAL}, {_WHO}, {_HOW}"
"""What the tables `call` and `running` have in common, in the order of `CallRows.row`."""


def _marks(columns: str) -> str:
    return ", ".join("?" * len(columns.split(",")))


def _insert_call(columns: str) -> str:
    return f"INSERT INTO call (id, {columns}) VALUES (?, {_marks(columns)})"


CALL_MARKS = _marks(CALL_COLUMNS)
_NO_WHO, _NO_HOW = ((None,) * len(columns.split(",")) for columns in (_WHO, _HOW))
_INSERT_CONTENT = "INSERT INTO content (call, arguments, asked, result) VALUES (?, ?, ?, ?)"
_MINUTE_COLUMNS = MinuteRecord.__struct_fields__
_INSERT_MINUTE = f"INSERT INTO minute ({', '.join(_MINUTE_COLUMNS)}) VALUES ({', '.join('?' * len(_MINUTE_COLUMNS))})"

_LONGEST_NAME = 1000
_LONGEST_TEXT = 500
"""Characters; names of clients and servers, and texts of errors, may be as long as they like."""
_LONGEST_FACTS = 16 * 1024
_APART = "\n" * 64
_TOGETHER = 16 * 1024
"""Characters of texts that are masked together."""
_TURN_SECONDS = 0.0005
"""CPU seconds after which the loop of calls has its turn. A pause costs as much as masking three records does, so none
follows each."""
_MARGIN = 4096
"""Bytes of content that are looked at beyond what is kept, so that a secret at the edge is not kept in part."""


def insert_calls(connection: "Connection", records: Sequence[CallRecord], redact: Redact, max_content: int) -> None:
    """Append calls. `max_content`: bytes of arguments, and of the result, that are kept where they are."""
    if not records:
        return
    rows, first = CallRows(redact, max_content), next_id(connection)
    # A value that SQLite is given takes as long as one that it writes: columns without one are left out.
    usual: list[tuple[object, ...]] = []
    with_who: list[tuple[object, ...]] = []
    whole: list[tuple[object, ...]] = []
    turn = _Turn()
    for id_, record in enumerate(records, first):
        row, who, how = rows.parts(record)
        if how != _NO_HOW:
            whole.append((id_, *row, *who, *how))
        elif who != _NO_WHO:
            with_who.append((id_, *row, *who))
        else:
            usual.append((id_, *row))
        turn.give_way()
    with_content = [(id_, record) for id_, record in enumerate(records, first) if record.keeps_content]
    found = rows.contents([record for _, record in with_content], turn.give_way)
    contents = [(id_, *content) for (id_, _), content in zip(with_content, found, strict=True)]
    for columns, calls in ((_USUAL, usual), (f"{_USUAL}, {_WHO}", with_who), (CALL_COLUMNS, whole)):
        if calls:
            connection.executemany(_insert_call(columns), calls)
    if contents:
        connection.executemany(_INSERT_CONTENT, contents)


def next_id(connection: "Connection") -> int:
    """The id that the next call gets. Within a transaction, so that no other process gets it."""
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'call'").fetchone()
    return 1 if found is None else found[0] + 1


def insert_event(connection: "Connection", at: float, kind: str, facts: Mapping[str, object], redact: Redact) -> None:
    """Append what happened beside the calls. See `CallLog.append_event` for the facts that have a column."""
    rest = dict(facts)
    names = [_text(str(rest.pop(key, "")), redact, _LONGEST_NAME) for key in _EVENT_NAMES]
    told = [_text(str(rest.pop(key, "")), redact, _LONGEST_TEXT) for key in ("who", "detail")]
    arguments = rest.pop("arguments", None)
    digest = bytes.fromhex(canonical_digest(arguments)) if isinstance(arguments, bytes) else None
    connection.execute(
        "INSERT INTO event (at, kind, tool, client, principal, session, server, arguments_digest, who, detail, facts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (at, kind, *names, digest, *told, facts_text(rest, redact)),
    )


_EVENT_NAMES = ("tool", "client", "principal", "session", "server")


def insert_minutes(connection: "Connection", minutes: Sequence[MinuteRecord], redact: Redact) -> None:
    """Append what was counted."""
    rows = [
        (
            minute.at,
            *(_text(name, redact, _LONGEST_NAME) for name in (minute.server, minute.tool, minute.client)),
            *(getattr(minute, column) for column in _MINUTE_COLUMNS[4:-1]),
            json.dumps([*minute.buckets], separators=(",", ":")),
        )
        for minute in minutes
    ]
    connection.executemany(_INSERT_MINUTE, rows)


class CallRows:
    """Makes rows of records that are written together: names that several have in common are masked once."""

    def __init__(self, redact: Redact, max_content: int) -> None:
        self._redact, self._max_content = redact, max_content
        self._names = _Names(known_only(redact))

    def row(self, record: CallRecord) -> tuple[object, ...]:
        """The values of `CALL_COLUMNS`."""
        usual, who, how = self.parts(record)
        return (*usual, *who, *how)

    def parts(self, record: CallRecord) -> tuple[tuple[object, ...], tuple[object, ...], tuple[object, ...]]:
        """The same in three parts: what every call has, who made it, and what few have."""
        name, facts = self._names, record.facts
        usual = (
            record.at,
            record.seconds,
            name[record.method],
            record.server,
            name[record.tool],
            name[record.client],
            name[record.principal],
            name[record.session],
            name[record.run],
            record.outcome,
            _text(record.error, self._redact, _LONGEST_TEXT) if record.error else "",
            len(record.arguments),
            record.arguments_digest or bytes.fromhex(canonical_digest(record.arguments)),
            len(record.result),
            sha256(record.result).digest(),
            record.uid or None,
            name[record.revision],
            _stages(record.stages),
            record.tokens or None,
            name[record.client_version] if record.client_version else None,
        )
        who = (
            name[record.user] if record.user else None,
            name[record.address] if record.address else None,
            name[record.oauth_client] if record.oauth_client else None,
            name[record.role] if record.role else None,
            name[rule] if (rule := deciding_rule(facts, record.rule) if facts else record.rule) else None,
        )
        how = (
            facts_text(facts, self._redact) if facts else None,
            record.parent or None,
            len(record.asked) or None,
            record.original_size or None,
            record.original_tokens or None,
            name[handle] if facts and isinstance(handle := facts.get("kept"), str) else None,
        )
        return usual, who, how

    def contents(
        self, records: Sequence[CallRecord], between: Callable[[], object] = lambda: None
    ) -> list[tuple[bytes, bytes | None, bytes]]:
        """What is kept of each record's arguments, as mended and as the client sent them, and of its result.

        `between` is called from time to time. Small texts are masked together, which takes a fraction of the time:
        between them is more space than any pattern of a secret reaches over.
        """
        texts: list[str] = []
        for record in records:
            texts += (self._text_of(record.arguments), self._text_of(record.result))
            if record.asked:
                texts.append(self._text_of(record.asked))
        kept: list[bytes] = []
        for group in _groups(texts):
            kept += (text.encode()[: self._max_content] for text in self._masked(group))
            between()
        of = iter(kept)
        found: list[tuple[bytes, bytes | None, bytes]] = []
        for record in records:
            arguments, result = next(of), next(of)
            found.append((arguments, next(of) if record.asked else None, result))
        return found

    def _masked(self, texts: Sequence[str]) -> Sequence[str]:
        if len(texts) > 1:
            masked = self._redact(_APART.join(texts)).split(_APART)
            if len(masked) == len(texts):
                return masked
        return [self._redact(text) for text in texts]

    def _text_of(self, data: bytes | Raw) -> str:
        return bytes(memoryview(data)[: self._max_content + _MARGIN]).decode("utf-8", errors="replace")


class _Names(dict[str, str]):
    """What is kept of names, by what they are: to look one up that was seen enters no function."""

    def __init__(self, known: Redact) -> None:
        self._known = known

    def __missing__(self, text: str) -> str:
        masked = self[text] = name_text(text, self._known)
        return masked


def deciding_rule(facts: Mapping[str, object] | None, rule: str) -> str:
    """What decided, also where a stage noted it. `rule`: what the settings say."""
    noted = facts.get("rule") if facts else None
    return noted if isinstance(noted, str) and noted else rule


def _groups(texts: Iterable[str]) -> Iterator[Sequence[str]]:
    """The texts in their order, as many at a time as are masked together.

    A text that could be taken for what parts them is alone.
    """
    group: list[str] = []
    size = 0
    for text in texts:
        is_alone = text.endswith("\n") or _APART in text
        if group and (is_alone or size + len(text) > _TOGETHER):
            yield group
            group, size = [], 0
        group.append(text)
        size += _TOGETHER if is_alone else len(text) + len(_APART)
    if group:
        yield group


class _Turn:
    """Gives the loop of calls its turn now and then: masking holds on to the interpreter."""

    def __init__(self) -> None:
        self._until = time.thread_time() + _TURN_SECONDS

    def give_way(self) -> None:
        """Pause, if this thread has had the interpreter for long."""
        if time.thread_time() > self._until:
            time.sleep(0)
            self._until = time.thread_time() + _TURN_SECONDS


def _stages(stages: Sequence[StageTime] | ExpressStages) -> str | None:
    """As JSON, in milliseconds, in the order in which the call came to them."""
    if not stages:
        return None
    if isinstance(stages, ExpressStages):
        sent, answered, over = 1000 * stages.sent, 1000 * stages.answered, 1000 * stages.over
        return stages.text.format(f"{sent:.2f}", f"{answered:.2f}", f"{over:.2f}")
    in_order = list(reversed(stages))
    in_order.sort(key=itemgetter(1))  # of those that begin together the outermost was left last
    # Names are ours, and plain: no encoder is needed.
    times = [f'["{name}",{1000 * began:.2f},{1000 * ended:.2f}]' for name, began, ended in in_order]
    return f"[{','.join(times)}]"


def _text(text: str, redact: Redact, limit: int) -> str:
    """What is kept of a text. A lone surrogate, which JSON can hold, has no UTF-8 form and would cost the whole row."""
    kept = redact(text)[:limit]
    return kept if kept.isascii() else kept.encode(errors="replace").decode()


def name_text(text: str, known: Redact) -> str:
    """What is kept of a name. `known`: of what masks, what masks the known secrets (`known_only`)."""
    return _text(text, known, _LONGEST_NAME) if text else ""


def facts_text(facts: Mapping[str, object], redact: Redact) -> str | None:
    """What is kept of facts, without secrets; None: nothing."""
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
