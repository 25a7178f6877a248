"""Reads calls out of the call log, while bridges write it and when none runs. Events and sums: `timeline.py`.

A page is read newest first, without the content of calls, so it takes the same time whatever they carry. What is
searched for a text is read with it: one page looks through a bounded number of calls then, and says where to continue.
"""

import json
import re
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpbridge.base.errors import StoreFailed
from mcpbridge.core.recording import UID_BITS, uid_text
from mcpbridge.storage.call_log.format import CALL_COLUMNS, Outcome
from mcpbridge.storage.call_log.running import live_owners
from mcpbridge.storage.call_log.schema import SCHEMA
from mcpbridge.storage.sqlite.database import BUSY_SECONDS

if TYPE_CHECKING:  # the standard library's; loaded with the first file
    from sqlite3 import Connection


Row = dict[str, Any]
"""A record as JSON values; what is not known is left out."""

RUNNING = "running"
"""The outcome of a call that has none yet."""
INTERRUPTED: Outcome = "interrupted"

_GLOB = re.compile(r"[*?[]")
_SEARCHED = 5000
"""Calls that one page looks through for a text."""
_MOST_CHILDREN = 200
_DEEPEST = 8
_WITH_CONTENT = 3
"""The version of the file from which on content has a table of its own."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records to read; None: all. Texts are globs, or compared as they are if they have no `*`, `?` or `[`."""

    tool: str | None = None
    """Of the tool's id, or of its name at its server."""
    server: str | None = None
    client: str | None = None
    principal: str | None = None
    outcome: str | Sequence[str] | None = None
    """One, or any of several."""
    since: float | None = None
    """Seconds since 1970."""
    until: float | None = None
    session: str | None = None
    min_seconds: float | None = None
    max_seconds: float | None = None
    text: str | None = None
    """Occurs somewhere in the tool, the error, the arguments or the result; capital letters of English do not count."""
    parent: str | None = None
    """The uid of the call that made it."""
    run: str | None = None
    method: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some calls, newest first."""

    rows: Sequence[Row]
    before: int
    """Older ones come before this number; 0: there are none."""
    after: int
    """Newer ones come after this number."""


def read_page(
    path: Path, which: Filter, *, limit: int = 50, before: int = 0, after: int = 0, content: bool = False
) -> Page:
    """The newest calls with numbers below `before` (if that is given) and above `after`.

    With `which.text` there may be less than `limit` of them though there are more: `Page.before` is where to continue.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    with opened(path) as (connection, version):
        wanted, values = _calls_wanted(which, version, before, after)
        end, floor = 0, 0
        if which.text:
            floor = _search_floor(connection, before)
            wanted.append("call.id > :floor")
            values["floor"] = floor
        query = _select(version, wanted, content=content or bool(which.text))
        rows = [dict(row) for row in connection.execute(query, {**values, "limit": limit + 1})]
        if len(rows) > limit:
            rows = rows[:limit]
            end = rows[-1]["id"]
        elif floor > after:
            end = floor + 1
        newest = connection.execute("SELECT max(id) FROM call").fetchone()[0] if not before else None
    top = max(newest or 0, after) if not (which.text or before) else (rows[0]["id"] if rows else after)
    return Page([call_row(row, content=content) for row in rows], end, top)


def count_calls(path: Path, which: Filter, *, most: int = 100_000) -> int:
    """How many calls there are, up to `most`; with a text among the newest so many.

    Raises:
        StoreFailed: as `read_page`.
    """
    with opened(path) as (connection, version):
        wanted, values = _calls_wanted(which, version, 0, 0)
        query = _select(version, wanted, content=bool(which.text), columns="1")
        (count,) = connection.execute(f"SELECT count(*) FROM ({query})", {**values, "limit": most}).fetchone()
    return count


def read_calls(path: Path, which: Filter, *, limit: int, after: int = 0, content: bool = False) -> list[Row]:
    """The newest calls, oldest first, at most `limit`. `after`: the number of the last one that is known already.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    with opened(path) as (connection, version):
        wanted, values = _calls_wanted(which, version, 0, after)
        query = _select(version, wanted, content=content or bool(which.text))
        rows = [dict(row) for row in connection.execute(query, {**values, "limit": limit})]
    return [call_row(row, content=content) for row in reversed(rows)]


def read_call(path: Path, uid: str) -> Row | None:
    """One call whole: with content, `stages`, the call that made it (`parent_call`) and what it made (`children`).

    `uid` is that, or the number (`id`) of a record that has none. None: there is no such call any more.

    Raises:
        StoreFailed: as `read_page`.
    """
    with opened(path) as (connection, version):
        found = _one(connection, version, uid)
        if found is None:
            return None
        call = call_row(found, content=True, whole=True)
        if found.get("parent"):
            parent = _one(connection, version, uid_text(found["parent"]))
            if parent is not None:
                call["parent_call"] = call_row(parent)
        if found.get("uid"):
            call["children"] = _children(connection, found["uid"], [_MOST_CHILDREN], _DEEPEST)
    return call


def read_running(path: Path, which: Filter, *, limit: int, content: bool = False) -> list[Row]:
    """The newest calls that have no record yet, oldest first; they have no `id`.

    Their outcome is `running`, or `interrupted` if their process was killed and no bridge made a record of it since.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    with opened(path) as (connection, version):
        if version < _WITH_RUNNING:
            return []
        wanted, values = conditions(replace(which, outcome=None, text=None), "running", version)
        with_sent, sent = _with_sent(connection, path) if version == len(SCHEMA.steps) else ("", {})
        where = " AND ".join(wanted) or "1"
        query = f"{with_sent} SELECT * FROM running WHERE {where} ORDER BY at DESC, number DESC LIMIT :limit"
        rows = [dict(row) for row in connection.execute(query, {**values, **sent, "limit": limit})]
        alive = live_owners(connection)
    for row in rows:
        row["outcome"] = RUNNING if row["owner"] in alive else row["outcome"]
    return [
        call_row(row, content=content)
        for row in reversed(rows)
        if not which.outcome or row["outcome"] in _several(which)
    ]


_WITH_RUNNING = 2
_MOST_SENT = 500
"""Calls that killed processes left in their journals, of which so many are shown until there are records of them."""


def _with_sent(connection: "Connection", path: Path) -> tuple[str, dict[str, object]]:
    """What has a query see the calls in journals of killed processes among the others of `running`; and its values."""
    from mcpbridge.storage.call_log.journal import left_behind  # few bridges have one

    rows, _ = left_behind(connection, path)
    if not rows:
        return "", {}
    columns = CALL_COLUMNS.split(", ")
    values = {f"s{n}_{column}": row.get(column) for n, row in enumerate(rows[-_MOST_SENT:]) for column in columns}
    marks = (", ".join(f":s{n}_{column}" for column in columns) for n in range(len(values) // len(columns)))
    sent = ", ".join(f"('', {n}, {row}, NULL, NULL)" for n, row in enumerate(marks))
    known = f"owner, number, {CALL_COLUMNS}, arguments, asked"
    return f"WITH running ({known}) AS (SELECT {known} FROM main.running UNION ALL VALUES {sent})", values


def _several(which: Filter) -> Sequence[str]:
    return [which.outcome] if isinstance(which.outcome, str) else [*(which.outcome or ())]


def conditions(which: Filter, table: str, version: int) -> tuple[list[str], dict[str, object]]:
    """What a filter wants of the rows of a table that has the columns of calls, and the values for that."""
    wanted: list[str] = []
    values: dict[str, object] = {}

    def want(condition: str, **more: object) -> None:
        wanted.append(condition)
        values.update(more)

    for name in ("server", "client", "principal"):
        if (text := getattr(which, name)) is not None:
            want(f"{table}.{name} {operator(text)} :{name}", **{name: text})
    if which.tool is not None:
        how = operator(which.tool)
        # The end first: it is cheaper to see that it differs than to take it apart.
        own = f"({table}.tool GLOB :tail AND substr({table}.tool, length({table}.server) + 2) {how} :tool)"
        want(f"({table}.tool {how} :tool OR {own})", tool=which.tool, tail=f"*/{which.tool}")
    for name in ("session", "run", "method"):
        if (text := getattr(which, name)) is not None:
            want(f"{table}.{name} = :{name}", **{name: text})
    # The `+`: rows are read in their order up to the limit, which most often is soon; by the index it would be all.
    for name, column, sign in (("since", "at", ">="), ("until", "at", "<"), *_SECONDS):
        if (number := getattr(which, name)) is not None:
            want(f"+{table}.{column} {sign} :{name}", **{name: number})
    if outcomes := _several(which):
        want(f"{table}.outcome IN ({', '.join(f':o{n}' for n in range(len(outcomes)))})")
        values |= {f"o{n}": outcome for n, outcome in enumerate(outcomes)}
    if which.parent is not None:
        has_parents = version >= _WITH_CONTENT
        want(f"{table}.parent = :parent" if has_parents else ":parent IS NULL", parent=_number(which.parent))
    return wanted, values


_SECONDS = (("min_seconds", "seconds", ">="), ("max_seconds", "seconds", "<="))


def operator(text: str) -> str:
    """How a text of a filter is compared: a glob takes longer than a comparison."""
    return "GLOB" if any(sign in text for sign in "*?[") else "="


def exactly(text: str) -> str:
    """The filter that this text alone passes, whatever it has of a glob."""
    return _GLOB.sub(r"[\g<0>]", text)


def _calls_wanted(which: Filter, version: int, before: int, after: int) -> tuple[list[str], dict[str, object]]:
    wanted, values = conditions(which, "call", version)
    if after:
        wanted.append("call.id > :after")
    if before:
        wanted.append("call.id < :before")
    values |= {"after": after, "before": before}
    if which.text:
        own = ["call.tool", "call.error", "CAST(call.arguments AS TEXT)", "CAST(call.result AS TEXT)"]
        if version >= _WITH_CONTENT:
            own += [f"CAST(content.{column} AS TEXT)" for column in ("arguments", "asked", "result")]
        wanted.append("(" + " OR ".join(f"{column} LIKE :text ESCAPE '\\'" for column in own) + ")")
        signs = which.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        values["text"] = f"%{signs}%"
    return wanted, values


def _select(version: int, wanted: Sequence[str], *, content: bool, columns: str = "") -> str:
    source = "call"
    columns = columns or "call.*"
    if version >= _WITH_CONTENT and content:
        source = "call LEFT JOIN content ON content.call = call.id"
        if columns == "call.*":
            columns += (
                ", content.arguments AS arguments_kept, content.asked AS asked_kept, content.result AS result_kept"
            )
    return f"SELECT {columns} FROM {source} WHERE {' AND '.join(wanted) or '1'} ORDER BY call.id DESC LIMIT :limit"


def _search_floor(connection: "Connection", before: int) -> int:
    """The number up to which calls are not looked through for a text this time."""
    found = connection.execute(
        "SELECT id FROM call WHERE id < ? ORDER BY id DESC LIMIT 1 OFFSET ?", (before or 1 << 62, _SEARCHED)
    ).fetchone()
    return found[0] if found is not None else 0


def _number(uid: str) -> int:
    """What the file has of a uid; 0: it is none."""
    try:
        number = int(uid, 16)
    except ValueError:
        return 0
    return number if number < 1 << 63 else 0


_UID_DIGITS = 16
_EXACT = 2e-6
"""Seconds within which the begin of a call is what its uid says."""


def _one(connection: "Connection", version: int, uid: str) -> Row | None:
    wanted, values = ["call.id = :id"], {"id": int(uid) if uid.isdecimal() and len(uid) < _UID_DIGITS else 0}
    if version >= _WITH_CONTENT and len(uid) == _UID_DIGITS:
        number = _number(uid)
        at = (number >> UID_BITS) / 1e6
        wanted = ["call.at BETWEEN :low AND :high", "call.uid = :uid"]
        values = {"uid": number, "low": at - _EXACT, "high": at + _EXACT}
    found = connection.execute(_select(version, wanted, content=True), {**values, "limit": 1}).fetchone()
    return dict(found) if found is not None else None


def _children(connection: "Connection", uid: int, left: list[int], depth: int) -> list[Row]:
    """The calls that a call made, and what these made; `left`: how many more are read."""
    query = "SELECT * FROM call WHERE parent = ? ORDER BY at LIMIT ?"
    rows = [dict(row) for row in connection.execute(query, (uid, left[0]))]
    left[0] -= len(rows)
    children: list[Row] = []
    for row in rows:
        child = call_row(row)
        if depth > 1 and left[0] > 0 and (below := _children(connection, row["uid"], left, depth - 1)):
            child["children"] = below
        children.append(child)
    return children


@contextmanager
def opened(path: Path) -> Generator[tuple["Connection", int]]:
    """A connection, and the version of the file.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    import sqlite3

    try:
        with closing(_open(path)) as connection:
            connection.row_factory = sqlite3.Row
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            yield connection, version
    except sqlite3.Error as error:
        raise StoreFailed(str(error), file=str(path)) from error


def _open(path: Path) -> "Connection":
    """A connection that changes nothing. Read-only it may not be: after a crash the first reader has to clean up."""
    import sqlite3

    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=BUSY_SECONDS, uri=True)
    try:
        if not _is_call_log(connection):
            raise StoreFailed("this is no call log", file=str(path))
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(SCHEMA.steps):
            raise StoreFailed("a newer mcpbridge made it", file=str(path))
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


_MAKING = 2.0
"""Seconds after which a file without tables is not one that is being made, on a busy disk."""


def _kind(connection: "Connection") -> int:
    return connection.execute("PRAGMA application_id").fetchone()[0]


def _is_call_log(connection: "Connection") -> bool:
    ends = time.monotonic() + _MAKING
    while True:
        if _kind(connection) == SCHEMA.id:
            return True
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables or time.monotonic() > ends:
            return _kind(connection) == SCHEMA.id  # whoever made them meanwhile has marked the file with them
        time.sleep(0.01)  # another process makes it at this moment


def call_row(row: Row, *, content: bool = False, whole: bool = False) -> Row:
    """A row of the file as JSON values. `whole`: with the times of its stages."""
    has_ended = row["outcome"] not in (RUNNING, INTERRUPTED)
    unknown = () if has_ended else ("seconds",)
    names = ("id", "at", "seconds", "method", "server", "tool", "client")
    call = {key: row[key] for key in names if key in row and key not in unknown}
    call["at"] = iso_time(row["at"])
    call |= {key: uid_text(row[key]) for key in ("uid", "parent") if row.get(key)}
    call |= {key: row[key] for key in _NAMES if row.get(key)}
    if row.get("user_name"):
        call["user"] = row["user_name"]
    for side in ("arguments", "result") if has_ended else ("arguments",):
        call[side] = {"size": row[f"{side}_size"], "sha256": row[f"{side}_digest"].hex()}
        _add_content(call[side], row, side, content=content)
    if has_ended and row.get("tokens"):
        call["result"]["tokens"] = row["tokens"]
    if row.get("asked_size"):
        call["asked"] = {"size": row["asked_size"]}
        _add_content(call["asked"], row, "asked", content=content)
    if row.get("original_size") or row.get("handle"):
        found = {"size": row["original_size"], "tokens": row["original_tokens"], "handle": row["handle"]}
        call["original"] = {key: value for key, value in found.items() if value}
    if whole and row.get("stages"):
        call["stages"] = json.loads(row["stages"])
    return with_facts(call, row)


_NAMES = (
    *("principal", "role", "rule", "client_version", "oauth_client", "address"),
    *("session", "run", "revision", "outcome", "error"),
)


def _add_content(part: Row, row: Row, side: str, *, content: bool) -> None:
    kept = row.get(f"{side}_kept")
    kept = row.get(side) if kept is None else kept
    if content and kept is not None:
        part["content"] = kept.decode("utf-8", errors="replace")


def with_facts(record: Row, row: Row) -> Row:
    """The record with the facts that have no column of their own."""
    return {**record, "facts": json.loads(row["facts"])} if row["facts"] else record


def iso_time(at: float) -> str:
    """A moment as people and programs read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
