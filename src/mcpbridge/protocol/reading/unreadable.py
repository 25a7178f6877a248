"""A message that cannot be read, with the request ids found in it; or noise, which is no message at all.

The caller of a spoiled answer must not wait until its deadline (issue 2): the ids say whose call fails at once.
`protocol/reading/repair.py` repairs what can be repaired.
"""

import re

from msgspec import Struct

from mcpbridge.protocol.error_codes import PARSE_ERROR


class Spoiled(Struct, frozen=True):
    """A protocol message that cannot be read. `ids`: raw request ids found in it, most likely first."""

    ids: list[bytes]
    reason: str
    code: int = PARSE_ERROR
    """The JSON-RPC error code for it."""
    silent: bool = False
    """It gets no answer: it is an answer itself, or a notification."""


ID_PATTERN = re.compile(rb'"id"\s*:\s*(-?(?:0|[1-9]\d{0,17})(?![\d.eE])|"(?:[^"\\]|\\.){0,256}")')
_ID_WINDOW = 65_536


def find_ids(message: bytes) -> list[bytes]:
    """Raw ids in a message that does not decode: those near its start first, then those near its end.

    JSON-RPC writers put the id at one end or the other; ids in the middle belong to the payload.
    """
    found = ID_PATTERN.findall(message[:_ID_WINDOW])
    if len(message) > _ID_WINDOW:
        found += reversed(ID_PATTERN.findall(message[-_ID_WINDOW:]))
    return list(dict.fromkeys(found))


def clean_utf8(line: bytes) -> bytes:
    """The line with every wrong byte as U+FFFD. Wrong bytes must not travel on: the next peer would choke on them."""
    if line.isascii():
        return line
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").encode()
    return line


_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?')


def bracket_balance(text: bytes) -> int:
    """How many brackets are opened outside of strings, less those that are closed."""
    bare = _STRING.sub(b"", text)
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


class Noise(Struct, frozen=True):
    """Text that is no protocol message, such as a stray print of the server."""

    text: str


NOISE_LIMIT = 4096
"""Bytes of noise that are kept: enough to mask a secret in it before it is cut to what is shown."""


def noise_of(line: bytes) -> Noise:
    """The beginning of a line that is no message, as text."""
    return Noise(line[:NOISE_LIMIT].decode("utf-8", "replace"))
