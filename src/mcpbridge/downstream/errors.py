"""Errors as clients get them: the one place where an exception becomes an answer.

A failed tool call is a *result* with `isError`, so that the model reads what happened and what to do (MCP 2026-07-28,
Tools, Error Handling). Everything else is a JSON-RPC error. `to_answer` is the table of both.

`passed_on` decides about the JSON-RPC error of an upstream. A code that means the same to the client stays, with its
message and data (MCP 2026-07-28, Base Protocol, Error Codes, says which are reserved). A code that belongs to the hop
between bridge and upstream, or that means something else in the client's era, is replaced. A code that the server
made up is kept outside the reserved range and is said to be that server's. In the result of a tool call, nothing of
it may look like the bridge's own word. Pages that the user must visit first (-32042) are in `revisions/downgrade.py`.
"""

from collections.abc import Callable, Mapping
from secrets import token_hex
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import (
    ERROR_NAME,
    AnswerTooLarge,
    BadRequest,
    BridgeError,
    CallRefused,
    InsufficientScope,
    SignInNeeded,
    UnknownName,
    UpstreamAnswered,
    UpstreamError,
    UrlRequired,
)
from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.core.elicitation import URL_SINCE, QuestionRefused
from mcpbridge.core.failure_masking import masked_error
from mcpbridge.downstream.client import Answer, Client
from mcpbridge.protocol.error_codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    STANDARD,
    URL_ELICITATION_REQUIRED,
)
from mcpbridge.protocol.jsonrpc import encode, encode_error, encode_response

NO_FACTS: Mapping[str, object] = MappingProxyType({})
"""Nothing to add to the text."""


def failed_call(text: str, name: str, *, modern: bool, facts: Mapping[str, object] = NO_FACTS) -> bytes:
    """The result with this text; `name` is the error's for programs, `facts` go into `_meta` beside it."""
    result: dict[str, object] = {"content": [{"type": "text", "text": text}], "isError": True}
    result["_meta"] = {ERROR_NAME: name, **facts}
    if modern:
        result["resultType"] = "complete"
    return encode(result)


_WITH_ADDRESSES = (UrlRequired, SignInNeeded)
"""Errors with a page that is to be opened: an address in which something is masked leads nowhere."""

_RESERVED = range(-32768, -31999)
"""JSON-RPC 2.0, section 5.1: of these a server may use those that are defined."""

_FORMS_ALONE: Mapping[str, Any] = {"form": {}}
"""What an empty declaration of elicitation means."""

_NOT_FOUND_WORDS = ("not found", "unknown resource", "no such resource")


class _Error(msgspec.Struct):
    code: int
    message: str = ""
    data: Raw = Raw()


class _Required(msgspec.Struct, rename="camel"):
    required_capabilities: dict[str, Any] = {}


_decode_error = msgspec.json.Decoder(_Error).decode
_decode_required = msgspec.json.Decoder(_Required).decode


def passed_on(error: UpstreamAnswered, id_: bytes, method: str, client: Client) -> Answer:
    """The answer to `client` for an error with which the upstream answered its request of `method`."""
    server = error.upstream
    if method == "tools/call":
        error = _honest(error)
    try:
        answered = _decode_error(error.error)
    except (msgspec.DecodeError, RecursionError):
        text = error.error[:300].decode("utf-8", "replace")
        message = f"Server '{server}' answered with an unreadable error: {text}"
        return Answer(encode_error(id_, INTERNAL_ERROR, message), INTERNAL_ERROR)
    if answered.code == MISSING_CAPABILITY:
        return _missing_capability(error, answered, id_, method, client)
    if method == "resources/read" and _is_not_found(answered):
        code = INVALID_PARAMS if client.modern else RESOURCE_NOT_FOUND
        return _with_code_and_message(
            error, id_, code, answered.message or _no_reason(server), data=_with_uri(answered.data, error.asked)
        )
    if answered.code in STANDARD or (answered.code == RESOURCE_NOT_FOUND and not client.modern):
        return _with_code_and_message(error, id_, answered.code, answered.message or _no_reason(server))
    if answered.code == RESOURCE_NOT_FOUND:
        return _with_code_and_message(error, id_, INVALID_PARAMS, answered.message or _no_reason(server))
    code = INTERNAL_ERROR if answered.code in _RESERVED else answered.code
    return _with_code_and_message(
        error, id_, code, f"Server '{server}': {answered.message}" if answered.message else _no_reason(server)
    )


def lacking(required: Mapping[str, Any], declared: Mapping[str, Any]) -> list[str]:
    """The capabilities of `required` that a client which declared `declared` does not have, as `elicitation.url`."""
    missing: list[str] = []
    for name, wanted in required.items():
        has: object = declared.get(name)
        if has is None:
            missing.append(name)
        elif isinstance(wanted, dict) and isinstance(has, dict):
            inner: Mapping[str, Any] = cast("dict[str, Any]", has)
            if name == "elicitation" and not inner:
                inner = _FORMS_ALONE
            missing += [f"{name}.{part}" for part in lacking(cast("dict[str, Any]", wanted), inner)]
    return missing


def _honest(error: UpstreamAnswered) -> UpstreamAnswered:
    """The error, in which nothing looks like the bridge's word."""
    from mcpbridge.results.spoof_check import without_spoofs  # loaded with the first error

    answered = without_spoofs(error.error, is_ours=True)
    return error if answered is None else UpstreamAnswered(error.upstream, answered)


def _missing_capability(error: UpstreamAnswered, answered: _Error, id_: bytes, method: str, client: Client) -> Answer:
    """The server needs what was not declared to it: for the client if it is the one that lacks it."""
    missing = lacking(_required(answered.data), client.declared_capabilities)
    if not missing:  # it has it all, and the bridge did not say so
        return _with_code_and_message(
            error, id_, INTERNAL_ERROR, f"Server '{error.upstream}': {answered.message or 'it gave no reason'}"
        )
    if client.modern:
        return _with_code_and_message(error, id_, MISSING_CAPABILITY, answered.message or _no_reason(error.upstream))
    text = f"Server '{error.upstream}' needs a client that can do more: {', '.join(missing)} was not declared"
    if method == "tools/call":
        advice = "Use a client that supports this, or another tool."
        return Answer(encode_response(id_, failed_call(f"{text}. {advice}", "MissingCapability", modern=False)))
    return Answer(encode_error(id_, INVALID_REQUEST, text), INVALID_REQUEST)


def _required(data: Raw) -> dict[str, Any]:
    try:
        return _decode_required(bytes(data) or b"{}").required_capabilities
    except (msgspec.DecodeError, RecursionError):
        return {}


def _is_not_found(answered: _Error) -> bool:
    if answered.code != INVALID_PARAMS:
        return answered.code == RESOURCE_NOT_FOUND
    return b'"uri"' in bytes(answered.data) or any(words in answered.message.lower() for words in _NOT_FOUND_WORDS)


def _with_uri(data: Raw, asked: str) -> Raw | None:
    """The `data` of the error, naming the resource as the client does; None to leave it as it is."""
    try:
        fields = msgspec.json.decode(bytes(data) or b"{}", type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError):
        return None
    if not asked or fields.get("uri") == Raw(encode(asked)):
        return None
    return Raw(encode({**fields, "uri": asked}))


def _with_code_and_message(
    error: UpstreamAnswered, id_: bytes, code: int, message: str, data: Raw | None = None
) -> Answer:
    """The error with this code and message; its bytes stay where nothing changes."""
    fields = msgspec.json.decode(error.error, type=dict[str, Raw])
    changed = {"code": Raw(b"%d" % code), "message": Raw(encode(message))}
    if data is not None:
        changed["data"] = data
    if all(fields.get(name) == value for name, value in changed.items()):
        return Answer(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, error.error), code)
    return Answer(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, encode(fields | changed)), code)


def _no_reason(server: str) -> str:
    return f"Server '{server}': it gave no reason"


log = get_logger("mcpbridge.server")


_REDACT = Redactor()
_NO_SCOPES = frozenset[str]()


def to_answer(
    error: Exception,
    id_: bytes,
    method: str,
    *,
    modern: bool,
    client: Client | None = None,
    redact: Callable[[str], str] = _REDACT,
) -> Answer:
    """The answer to a client for `error`. `client` is left out where nobody is known yet but the era.

    `redact` masks secrets in what servers said.
    """
    if isinstance(error, BadRequest):
        return _error(id_, error.code, str(error), error.data)
    if isinstance(error, UnknownName):
        return _unknown(error, id_, modern=modern)
    if isinstance(error, UpstreamAnswered):
        return passed_on(masked_error(error, redact), id_, method, client or Client(modern=modern))
    if isinstance(error, SignInNeeded) and (page := _page_first(error, client)) is not None:
        return _error(id_, page.code, str(page), page.data)
    if isinstance(error, (UpstreamError, CallRefused, AnswerTooLarge, QuestionRefused)):
        name, text = type(error).__name__, error.full_message()
        if isinstance(error, UpstreamError) and not isinstance(error, _WITH_ADDRESSES):
            text = redact(text)
        scopes = error.scopes if isinstance(error, InsufficientScope) else _NO_SCOPES
        if method == "tools/call":
            failed = failed_call(text, name, modern=modern, facts=error.facts)
            return Answer(encode_response(id_, failed), scopes=scopes)
        failed = encode_error(id_, INTERNAL_ERROR, text, {ERROR_NAME: name, **error.facts})
        return Answer(failed, INTERNAL_ERROR, scopes)
    if isinstance(error, BridgeError):
        return _error(id_, INTERNAL_ERROR, error.full_message())
    log.error("unexpected error while answering", method=method[:100], exc_info=error)
    return _error(id_, INTERNAL_ERROR, f"{type(error).__name__} in the bridge; its log has the details")


def _page_first(error: SignInNeeded, client: Client | None) -> BadRequest | None:
    """The error that has a client open the page where its user connects an account; None: another answer is right.

    A client of 2025-11-25 that opens URLs, and could not be asked during the call, opens the page and calls again (MCP
    2025-11-25, Elicitation, URL Elicitation Required Error). Later revisions do not have it.
    """
    is_able = client is not None and not client.modern and client.capabilities.url and client.version >= URL_SINCE
    if client is None or not is_able or not error.page or error.was_asked:
        return None
    id_ = token_hex(16)
    entry = {
        "mode": "url",
        "elicitationId": id_,
        "url": error.page,
        "message": f"Connect your account at {error.upstream}, which the call needs.",
    }
    return BadRequest(URL_ELICITATION_REQUIRED, error.full_message(), {"elicitations": [entry]})


def _unknown(error: UnknownName, id_: bytes, *, modern: bool) -> Answer:
    if error.kind != "resource":
        return _error(id_, INVALID_PARAMS, error.full_message())
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return _error(id_, code, error.full_message(), {"uri": error.name})


def _error(id_: bytes, code: int, message: str, data: object = None) -> Answer:
    return Answer(encode_error(id_, code, message, data), code)
