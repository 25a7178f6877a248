"""One canonical spelling for JSON that means the same: what makes the arguments of two calls equal. Pure.

`canonical` sorts members, drops blanks and spells strings in one way. Numbers stay as they came: `1` and `1.0` are
different, since a server may distinguish them. An approval or a kept result is bound to this spelling, so two
arguments that might reach a server as different must never be equal here.
"""

import re
from hashlib import sha256

import msgspec
from msgspec import Raw

from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT


def canonical(arguments: bytes | Raw | None) -> bytes:
    """The one spelling of some JSON; nothing counts as the empty object.

    JSON that has no single meaning (a member named twice, of which servers take the first or the last) or that
    cannot be read is its own spelling: equal only to the very same bytes.
    """
    if arguments is None:
        return EMPTY_OBJECT
    data = bytes(arguments)
    if not data:
        return EMPTY_OBJECT
    try:
        spelled = _encode(decode_exactly(data))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return data
    if spelled == data:
        return data
    # A member may be gone. Mostly counting shows that none is. A quote before a colon can be a text's as well; but
    # unless something is written as `\u0022` or `\u003a`, or a blank stands before a colon, the spelling has no more of
    # these than the data.
    if b"\\u" not in data and spelled.count(b'":') == data.count(b'":') and not _SPACED.search(data):
        return spelled
    return spelled if _members(spelled) == _members(data) else data


def canonical_digest(arguments: bytes | Raw | None) -> str:
    """SHA-256 of the one spelling, in hexadecimal: what a grant or a log entry keeps in place of the arguments."""
    return sha256(canonical(arguments)).hexdigest()


def _exact(number: str) -> Raw:
    return Raw(number.encode())


decode_exactly = msgspec.json.Decoder(float_hook=_exact).decode
"""JSON to Python values that are encoded with the same numbers: fractions as `Raw`, whole numbers as they are."""
_encode = msgspec.json.Encoder(order="sorted").encode
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"([ \t\r\n]*:)?', re.DOTALL)
_SPACED = re.compile(rb'"[ \t\r\n]+:')


def _members(data: bytes) -> int:
    """How many members all objects inside are spelled with."""
    return sum(map(bool, _STRINGS.findall(data)))
