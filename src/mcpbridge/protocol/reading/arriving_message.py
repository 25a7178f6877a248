"""One message of a channel that keeps messages apart by itself: its bytes as they come, a large one in slices.

Lines have a reader of their own (`framing.py`), since of them nobody knows where they end. Sans-I/O.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcpbridge.protocol.jsonrpc import LargeFrame, one_line
from mcpbridge.protocol.reading.framing import LARGE_MESSAGE, READ_A_FEED, READ_AT_END, take_first

if TYPE_CHECKING:
    from mcpbridge.protocol.reading.large_messages import LargeMessage

PIECE = 1 << 16
"""Bytes that are added at once, at most: others have their turns between two pieces."""


class ArrivingMessage:
    """`add` its bytes in pieces, then `finish` it."""

    def __init__(self, most: int, begun: Iterable[bytes] = ()) -> None:
        """`most`: bytes that it may have. The caller counts (`size`); beyond that it is not to be continued.

        `begun`: pieces that came already.
        """
        self._most = most
        self._parts = list(begun)
        """What came and was not read yet."""
        self.size = self._unread = sum(map(len, self._parts))
        self._large: LargeMessage | None = None

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._parts.append(data)
        self.size += len(data)
        self._unread += len(data)
        if self._large is None:
            if self.size <= LARGE_MESSAGE or self._parts[0].lstrip()[:1] != b"{":
                return
            from mcpbridge.protocol.reading.large_messages import LargeMessage  # loaded with the first one

            self._large = LargeMessage(self._most)
        first = take_first(self._parts, READ_A_FEED)
        self._large.add(one_line(first))
        self._unread -= len(first)

    def finish(self) -> bytes | LargeFrame:
        """All of it has come: the bytes, or the frame if it was read in slices and is in order."""
        rest = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        large, self._large = self._large, None
        if large is None:
            return rest
        if self._unread > READ_AT_END:  # it is not much larger than what is read in one step
            return large.received() + rest
        large.add(one_line(rest))
        frame = large.finish()
        return large.received() if frame is None else frame

    def beginning(self, most: int) -> bytes:
        """The first bytes so far."""
        if self._large is not None:
            return self._large.received(most)
        return b"".join(self._parts)[:most]
