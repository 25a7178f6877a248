"""Mask secrets in what says that something failed: errors of servers, results with `isError`, their log messages.

Models read errors as they read definitions, so hidden characters are taken out of them too.

Results of calls that succeed pass as they came. So do errors whose `data` is to be used: a page that the user must
visit first has an address that would lead nowhere. Bytes in which nothing is masked stay the same.
"""

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import UpstreamAnswered
from mcpbridge.base.hidden_json import without_hidden_in
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import URL_ELICITATION_REQUIRED
from mcpbridge.protocol.jsonrpc import encode

Redact = Callable[[str], str]

LARGEST = 1024 * 1024
"""Bytes of a failure that are looked into: that takes seconds for more. What is larger is replaced by its beginning."""
_BEGINNING = 64 * 1024


class _Failed(msgspec.Struct):
    is_error: object = msgspec.field(default=False, name="isError")


class _Error(msgspec.Struct):
    code: object = 0


_decode = msgspec.json.Decoder(_Failed).decode
_decode_error = msgspec.json.Decoder(_Error).decode


FAILED = re.compile(rb'"isError"\s*:\s*true')
"""What a result has that says that its call failed; others are not looked into."""
WHOLE = 128 * 1024
"""Bytes up to which a result is searched; a larger one is split into its members, which is needed of it anyway."""


def without_secrets_if_failed(result: Body, redact: Redact) -> Body:
    """The result, without secrets if it says that the call failed."""
    return Body(masked_result(result.data, redact)) if _has_failed(result) else result


def _has_failed(result: Body) -> bool:
    if len(result.data) <= WHOLE:
        return FAILED.search(result.data) is not None
    try:
        return bytes(result.get("isError") or b"") == b"true"
    except (msgspec.DecodeError, RecursionError):
        return False  # it cannot be read, which whoever reads it says


def masked_result(data: bytes | Raw, redact: Redact) -> bytes | Raw:
    """A result, without secrets if it says that the call failed."""
    try:
        if _decode(data).is_error is not True:
            return data
        if len(data) > LARGEST:
            return encode({"content": [{"type": "text", "text": _beginning(data, redact)}], "isError": True})
        result = cast("dict[str, object]", _exact(data))
        masked = {name: _masked_member(name, value, redact) for name, value in result.items()}
        safe = data if all(masked[name] is result[name] for name in result) else encode(masked)
        cleaned = without_hidden_in(bytes(safe))
        return safe if cleaned == bytes(safe) else cleaned
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return data  # it cannot be read, which whoever reads it says


def _masked_member(name: str, value: object, redact: Redact) -> object:
    """A member of a failed result: its texts and structured content tell of the failure; media are data."""
    from mcpbridge.base.masking.values import without_secrets_in  # loaded with the first failure

    if name == "structuredContent":
        return without_secrets_in(value, redact)
    if name == "_meta" and isinstance(value, dict):
        return _masked_meta(cast("dict[str, object]", value), redact)
    if name != "content" or not isinstance(value, list):
        return value
    blocks = cast("list[object]", value)
    masked = [without_secrets_in(block, redact) if _is_text(block) else block for block in blocks]
    return masked if any(new is not old for new, old in zip(masked, blocks, strict=True)) else blocks


def _masked_meta(meta: dict[str, object], redact: Redact) -> dict[str, object]:
    """All but what the protocol's own names hold, such as the id of a task."""
    from mcpbridge.base.masking.values import without_secrets_in  # loaded with the first failure

    own = ("io.modelcontextprotocol/", "progressToken")
    masked = {name: one if name.startswith(own) else without_secrets_in(one, redact) for name, one in meta.items()}
    return masked if any(masked[name] is not meta[name] for name in meta) else meta


def _is_text(block: object) -> bool:
    """Whether a model reads it: a text or a resource of text, whatever else it has, and what is of no known type."""
    if not isinstance(block, dict):
        return False
    members = cast("dict[str, object]", block)
    if members.get("type") == "text":
        return True
    resource = members.get("resource")
    if isinstance(resource, dict):
        return "blob" not in resource
    return not members.keys() & {"data", "resource", "uri"}


def masked_error(error: UpstreamAnswered, redact: Redact) -> UpstreamAnswered:
    """An error of a server's own making, without secrets; the same object if there are none."""
    if error.is_masked:
        return error
    try:
        if _decode_error(error.error).code == URL_ELICITATION_REQUIRED:
            masked = _masked_pages(error.error, redact)
        else:
            masked = bytes(_masked_json(error.error, redact))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        masked = redact(error.error.decode("utf-8", "replace")).encode()
    masked = without_hidden_in(masked)
    if masked == error.error:
        error.is_masked = True
        return error
    again = UpstreamAnswered(error.upstream, masked)
    again.asked, again.is_masked = error.asked, True
    return again


def _masked_pages(error: bytes, redact: Redact) -> bytes:
    """An error that asks for pages to be visited: their addresses stay, since a person is to open them."""
    from mcpbridge.base.masking.values import without_secrets_in  # loaded with the first failure

    value = _exact(error)
    masked = without_secrets_in(value, redact)
    if masked is value:
        return error
    for old, new in zip(_pages(value), _pages(masked), strict=False):
        new |= {name: old[name] for name in ("url", "elicitationId") if name in old}
    return encode(masked)


def _pages(error: object) -> list[dict[str, object]]:
    data = cast("dict[str, object]", error).get("data") if isinstance(error, dict) else None
    asked = cast("dict[str, object]", data).get("elicitations") if isinstance(data, dict) else None
    listed = cast("list[object]", asked) if isinstance(asked, list) else []
    return [cast("dict[str, object]", one) for one in listed if isinstance(one, dict)]


def masked_log(data: Raw, redact: Redact) -> Raw:
    """The `data` of a server's log message without secrets."""
    try:
        return Raw(_masked_json(data, redact))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return data


def _masked_json(data: bytes | Raw, redact: Redact) -> bytes | Raw:
    from mcpbridge.base.masking.values import without_secrets_in  # loaded with the first failure

    value = _exact(data)
    masked = without_secrets_in(value, redact)
    return data if masked is value else encode(masked)


def _beginning(data: bytes | Raw, redact: Redact) -> str:
    text = redact(bytes(memoryview(data)[:_BEGINNING]).decode("utf-8", "replace"))
    return f"The call failed with {len(data)} bytes, of which this is the beginning: {text}"


def _number(text: str) -> Any:
    return Raw(text.encode())


_exact = cast("Callable[[bytes | Raw], object]", msgspec.json.Decoder(float_hook=_number).decode)
"""Numbers stay as they are written."""
