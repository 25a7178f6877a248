"""A question about a call log as a value, so that it can be sent to where the file is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from mcpbridge.storage.call_log.reader import (
    Filter,
    Row,
    count_calls,
    exactly,
    read_call,
    read_calls,
    read_page,
    read_running,
)
from mcpbridge.storage.call_log.timeline import By, read_events, read_minutes, read_session, read_sessions
from mcpbridge.storage.call_log.usage import UsageBy, Whose, read_gaps, read_usage
from mcpbridge.storage.sqlite.database import may_exist

OfFile = Literal["calls", "running", "events", "call", "page", "count", "usage", "sessions", "session", "minutes"]
"""What is in the file: calls that have ended, those that have no record yet, what happened beside calls, one call
whole, a page of calls, how many there are, who used what, sessions of clients, one session, and sums by minute."""
OfProcess = Literal["stats", "under_way", "pulse"]
"""What the process of the bridge knows: its counts, its calls under way, and by what a change of both is seen."""


class LogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is wanted of a bridge that has a call log. A default is left out, so that older ones know what is new."""

    what: OfFile | OfProcess
    which: Filter = Filter()
    limit: int = 50
    """The newest so many."""
    after: int = 0
    """Only records with higher numbers; of `running` that means nothing."""
    content: bool = False
    uid: str = ""
    """Of `call`: which one; see `read_call`. Of `session` its id."""
    before: int = 0
    """Only records with lower numbers; 0: all."""
    by: Sequence[UsageBy] = ()
    """Of `usage` and `minutes`: what sums are grouped by."""
    kinds: Sequence[str] = ()
    """Of `events`: only these."""
    whose: Whose | None = None
    """Nothing but calls of these, whatever else is asked: what somebody may see who may not see all."""


def read_query(document: object) -> LogQuery | None:
    """A query out of JSON values; None: this version does not know what it asks."""
    try:
        return msgspec.convert(document, LogQuery)
    except msgspec.ValidationError:
        return None


def write_query(query: LogQuery) -> Mapping[str, Any]:
    """The query as JSON values. What says nothing is left out, so that other versions understand what they know."""
    return {**msgspec.to_builtins(query), "which": _conditions(query.which)}


def _conditions(which: Filter) -> Mapping[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(which).items() if value is not None}


def answer_query(path: Path, query: LogQuery) -> Sequence[Row]:
    """What the file at this path says, oldest first. One that is not there has nothing in it.

    `page`, `count` and `usage` have one row: the parts of a `Page`, `count`, or `rows`, `oldest` and `missing`.

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    if not may_exist(path) or query.what in get_args(OfProcess):
        return []
    if query.whose is not None and query.what != "usage":
        return _of_somebody(path, query, query.whose)
    which, limit, after, before = query.which, query.limit, query.after, query.before
    match query.what:
        case "calls":
            return read_calls(path, which, limit=limit, after=after, content=query.content)
        case "running":
            return read_running(path, which, limit=limit, content=query.content)
        case "events":
            return read_events(path, which, limit=limit, after=after, before=before, kinds=query.kinds)
        case "page":
            page = read_page(path, which, limit=limit, before=before, after=after, content=query.content)
            return [{"rows": page.rows, "before": page.before, "after": page.after}]
        case "usage":
            oldest, missing = read_gaps(path, which)
            return [
                {"rows": read_usage(path, which, by=query.by, whose=query.whose), "oldest": oldest, "missing": missing}
            ]
        case "sessions":
            return read_sessions(path, client=which.client, limit=limit, before=before)
        case "minutes":
            by = [one for one in get_args(By) if one in query.by]
            return read_minutes(path, which.since or 0.0, by=by, server=which.server)
        case "count":
            return [{"count": count_calls(path, which, most=limit)}]
        case "session":
            found = read_session(path, query.uid)
        case _:
            found = read_call(path, query.uid)
    return [] if found is None else [found]


_OF_SOMEBODY = ("calls", "running", "call", "page", "count")
"""What somebody may ask for who may see their own calls alone."""


def _of_somebody(path: Path, query: LogQuery, whose: Whose) -> Sequence[Row]:
    """The answer for somebody who may see the calls of one principal alone, whatever the query's filter says."""
    if query.what not in _OF_SOMEBODY or len(whose.principals) != 1:
        return []
    which = replace(query.which, principal=exactly(whose.principals[0]))
    rows = answer_query(path, msgspec.structs.replace(query, which=which, whose=None))
    if query.what != "call":
        return rows
    return [row for row in rows if row.get("principal", "") == whose.principals[0]]
