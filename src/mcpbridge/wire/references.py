"""Which request a notification is about: read from its params, in the raw spelling of the id.

Empty where it names none, or cannot be read.
"""

import msgspec
from msgspec import Raw

from mcpbridge.wire.envelope import SUBSCRIPTION_ID

__all__ = ["cancelled_id", "cancelled_reason", "progress_token", "subscription_id"]


class _ProgressParams(msgspec.Struct, rename="camel"):
    progress_token: Raw = Raw()


class _CancelledParams(msgspec.Struct, rename="camel"):
    request_id: Raw = Raw()


class _Reason(msgspec.Struct):
    reason: str = ""


class _Stamp(msgspec.Struct):
    subscription: Raw = msgspec.field(default=Raw(), name=SUBSCRIPTION_ID)


class _Stamped(msgspec.Struct):
    meta: _Stamp = msgspec.field(default_factory=_Stamp, name="_meta")


_SUBSCRIPTION = SUBSCRIPTION_ID.split("/")[-1].encode()
"""The slash before it may be escaped."""
_decode_stamped = msgspec.json.Decoder(_Stamped).decode
_decode_progress = msgspec.json.Decoder(_ProgressParams).decode
_decode_reason = msgspec.json.Decoder(_Reason).decode
_decode_cancelled = msgspec.json.Decoder(_CancelledParams).decode


def cancelled_id(params: Raw) -> bytes:
    """The request that a `notifications/cancelled` is about."""
    try:
        return bytes(_decode_cancelled(params).request_id)
    except (msgspec.DecodeError, RecursionError):
        return b""


def cancelled_reason(params: Raw) -> str:
    """Why, in the words of a `notifications/cancelled`."""
    try:
        return _decode_reason(params).reason
    except (msgspec.DecodeError, RecursionError):
        return ""


def progress_token(params: Raw) -> bytes:
    """The token of a `notifications/progress`."""
    try:
        return bytes(_decode_progress(params).progress_token)
    except msgspec.DecodeError:
        return b""


def subscription_id(params: Raw) -> bytes:
    """The listen request that a message on a channel of one stream belongs to (MCP 2026-07-28); mostly none."""
    if _SUBSCRIPTION not in bytes(params):
        return b""
    try:
        return bytes(_decode_stamped(params).meta.subscription)
    except msgspec.DecodeError:
        return b""
