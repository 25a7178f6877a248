"""What the body of a POST holds: one JSON-RPC message, or a batch. Pure."""

from typing import Any

import msgspec

from mcpbridge.downstream.http_exchange import Refused
from mcpbridge.wire.codes import PARSE_ERROR
from mcpbridge.wire.envelope import PROTOCOL_VERSION
from mcpbridge.wire.frame import DEPTH_LIMIT_TEXT, Frame, decode_batch, decode_frame, one_line

__all__ = ["Envelope", "declares_modern", "decode_body", "decode_message", "envelope_of"]

_ID_STARTS = frozenset(b'"-0123456789')
_KEY = PROTOCOL_VERSION.split("/")[-1].encode()
"""The slash before it may be escaped."""


class Envelope(msgspec.Struct, gc=False):
    """The members of a modern request's params that its headers repeat. All else stays unparsed."""

    meta: Any = msgspec.field(name="_meta", default=None)
    name: Any = None
    uri: Any = None
    task_id: Any = msgspec.field(name="taskId", default=None)


_decode_envelope = msgspec.json.Decoder(Envelope).decode


def decode_body(body: bytes) -> Frame | list[bytes]:
    """One message, or the members of a batch as their bytes.

    Raises:
        Refused: 400 with the JSON-RPC code for what is wrong.
    """
    body = body.strip()
    if body[:1] != b"[":
        return decode_message(body)
    try:
        return [bytes(member) for member in decode_batch(_checked(body))]
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(error) from None


def decode_message(body: bytes) -> Frame:
    """One message, with an id that can be answered if it has one.

    Raises:
        Refused: 400 with the JSON-RPC code for what is wrong.
    """
    try:
        frame = decode_frame(_checked(body))
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(error) from None
    if frame.id and memoryview(frame.id)[0] not in _ID_STARTS:
        raise Refused(400, "A request id must be a string or an integer")
    if not frame.method and not (frame.id and (frame.result or frame.error)):
        raise Refused(400, "This is no JSON-RPC request, notification or response")
    return frame


def declares_modern(body: bytes, frame: Frame) -> bool:
    """Whether the request carries the envelope of the modern era. The first look costs a scan for the key only."""
    return _KEY in body and PROTOCOL_VERSION in _mapping(envelope_of(frame).meta)


def envelope_of(frame: Frame) -> Envelope:
    """The mirrored part of the params; empty when the params are no object."""
    try:
        return _decode_envelope(frame.params) if frame.params else Envelope()
    except (msgspec.DecodeError, RecursionError):
        return Envelope()


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - keys are JSON's


def _checked(body: bytes) -> bytes:
    # The decoder leaves payloads unread; wrong UTF-8 in them would reach an upstream and break its reader.
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise Refused(400, f"The body is not UTF-8 (byte {error.start})", code=PARSE_ERROR) from None
    return one_line(body)  # slices of it may travel on a line-delimited channel


def _unreadable(error: Exception) -> Refused:
    if isinstance(error, RecursionError):
        return Refused(400, f"The message is {DEPTH_LIMIT_TEXT}")
    if isinstance(error, msgspec.ValidationError):
        return Refused(400, f"This is no JSON-RPC message: {error}")
    return Refused(400, f"The body is not JSON: {error}", code=PARSE_ERROR)
