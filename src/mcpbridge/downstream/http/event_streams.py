"""Event streams that outlive the connections that carry them, and can be resumed.

A `Stream` is the ordered events of one response, or of a session's own channel. The bridge puts messages in;
whichever connection reads it takes them out. When that connection breaks, the next one names the last event that it
saw and continues from there (MCP 2025-11-25, transports, resumability). An event's id is `<stream>-<number>`, so
finding its place needs no table.

All buffers are bounded. A client that does not read loses the oldest notifications of that stream, but never the
answer at its end, since nothing follows an answer. Clients bound the size of an event too (SDK clients: 1 MiB) and
give up the stream that brings a larger one; `fitting` puts an error in place of such an answer, so that the caller
learns of it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from itertools import islice

import msgspec

from mcpbridge.base.errors import AnswerTooLarge
from mcpbridge.base.log import get_logger
from mcpbridge.downstream.errors import to_answer
from mcpbridge.downstream.http.exchange import Exchange
from mcpbridge.protocol.batches import encode_batch
from mcpbridge.protocol.error_codes import INTERNAL_ERROR
from mcpbridge.protocol.jsonrpc import Frame, decode_array, decode_frame, encode_error, one_line

Request = Frame | list[bytes]
"""A request, or the members of a batch as their bytes."""

_AROUND = 128
"""Bytes of an event besides its message: the names of its fields, and its id."""


def fits(message: bytes, limit: int) -> bool:
    """Whether an event with this message is within `limit` bytes; 0: any is."""
    return not limit or len(message) + _AROUND <= limit


def fitting(answer: bytes, request: Request, *, limit: int, modern: bool) -> bytes:
    """The answer to `request`; an error that says why instead of one that does not fit.

    Of a batch as few members as possible become errors, the largest first.
    """
    if fits(answer, limit):
        return answer
    if isinstance(request, Frame):
        return _refused(answer, request, limit, modern=modern)
    asked = {bytes(frame.id): frame for frame in decoded(request) if frame.method}
    members = [bytes(member) for member in decode_array(answer)]
    for number in sorted(range(len(members)), key=lambda number: -len(members[number])):
        frame = asked.get(bytes(decode_frame(members[number]).id))
        if frame is not None:
            members[number] = _refused(members[number], frame, limit, modern=modern)
        answer = encode_batch(members)
        if fits(answer, limit):
            break
    return answer


def _refused(answer: bytes, request: Frame, limit: int, *, modern: bool) -> bytes:
    refused = AnswerTooLarge(len(answer), limit)
    return bytes(to_answer(refused, bytes(request.id), request.method, modern=modern).data)


def decoded(members: list[bytes]) -> list[Frame]:
    """The members of a batch that can be read."""
    frames: list[Frame] = []
    for member in members:
        try:
            frames.append(decode_frame(member))
        except (msgspec.DecodeError, RecursionError):
            continue  # answered with an error, which is small
    return frames


def failed(request: Request, text: str, code: int = INTERNAL_ERROR) -> bytes:
    """The error as the answer to a request, or to all of a batch."""
    frames = [request] if isinstance(request, Frame) else [one for one in decoded(request) if one.method and one.id]
    errors = [encode_error(bytes(frame.id), code, text) for frame in frames]
    return errors[0] if isinstance(request, Frame) else encode_batch(errors)


log = get_logger("mcpbridge.http")

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: clients skip it, proxies see that the stream lives."""

_MAX_WAITING = 1000
"""Events of one stream that wait for a slow client."""
_MAX_WAITING_BYTES = 8 * 1024**2
_KEPT = 100
"""Events of one stream that stay for a client that resumes, after they were sent once."""
_KEPT_BYTES = 1024**2
RETRY_MS = 1000
"""Milliseconds after which a client whose connection broke should come back."""
_MAX_FINISHED = 64
"""Complete streams of one session that stay for a client that resumes."""
_MAX_FINISHED_BYTES = 16 * 1024**2
_CHANNEL = b"0"


class Stream:
    """Numbered events. Without a name they carry no ids and go once they are sent."""

    def __init__(
        self,
        name: bytes = b"",
        *,
        max_waiting: int = _MAX_WAITING,
        max_waiting_bytes: int = _MAX_WAITING_BYTES,
        max_event: int = 0,
        first: int = 1,
    ) -> None:
        """`max_event`: bytes of the largest event that `notify` puts in; 0: any. `first`: the first number."""
        self.name = name
        self.is_finished = False
        self.lost = 0
        """Events dropped before anyone got them."""
        self.sent = 0
        """Number of the newest event that a connection took."""
        self.size = 0
        """Bytes held."""
        self._max_waiting = max_waiting
        self._max_waiting_bytes = max_waiting_bytes
        self._max_event = max_event
        self._events: deque[bytes] = deque()
        self._first = first
        self.joined = 0
        """Readers so far."""
        self._readers: list[asyncio.Event] = []

    @property
    def readers(self) -> int:
        """Connections that it is sent to now."""
        return len(self._readers)

    @property
    def last(self) -> int:
        """Number of the newest event."""
        return self._first + len(self._events) - 1

    def notify(self, message: bytes) -> bool:
        """Add a message that is no answer. False when it was dropped.

        The stream is finished, or the message is so large that the client would give up the whole stream for it.
        """
        if self.is_finished:
            return False
        if not fits(message, self._max_event):
            log.warning("message dropped: larger than http.max_event", size=len(message), limit=self._max_event)
            return False
        if not (self._waiting and self._says_again(message)):
            self.put(message)
        return True

    def put(self, message: bytes) -> None:
        """Add a message; a reader wakes. Ignored once the stream is finished."""
        if self.is_finished:
            return
        self._append(one_line(message))
        while self._waiting > self._max_waiting or (self.size > self._max_waiting_bytes and self._waiting > 1):
            if self._first > self.sent:
                self.lost += 1
            self._drop_first()

    def prime(self) -> None:
        """Add an event without data: it gives the client an id to resume from (MCP 2025-11-25, transports).

        It also says after how many milliseconds to do that.
        """
        self._append(b"", b"retry: %d\n" % RETRY_MS)

    def finish(self) -> None:
        """Nothing will follow. Readers end when they have sent the rest."""
        self.is_finished = True
        for reader in self._readers:
            reader.set()

    def after(self, number: int) -> bytes:
        """The events after that number, as bytes to send."""
        skipped = max(0, number - self._first + 1)
        if not skipped:
            return b"".join(self._events)
        return b"".join(list(self._events)[skipped:])

    def mark_sent(self, number: int) -> None:
        """Everything up to that number was written to a connection."""
        self.sent = max(self.sent, number)
        while self._events and self._first <= self.sent and (not self.name or self._has_more_than_kept()):
            self._drop_first()

    @contextmanager
    def reading(self) -> Generator[asyncio.Event]:
        """Be the reader, until a newer one comes; the event is set when there may be something to do."""
        reader = asyncio.Event()
        self._readers.append(reader)
        self.joined += 1
        try:
            yield reader
        finally:
            self._readers.remove(reader)
            if self._readers:
                self._readers[-1].set()

    def is_newest(self, reader: asyncio.Event) -> bool:
        """Whether this reader gets the events: no message may go to two connections (spec, transports)."""
        return self._readers[-1] is reader

    @property
    def _waiting(self) -> int:
        return min(len(self._events), self.last - self.sent)

    def _says_again(self, message: bytes) -> bool:
        """The very message waits already, and only tells to look again: once is enough for a slow client."""
        if b"list_changed" not in message and b"notifications/resources/updated" not in message:
            return False
        told = b"data: %b\n\n" % one_line(message)
        return any(event.endswith(told) for event in islice(self._events, len(self._events) - self._waiting, None))

    def _append(self, data: bytes, fields: bytes = b"") -> None:
        if self.name:
            event = b"%bid: %b-%d\nevent: message\ndata: %b\n\n" % (fields, self.name, self.last + 1, data)
        else:
            event = b"event: message\ndata: %b\n\n" % data
        self._events.append(event)
        self.size += len(event)
        if self._readers:
            self._readers[-1].set()

    def _has_more_than_kept(self) -> bool:
        return len(self._events) > _KEPT or (self.size > _KEPT_BYTES and len(self._events) > 1)

    def _drop_first(self) -> None:
        self.size -= len(self._events.popleft())
        self._first += 1


def named_event(event_id: str) -> tuple[bytes, int]:
    """The name of the stream and the number that an event id names; no name: it is none of ours."""
    name, _, number = event_id.rpartition("-")
    if not (number.isascii() and number.isdigit()) or len(number) > 18:
        return b"", 0
    return name.encode(), int(number)


def is_channel(name: bytes) -> bool:
    """Whether this is the name of a session's own channel, at any bridge of a fleet."""
    return name.endswith(b"." + _CHANNEL)


class Streams:
    """The streams of one session: its channel for unsolicited messages, and one for each streamed response."""

    def __init__(self, keep: float, *, max_pushed: int = 100, max_event: int = 0, tag: bytes = b"") -> None:
        """`keep`: seconds that a finished stream stays; `max_pushed`: messages that wait while no one listens.

        `tag`: what names of streams begin with, so that no other bridge has the same ones.
        """
        self._tag = tag
        self.channel = Stream(tag + _CHANNEL, max_waiting=max_pushed, max_event=max_event)
        self._max_event = max_event
        self._keep = keep
        self._count = 0
        self._by_name: dict[bytes, Stream] = {self.channel.name: self.channel}
        self._finished: deque[tuple[float, Stream, int]] = deque()
        self._finished_bytes = 0

    def open(self) -> Stream:
        """A new stream. It can be resumed until `keep` seconds after `finish`."""
        self._count += 1
        stream = Stream(b"%b%d" % (self._tag, self._count), max_event=self._max_event)
        self._by_name[stream.name] = stream
        return stream

    def finish(self, stream: Stream, now: float) -> None:
        """End a stream, and forget those that ended long ago, or are too many."""
        stream.finish()
        self._finished.append((now, stream, stream.size))
        self._finished_bytes += stream.size
        while self._finished[0][0] < now - self._keep or (
            len(self._finished) > 1
            and (len(self._finished) > _MAX_FINISHED or self._finished_bytes > _MAX_FINISHED_BYTES)
        ):
            self._forget_oldest()

    def find(self, event_id: str) -> tuple[Stream, int] | None:
        """The stream and the number that an event id names; None when it is unknown or forgotten."""
        name, number = named_event(event_id)
        stream = self._by_name.get(name)
        return None if stream is None else (stream, number)

    def finish_all(self) -> None:
        """The session ends."""
        for stream in self._by_name.values():
            stream.finish()

    def _forget_oldest(self) -> None:
        _, stream, size = self._finished.popleft()
        self._finished_bytes -= size
        del self._by_name[stream.name]


async def deliver(
    stream: Stream, position: int, write: Callable[[bytes], Awaitable[None]], *, keep_alive: float
) -> None:
    """Write the events after `position`, and those that follow, until the stream is finished.

    A comment goes out after every `keep_alive` seconds of silence. While a newer reader is there, this one only waits.
    """
    with stream.reading() as wake:
        joined = stream.joined
        while True:
            wake.clear()
            if stream.joined != joined:  # a newer reader came; what it took is not told twice
                joined = stream.joined
                position = max(position, stream.sent)
            if stream.is_newest(wake):
                number = stream.last
                if number > position:
                    chunk = stream.after(position)
                    position = number
                    await write(chunk)
                    stream.mark_sent(number)
                    continue
            if stream.is_finished:
                return
            try:
                async with asyncio.timeout(keep_alive):
                    await wake.wait()
            except TimeoutError:
                await write(KEEP_ALIVE)


async def carry(exchange: Exchange, stream: Stream, position: int, *, keep_alive: float) -> None:
    """Write the events after `position`, and those that follow, to a response that has begun.

    `keep_alive`: see `deliver`. The response is ended in good order unless the client left first.
    """
    leaving = asyncio.create_task(exchange.until_client_leaves())
    writing = asyncio.create_task(deliver(stream, position, exchange.write, keep_alive=keep_alive))
    try:
        await asyncio.wait((leaving, writing), return_when=asyncio.FIRST_COMPLETED)
        if not leaving.done():
            await exchange.end_stream()
    finally:
        leaving.cancel()
        writing.cancel()
        await asyncio.wait((leaving, writing))
