"""What travels on the link: frames of many requests on one connection, each with its length, its kind and its request.

A request is a head (`Ask`) and a body, an answer a head (`Reply`) and a body, as in HTTP. Bodies come in parts. Whoever
reads an answer grants room for more of it, so that one slow client holds up nobody else.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from struct import Struct as Layout
from typing import TypeVar

import msgspec

Headers = list[tuple[bytes, bytes]]
_Head = TypeVar("_Head")

PART = 1 << 18
"""Bytes of a body in one frame."""
WINDOW = 1 << 20
"""Bytes of an answer that may be under way before its reader grants more."""
_LARGEST = 1 << 22
"""Bytes of one frame: heads are small, and bodies come in parts."""

_LAYOUT = Layout(">IBI")
"""Length of what follows, kind, number of the request."""


class Kind(IntEnum):
    """What a frame is."""

    ASK = 1
    """The head of a request, and what there is of its body."""
    ASK_PART = 2
    REPLY = 3
    """The head of an answer; its body follows."""
    REPLY_PART = 4
    REPLY_END = 5
    REPLY_WHOLE = 6
    """The head of an answer, and all of its body."""
    ROOM = 7
    """So many bytes more of an answer may come."""
    LEFT = 8
    """The client of a request has left."""
    BROKEN = 9
    """There will be no (more of the) answer."""
    PULSE = 10
    """Nothing but a sign of life."""
    ORDER = 11
    """Like `ASK`, but by another bridge itself, and of no client: see `orders.py`."""


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """The head of a request."""

    method: str
    path: str
    query: bytes
    headers: Headers
    peer: str
    """The address of the client."""
    size: int
    """Bytes of its body."""
    guest: list[bytes] = []
    """What its session was opened with, where that is at the bridge which asks: no other looks for it."""


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The head of an answer."""

    status: int
    headers: Headers


NOT_TAKEN = (b"x-mcpbridge-not-taken", b"1")
"""With status 503: the answer to a request of a kind, or a form, that is not known. Nothing was done."""


class BadFrame(Exception):
    """What came is no frame; the connection must end."""


_asks, _replies = msgspec.msgpack.Decoder(Ask), msgspec.msgpack.Decoder(Reply)
_encoder = msgspec.msgpack.Encoder()


def frame(kind: Kind, number: int, payload: bytes = b"") -> bytes:
    """A frame. `number`: of its request."""
    return _LAYOUT.pack(len(payload), kind, number) + payload


def with_body(head: Ask | Reply, body: bytes) -> bytes:
    """The payload of a frame that has a head, and bytes of a body."""
    encoded = _encoder.encode(head)
    return len(encoded).to_bytes(4) + encoded + body


_known_ask = lru_cache(maxsize=256)(_asks.decode)
_LONGEST_KNOWN = 4096
"""Bytes of a head that is kept."""


def _ask_of(head: bytes) -> Ask:
    return _known_ask(head) if len(head) <= _LONGEST_KNOWN else _asks.decode(head)


def read_ask(payload: bytes) -> tuple[Ask, bytes]:
    """The head of a request, and what came with it of its body. Requests with the same head have one and the same.

    Raises:
        BadFrame: it is none.
    """
    return _read(_ask_of, payload, "a request")


def read_reply(payload: bytes) -> tuple[Reply, bytes]:
    """The same of an answer."""
    return _read(_replies.decode, payload, "an answer")


def _read(decode: Callable[[bytes], _Head], payload: bytes, of: str) -> tuple[_Head, bytes]:
    end = 4 + int.from_bytes(payload[:4])
    try:
        return decode(payload[4:end]), payload[end:]
    except msgspec.MsgspecError as error:
        raise BadFrame(f"no head of {of}: {error}") from error


class FrameReader:
    """Frames of bytes that come in any parts."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Kind, number and payload of each frame that is whole now.

        Raises:
            BadFrame: one is larger than any of ours.
        """
        rest = self._rest
        rest += data
        found: list[tuple[int, int, bytes]] = []
        at = 0
        while len(rest) - at >= _LAYOUT.size:
            length, kind, number = _LAYOUT.unpack_from(rest, at)
            if length > _LARGEST:
                raise BadFrame(f"a frame of {length} bytes")
            end = at + _LAYOUT.size + length
            if len(rest) < end:
                break
            found.append((kind, number, bytes(rest[at + _LAYOUT.size : end])))
            at = end
        del rest[:at]
        return found
