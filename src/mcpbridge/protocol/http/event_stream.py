"""Server-sent events from bytes: what arrived goes in, whole events come out. No I/O.

The rules are those of the HTML standard, section "Parsing an event stream". Cutting the input in other
places gives the same events, and a line that arrives in many pieces costs linear time.
"""

from msgspec import Struct

from mcpbridge.protocol.jsonrpc import LargeFrame
from mcpbridge.protocol.reading.arriving_message import ArrivingMessage
from mcpbridge.protocol.reading.framing import LARGE_MESSAGE

_BOM = b"\xef\xbb\xbf"
_DATA = b"data: "
_MAX_DIGITS = 9
_END_BYTES = 4096
"""Bytes kept of each end of an event that is skipped."""


class EventTooLarge(ValueError):
    """An event grew over the limit. The parser is of no further use."""


class Event(Struct, frozen=True):
    """One event. Its `data` may be empty."""

    data: bytes
    type: bytes = b""
    """Empty means `message`."""
    is_whole: bool = True
    """False: it was over the limit, and `data` is the beginning and the end of it."""
    frame: LargeFrame | None = None
    """The message in place of `data`, where a large one was read in slices."""


class EventStreamParser:
    """Parses one stream. `skips`: an event over the limit is skipped while it arrives, instead of ending everything.

    `slices`: large messages are read while they arrive, see `reading/large_messages.py`.
    """

    def __init__(
        self, max_bytes: int, *, last_event_id: bytes = b"", skips: bool = False, slices: bool = False
    ) -> None:
        self._max_bytes = max_bytes
        self._slices = slices
        self._large: ArrivingMessage | None = None
        """The data of this event, if that is large."""
        self._is_in_large = False
        """The line that arrives belongs to it."""
        self._skips = skips
        self._skipped: tuple[bytes, bytes] | None = None
        """The ends of the event that is being skipped."""
        self.last_event_id = last_event_id
        """The id to resume after: that of the last whole event that had one."""
        self.retry: float | None = None
        """Seconds to wait before reconnecting, if the server said so."""
        self.count = 0
        """Blocks so far that carried an id or data."""
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._type = b""
        self._id: bytes | None = None
        self._at_start = True
        self._after_cr = False

    @property
    def is_within_event(self) -> bool:
        """Some of an event has come, and not its end."""
        return bool(self._data or self._line or self._skipped or self._large)

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes; return the events that they completed.

        Raises:
            EventTooLarge: an unfinished or finished event is over the limit.
        """
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in chunk:
            self._keep(chunk)
            return []
        lines = chunk.split(b"\n")
        if self._is_in_large:
            self._keep(lines.pop(0))
            self._is_in_large = False
            self._data_size += self._line_size + 1
        elif self._line:
            self._line.append(lines[0])
            lines[0] = b"".join(self._line)
            self._line.clear()
        self._line_size = 0
        rest = lines.pop()
        events: list[Event] = []
        for line in lines:
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)  # noqa: PLW2901 - the same line, without what is no part of it
            if line:
                self._field(line)
            else:
                self._dispatch(events)
        self._keep(rest)
        return events

    def _keep(self, part: bytes) -> None:
        if part:
            if self._is_in_large and self._large is not None:
                self._large.add(part)
            else:
                self._line.append(part)
            self._line_size += len(part)
            if self._slices and self._line_size > LARGE_MESSAGE and not self._is_in_large and not self._skipped:
                self._begin_large()
            self._check_size(part)

    def _begin_large(self) -> None:
        """Read the line that arrives in slices, if it is the data of a message."""
        while len(self._line) > 1 and len(self._line[0]) < len(_DATA):
            self._line[:2] = [self._line[0] + self._line[1]]
        first = self._line[0]
        if not first.startswith(b"data:") or self._data:
            return
        self._line[0] = first.removeprefix(_DATA if first.startswith(_DATA) else b"data:")
        if self._large is None:
            self._large = ArrivingMessage(self._max_bytes, self._line)
        else:
            self._large.add(b"\n" + b"".join(self._line))
        self._is_in_large = True
        self._line.clear()

    def _check_size(self, part: bytes = b"") -> None:
        """`part`: what came last."""
        if self._data_size + self._line_size <= self._max_bytes:
            return
        if not self._skips:
            raise EventTooLarge(f"an event over the limit of {self._max_bytes} bytes")
        held = b"".join(self._data + self._line)
        head, tail = self._skipped or (held[:_END_BYTES], b"")
        if self._large is not None:
            head, held = self._large.beginning(_END_BYTES), part
            if self._is_in_large:
                self._line, self._is_in_large = [part], False
            self._large = None
        self._skipped = head, (tail + held)[-_END_BYTES:]
        self._data.clear()
        self._data_size = 0
        if self._line:  # not emptied: what ends the line must not be taken for a blank one
            self._line = [self._line[-1][-1:]]
            self._line_size = 1

    def _field(self, line: bytes) -> None:
        if self._skipped is not None:
            self._skipped = self._skipped[0], (self._skipped[1] + line)[-_END_BYTES:]
            return
        if line.startswith(b"data:"):  # before the general rule: the one field that is large
            self._add_data(line[6:] if line[5:6] == b" " else line[5:])
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add_data(value)
        elif name == b"event":
            self._type = value
        elif name == b"id":
            if b"\0" not in value:
                self._id = value
        elif name == b"retry" and value.isdigit() and len(value) <= _MAX_DIGITS:
            self.retry = int(value) / 1000

    def _add_data(self, value: bytes) -> None:
        if self._large is None:
            self._data.append(value)
        else:
            self._large.add(b"\n" + value)
        self._data_size += len(value) + 1
        self._check_size(value)

    def _dispatch(self, events: list[Event]) -> None:
        # An id counts from here: a stream cut within an event must be resumed before that event.
        if self._id is not None or self._data or self._large is not None:
            self.count += 1
        if self._id is not None:
            self.last_event_id = self._id
            self._id = None
        if self._skipped is not None:
            events.append(Event(b"\n".join(self._skipped), self._type, is_whole=False))
            self._skipped = None
            self._data.clear()
            self._data_size = 0
        elif self._large is not None:
            message, self._large = self._large.finish(), None
            if isinstance(message, bytes):
                events.append(Event(message, self._type))
            else:
                events.append(Event(b"", self._type, frame=message))
            self._data_size = 0
        elif self._data:
            events.append(Event(self._data[0] if len(self._data) == 1 else b"\n".join(self._data), self._type))
            self._data.clear()
            self._data_size = 0
        self._type = b""
