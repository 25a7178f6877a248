"""Calls over streamable HTTP without a task: sent in the turn in which they come, answered when the answer is there.

That is right for the usual answer: status 200, and either one JSON message or an event stream that begins with the
answer, in one piece. Any other answer, and a call that is withdrawn, continues in a task of the channel
(`streamable_http.py`). That reads what has come and what follows, as it does for all other requests: refusals,
redirects, cookies, sign-in, progress, streams that break and are resumed, what is large, compressed or unreadable.
"""

import asyncio
from typing import Protocol

import msgspec

from mcpbridge.protocol.http.connection import Exchange, HttpConnection
from mcpbridge.protocol.http.event_stream import EventStreamParser
from mcpbridge.protocol.jsonrpc import Frame, decode_arriving_frame, decode_frame, one_line
from mcpbridge.protocol.transport import Outgoing

_LARGEST = 256 << 10
"""Bytes of an answer; a larger one is read as it comes."""
_TAIL_SECONDS = 1.0
"""A stream that stays open after its answer is closed then: another request may want the connection."""


class Owner(Protocol):
    """The channel of such calls."""

    max_bytes: int
    """Of one message."""

    def answered(self, post: "DirectPost", frame: Frame) -> None:
        """The answer is here."""
        ...

    def continue_in_task(self, post: "DirectPost") -> None:
        """It needs more than a look. Called once; after the answer, too, if more comes behind it."""
        ...


class DirectPost(Exchange):
    """A request under way, and its answer."""

    is_direct = True
    is_answered = False
    _is_stream = False
    _size = -1
    """Of the body, where the next answer may come by `repeated`."""
    _tail: asyncio.TimerHandle | None = None

    def __init__(
        self,
        connection: HttpConnection,
        message: Outgoing,
        session: bytes,
        used: str,
        owner: "Owner",
    ) -> None:
        """`session`: the one that it was sent in. `used`: the token that it was sent with."""
        # What `Exchange` sets is set here: each call would enter one function more.
        self.connection, self._chunks = connection, []
        self.message, self.session, self.used = message, session, used
        self._owner = owner

    def __repr__(self) -> str:
        state = "answered" if self.is_answered else "under way" if self.is_direct else "continues in a task"
        return f"<{type(self).__name__} {self.message.id.decode()} {state}>"

    def leave_direct(self) -> None:
        """Somebody reads it in a task from now on."""
        self.is_direct = False
        if self._tail is not None:
            self._tail.cancel()

    def head_arrived(self, status: int) -> None:
        """See `Exchange`."""
        self.status = status
        if self._head is not None and not self._head.done():
            self._head.set_result(None)
        kind, is_plain = b"", status == 200
        for name, value in self.headers:
            if name == b"content-type":
                kind = value
            elif name in _MORE:
                is_plain = False
        self._is_stream = kind in _STREAM
        if self.is_direct and not (is_plain and (self._is_stream or kind in _JSON)):
            self._owner.continue_in_task(self)

    def body_arrived(self, data: bytes) -> None:
        """See `Exchange`."""
        if not self.is_direct:
            super().body_arrived(data)
            return
        self._chunks.append(data)
        self._buffered += len(data)
        if self.is_answered or self._buffered > min(self._owner.max_bytes, _LARGEST):
            self._owner.continue_in_task(self)
        elif self._is_stream:
            frame = self._answer_in(self._only_event(data)) if data.endswith(_ENDS) else None
            if frame is None:
                self._owner.continue_in_task(self)
                return
            self._chunks.clear()
            self._buffered, self._size = 0, len(data)
            self._tail = self.connection.loop.call_later(_TAIL_SECONDS, self.connection.cut)
            self.is_answered = True
            self._owner.answered(self, frame)

    def completed(self) -> None:
        """See `Exchange`."""
        self._is_complete = True
        if self._more is not None:
            self._wake()
        if self._tail is not None:
            self._tail.cancel()
        if not self.is_direct or self.is_answered:
            return
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        frame = None if self._is_stream else self._answer_in(body)
        if frame is None:
            self._owner.continue_in_task(self)
        else:
            self.is_answered, self._size = True, len(body)
            self._owner.answered(self, frame)

    def repeated(self, former: Exchange, body: bytes) -> None:
        """See `Exchange`."""
        assert isinstance(former, DirectPost)
        self.status, self.headers, self._is_stream = former.status, former.headers, former._is_stream  # noqa: SLF001 - of its own kind
        self._is_complete = True
        frame = None
        if len(body) <= min(self._owner.max_bytes, _LARGEST):
            if not self._is_stream:
                frame = self._answer_in(body)
            elif body.endswith(_ENDS):
                frame = self._answer_in(self._only_event(body))
        if frame is None:
            size = b"%d" % len(body)
            self.headers = [(name, size if name == b"content-length" else value) for name, value in self.headers]
            self._chunks.append(body)
            self._buffered = len(body)
            self._owner.continue_in_task(self)
        else:
            self.is_answered = True
            self._owner.answered(self, frame)

    @property
    def repeatable(self) -> int:
        """See `Exchange`."""
        return self._size if self.is_direct else -1

    def broke(self, error: Exception) -> None:
        """See `Exchange`."""
        super().broke(error)
        if self._tail is not None:
            self._tail.cancel()
        if self.is_direct and not self.is_answered:
            self._owner.continue_in_task(self)

    def _only_event(self, data: bytes) -> bytes:
        """The data of the only event that came; empty where there is another, or none."""
        parser = EventStreamParser(_LARGEST)
        events = parser.feed(data)
        if len(events) != 1 or parser.is_within_event or events[0].type not in _MESSAGE:
            return b""
        return events[0].data

    def _answer_in(self, data: bytes) -> Frame | None:
        """The answer to this very request; None if it is anything else, or cannot be read."""
        if b"\n" in data or b"\r" in data:
            data = one_line(data)
        try:  # as `decode_arriving_frame`, which nearly every answer would enter here
            is_usual = _BACKSLASH not in data and data.isascii()
            frame = decode_frame(data) if is_usual else decode_arriving_frame(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        is_answer = not frame.method and bytes(frame.id) == self.message.id and (frame.result or frame.error)
        return frame if is_answer else None


_MORE = frozenset({b"set-cookie", b"content-encoding"})
"""Headers of answers that need more than a look."""
_JSON = frozenset({b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"})
_STREAM = frozenset({b"text/event-stream", b"text/event-stream; charset=utf-8", b"text/event-stream;charset=utf-8"})
_MESSAGE = (b"", b"message")
_BACKSLASH = ord("\\")
_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""With these an event ends."""
