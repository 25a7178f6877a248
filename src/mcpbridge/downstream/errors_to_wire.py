"""From the bridge's errors to JSON-RPC; the one place where an exception becomes an answer.

A failed tool call is a *result* with `isError` (MCP 2026-07-28, Tools, Error Handling), so that the model reads what
happened and what to do; everything else is a JSON-RPC error. What an upstream answered itself is in `passed_on.py`.
"""

from mcpbridge.downstream.channel import Answer, Client
from mcpbridge.downstream.failed_calls import ERROR_NAME, failed_call
from mcpbridge.downstream.passed_on import passed_on
from mcpbridge.errors import (
    AnswerTooLarge,
    BadRequest,
    BridgeError,
    CallRefused,
    UnknownName,
    UpstreamAnswered,
    UpstreamError,
)
from mcpbridge.interaction import QuestionRefused
from mcpbridge.logs import get_logger
from mcpbridge.wire.codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from mcpbridge.wire.frame import encode_error, encode_response

__all__ = ["to_answer"]

log = get_logger("mcpbridge.server")


def to_answer(error: Exception, id_: bytes, method: str, *, modern: bool, client: Client | None = None) -> Answer:
    """The answer that tells a client of `error`. `client` is left out where nobody is known yet but the era."""
    if isinstance(error, BadRequest):
        return _error(id_, error.code, str(error), error.data)
    if isinstance(error, UnknownName):
        return _unknown(error, id_, modern=modern)
    if isinstance(error, UpstreamAnswered):
        return passed_on(error, id_, method, client or Client(modern=modern))
    if isinstance(error, (UpstreamError, CallRefused, AnswerTooLarge, QuestionRefused)):
        name = type(error).__name__
        if method == "tools/call":
            return Answer(encode_response(id_, failed_call(error.told(), name, modern=modern, facts=error.facts)))
        return _error(id_, INTERNAL_ERROR, error.told(), {ERROR_NAME: name, **error.facts})
    if isinstance(error, BridgeError):
        return _error(id_, INTERNAL_ERROR, error.told())
    log.error("unexpected error while answering", method=method[:100], exc_info=error)
    return _error(id_, INTERNAL_ERROR, f"{type(error).__name__} in the bridge; its log has the details")


def _unknown(error: UnknownName, id_: bytes, *, modern: bool) -> Answer:
    if error.kind != "resource":
        return _error(id_, INVALID_PARAMS, error.told())
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return _error(id_, code, error.told(), {"uri": error.name})


def _error(id_: bytes, code: int, message: str, data: object = None) -> Answer:
    return Answer(encode_error(id_, code, message, data), code)
