"""From the bridge's errors to JSON-RPC; the one place where an exception becomes an answer.

Spec 2.13 of the project's notes. A failed tool call is a *result* with `isError`, so that the model reads what
happened and what to do; everything else is a JSON-RPC error.
"""

import msgspec
import structlog

from mcpbridge.downstream.channel import Answer
from mcpbridge.errors import (
    AnswerTooLarge,
    BadRequest,
    BridgeError,
    Overloaded,
    UnknownName,
    UpstreamAnswered,
    UpstreamError,
)
from mcpbridge.wire.codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from mcpbridge.wire.frame import encode, encode_error, encode_response

__all__ = ["ERROR_NAME", "to_answer"]

log = structlog.get_logger("mcpbridge.server")

ERROR_NAME = "mcpbridge/error"
"""In `_meta` of a failed call, or `data` of an error: which of the bridge's own errors it tells of, for programs."""

_PROTOCOL_CODES = range(-32099, -32019)
"""Codes that MCP reserves for one hop: an upstream's must not pass for ours."""


class _Error(msgspec.Struct):
    code: int
    message: str = ""


_decode_error = msgspec.json.Decoder(_Error).decode


def to_answer(error: Exception, id_: bytes, method: str, *, modern: bool) -> Answer:
    """The answer that tells a client of `error`."""
    if isinstance(error, BadRequest):
        return _error(id_, error.code, str(error), error.data)
    if isinstance(error, UnknownName):
        return _unknown(error, id_, modern=modern)
    if isinstance(error, UpstreamAnswered):
        return _passed_on(error, id_, method, modern=modern)
    if isinstance(error, (UpstreamError, Overloaded, AnswerTooLarge)):
        if method == "tools/call":
            return Answer(encode_response(id_, _failed_call(error, modern=modern)))
        return _error(id_, INTERNAL_ERROR, error.told(), {ERROR_NAME: type(error).__name__})
    if isinstance(error, BridgeError):
        return _error(id_, INTERNAL_ERROR, error.told())
    log.error("unexpected error while answering", method=method[:100], exc_info=error)
    return _error(id_, INTERNAL_ERROR, f"{type(error).__name__} in the bridge; its log has the details")


def _failed_call(error: BridgeError, *, modern: bool) -> bytes:
    result: dict[str, object] = {"content": [{"type": "text", "text": error.told()}], "isError": True}
    result["_meta"] = {ERROR_NAME: type(error).__name__}
    if modern:
        result["resultType"] = "complete"
    return encode(result)


def _unknown(error: UnknownName, id_: bytes, *, modern: bool) -> Answer:
    if error.kind != "resource":
        return _error(id_, INVALID_PARAMS, error.told())
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return _error(id_, code, error.told(), {"uri": error.name})


def _passed_on(error: UpstreamAnswered, id_: bytes, method: str, *, modern: bool) -> Answer:
    """The upstream's own error: unchanged where its code means the same to the client, else with the code changed."""
    try:
        said = _decode_error(error.error)
    except (msgspec.DecodeError, RecursionError):
        text = error.error[:300].decode("utf-8", "replace")
        return _error(id_, INTERNAL_ERROR, f"Server '{error.upstream}' answered with an unreadable error: {text}")
    code = wanted = said.code
    if method == "resources/read" and code in (RESOURCE_NOT_FOUND, INVALID_PARAMS):
        wanted = _not_found_code(code, said.message, error.error, modern=modern)
    elif modern and code == RESOURCE_NOT_FOUND:
        wanted = INVALID_PARAMS
    elif code in _PROTOCOL_CODES:
        wanted = INTERNAL_ERROR
    if wanted == code and said.message:
        return Answer(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, error.error), code)
    if wanted == INTERNAL_ERROR or not said.message:  # an error without a message is lost on typed clients
        return _recoded(error, id_, wanted, f"Server '{error.upstream}': {said.message or 'it gave no reason'}")
    return _recoded(error, id_, wanted, said.message)


def _not_found_code(code: int, message: str, error: bytes, *, modern: bool) -> int:
    if modern:
        return INVALID_PARAMS
    is_not_found = code == RESOURCE_NOT_FOUND or b'"uri"' in error or "not found" in message.lower()
    return RESOURCE_NOT_FOUND if is_not_found else code


def _recoded(error: UpstreamAnswered, id_: bytes, code: int, message: str) -> Answer:
    fields = msgspec.json.decode(error.error, type=dict[str, msgspec.Raw])
    fields["code"] = msgspec.Raw(b"%d" % code)
    fields["message"] = msgspec.Raw(encode(message))
    return Answer(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, encode(fields)), code)


def _error(id_: bytes, code: int, message: str, data: object = None) -> Answer:
    return Answer(encode_error(id_, code, message, data), code)
