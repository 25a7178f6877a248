"""Answers on streams that broke: what another bridge needs of them when it takes a session over.

A response that became a stream has a record from its first event on: which request it is for, and, if its client was
away when the answer came, the answer. A client that resumes it elsewhere gets the answer, or an error that says that
nobody knows the outcome. Progress is lost. The record is written beside the call, which does not wait for it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.fleet.forwarding import LOST
from mcpbridge.fleet.records import FleetRecords
from mcpbridge.protocol.error_codes import INTERNAL_ERROR
from mcpbridge.protocol.jsonrpc import encode_error

log = get_logger("mcpbridge.fleet")

_LARGEST_ANSWER = 1024 * 1024
"""Bytes of an answer that is kept for a client that is away."""
_MOST, _MOST_BYTES = 1000, 8 << 20
"""Records of one session, and their bytes: the oldest make room."""
_TOO_LARGE = "outcome unknown: the answer was too large to be kept by the bridge that was lost; the call has ended"


class StreamRecords:
    """The records of streams, as one bridge writes and reads them."""

    def __init__(self, records: FleetRecords, tasks: OwnedTasks, seconds: float) -> None:
        """`seconds`: how long a record lasts. `tasks` run what is written."""
        self._records, self._tasks, self._seconds = records, tasks, seconds
        self._writing: dict[tuple[bytes, bytes], asyncio.Event] = {}
        """Streams whose beginning is being written down: what follows of them waits for that."""
        self._sizes: dict[bytes, OrderedDict[bytes, int]] = {}
        """By session, the streams that have records, the oldest first, and how many bytes of their answers."""

    def opened(self, session: bytes, name: bytes, request: bytes) -> None:
        """A stream for the request of this id begins."""
        self._sizes.setdefault(session, OrderedDict())[name] = 0
        written = self._writing[session, name] = asyncio.Event()

        async def begin() -> None:
            try:
                await self._records.keep_stream(session, name, b"?" + request, self._seconds)
            finally:
                del self._writing[session, name]
                written.set()

        self._write(begin)

    def ended(self, session: bytes, name: bytes, request: bytes, answer: bytes | None) -> None:
        """The last event is in it. `answer`: it, if its client was away; None: it was sent."""
        kept = self._sizes.get(session)
        if kept is None:
            return  # the session has ended
        kept.pop(name, None)
        if answer is not None and len(answer) > _LARGEST_ANSWER:
            answer = encode_error(request, INTERNAL_ERROR, _TOO_LARGE)
        if answer is not None:
            kept[name] = len(answer)
        too_old = list[bytes]()
        while len(kept) > _MOST or sum(kept.values()) > _MOST_BYTES:
            too_old.append(kept.popitem(last=False)[0])
        written = self._writing.get((session, name))

        async def end() -> None:
            for former in too_old:
                await self._records.drop_stream(session, former)
            if written is not None:
                await written.wait()
            if answer is not None and name in kept:
                await self._records.keep_stream(session, name, b"=" + answer, self._seconds)
            if name not in kept:  # perhaps it made room while it was written
                await self._records.drop_stream(session, name)

        self._write(end)

    async def answer(self, session: bytes, name: bytes) -> bytes:
        """What the client of a lost stream is answered; empty: nothing is known of it."""
        try:
            found = await self._records.stream(session, name)
        except StoreFailed:
            return b""
        if found.startswith(b"="):
            return found[1:]
        return encode_error(found[1:], INTERNAL_ERROR, LOST) if found else b""

    def session_ended(self, session: bytes, *, is_over: bool) -> None:
        """It is here no more. `is_over`: nor anywhere else, so nobody asks for its answers."""
        if (kept := self._sizes.pop(session, None)) and is_over:
            kept.clear()
            self._write(lambda: self._records.drop_streams(session))

    def _write(self, work: Callable[[], Awaitable[None]]) -> None:
        async def quietly() -> None:
            try:
                await work()
            except StoreFailed as error:
                log.debug("a stream has no record: it ends with this bridge", reason=str(error))

        self._tasks.spawn(quietly())
