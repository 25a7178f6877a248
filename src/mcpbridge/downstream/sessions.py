"""Sessions of modern clients that have no connection of their own, and turns of a model.

A modern request declares everything anew and belongs to no session (MCP 2026-07-28). What the bridge keeps for a
client over its calls is found by the authenticated principal, the OAuth client of its token, the name that it gives
itself, and the conversation that it names. So nobody gets at what belongs to another principal. Legacy sessions over
HTTP are in `http/sessions.py`.

`make_one_turn` marks the calls of one JSON-RPC batch (MCP 2025-03-26, basic) as one turn of a model, so that the
limit for a turn counts them together.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from time import monotonic

import msgspec
from msgspec import Raw

from mcpbridge.core.context import Session
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.meta import TURN

BRIDGE_STOPPED = "the bridge stopped"
"""Why a session of a client ended."""

_PLACES = 10_000
"""Sessions that are kept."""
_IDLE = 3600.0
"""Seconds without a request after which a session is over."""

_Key = tuple[str, str, str, str]
"""Principal, client name, conversation, and OAuth client."""


class _Entry:
    __slots__ = ("last_used", "session")

    def __init__(self, session: Session, now: float) -> None:
        self.session, self.last_used = session, now


class Sessions:
    """Sessions by principal, client name and conversation. The one unused longest makes room.

    Finding one and making room take the same time whatever their number: entries are in the order of their use, of all
    and of each principal.
    """

    def __init__(
        self,
        *,
        places: int = _PLACES,
        idle: float = _IDLE,
        clock: Callable[[], float] = monotonic,
        on_begin: Callable[[Session, object], object] = lambda session, by: None,
        on_end: Callable[[Session, str], object] = lambda session, why: None,
    ) -> None:
        """`on_begin` hears of each new session and whose request began it, `on_end` which one is over, and why."""
        self._places, self._idle, self._clock = places, idle, clock
        self._on_begin, self._on_end = on_begin, on_end
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        """Those used longest ago first."""
        self._own: dict[str, OrderedDict[_Key, None]] = {}
        """By principal, in the same order."""

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Sessions: {len(self._entries)} of {self._places}, {len(self._own)} principals>"

    def of(
        self,
        principal: str,
        client: str = "",
        conversation: str = "",
        *,
        application: str = "",
        by: object = None,
    ) -> Session:
        """The session of these, the same object as long as it is in use.

        `application`: see `application_of`. `by`: for `on_begin`.
        """
        now = self._clock()
        key = principal, client, conversation, application
        entry = self._entries.get(key)
        if entry is not None and now - entry.last_used < self._idle:
            entry.last_used = now
            self._entries.move_to_end(key)
            self._own[principal].move_to_end(key)
            return entry.session
        if entry is not None:
            self._drop(key, "unused for too long")
        if len(self._entries) >= self._places:
            self._drop(self._least_wanted(principal, now), "others needed its place")
        session = Session(principal, client, name=repr(key))
        self._entries[key] = _Entry(session, now)
        self._own.setdefault(principal, OrderedDict())[key] = None
        self._on_begin(session, by)
        return session

    def _least_wanted(self, principal: str, now: float) -> _Key:
        """One that is idle, else the principal's own oldest, so that nobody crowds others out; else the oldest."""
        oldest = next(iter(self._entries))
        if now - self._entries[oldest].last_used >= self._idle or principal not in self._own:
            return oldest
        return next(iter(self._own[principal]))

    def _drop(self, key: _Key, why: str) -> None:
        self._on_end(self._entries[key].session, why)
        del self._entries[key]
        own = self._own[key[0]]
        del own[key]
        if not own:
            del self._own[key[0]]


def make_one_turn(frames: Iterable[Frame]) -> None:
    """Name the turn in every call of a tool that names none itself. What cannot be read is left to who refuses it."""
    calls = [frame for frame in frames if frame.method == "tools/call"]
    if len(calls) < 2:
        return
    turn = secrets.token_hex(8)
    for frame in calls:
        try:
            params = Body(frame.params)
            meta = params.inner("_meta")
            if meta is None and "_meta" not in params:
                meta = Body()
            if meta is not None and TURN not in meta:
                meta.put(TURN, turn)
                params.put("_meta", meta)
                frame.params = Raw(params.data)
        except (msgspec.DecodeError, RecursionError):
            continue
