"""Connections between the bridges of a fleet: one carries many requests, each way of one connection is one direction.

`Links` has a connection to each member that was needed, and asks there; `serving.py` is the other end. Both sides send
a sign of life while requests are open; a connection that is silent for too long has ended for whoever waits on it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from mcpbridge.base.background_tasks import is_asked_to_end
from mcpbridge.base.log import get_logger
from mcpbridge.fleet.link.certificates import LinkContexts, host_name_of
from mcpbridge.fleet.link.frames import (
    NOT_TAKEN,
    PART,
    Ask,
    BadFrame,
    FrameReader,
    Kind,
    Reply,
    frame,
    read_reply,
    with_body,
)

log = get_logger("mcpbridge.fleet")

CONNECT_SECONDS = 0.75
"""How long it may take to reach another bridge, with TLS: whoever asks it learns within a second that it cannot be."""
_PULSE_SECONDS = 0.5
"""Between two signs of life, and between two looks for one of the other side. Earlier versions send one a second."""
_SILENT_LOOKS, _GONE_LOOKS = 4, 6
"""Looks in a row that find no sign of life: nothing new is sent, and the other side counts as gone. Not seconds, since
what has come waits unread where this process could not run. Three seconds: the lease of a bridge that hangs ends then
as well, and a shorter stop, or a lost packet, costs no call."""
_NUMBERS = (1 << 32) - 1
"""Requests on one connection, whose numbers begin anew then."""
_TOGETHER = 1 << 16
"""Bytes of frames that wait for others of the same turn of the loop."""
_ANSWERS = frozenset({Kind.REPLY, Kind.REPLY_PART, Kind.REPLY_END, Kind.REPLY_WHOLE, Kind.BROKEN})
"""What an answer consists of. Of other kinds, which a later version may send, nothing is taken for a part of it."""


class NotSent(Exception):
    """The request did not leave this bridge: it is safe to repeat."""


class OutcomeUnknown(Exception):
    """The connection ended before the answer was whole."""


class LinkConnection(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, take: Callable[[int, int, bytes], None], lost: Callable[[], None]) -> None:
        """`take` gets each frame. `lost` is called when the connection has ended."""
        self._take, self._lost = take, lost
        self._reader = FrameReader()
        self._loop = asyncio.get_running_loop()
        self._has_heard = False
        self._missed = 0
        """Looks in a row that found no sign of life."""
        self.is_silent = False
        """Requests are open, and the other side has given no sign of life for a while."""
        self._pulse: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._due: list[bytes] = []
        """Frames of this turn of the loop: they leave together, in one record of TLS."""
        self._due_size = 0
        self.transport: asyncio.Transport | None = None
        self.is_needed: Callable[[], bool] = lambda: False
        """Whether requests are open."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's own class, with TLS, is none by name
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._pulse is not None:
            self._pulse.cancel()
        self.transport = None
        self._writable.set()
        self._lost()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._has_heard, self.is_silent = True, False
        try:
            for kind, number, payload in self._reader.feed(data):
                self._take(kind, number, payload)
        except BadFrame as error:
            log.warning("a connection between bridges is cut off", reason=str(error))
            self.abort()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable.set()

    @property
    def is_open(self) -> bool:
        """Whether something can be sent."""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def is_full(self) -> bool:
        """The other side takes less than is sent."""
        return not self._writable.is_set()

    def send(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """Send a frame; lost if the connection has ended."""
        if self.transport is None:
            return
        due = self._due
        if not due:
            self._loop.call_soon(self._flush)
        due.append(frame(kind, number, payload))
        self._due_size += len(payload)
        if self._due_size > _TOGETHER:
            self._flush()

    def _flush(self) -> None:
        due, self._due, self._due_size = self._due, [], 0
        if due and self.transport is not None:
            self.transport.write(due[0] if len(due) == 1 else b"".join(due))

    async def drain(self) -> None:
        """Wait until the other side takes more."""
        await self._writable.wait()

    def abort(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.transport.abort()

    def _look(self) -> None:
        if self._has_heard or not self.is_needed():
            self._missed = 0
        else:
            self._missed += 1
        self._has_heard = False
        if self._missed >= _GONE_LOOKS:
            log.warning("another bridge of the fleet gives no sign of life")
            self.abort()
            return
        self.is_silent = self._missed >= _SILENT_LOOKS
        if self.is_needed():
            self.send(Kind.PULSE, 0)
        self._pulse = self._loop.call_later(_PULSE_SECONDS, self._look)


class Stream:
    """The answer to a request that another bridge has."""

    def __init__(self, link: "_Link", number: int) -> None:
        self._link, self._number = link, number
        self._frames = deque[tuple[int, bytes]]()
        self._came: asyncio.Event | None = None
        self.on_first: Callable[[int, bytes], None] | None = None
        """Called with the first frame, which nobody waits for."""
        self.is_over = False
        """All of the answer has come, or no more will."""
        self.is_whole = False
        """All of it has come."""
        self.is_closed = False
        """Nobody reads it any more."""

    def take(self, kind: int, payload: bytes) -> None:
        """A frame has come."""
        if self.on_first is not None:
            take, self.on_first = self.on_first, None
            try:
                take(kind, payload)
            except Exception as error:  # the other requests of the connection have nothing to do with it
                log.error("an answer of another bridge could not be passed on", exc_info=error)
            return
        self._frames.append((kind, payload))
        if self._came is not None:
            self._came.set()

    async def next(self) -> tuple[int, bytes]:
        """Kind and payload of the next frame.

        Raises:
            OutcomeUnknown: there will be none.
        """
        while not self._frames:
            if self._came is None:
                self._came = asyncio.Event()
            self._came.clear()
            await self._came.wait()
        kind, payload = self._frames.popleft()
        if kind == Kind.BROKEN:
            self.is_over = True
            raise OutcomeUnknown
        if kind in (Kind.REPLY_WHOLE, Kind.REPLY_END):
            self.is_over = self.is_whole = True
        return kind, payload

    async def head(self) -> tuple[Reply, bytes, bool]:
        """The head of the answer, what came of its body, and whether that is all.

        Raises:
            NotSent: the other side does not know such a request, and did nothing.
            OutcomeUnknown: the connection ended before, or what came is no answer.
        """
        kind, payload = await self.next()
        try:
            reply, body = read_reply(payload)
        except BadFrame as error:
            raise OutcomeUnknown from error
        if reply.status == 503 and NOT_TAKEN in reply.headers:
            raise NotSent("it is of another version, and does not know such a request")
        return reply, body, kind == Kind.REPLY_WHOLE

    def grant(self, size: int) -> None:
        """So many bytes were handed on."""
        self._link.connection.send(Kind.ROOM, self._number, size.to_bytes(4))

    def close(self) -> None:
        """Nobody reads the answer any more; whoever waits for it stops waiting."""
        self.is_closed = True
        if self._link.streams.pop(self._number, None) is not None and not self.is_over:
            self._link.connection.send(Kind.LEFT, self._number)
            self.take(Kind.BROKEN, b"")


class _Link:
    """The connection to one member."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self._number = 0
        self.connection = LinkConnection(self._take, self._lost)
        self.connection.is_needed = lambda: bool(self.streams)

    def ask(self, head: Ask, body: bytes, kind: Kind) -> Stream:
        number = self._number
        while (number := number % _NUMBERS + 1) in self.streams:
            pass
        self._number = number
        stream = self.streams[number] = Stream(self, number)
        self.connection.send(kind, number, with_body(head, body[:PART]))
        for start in range(PART, len(body), PART):
            self.connection.send(Kind.ASK_PART, number, body[start : start + PART])
        return stream

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        stream = self.streams.get(number)
        if stream is None or kind not in _ANSWERS:
            return
        if kind in (Kind.REPLY_WHOLE, Kind.REPLY_END, Kind.BROKEN):
            del self.streams[number]
        stream.take(kind, payload)

    def _lost(self) -> None:
        streams, self.streams = list(self.streams.values()), {}
        for stream in streams:
            stream.take(Kind.BROKEN, b"")


class Links:
    """Connections to other members, each made when it is needed."""

    def __init__(self, contexts: LinkContexts) -> None:
        self._contexts = contexts
        self._links: dict[str, _Link] = {}
        self._attempts: dict[str, asyncio.Task[_Link]] = {}
        """To connect: one for all who need it, so that nobody waits for several."""
        self.problems: dict[str, str] = {}
        """Why members could not be reached the last time, by their ids."""

    def open(self) -> list[str]:
        """The members that there is a connection to."""
        return [member for member, link in self._links.items() if link.connection.is_open]

    async def ask(self, member: str, address: str, head: Ask, body: bytes, kind: Kind = Kind.ASK) -> Stream:
        """Send a request to a member. `address`: `HOST:PORT`. `kind`: `ASK` or `ORDER`.

        Raises:
            NotSent: the member cannot be reached.
        """
        link = self._links.get(member)
        if link is None or not link.connection.is_open:
            link = await self._connected(member, address)
        if link.connection.is_silent and link.streams:  # with none open, this one finds out
            raise NotSent("it gives no sign of life")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await link.connection.drain()
        except TimeoutError as error:
            raise NotSent("it takes nothing now") from error
        if not link.connection.is_open:
            raise NotSent("the connection has just ended")
        return link.ask(head, body, kind)

    def ask_now(self, member: str, head: Ask, body: bytes) -> Stream | None:
        """Send a request to a member that takes it at once. None: nothing was done."""
        link = self._links.get(member)
        if link is None or not link.connection.is_open or link.connection.is_full or link.connection.is_silent:
            return None
        return link.ask(head, body, Kind.ASK)

    async def _connected(self, member: str, address: str) -> _Link:
        attempt = self._attempts.get(member)
        if attempt is None:
            attempt = asyncio.get_running_loop().create_task(self._connect(member, address))
            self._attempts[member] = attempt
            attempt.add_done_callback(lambda _: self._is_tried(member, attempt))
        try:
            return await asyncio.shield(attempt)
        except (OSError, TimeoutError) as error:  # of TLS as well
            raise NotSent(_reason(error)) from error
        except asyncio.CancelledError:
            if attempt.cancelled() and not is_asked_to_end():
                raise NotSent("it has left the fleet meanwhile") from None
            raise

    def _is_tried(self, member: str, attempt: "asyncio.Task[_Link]") -> None:
        error = None if attempt.cancelled() else attempt.exception()
        if self._attempts.get(member) is not attempt:
            return  # the member is gone
        del self._attempts[member]
        if error is not None:
            self.problems[member] = _reason(error)

    async def _connect(self, member: str, address: str) -> _Link:
        link = _Link()
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: link.connection,
                    host.strip("[]"),
                    int(port),
                    ssl=self._contexts.connecting,
                    server_hostname=host_name_of(member),
                )
        except BaseException:
            link.connection.abort()  # it may be there all the same
            raise
        self.problems.pop(member, None)
        self._links[member] = link
        return link

    def forget(self, member: str) -> None:
        """The member is gone for good."""
        if (attempt := self._attempts.pop(member, None)) is not None:
            attempt.cancel()
        self.problems.pop(member, None)
        if (link := self._links.pop(member, None)) is not None:
            link.connection.abort()

    def close(self) -> None:
        """End all connections."""
        for member in {*self._links, *self._attempts}:
            self.forget(member)


def _reason(error: BaseException) -> str:
    return str(error) or "it does not answer"
