"""A question about a call log as a value, so that it can be sent to where the file is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from mcpbridge.storage.call_log.reader import Filter, Row, read_call, read_calls, read_running
from mcpbridge.storage.call_log.timeline import read_events
from mcpbridge.storage.sqlite.database import may_exist


class LogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wanted of a call log."""

    what: Literal["calls", "running", "events", "call"]
    """Calls that have ended, those that have no record yet, what happened beside calls, or one call whole."""
    which: Filter = Filter()
    limit: int = 50
    """The newest so many."""
    after: int = 0
    """Only records with higher numbers; of `running` that means nothing."""
    content: bool = False
    uid: str = ""
    """Of `call`: which one; see `read_call`."""


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

    Raises:
        StoreFailed: the file cannot be read, or is no call log.
    """
    if not may_exist(path):
        return []
    which, limit, after = query.which, query.limit, query.after
    match query.what:
        case "calls":
            return read_calls(path, which, limit=limit, after=after, content=query.content)
        case "running":
            return read_running(path, which, limit=limit, content=query.content)
        case "events":
            return read_events(path, which, limit=limit, after=after)
        case "call":
            found = read_call(path, query.uid)
            return [] if found is None else [found]
