"""What a client on stdio is told when the bridge cannot begin: the reason, as the answer to its first request.

Clients show people that answer; what stands on standard error only some of them show, and most not at once.
"""

import os
import select
import sys
from contextlib import suppress

import msgspec
from msgspec import Raw, Struct

from mcpbridge.wire.codes import INTERNAL_ERROR
from mcpbridge.wire.frame import encode_error

__all__ = ["refuse"]

_PATIENCE = 0.5
"""Seconds for the first request to come."""
_MOST = 1 << 20
"""Bytes that are looked at."""


class _Request(Struct):
    id: Raw = Raw()
    method: str = ""


_decode = msgspec.json.Decoder(_Request).decode


def refuse(head: bytes, reason: str, *, in_fd: int = 0, out_fd: int = 1) -> None:
    """Answer the requests that are there with an error. `head`: what was read of the client already."""
    if os.isatty(in_fd):
        return
    with suppress(OSError, ValueError):
        if sys.platform != "win32" and b"\n" not in head and select.select([in_fd], [], [], _PATIENCE)[0]:
            head += os.read(in_fd, _MOST)
        for line in head[:_MOST].splitlines():
            if answer := _answer(line, reason):
                os.write(out_fd, answer + b"\n")


def _answer(line: bytes, reason: str) -> bytes:
    """Empty if the line is no request."""
    try:
        request = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return b""
    is_request = bool(request.method) and bytes(request.id) not in (b"", b"null")
    return encode_error(request.id, INTERNAL_ERROR, reason) if is_request else b""
