"""What a bridge has written down of its sessions, so that another one can take them over.

What cannot be written, since the server is away, is written later. Until then the session continues here, or has ended
here: nobody else could know that.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from itertools import islice
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.core.identity import application_of
from mcpbridge.downstream.http.exchange import Exchange
from mcpbridge.downstream.http.sessions import Session
from mcpbridge.fleet.records import FleetRecords, Kept, SessionRecord, note
from mcpbridge.protocol.jsonrpc import Frame, encode

log = get_logger("mcpbridge.fleet")

_BEGINNING = ("initialize", "notifications/initialized")
"""What a session begins with."""
_MOST_ENDED = 10_000
"""Sessions whose ends are not written down: the oldest are given up."""
_ROOM = 64 << 20
"""Bytes of the records of one bridge's sessions: what takes more is not written down."""
_HAS_ROOM_AGAIN = 0.9
"""Part of the room: below that it counts as not full any more, and a warning says when it is full again."""
_AT_ONCE = 1000
"""Ends that are written down by one command."""


class WrittenSessions:
    """The records of the sessions that this bridge has."""

    def __init__(
        self,
        records: FleetRecords,
        me: str,
        seconds: float,
        is_missing: Callable[[], None],
        *,
        room: int = _ROOM,
    ) -> None:
        """`me`: the id of this bridge. `seconds`: how long a record lasts. `room`: bytes of all records.

        `is_missing` is called when the records lack something, or others have what is written.
        """
        self._room, self._is_full = room, False
        self._bytes = 0
        self._sizes: dict[bytes, int] = {}
        """Bytes of each record."""
        self._records, self._me, self._seconds, self._is_missing = records, me, seconds, is_missing
        self._messages: dict[bytes, dict[str, Raw]] = {}
        self._moves: dict[bytes, int] = {}
        """How often each was taken over."""
        self.ended = OrderedDict[bytes, int]()
        """The same of those that have ended, which their records do not say yet."""
        self._are_ends_late = False
        self._writing = WeakValueDictionary[bytes, asyncio.Lock]()
        self.unwritten = set[bytes]()
        """Sessions whose records lack something, since the server was away."""

    def __repr__(self) -> str:
        return f"<WrittenSessions: {len(self._messages)}, {len(self.unwritten)} not whole>"

    def __contains__(self, id_: bytes) -> bool:
        return id_ in self._messages

    @property
    def ids(self) -> Collection[bytes]:
        """Those of now."""
        return self._messages.keys()

    def beginning(self, id_: bytes) -> list[bytes]:
        """The messages that a session begins with; empty: it is not here."""
        known: Mapping[str, Raw] = self._messages.get(id_, {})
        return [bytes(known[method]) for method in _BEGINNING if method in known]

    async def open(self, session: Session, frame: Frame) -> None:
        """Write down a new session, which begins with this message."""
        self._messages[session.id], self._moves[session.id] = {}, 0
        note(self._messages[session.id], frame)
        await self.write(session, is_new=True)

    async def change(self, session: Session, frame: Frame) -> None:
        """Write down what a message changes."""
        messages = self._messages.get(session.id)
        if messages is not None and note(messages, frame):
            await self.write(session, is_new=False)

    def take(self, id_: bytes, record: SessionRecord, moves: int) -> None:
        """It is this bridge's by now, and is written down so. `moves`: see `Claim`."""
        self._messages[id_], self._moves[id_] = dict(record.messages), moves
        self._resize(id_, len(msgspec.json.encode(record)))

    def forget(self, id_: bytes) -> bool:
        """It is not this bridge's any more; False: nor was it."""
        self.unwritten.discard(id_)
        self._moves.pop(id_, None)
        self._resize(id_, 0)
        return self._messages.pop(id_, None) is not None

    def end(self, id_: bytes) -> bool:
        """It has ended, which `write_ends` writes down; False: it is not this bridge's."""
        moves = self._moves.get(id_)
        if moves is None:
            return False
        self.forget(id_)
        self.ended[id_] = moves
        while len(self.ended) > _MOST_ENDED:
            self.ended.popitem(last=False)
        return True

    async def write_ends(self) -> None:
        """Write down which sessions have ended. A failure is logged, the first in a row, and `is_missing` called."""
        while ended := dict(islice(self.ended.items(), _AT_ONCE)):
            try:
                await self._records.end(ended, self._me)
            except StoreFailed as error:
                if not self._are_ends_late:
                    log.warning("the end of a session is not written down yet", reason=str(error))
                self._are_ends_late = True
                self._is_missing()
                return
            for id_ in ended:
                self.ended.pop(id_, None)
        self._are_ends_late = False

    async def write(self, session: Session, *, is_new: bool) -> None:
        """Write down all of it. A failure is logged, and `is_missing` called."""
        async with self._writing.setdefault(session.id, asyncio.Lock()):  # else an older one might arrive last
            if session.id in self._messages:
                await self._write(session, is_new=is_new)

    async def keep(self) -> Kept:
        """Keep all records for longer.

        Raises:
            StoreFailed: they cannot be reached.
        """
        if not self._messages:
            return Kept([], [], [])
        return await self._records.keep(dict(self._moves), self._me, self._seconds)

    def _takes(self, id_: bytes, size: int) -> bool:
        """Whether there is room for a record of this size, which is then taken."""
        if self._bytes - self._sizes.get(id_, 0) + size > self._room:
            if not self._is_full:
                log.warning("the records of sessions take all their room: what is new in them ends with this bridge")
            self._is_full = True
            return False
        self._resize(id_, size)
        self._is_full = self._is_full and self._bytes > self._room * _HAS_ROOM_AGAIN
        return True

    def _resize(self, id_: bytes, size: int) -> None:
        self._bytes += size - self._sizes.pop(id_, 0)
        if size:
            self._sizes[id_] = size

    async def _write(self, session: Session, *, is_new: bool) -> None:
        record = msgspec.json.encode(SessionRecord(self._messages[session.id]))
        is_new = is_new or session.id not in self._sizes  # there was no room for it when it was
        if not self._takes(session.id, len(record)):
            self.unwritten.discard(session.id)
            return  # its record stays as it was; one that has none is tried again with the next `keep`
        who, moves = who_uses(session.client.principal, session), self._moves[session.id]
        try:
            is_ours = await self._records.write(
                session.id, self._me, who, record, self._seconds, is_new=is_new, moves=moves
            )
        except StoreFailed as error:
            if session.id not in self.unwritten:
                log.warning("a session is not written down yet: until then it ends with this bridge", reason=str(error))
            if session.id in self._messages:  # else it has ended meanwhile
                self.unwritten.add(session.id)
                self._is_missing()
            return
        self.unwritten.discard(session.id)
        if not is_ours:
            log.warning("a session of this bridge is another's by now")
            self._is_missing()  # lets go of those that others have


def who_uses(principal: str, by: Exchange | Session) -> bytes:
    """What only requests of the same user, by way of the same client, to the same endpoint have."""
    application = by.application if isinstance(by, Session) else application_of(by.identity)
    return sha256(encode([principal, application, *by.endpoint])).digest()
