"""How a call ended, told from its result or its error; pure."""

import asyncio

from mcpbridge.errors import BridgeError, CallRefused, UpstreamAnswered
from mcpbridge.pipeline.driving import needs_driving
from mcpbridge.storage.records import Outcome
from mcpbridge.wire.body import Body
from mcpbridge.wire.codes import code_of

__all__ = ["TOOL_ERROR", "error_name", "outcome_of_error", "outcome_of_result", "says_error"]

TOOL_ERROR = "tool_error"
"""What a result with `isError` is called where errors are named by class."""

_NAME, _ASKED = b'"isError"', b'"input_required"'
_NO_ERROR = b'"isError":false}'
_VALUE = len(_NAME)
_WHOLE, _EDGE = 128 * 1024, 32 * 1024
"""Bytes up to which a result is searched whole, and of each end of a larger one: the search must stay far cheaper than
passing the result on. Servers write these members first or last; one in the middle of a huge result goes unseen."""


def says_error(result: Body) -> bool:
    """Whether the tool itself says that it failed (`isError`). A search of the bytes; nearly no result is parsed."""
    return outcome_of_result(result) == "tool_error"


def outcome_of_result(result: Body) -> Outcome:
    """What a result says of its call. On the way of every call."""
    data = bytes(result.data) if len(result.data) <= _WHOLE else _edges(memoryview(result.data))
    # What ends so is the result's own last member, as most servers write it.
    if not data.endswith(_NO_ERROR) and _NAME in data and _says_error(data, result):
        return "tool_error"
    return "asked" if _ASKED in data and needs_driving(result) else "ok"


def _edges(data: memoryview) -> bytes:
    return bytes(data[:_EDGE]) + bytes(data[-_EDGE:])


def _says_error(data: bytes, result: Body) -> bool:
    at = data.rfind(_NAME)
    while at >= 0:
        if not data.startswith(b":false", at + _VALUE):
            return bytes(result.get("isError") or b"") == b"true"  # it may be a member of something within
        at = data.rfind(_NAME, 0, at)
    return False


def outcome_of_error(error: BaseException) -> Outcome:
    """What an error says of its call."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "refused" if isinstance(error, CallRefused) else "failed"


def error_name(error: BaseException) -> str:
    """What an error is called in counts and records: its class, of a server's own error also the code."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, UpstreamAnswered):
        return f"{code_of(error.error)}"
    return type(error).__name__ if isinstance(error, BridgeError) else "InternalError"
