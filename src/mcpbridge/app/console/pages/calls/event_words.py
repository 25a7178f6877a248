"""Events of the call log in words, and in the groups that a person looks for. Pure."""

import re
from collections.abc import Mapping, Sequence

from mcpbridge.storage.call_log.reader import Row

GROUPS: Mapping[str, tuple[str, Sequence[str]]] = {
    "": ("everything", ()),
    "servers": ("servers", ("server.",)),
    "clients": ("sessions of clients", ("session.",)),
    "config": ("configuration", ("config.",)),
    "bridge": ("the bridge itself", ("bridge.", "calls.not_recorded", "events.suppressed")),
    "approvals": ("approvals", ("asked", "granted", "denied", "expired", "cancelled", "unavailable", "used")),
}
"""What the timeline offers: words, and the kinds of events."""

_WORDS: Mapping[str, str] = {
    "bridge.started": "bridge started",
    "bridge.stopped": "bridge stopped",
    "session.began": "client connected",
    "session.listed": "tools listed",
    "session.ended": "client left",
    "server.ready": "server ready",
    "server.failed": "server failed",
    "server.retrying": "server not reached, retrying",
    "server.stopped": "server stopped",
    "server.starting": "server starting",
    "server.list_changed": "list changed",
    "server.definition_changed": "definition changed",
    "config.reloaded": "configuration reloaded",
    "config.refused": "configuration refused",
    "calls.not_recorded": "calls only counted",
    "events.suppressed": "events left out",
    "asked": "approval asked for",
    "granted": "approved",
    "denied": "denied",
    "expired": "approval not answered",
    "cancelled": "call withdrawn before approval",
    "unavailable": "nobody to approve",
    "used": "approval given before",
}
_BAD = frozenset(
    {
        "server.failed",
        "server.retrying",
        "server.definition_changed",
        "config.refused",
        "denied",
        "expired",
        "unavailable",
    }
)
_GOOD = frozenset({"server.ready", "session.began", "bridge.started", "config.reloaded", "granted"})


def words_of(kind: str) -> str:
    """What people call an event."""
    return _WORDS.get(kind) or re.sub(r"[._]+", " ", kind)


def tone_of(row: Row) -> str:
    """The class of its mark."""
    kind = str(row["event"])
    return "bad" if kind in _BAD else "good" if kind in _GOOD else "info"
