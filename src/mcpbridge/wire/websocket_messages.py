"""WebSocket frames of a server to whole messages, on the sans-I/O core of `websockets`. No I/O.

A message over the limit is skipped while it arrives, as on stdio: only its ends are kept, to find out whose answer it
was, and the connection lives on. The library alone would end it, and every call on it.
"""

import logging
from collections.abc import Generator

from msgspec import Struct
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

__all__ = ["Assembler", "Message", "WsProtocol", "close_text"]

_KEPT = 4096
"""Bytes kept of each end of a message that is too large."""
_SILENT = logging.Logger("mcpbridge.websocket.frames", logging.CRITICAL + 1)
"""The library logs headers and payloads at the debug level; they may hold secrets."""
_MEANINGS = {
    1000: "normal closure",
    1001: "going away",
    1002: "protocol error",
    1003: "unsupported data",
    1005: "no code",
    1007: "invalid data",
    1008: "policy violation",
    1009: "message too big",
    1010: "extension missing",
    1011: "internal error",
    1012: "restarting",
    1013: "try again later",
    1014: "bad gateway",
}


class _Ends(bytearray):
    """The two ends of a payload that was too large, with a line break between."""


class _SkippingReader(StreamReader):
    """Gives the ends of what is larger than the limit instead of all of it."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def read_exact(self, n: int) -> Generator[None, None, bytearray]:
        if n <= self._limit:
            return (yield from super().read_exact(n))
        kept = min(_KEPT, n // 2)
        ends = _Ends((yield from super().read_exact(kept)))
        left = n - 2 * kept
        while left:
            skipped = min(left, len(self.buffer))
            del self.buffer[:skipped]
            left -= skipped
            if left:
                if self.eof:
                    raise EOFError("the stream ended within a frame")
                yield
        ends += b"\n"
        ends += yield from super().read_exact(kept)
        return ends


class WsProtocol(ClientProtocol):
    """A client's side of one connection. It offers no compression: large JSON would cost more time than it saves."""

    def __init__(self, uri: WebSocketURI, limit: int) -> None:
        self._limit = limit
        super().__init__(uri, subprotocols=[Subprotocol("mcp")], max_size=None, logger=_SILENT)

    def parse(self) -> Generator[None]:
        """Parse what arrives, as the library's own, from a reader that skips."""
        self.reader = _SkippingReader(self._limit)  # here, since the parser takes hold of it when it starts
        yield from super().parse()


class Message(Struct, frozen=True):
    """One message, text or binary."""

    data: bytes
    is_whole: bool = True
    """False: it was too large, and `data` is the beginning and the end of it."""


class Assembler:
    """Joins the fragments of messages."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._is_whole = True

    def take(self, frame: Frame) -> Message | None:
        """The message that this frame completes, if it does."""
        if frame.opcode not in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
            return None
        data = bytes(frame.data)
        is_cut = isinstance(frame.data, _Ends)
        if frame.fin and not self._parts:
            return Message(data, not is_cut)
        self._parts.append(data)
        self._size += len(data)
        if is_cut or not self._is_whole or self._size > self._limit:
            self._is_whole = False
            ends = b"".join(self._parts) if self._size <= 2 * _KEPT else self._ends()
            self._parts, self._size = [ends], len(ends)
        if not frame.fin:
            return None
        message = Message(b"".join(self._parts), self._is_whole)
        self._parts, self._size, self._is_whole = [], 0, True
        return message

    def _ends(self) -> bytes:
        head = b"".join(self._parts)
        return head[:_KEPT] + b"\n" + head[-_KEPT:]


def close_text(code: int, reason: str) -> str:
    """A close code in words: `1011 (internal error): out of memory`."""
    meaning = _MEANINGS.get(code, "")
    text = f"{code} ({meaning})" if meaning else str(code)
    said = " ".join(reason.split())
    return f"{text}: {said}" if said else text
