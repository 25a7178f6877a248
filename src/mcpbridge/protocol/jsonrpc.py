"""The JSON-RPC envelope: requests, notifications and answers, encoded and decoded. Payloads stay bytes.

`params`, `result` and `error` are `msgspec.Raw`: slices of the message that nobody has parsed. So
unknown fields, numbers of any size, nulls and key order cross the bridge unchanged, and a 1 MB
result costs a scan and a copy. An id stays raw too: `1` and `"1"` are different ids, and an answer
must carry the very spelling that the request had (JSON-RPC 2.0, section 4).
"""

import re
from struct import Struct

import msgspec
from msgspec import Raw

from mcpbridge.protocol.payload import Pieces
from mcpbridge.protocol.reading.escaped_names import with_plain_names

EMPTY_OBJECT = b"{}"

DEPTH_LIMIT_TEXT = "nested deeper than the limit of about 900 levels"
"""The decoder stops at the interpreter's recursion limit; nothing below parses deeper either."""


class Frame(msgspec.Struct, gc=False):
    """One JSON-RPC message. An absent member is an empty `Raw` (or an empty method).

    Members of the envelope that JSON-RPC does not define are dropped: the envelope is hop-by-hop.
    """

    id: Raw = Raw()
    method: str = ""
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()
    jsonrpc: Raw = Raw()
    """Only whether it is there: it distinguishes an answer without a result from a line that a logger wrote as JSON."""


Fields = dict[str, Raw]
"""The top level of a JSON object, in order, its values unparsed."""


class LargeFrame(Frame, gc=False):
    """A message that was read in slices (`reading/large_messages.py`). What is large in it are views of its bytes."""

    members: Fields = msgspec.field(default_factory=dict[str, Raw])
    """Those of its result, in order, unparsed; none if that is no object."""
    words: frozenset[bytes] = frozenset()
    """Which of `WORDS`, `ESCAPED` and `NOT_ASCII` are in it."""


_frame_decoder = msgspec.json.Decoder(Frame)
_array_decoder = msgspec.json.Decoder(list[Raw])
_fields_decoder = msgspec.json.Decoder(Fields)
_encoder = msgspec.json.Encoder()

decode_frame = _frame_decoder.decode
"""Bytes of one object to a `Frame`. Raises msgspec.DecodeError, or RecursionError when nested too deeply."""


def decode_arriving_frame(data: bytes) -> Frame:
    """As `decode_frame`, for bytes of a peer: its names are spelled plainly, and all of it is UTF-8.

    The decoder reads the UTF-8 of the method alone. What it leaves unparsed must be UTF-8 as well: it travels on.
    Raises as `decode_frame` does, msgspec.DecodeError also where the bytes are not UTF-8.
    """
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"not UTF-8 (byte {error.start})") from None
    return decode_frame(with_plain_names(data))


first_byte = Struct("c").unpack_from
"""The first byte of a JSON value that is not empty, such as `(b"{",)`; the cheapest look: each call takes three."""
OBJECT_START = (b"{",)
"""The `first_byte` of an object."""

decode_text = msgspec.json.Decoder(str).decode
"""A JSON string as text. Raises msgspec.DecodeError for anything else."""
decode_array = _array_decoder.decode
"""Bytes of an array to its members' bytes; same errors as `decode_frame`."""

decode_fields = _fields_decoder.decode
"""Bytes of an object to `Fields`; raises msgspec.DecodeError (ValidationError when it is no object)."""

encode = _encoder.encode
"""Any JSON value (with `Raw` inside spliced as it is) to bytes without a newline of its own."""

encode_fields = _encoder.encode


def encode_request(id_: bytes, method: str, params: bytes | Raw) -> bytes:
    """A request; `params` may be empty, then the member is left out."""
    quoted = _quoted_methods.get(method) or _quoted(method)
    if params:
        return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (id_, quoted, params)
    return b'{"jsonrpc":"2.0","id":%b,"method":%b}' % (id_, quoted)


def encode_notification(method: str, params: bytes = b"") -> bytes:
    """A notification; `params` may be empty, then the member is left out."""
    if params:
        return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (_quoted(method), params)
    return b'{"jsonrpc":"2.0","method":%b}' % _quoted(method)


def encode_response(id_: bytes | Raw, result: bytes | Raw) -> bytes:
    """The answer to the request `id_`, both spliced as they are."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_, result)


def encode_large_response(id_: bytes | Raw, result: bytes | Raw | Pieces) -> Pieces:
    """The same, without a copy of the result."""
    return Pieces(b'{"jsonrpc":"2.0","id":%b,"result":' % id_, result, b"}")


def encode_error(id_: bytes | Raw, code: int, message: str, data: object = None) -> bytes:
    """An error answer; `id_` is `b"null"` when the request's id could not be read (JSON-RPC 2.0, section 5)."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_ or b"null", _encoder.encode(error))


def one_line(message: bytes) -> bytes:
    """The same JSON without raw line breaks, fit for a line-delimited channel.

    A JSON string holds no raw line break (RFC 8259, section 7), so each one found is whitespace.
    """
    if b"\n" in message or b"\r" in message:
        return message.translate(_BREAKS_TO_SPACES)
    return message


_BREAKS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")
_PLAIN = re.compile(r"[A-Za-z0-9_$/.:-]+")
_quoted_methods: dict[str, bytes] = {}


def _quoted(method: str) -> bytes:
    known = _quoted_methods.get(method)
    if known is not None:
        return known
    quoted = _encoder.encode(method)
    if len(_quoted_methods) < 256 and _PLAIN.fullmatch(method):
        _quoted_methods[method] = quoted
    return quoted
