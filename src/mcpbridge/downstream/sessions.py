"""Sessions of modern clients that have no connection of their own, and turns of a model.

A modern request declares everything anew and belongs to no session (MCP 2026-07-28). What the bridge keeps for a
client over its calls is found by the authenticated principal, the client's name, and the conversation that it names.
The name alone is never enough, so nobody gets at what belongs to another principal. Legacy sessions over HTTP are in
`http/sessions.py`.

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

_PLACES = 10_000
"""Sessions that are kept."""
_IDLE = 3600.0
"""Seconds without a request after which a session is over."""

_Key = tuple[str, str]
"""Client name and conversation."""


class _Kept:
    __slots__ = ("session", "used")

    def __init__(self, session: Session, now: float) -> None:
        self.session, self.used = session, now


class Sessions:
    """Sessions by principal, client name and conversation. The one unused longest makes room."""

    def __init__(self, *, places: int = _PLACES, idle: float = _IDLE, clock: Callable[[], float] = monotonic) -> None:
        self._places, self._idle, self._clock = places, idle, clock
        self._kept: dict[str, OrderedDict[_Key, _Kept]] = {}
        """By principal; those used longest ago first."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, principal: str, client: str = "", conversation: str = "") -> Session:
        """The session of these, the same object as long as it is in use."""
        now = self._clock()
        own = self._kept.get(principal)
        if own is None:
            own = self._kept[principal] = OrderedDict()
        key = client, conversation
        kept = own.get(key)
        if kept is not None and now - kept.used < self._idle:
            kept.used = now
            own.move_to_end(key)
            return kept.session
        if kept is not None:
            self._drop(principal, key)
            own = self._kept.setdefault(principal, OrderedDict())
        if self._count >= self._places:
            self._make_room(principal, now)
            own = self._kept.setdefault(principal, OrderedDict())
        session = Session(principal, client)
        own[key] = _Kept(session, now)
        self._count += 1
        return session

    def _make_room(self, principal: str, now: float) -> None:
        """Let go of what is idle, else of the oldest: of the same principal first, so that nobody crowds others out."""
        for other, own in list(self._kept.items()):
            while own and now - next(iter(own.values())).used >= self._idle:
                self._drop(other, next(iter(own)))
        if self._count < self._places:
            return
        own = self._kept.get(principal)
        if not own:
            filled = {other: next(iter(kept.values())).used for other, kept in self._kept.items() if kept}
            principal = min(filled, key=filled.__getitem__)
            own = self._kept[principal]
        self._drop(principal, next(iter(own)))

    def _drop(self, principal: str, key: _Key) -> None:
        own = self._kept[principal]
        del own[key]
        self._count -= 1
        if not own:
            del self._kept[principal]


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
