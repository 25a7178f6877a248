"""Cut a byte stream into messages, one a line (spec, stdio transport). Sans-I/O.

Every byte is looked at a fixed number of times: a line of 40 MB costs ten times one of 4 MB. A line
over the limit is skipped while it arrives; only its ends are kept, to find out whose answer it was.

`read_message` is for channels that keep messages apart by themselves (WebSocket, server-sent events). The same rules
hold, but there is no noise: text that is no message is where a message should be, so it counts as spoiled.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mcpbridge.base.late_pattern import late
from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.error_codes import INVALID_REQUEST
from mcpbridge.protocol.jsonrpc import Frame, decode_arriving_frame, decode_frame, one_line
from mcpbridge.protocol.reading.repair import Item, Unfinished, salvage
from mcpbridge.protocol.reading.unreadable import Noise, Spoiled, bracket_balance, find_ids

if TYPE_CHECKING:
    from mcpbridge.protocol.reading.large_messages import LargeMessage

LARGE_MESSAGE = 3 << 19
"""Bytes from which a message is read in slices. These take longer in all than one step, which takes 8 ms at this size.
"""
_ENDS_OF_OVERSIZED = 4096
_STARTS = frozenset(b"{[ \t\r\xef")
"""First bytes of lines that may be messages; any other line is noise and not worth a look, however much of it comes."""
_BACKSLASH = ord("\\")
"""A search for a number is several times as fast as one for bytes, which begins with an exception."""
_ESCAPES = late(rb"\\(?:u00|/)")
"""Names may be written with them. Among many escaped quotes this takes half as long as two searches for bytes."""
_CUT = "Input data was truncated"
_READ_LEAST = 1 << 16
"""Bytes of a large line for which more is waited, so that a stream in tiny parts is not read part by part."""
READ_A_FEED = 1 << 18
"""Bytes of a large line that are read in one go, though more may wait; twice as many as came if that is more."""
READ_AT_END = 1 << 19
"""Bytes of a large message that may wait when it ends, to be read in one go."""
_NOISE_A_FEED = 8
"""Lines of noise that are reported in one chunk; a program that prints without end must not cost a look each."""


class LineReader:
    """Feed it chunks as they come; it returns the messages that they complete, in order."""

    def __init__(
        self,
        max_bytes: int,
        *,
        rescue: Callable[[bytes], list[Item] | Unfinished] = salvage,
        find_ids: Callable[[bytes], list[bytes]] = find_ids,
        slices: bool = False,
    ) -> None:
        """`rescue` says what a line is that the decoder refused; `find_ids`, whose it was. Clients have their own.

        `slices`: large messages are read while they arrive, see `large_messages.py`.
        """
        self._max_bytes = max_bytes
        self._rescue, self._find_ids = rescue, find_ids
        self._parts: list[bytes] = []
        self._held = 0
        self._oversized_head = b""
        self._oversized_tail = b""
        self._slices = slices
        self._unread = 0
        """Bytes in `_parts`."""
        self._large: LargeMessage | None = None
        """The beginning of a large message; `_parts` follow it."""
        self.unfinished: list[bytes] = []
        """The lines so far of an object that spans lines: `give_up` ends the wait for the rest. Not to be changed."""
        self._unfinished_bytes = 0
        self._open_brackets = 0

    @property
    def is_within_large(self) -> bool:
        """The beginning of a large message has come, and is read in slices."""
        return self._large is not None

    def feed(self, data: bytes) -> list[Item]:
        """Take a chunk; return what it completes."""
        *lines, rest = data.split(b"\n")
        items: list[Item] = []
        if lines:
            if self._held:
                lines[0] = self._finish(lines[0], items)
            noise = 0
            for line in lines:
                if len(line) > self._max_bytes:
                    items.append(self._too_long(self._find_ids(line)))
                elif line:
                    if self.unfinished:
                        self._take(line, items)
                    elif line[0] in _STARTS:
                        if (_BACKSLASH in line and _ESCAPES.search(line)) or not line.isascii():
                            self._take(line, items)
                            continue
                        try:  # as `_take`, which nearly every line would enter here
                            items.append(decode_frame(line))
                        except (msgspec.DecodeError, RecursionError):
                            self._take_refused(line, items)
                    elif (noise := noise + 1) <= _NOISE_A_FEED:
                        self._take_refused(line, items)
        if rest:
            self._hold(rest)
        return items

    def end(self) -> list[Item]:
        """The stream ended; a last line without a line end still counts."""
        items: list[Item] = []
        if self._held:
            line = self._finish(b"", items)
            if line:
                self._take(line, items)
        return items + self.give_up()

    def give_up(self) -> list[Item]:
        """Stop waiting for the rest of an object begun on an earlier line."""
        if not self.unfinished:
            return []
        held = b" ".join(self.unfinished)
        self.unfinished.clear()
        if b'"' not in held:
            return [Noise(held[:200].decode("utf-8", "replace"))]
        return [Spoiled(self._find_ids(held), _CUT)]

    def _take(self, line: bytes, items: list[Item]) -> None:
        if self.unfinished:
            self._go_on(line, items)
            return
        try:
            items.append(decode_arriving_frame(line))
        except (msgspec.DecodeError, RecursionError):
            self._take_refused(line, items)

    def _take_refused(self, line: bytes, items: list[Item]) -> None:
        saved = self._rescue(line)
        if isinstance(saved, Unfinished):
            self.unfinished = [saved.line]
            self._unfinished_bytes = len(saved.line)
            self._open_brackets = bracket_balance(saved.line)
        else:
            items += saved

    def _go_on(self, line: bytes, items: list[Item]) -> None:
        """A line after the first of an object that spans lines."""
        if line[:1] == b"{" and (frame := _whole_message(line)) is not None:
            # The object was never going to be finished: a new message begins.
            items += self.give_up()
            items.append(frame)
            return
        self.unfinished.append(line)
        self._unfinished_bytes += len(line)
        self._open_brackets += bracket_balance(line)
        if self._unfinished_bytes > self._max_bytes:
            items.append(self._too_long(self._find_ids(b" ".join(self.unfinished))))
            self.unfinished.clear()
        elif self._open_brackets <= 0:
            whole = b"\n".join(self.unfinished)  # within a string, a line break is no JSON
            self.unfinished.clear()
            try:
                decode_arriving_frame(whole)
                items.append(decode_arriving_frame(one_line(whole)))
            except (msgspec.DecodeError, RecursionError):
                saved = self._rescue(whole)
                items += [Spoiled(self._find_ids(whole), _CUT)] if isinstance(saved, Unfinished) else saved

    def _hold(self, rest: bytes) -> None:
        self._held += len(rest)
        if self._held <= self._max_bytes:
            self._parts.append(rest)
            self._unread += len(rest)
            if self._held > LARGE_MESSAGE and self._slices:
                self._read_on(max(READ_A_FEED, 2 * len(rest)))
            return
        if self._large is not None:
            self._oversized_head = self._large.received(_ENDS_OF_OVERSIZED)
            self._large = None
            self._parts.clear()
            self._unread = 0
        elif self._parts:
            self._oversized_head = b"".join(self._parts)[:_ENDS_OF_OVERSIZED]
            self._parts.clear()
        elif not self._oversized_head:
            self._oversized_head = rest[:_ENDS_OF_OVERSIZED]
        self._oversized_tail = (self._oversized_tail + rest)[-_ENDS_OF_OVERSIZED:]

    def _read_on(self, most: int) -> None:
        """Read some parts of a large line, of so many bytes: those that came before it was known to be large wait."""
        if self._large is None:
            if self.unfinished or self._parts[0].lstrip()[:1] != b"{":
                return  # no object that begins here
            from mcpbridge.protocol.reading.large_messages import LargeMessage  # loaded with the first one

            self._large = LargeMessage(self._max_bytes)
        if self._unread < _READ_LEAST:
            return
        first = take_first(self._parts, most)
        self._large.add(first)
        self._unread -= len(first)

    def _finish(self, last: bytes, items: list[Item]) -> bytes:
        """Close the held line with its last part. One that is reported or read already becomes an empty line."""
        was_oversized = self._held > self._max_bytes
        self._held = 0
        if was_oversized:
            self._unread = 0
            tail = (self._oversized_tail + last)[-_ENDS_OF_OVERSIZED:]
            items.append(self._too_long(self._find_ids(self._oversized_head + b"\n" + tail)))
            self._oversized_head = self._oversized_tail = b""
            return b""
        large, self._large = self._large, None
        unread, self._unread = self._unread, 0
        rest = b"".join([*self._parts, last])
        self._parts.clear()
        if large is None:
            return rest
        if unread > READ_AT_END:  # it is not much larger than what is read in one step
            return large.received() + rest
        large.add(rest)
        frame = large.finish()
        if frame is None:
            return large.received()
        items.append(frame)
        return b""

    def _too_long(self, ids: list[bytes]) -> Spoiled:
        text = f"larger than the limit of {self._max_bytes / 2**20:g} MiB for one message"
        return Spoiled(ids, text, INVALID_REQUEST)


def take_first(parts: list[bytes], least: int) -> bytes:
    """Take the first parts off the list: so many that they have so many bytes together, or all. Returns them joined."""
    taken = size = 0
    while size < least and taken < len(parts):
        size += len(parts[taken])
        taken += 1
    first = b"".join(parts[:taken])
    del parts[:taken]
    return first


def _whole_message(line: bytes) -> Frame | None:
    try:
        frame = decode_arriving_frame(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return frame if frame.method or frame.id else None


_EXCERPT_LENGTH = 80
"""Characters that are repeated of what is no message."""


def read_message(data: bytes) -> list[Frame | Spoiled]:
    """The messages in `data`: one; the members of a batch in order; none in blanks."""
    line = one_line(data)
    try:
        return [decode_arriving_frame(line)]
    except (msgspec.DecodeError, RecursionError):
        return _rescued(line)


def _rescued(line: bytes) -> list[Frame | Spoiled]:
    saved = salvage(line)
    if isinstance(saved, Unfinished):
        return [Spoiled(find_ids(line), "cut off in the middle")]
    messages: list[Frame | Spoiled] = []
    for item in saved:
        if isinstance(item, Batch):
            messages += item.members
        elif isinstance(item, Noise):
            messages.append(Spoiled([], f"no JSON-RPC message: {item.text[:_EXCERPT_LENGTH]!r}"))
        else:
            messages.append(item)
    return messages
