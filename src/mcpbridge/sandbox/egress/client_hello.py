"""The name of the server in the first message of TLS (RFC 8446, 4.1.2; RFC 6066, 3). Pure."""

from enum import Enum
from typing import NamedTuple

HANDSHAKE = 0x16
"""The first byte of a TLS connection."""
LONGEST = 1 << 16
"""Bytes of the first message; longer ones are refused."""
UNRECOGNIZED_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
"""The alert that refuses a name."""

_CLIENT_HELLO = 1
_SERVER_NAME = 0
_HOST_NAME = 0


class Reading(Enum):
    """How far the first message was read."""

    MORE = "more"
    """It is not whole yet."""
    NOT_TLS = "not TLS"
    BROKEN = "broken"
    """It begins as TLS and cannot be read."""
    WHOLE = "whole"


class Hello(NamedTuple):
    """What is known after some bytes."""

    reading: Reading
    name: str = ""
    """The server that is asked for, in lower case; empty: none is named, or the message is not whole."""


class _CutError(Exception):
    """The message ends within something."""


def read_hello(data: bytes) -> Hello:
    """What the first bytes of a connection say."""
    if not data:
        return Hello(Reading.MORE)
    if data[0] != HANDSHAKE:
        return Hello(Reading.NOT_TLS)
    message, place = bytearray(), 0
    while True:
        if len(message) >= 4:
            length = 4 + int.from_bytes(message[1:4])
            if message[0] != _CLIENT_HELLO or length > LONGEST:
                return Hello(Reading.BROKEN)
            if len(message) >= length:
                return _hello(bytes(message[4:length]))
        if len(data) < place + 5:
            return Hello(Reading.MORE)
        size = int.from_bytes(data[place + 3 : place + 5])
        if data[place] != HANDSHAKE or data[place + 1] != 3 or not 0 < size <= 1 << 14:
            return Hello(Reading.BROKEN)
        if len(data) < place + 5 + size:
            return Hello(Reading.MORE) if len(data) <= 2 * LONGEST else Hello(Reading.BROKEN)
        message += data[place + 5 : place + 5 + size]
        place += 5 + size


def _hello(body: bytes) -> Hello:
    try:
        return Hello(Reading.WHOLE, _name(body))
    except (_CutError, UnicodeDecodeError):
        return Hello(Reading.BROKEN)


def _name(body: bytes) -> str:
    rest = body[2 + 32 :]  # the version and the random bytes
    for width in (1, 2, 1):  # session, cipher suites, compression
        _, rest = _split_prefixed(rest, width)
    if not rest:
        return ""
    extensions, trailing = _split_prefixed(rest, 2)
    if trailing:
        raise _CutError
    names: list[str] = []
    while extensions:
        if len(extensions) < 4:
            raise _CutError
        kind = int.from_bytes(extensions[:2])
        content, extensions = _split_prefixed(extensions[2:], 2)
        if kind == _SERVER_NAME:
            names.append(_host_name(content))
    if len(names) > 1:
        raise _CutError
    return names[0] if names else ""


def _host_name(content: bytes) -> str:
    entries, trailing = _split_prefixed(content, 2)
    if trailing or not entries or entries[0] != _HOST_NAME:
        raise _CutError
    name, others = _split_prefixed(entries[1:], 2)
    if others or not name:
        raise _CutError
    return name.decode("ascii").lower().removesuffix(".")


def _split_prefixed(data: bytes, width: int) -> tuple[bytes, bytes]:
    """What a length of so many bytes announces, and what follows it."""
    if len(data) < width:
        raise _CutError
    end = width + int.from_bytes(data[:width])
    if len(data) < end:
        raise _CutError
    return data[width:end], data[end:]
