"""Answers on streams: what another bridge needs of them when it takes a session over.

A response that became a stream which its client can resume has a record from then on: that nobody knows the outcome.
The answer replaces it before it is sent, since nobody can know what a client has read of a connection, and stays for
as long as a stream can be resumed. So a client that resumes it elsewhere gets one of both. Progress is lost.

While the server of the records is away, answers are sent all the same, and written down as soon as it is back: each is
tried once, and one task tries again for all. Records are sealed with the id of the session, which the server does not
have.
"""

import asyncio
import hmac
import secrets
from collections import OrderedDict
from typing import Any

from mcpbridge.base.background_tasks import OwnedTasks, repeat
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.http.event_streams import Request, failed
from mcpbridge.fleet.forwarding import LOST
from mcpbridge.fleet.records import FleetRecords

log = get_logger("mcpbridge.fleet")

_LARGEST_ANSWER = 1024 * 1024
"""Bytes of an answer that is kept."""
_MOST, _MOST_BYTES = 1000, 8 << 20
"""Records of one session, and bytes of its answers: the oldest make room."""
_MOST_BYTES_OF_ALL = 64 << 20
"""The same of all sessions of this bridge."""
_SENT_AFTER = 0.5
"""Seconds that an answer waits for its record at most."""
_AGAIN_AFTER = 1.0
"""Seconds between two attempts to write one down."""
_TOO_LARGE = "outcome unknown: the answer was too large to be kept by the bridge that was lost; the call has ended"
_NUMBER_BYTES, _NONCE_BYTES = 8, 12
_SEALS = b"mcpbridge fleet, answers on streams, 1"


class StreamRecords:
    """The records of streams, as one bridge writes and reads them."""

    def __init__(self, records: FleetRecords, tasks: OwnedTasks, *, open_for: float, kept_for: float) -> None:
        """`open_for`: seconds that the record of a call under way lasts; `kept_for`: that of its answer.

        `tasks` write them.
        """
        self._records, self._tasks, self._open_for, self._kept_for = records, tasks, open_for, kept_for
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[bytes, _Records] = {}
        self._answers = OrderedDict[_Record, _Records]()
        """The oldest first."""
        self._bytes = 0
        self._late = OrderedDict[_Record, _Records]()
        """Those that could not be written, by when that was tried."""
        self._catching_up: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<StreamRecords: {len(self._sessions)} sessions, {self._bytes} bytes, {len(self._late)} late>"

    def opened(self, session: bytes, name: bytes, request: Request) -> None:
        """A stream for this request begins, and its client may know its name from now on."""
        records = self._sessions.get(session)
        if records is None:
            records = self._sessions[session] = _Records(session)
        record = records.by_name[name] = _Record(name)
        self._bound(records)
        self._write(records, record, 0, failed(request, LOST), self._open_for)

    async def answered(self, session: bytes, name: bytes, request: Request, answer: bytes, number: int) -> None:
        """This answer is about to be sent, as the event of this number. Returns when it may be. Cancelling is safe."""
        records = self._sessions.get(session)
        if records is None:
            return  # the session has ended
        record = records.by_name.pop(name, None) or _Record(name)  # it may have made room
        records.by_name[name] = record  # the newest
        if len(answer) > _LARGEST_ANSWER:
            answer = failed(request, _TOO_LARGE)
        record.until, record.size = self._loop.time() + self._kept_for, len(answer)
        records.size += record.size
        self._bytes += record.size
        self._answers[record] = records
        self._bound(records)
        self._write(records, record, number, answer, self._kept_for)
        try:
            async with asyncio.timeout(_SENT_AFTER):
                await record.tried.wait()
        except TimeoutError:
            pass

    async def answer(self, session: bytes, name: bytes) -> tuple[int, bytes] | None:
        """What the client of a lost stream is answered, and as the event of which number; 0: of none yet.

        None: nothing is known of it.

        Raises:
            StoreFailed: the records cannot be reached.
        """
        sealed = await self._records.stream(session, name)
        return None if not sealed else _opened(session, name, sealed)

    def session_ended(self, session: bytes, *, is_over: bool) -> None:
        """It is here no more. `is_over`: nor anywhere else, so nobody asks for its answers."""
        records = self._sessions.pop(session, None)
        if records is None:
            return
        kept = list(records.by_name.values())
        for record in kept:
            self._forget(records, record)
        if is_over:
            self._drop(records, kept)

    # -- bounds

    def _bound(self, records: "_Records") -> None:
        now, too_old = self._loop.time(), list[_Record]()
        while self._answers:
            oldest, of = next(iter(self._answers.items()))
            if oldest.until <= now:  # the server has dropped it
                self._forget(of, oldest)
            elif self._bytes > _MOST_BYTES_OF_ALL:
                self._forget(of, oldest)
                self._drop(of, [oldest])
            else:
                break
        while len(records.by_name) > _MOST or records.size > _MOST_BYTES:
            too_old.append(next(iter(records.by_name.values())))
            self._forget(records, too_old[-1])
        self._drop(records, too_old)

    def _forget(self, records: "_Records", record: "_Record") -> None:
        del records.by_name[record.name]
        if self._answers.pop(record, None) is not None:
            records.size -= record.size
            self._bytes -= record.size

    def _drop(self, records: "_Records", dropped: "list[_Record]") -> None:
        """Nobody needs these any more. One that is being written is dropped after that."""
        for record in dropped:
            record.is_dropped = True
            self._late.pop(record, None)
        names = [record.name for record in dropped if not record.is_being_written]
        if names:
            self._tasks.spawn(self._drop_written(records.session, names))

    async def _drop_written(self, session: bytes, names: list[bytes]) -> None:
        try:
            await self._records.drop_streams(session, names)
        except StoreFailed as error:
            log.debug("records of streams are not dropped: they end by themselves", reason=str(error))

    # -- writing

    def _write(self, records: "_Records", record: "_Record", number: int, answer: bytes, seconds: float) -> None:
        data = number.to_bytes(_NUMBER_BYTES, "big") + answer
        record.due, record.seconds = _sealed(records.session, record.name, data), seconds
        record.tried.clear()
        self._late.pop(record, None)
        if not record.is_being_written:
            record.is_being_written = self._tasks.spawn(self._write_once(records, record)) is not None
        if not record.is_being_written:
            record.tried.set()  # this bridge is about to end

    async def _write_once(self, records: "_Records", record: "_Record") -> None:
        """Write down what is due of it; what cannot be written is late."""
        record.is_being_written = True
        try:
            while (due := record.due) and not record.is_dropped and record.until > self._loop.time():
                try:
                    await self._records.keep_stream(records.session, record.name, due, record.seconds)
                except StoreFailed as error:
                    log.debug("a stream has no record yet: until then it ends with this bridge", reason=str(error))
                    if record.due is due and not record.is_dropped:  # else the answer came meanwhile
                        self._late[record] = records
                        return
                else:
                    if record.due is due:
                        record.due = b""
            if record.is_dropped:
                await self._drop_written(records.session, [record.name])
        finally:
            record.is_being_written = False
            record.tried.set()
            if self._late and (self._catching_up is None or self._catching_up.done()):
                self._catching_up = self._tasks.spawn(repeat(_AGAIN_AFTER, self._catch_up))

    async def _catch_up(self) -> bool:
        """Write down what is late, one after the other, up to the first that fails again. Whether that was all."""
        now = self._loop.time()
        for record in [one for one in self._late if one.until <= now]:
            del self._late[record]
        while self._late:
            record, records = self._late.popitem(last=False)
            await self._write_once(records, record)
            if record in self._late:
                return False
        return True


class _Record:
    """Of one stream."""

    __slots__ = ("due", "is_being_written", "is_dropped", "name", "seconds", "size", "tried", "until")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.due, self.seconds = b"", 0.0
        """What is to be written, sealed, and for how long; empty: it was."""
        self.tried = asyncio.Event()
        """It was written, or that failed once."""
        self.until = float("inf")
        """When its answer is of no use any more."""
        self.size = 0
        self.is_being_written = self.is_dropped = False


class _Records:
    """Of one session."""

    __slots__ = ("by_name", "session", "size")

    def __init__(self, session: bytes) -> None:
        self.session = session
        self.by_name = OrderedDict[bytes, _Record]()
        """The oldest first."""
        self.size = 0


def _sealed(session: bytes, name: bytes, data: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + _cipher(session).encrypt(nonce, data, name)


def _opened(session: bytes, name: bytes, sealed: bytes) -> tuple[int, bytes] | None:
    from cryptography.exceptions import InvalidTag

    try:
        data = _cipher(session).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name)
    except (InvalidTag, ValueError):
        log.warning("the record of a stream was changed on its server: nothing is known of the answer")
        return None
    return int.from_bytes(data[:_NUMBER_BYTES], "big"), data[_NUMBER_BYTES:]


def _cipher(session: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hmac.digest(session, _SEALS, "sha256"))
