"""Cut a byte stream into messages, one a line (spec, stdio transport). Sans-I/O.

Every byte is looked at a fixed number of times: a line of 40 MB costs ten times one of 4 MB. A line
over the limit is skipped while it arrives; only its ends are kept, to find out whose answer it was.

`read_message` is for channels that keep messages apart by themselves (WebSocket, server-sent events). The same rules
hold, but there is no noise: text that is no message stands where a message was meant to be, so it counts as spoiled.
"""

import re

import msgspec

from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.jsonrpc import DEPTH_LIMIT_TEXT, Frame, decode_frame, one_line
from mcpbridge.protocol.salvage import Item, Unfinished, salvage
from mcpbridge.protocol.spoiled import Noise, Spoiled, clean_utf8, find_ids, noise_of

_ENDS_OF_OVERSIZED = 4096
_STARTS = frozenset(b"{[ \t\r\xef")
"""First bytes of lines that may be messages; any other line is noise and not worth a look, however much of it comes."""
_NOISE_A_FEED = 8
"""Lines of noise that are told of in one chunk; a program that prints without end must not cost a look each."""
_OUTSIDE_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?')


class LineReader:
    """Feed it chunks as they come; it returns the messages that they complete, in order."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._held = 0
        self._oversized_head = b""
        self._oversized_tail = b""
        self.unfinished: list[bytes] = []
        """The lines so far of an object that spans lines: `give_up` ends the wait for the rest. Not to be changed."""
        self._unfinished_bytes = 0
        self._open_brackets = 0

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
                    items.append(self._too_long(find_ids(line)))
                elif line:
                    if self.unfinished:
                        self._take(line, items)
                    elif line[0] in _STARTS:
                        if not line.isascii():
                            self._take(line, items)
                            continue
                        try:  # as `_take`, which nearly every line would enter here
                            items.append(decode_frame(line))
                        except (msgspec.DecodeError, RecursionError):
                            self._rescue(line, items)
                    elif (noise := noise + 1) <= _NOISE_A_FEED:
                        items.append(noise_of(line.strip()))
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
        return [Spoiled(find_ids(held), "Input data was truncated")]

    def _take(self, line: bytes, items: list[Item]) -> None:
        if self.unfinished:
            self._go_on(line, items)
            return
        try:
            frame = decode_frame(line)
        except (msgspec.DecodeError, RecursionError):
            self._rescue(line, items)
            return
        if not line.isascii():
            clean = clean_utf8(line)
            if clean is not line:
                frame = decode_frame(clean)
        items.append(frame)

    def _rescue(self, line: bytes, items: list[Item]) -> None:
        saved = salvage(line)
        if isinstance(saved, Unfinished):
            self.unfinished = [saved.line]
            self._unfinished_bytes = len(saved.line)
            self._open_brackets = _depth_change(saved.line)
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
        self._open_brackets += _depth_change(line)
        if self._unfinished_bytes > self._max_bytes:
            items.append(self._too_long(find_ids(b" ".join(self.unfinished))))
            self.unfinished.clear()
        elif self._open_brackets <= 0:
            whole = b" ".join(self.unfinished)
            self.unfinished.clear()
            try:
                items.append(decode_frame(clean_utf8(whole)))
            except RecursionError:
                items.append(Spoiled(find_ids(whole), DEPTH_LIMIT_TEXT))
            except msgspec.DecodeError as error:
                items.append(Spoiled(find_ids(whole), str(error)))

    def _hold(self, rest: bytes) -> None:
        self._held += len(rest)
        if self._held <= self._max_bytes:
            self._parts.append(rest)
            return
        if self._parts:
            self._oversized_head = b"".join(self._parts)[:_ENDS_OF_OVERSIZED]
            self._parts.clear()
        elif not self._oversized_head:
            self._oversized_head = rest[:_ENDS_OF_OVERSIZED]
        self._oversized_tail = (self._oversized_tail + rest)[-_ENDS_OF_OVERSIZED:]

    def _finish(self, last: bytes, items: list[Item]) -> bytes:
        """Close the held line with its last part. An oversized one is reported and becomes an empty line."""
        was_oversized = self._held > self._max_bytes
        self._held = 0
        if was_oversized:
            tail = (self._oversized_tail + last)[-_ENDS_OF_OVERSIZED:]
            items.append(self._too_long(find_ids(self._oversized_head + b"\n" + tail)))
            self._oversized_head = self._oversized_tail = b""
            return b""
        line = b"".join([*self._parts, last])
        self._parts.clear()
        return line

    def _too_long(self, ids: list[bytes]) -> Spoiled:
        return Spoiled(ids, f"larger than the limit of {self._max_bytes / 2**20:g} MiB for one message")


def _whole_message(line: bytes) -> Frame | None:
    try:
        frame = decode_frame(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return frame if frame.method or frame.id else None


def _depth_change(line: bytes) -> int:
    bare = _OUTSIDE_STRINGS.sub(b"", line)
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


_EXCERPT_LENGTH = 80
"""Characters that are repeated of what is no message."""


def read_message(data: bytes) -> list[Frame | Spoiled]:
    """The messages in `data`: one; the members of a batch in order; none in blanks."""
    line = one_line(data)
    try:
        frame = decode_frame(line)
    except (msgspec.DecodeError, RecursionError):
        return _rescued(line)
    if not line.isascii():
        clean = clean_utf8(line)
        if clean is not line:
            frame = decode_frame(clean)
    return [frame]


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
