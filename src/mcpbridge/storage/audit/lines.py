"""The form of a line of the audit log: its number, the hash of the line before it, what happened, its own hash. Pure.

The own hash is SHA-256 over the bytes of the line before `,"hash":`, as they are in the file. So no program has to
spell JSON in the same way to check it, and every changed byte is found: one before the hash changes what it must be,
one within it is another hash, and one after it is not a line of this form.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import Struct

NOTHING = "0" * 64
"""The hash before the first line."""

SEGMENT = "audit.segment"
"""The kind of the first line of each file: `chain` is the id of the chain."""
RECOVERED = "audit.recovered"
"""The kind of a line that says what is missing or damaged before it: `torn`, and `missing`."""
RETENTION = "audit.retention"
"""The kind of a line that says which lines were deleted since they were too old or too many."""
LOST = "audit.lost"
"""The kind of a line that says how many entries could not be written."""

_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"\}\n')
_TAIL_SIZE = 76
_HEAD = re.compile(rb'\{"seq":([1-9][0-9]{0,17}),"prev":"([0-9a-f]{64})","at":"')
_encode = msgspec.json.encode


class Line(Struct, frozen=True):
    """A line as it is in the file."""

    seq: int
    prev: str
    """What it says is the hash of the line before it."""
    hash: str
    """What it says is its own hash."""
    is_intact: bool
    """Its own hash is that of its bytes."""


def iso_time(at: float) -> str:
    """A moment as the log spells it, in UTC with microseconds. `at`: seconds since 1970."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def encode_line(seq: int, prev: str, at: float, kind: str, fields: Mapping[str, Any]) -> tuple[bytes, str]:
    """A line and its hash."""
    body = _encode({"seq": seq, "prev": prev, "at": iso_time(at), "kind": kind, **fields})[:-1]
    own = sha256(body).hexdigest()
    return b'%b,"hash":"%b"}\n' % (body, own.encode()), own


def read_line(raw: bytes) -> Line | None:
    """What the bytes of a line, with its end, say of the chain; None: it has not the form of one."""
    body = raw[:-_TAIL_SIZE]
    tail, head = _TAIL.fullmatch(raw[-_TAIL_SIZE:]), _HEAD.match(body)
    if tail is None or head is None:
        return None
    stated = tail[1].decode()
    return Line(int(head[1]), head[2].decode(), stated, sha256(body).hexdigest() == stated)


def fields_of(raw: bytes) -> dict[str, Any]:
    """All that a line says; empty: it is no JSON object."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
