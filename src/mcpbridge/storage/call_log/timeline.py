"""Reads what else is in the call log: events, the sessions of clients, and sums for each minute."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mcpbridge.storage.call_log.format import SESSION_BEGAN, SESSION_ENDED, SESSION_LISTED, MinuteRecord
from mcpbridge.storage.call_log.reader import Filter, Row, iso_time, opened, operator, with_facts

if TYPE_CHECKING:
    from sqlite3 import Connection


By = Literal["server", "tool", "client"]
"""What sums are grouped by."""

_WITH_SERVER = 3
"""The version of the file from which on there are minutes, and servers of events."""


def read_events(
    path: Path, which: Filter, *, limit: int, after: int = 0, before: int = 0, kinds: Sequence[str] = ()
) -> list[Row]:
    """The newest events, oldest first, at most `limit`, with numbers above `after` and below `before`.

    `kinds`: only these; one that ends in a point is the beginning of several. Of the filter only tool, server, client,
    principal, session and times mean something.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    with opened(path) as (connection, version):
        wanted, values = _wanted(which, kinds, version)
        wanted += ["id > :after", *(["id < :before"] if before else [])]
        query = f"SELECT * FROM event WHERE {' AND '.join(wanted)} ORDER BY id DESC LIMIT :limit"
        rows = [
            dict(row) for row in connection.execute(query, {**values, "after": after, "before": before, "limit": limit})
        ]
    return [_event(row) for row in reversed(rows)]


def _wanted(which: Filter, kinds: Sequence[str], version: int) -> tuple[list[str], dict[str, object]]:
    wanted, values = list[str](), dict[str, object]()
    for name in ("tool", "server", "client", "principal", "session"):
        text = getattr(which, name)
        if text is None:
            continue
        how, values[name] = operator(text), text
        if name == "tool":
            wanted.append(f"(tool {how} :tool OR substr(tool, instr(tool, '/') + 1) {how} :tool)")
        elif name == "server":
            own = f"server {how} :server OR " if version >= _WITH_SERVER else ""
            wanted.append(f"({own}substr(tool, 1, instr(tool, '/') - 1) {how} :server)")
        else:
            wanted.append(f"{name} {how} :{name}")
    for name, sign in (("since", ">="), ("until", "<")):
        if (at := getattr(which, name)) is not None:
            wanted.append(f"at {sign} :{name}")
            values[name] = at
    if kinds:
        either = [
            f"substr(kind, 1, {len(kind)}) = :k{n}" if kind.endswith(".") else f"kind = :k{n}"
            for n, kind in enumerate(kinds)
        ]
        wanted.append(f"({' OR '.join(either)})")
        values |= {f"k{n}": kind for n, kind in enumerate(kinds)}
    return wanted, values


def _event(row: Row) -> Row:
    event = {"id": row["id"], "at": iso_time(row["at"]), "event": row["kind"]}
    names = ("server", "tool", "client", "principal", "session", "who", "detail")
    event |= {key: row[key] for key in names if row.get(key)}
    if row["arguments_digest"] is not None:
        event["arguments"] = {"sha256": row["arguments_digest"].hex()}
    return with_facts(event, row)


def read_sessions(
    path: Path, *, since: float | None = None, client: str | None = None, limit: int = 50, before: int = 0
) -> list[Row]:
    """The sessions of clients, the newest first; `before`: the number (`id`) of the oldest one that is known already.

    Raises:
        StoreFailed: as `read_events`.
    """
    began = read_events(path, Filter(since=since, client=client), limit=limit, before=before, kinds=[SESSION_BEGAN])
    with opened(path) as (connection, _):
        return [_session(connection, event) for event in reversed(began)]


def read_session(path: Path, session: str) -> Row | None:
    """One session; None: nothing is known of its begin.

    Raises:
        StoreFailed: as `read_events`.
    """
    began = read_events(path, Filter(session=session), limit=1, kinds=[SESSION_BEGAN])
    if not began:
        return None
    with opened(path) as (connection, _):
        return _session(connection, began[0])


def _session(connection: "Connection", began: Row) -> Row:
    facts, id_ = began.get("facts", {}), began.get("session", "")
    session: Row = {"id": began["id"], "session": id_, "client": began.get("client", ""), "began": began["at"]}
    session |= {key: began[key] for key in ("principal", "server") if key in began}
    session |= {key: facts[key] for key in ("version", "revision", "front", "directory", "profile") if facts.get(key)}
    later = connection.execute(
        "SELECT kind, at, detail, facts FROM event WHERE session = ? AND session <> '' AND kind IN (?, ?) ORDER BY id",
        (id_, SESSION_LISTED, SESSION_ENDED),
    )
    for row in later:
        if row["kind"] == SESSION_ENDED:
            session |= {"ended": iso_time(row["at"]), "why": row["detail"]}
        elif row["facts"]:
            session["tools"] = json.loads(row["facts"]).get("tools")
    calls, errors = connection.execute(
        "SELECT count(*), sum(outcome NOT IN ('ok', 'asked')) FROM call WHERE session = ?", (id_,)
    ).fetchone()
    return {**session, "calls": calls, "errors": errors or 0}


_SUMMED = MinuteRecord.__struct_fields__[4:-1]


def read_minutes(
    path: Path,
    since: float,
    until: float | None = None,
    *,
    by: Sequence[By] = ("server",),
    server: str | None = None,
    tool: str | None = None,
    client: str | None = None,
    step: int = 60,
) -> list[Row]:
    """What was counted of calls, in sums over `step` seconds grouped by `by`; the oldest first.

    `at` is when the time of a sum began, in seconds since 1970. `buckets`: how many calls took how long, with the
    bounds of the metrics. Calls that were only counted, and not recorded, are part of it.

    Raises:
        StoreFailed: as `read_events`.
    """
    sums: dict[tuple[object, ...], Row] = {}
    with opened(path) as (connection, version):
        if version < _WITH_SERVER:
            return []
        names = {"server": server, "tool": tool, "client": client}
        wanted = ["at >= :since", "at < :until"]
        wanted += [f"{name} {operator(text)} :{name}" for name, text in names.items() if text is not None]
        query = f"SELECT * FROM minute WHERE {' AND '.join(wanted)} ORDER BY at"
        values = {**names, "since": since - since % step, "until": until if until is not None else 1 << 62}
        for row in connection.execute(query, values):
            at = row["at"] - row["at"] % step
            key = (at, *(row[name] for name in by))
            known = sums.get(key)
            if known is None:
                known = sums[key] = {
                    "at": at,
                    **{name: row[name] for name in by},
                    **dict.fromkeys(_SUMMED, 0),
                    "buckets": [],
                }
            for name in _SUMMED:
                known[name] += row[name]
            known["buckets"] = _added(known["buckets"], json.loads(row["buckets"]))
    return list(sums.values())


def _added(one: list[int], other: list[int]) -> list[int]:
    shorter, longer = sorted((one, other), key=len)
    return [number + (shorter[place] if place < len(shorter) else 0) for place, number in enumerate(longer)]
