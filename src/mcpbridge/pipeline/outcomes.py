"""How a call ended, told from its result or its error; pure."""

import asyncio
import re

import msgspec

from mcpbridge.errors import BridgeError, CallRefused, UpstreamAnswered
from mcpbridge.storage.records import Outcome
from mcpbridge.wire.body import Body
from mcpbridge.wire.codes import code_of

__all__ = ["KNOWN_METHODS", "TOOL_ERROR", "error_name", "outcome_of_error", "outcome_of_result", "says_error"]

TOOL_ERROR = "tool_error"
"""What a result with `isError` is called where errors are named by class."""

KNOWN_METHODS = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Requests that are counted by name. Clients may send others to a server that is shown alone, of any name."""

_CODES = (-32_999, -32_000)
"""Error codes that are told apart: those of JSON-RPC, of MCP and around them. Servers may invent any others."""

_WHOLE, _EDGE = 128 * 1024, 32 * 1024
"""Bytes up to which a result is read whole, and of each end of a larger one that is searched: that must stay far
cheaper than passing it on. Servers write these members first or last; one in the middle of a huge result goes unseen.
"""

_MARK = re.compile(rb'"isError"\s*:\s*true|"input_required"')


class _Said(msgspec.Struct):
    """The two members of a result that tell how its call ended; the rest is skipped, not kept."""

    is_error: object = msgspec.field(default=False, name="isError")
    kind: object = msgspec.field(default=None, name="resultType")


_decode = msgspec.json.Decoder(_Said).decode


def says_error(result: Body) -> bool:
    """Whether the tool itself says that it failed (`isError`)."""
    return outcome_of_result(result) == "tool_error"


def outcome_of_result(result: Body) -> Outcome:
    """What a result says of its call. On the way of every call."""
    data = result.data
    if len(data) > _WHOLE and not _is_marked(memoryview(data)):
        return "ok"
    try:
        said = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return "ok"
    if said.is_error is True:
        return "tool_error"
    return "asked" if said.kind == "input_required" else "ok"


def _is_marked(data: memoryview) -> bool:
    """Whether a large result may have one of those members."""
    edges = bytes(data[:_EDGE]) + bytes(data[-_EDGE:])
    return _MARK.search(edges) is not None


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
        code = code_of(error.error)
        return f"{code}" if _CODES[0] <= code <= _CODES[1] else "other code"
    return type(error).__name__ if isinstance(error, BridgeError) else "InternalError"
