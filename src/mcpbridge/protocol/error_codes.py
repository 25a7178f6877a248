"""JSON-RPC error codes, and those that MCP adds (MCP 2026-07-28, Base Protocol, Error Codes).

Which of our errors gets which code is decided in `downstream/errors.py`.
"""

from typing import Final

import msgspec

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
STANDARD: Final = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR})
"""Those of JSON-RPC itself, which mean the same in every revision."""
RESOURCE_NOT_FOUND: Final = -32002
"""Legacy only; a modern client gets INVALID_PARAMS."""
HEADER_MISMATCH: Final = -32020
"""Modern only, as the next two: headers and body of a request disagree."""
MISSING_CAPABILITY: Final = -32021
"""`data.requiredCapabilities` names what the client did not declare."""
UNSUPPORTED_VERSION: Final = -32022
"""The revision of the request is not spoken; `data.supported` names those that are."""
URL_ELICITATION_REQUIRED: Final = -32042
"""Revision 2025-11-25 only: `data.elicitations` has pages that the user must visit first."""


class _Data(msgspec.Struct):
    supported: list[str] = []


class _Code(msgspec.Struct):
    code: int = 0


class _Text(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Error(msgspec.Struct):
    data: _Data = msgspec.field(default_factory=_Data)


def code_of(error: bytes) -> int:
    """The code of an encoded error object; 0 when it cannot be read."""
    try:
        return _decode_code(error).code
    except (msgspec.DecodeError, RecursionError):
        return 0


def error_text(error: bytes) -> str:
    """What an encoded error object says, on one line and cut short; with its code. It is another program's text."""
    try:
        read = _decode_text(error)
    except (msgspec.DecodeError, RecursionError):
        return "an error that cannot be read"
    words = " ".join("".join(c if c.isprintable() else " " for c in read.message).split())
    return f"{words[:_LONGEST_TEXT] or 'it gave no reason'} ({read.code})"


def supported_versions(error: bytes) -> list[str]:
    """The revisions that the sender of an UNSUPPORTED_VERSION error speaks; empty when it does not say."""
    try:
        return _decode_error(error).data.supported
    except (msgspec.DecodeError, RecursionError):
        return []


_LONGEST_TEXT = 200
"""Characters of another program's words that are repeated."""
_decode_text = msgspec.json.Decoder(_Text).decode
_decode_code = msgspec.json.Decoder(_Code).decode
_decode_error = msgspec.json.Decoder(_Error).decode
