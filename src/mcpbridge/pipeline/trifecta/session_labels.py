"""What the calls of each session have touched, and how it came to that."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import cast
from weakref import WeakKeyDictionary

from msgspec import Struct

from mcpbridge.core.call_settings import Label
from mcpbridge.core.context import Session
from mcpbridge.core.model import Call

WORDS: Mapping[Label, str] = {
    "private": "private data",
    "untrusted": "untrusted content",
    "sends": "can send something out",
}


class Origin(Struct, frozen=True):
    """The first call of a session that had a label."""

    tool: str
    """`server/tool`; for a resource or prompt its server and method."""
    at: float
    """Seconds since 1970."""
    handle: str = ""
    """Of the kept result that was read; empty: the call itself had the label."""


class SessionLabels:
    """The labels of all sessions. They last as long as the session does."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._sessions: WeakKeyDictionary[Session, dict[Label, Origin]] = WeakKeyDictionary()
        self._clock = clock

    def of(self, session: Session) -> Mapping[Label, Origin]:
        """The labels of a session, each with its first call."""
        return self._sessions.get(session) or {}

    def add(self, session: Session, labels: Iterable[Label], tool: str, handle: str = "") -> None:
        """A call of the session has touched these; what a session has already keeps its first call."""
        known: dict[Label, Origin] | None = None
        for label in labels:
            if label == "sends":  # what a call can do leaves nothing behind
                continue
            if known is None:
                known = self._sessions.setdefault(session, {})
            if label not in known:
                known[label] = Origin(tool, self._clock(), handle)


def chain_of(labels: Mapping[Label, Origin], tool: str) -> str:
    """How a session came to have all three, in one sentence for people."""
    ways = [f"{WORDS[label]} by {_named(origin)}" for label, origin in sorted(labels.items())]
    return f"this session has read {' and '.join(ways)}; {tool} {WORDS['sends']}"


def _named(origin: Origin) -> str:
    at = time.strftime("%H:%M:%S", time.gmtime(origin.at))
    kept = f" (kept result {origin.handle})" if origin.handle else ""
    return f"{origin.tool}{kept} at {at} UTC"


_FACT = "labels"


def labels_of(call: Call) -> tuple[str, ...] | None:
    """What the call, and all that were made within it, have touched so far; None: nothing, or nobody looked."""
    labels = (call.facts or {}).get(_FACT)
    return cast("tuple[str, ...]", labels) if isinstance(labels, tuple) else None


def note_labels(call: Call, labels: Iterable[Label]) -> None:
    """Note what a call has touched, also for the calls that it was made within: what they give back may hold it."""
    around: Call | None = call
    while around is not None:
        around.note(_FACT, tuple(sorted({*(labels_of(around) or ()), *labels})))
        around = around.within
