"""The signature of a lock: which bytes a key agrees to, and how new they are. Pure.

`servers.lock` names definitions by their digests, so its bytes stand for all of them. The serial goes up with each
signature: whoever has seen one refuses a lock with a lower one, however well it is signed. The project says whose
lock it is: whoever has seen that of one project refuses the lock of another in its place.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from mcpbridge.storage.audit.checkpoints import key_id

if TYPE_CHECKING:  # loaded by who signs or verifies
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_PURPOSE = b"mcpbridge lock signature\n"
"""What is signed begins with it, so that a signature for something else is none of a lock."""
_TAIL = re.compile(rb',"sig":"([A-Za-z0-9+/]{86}==)"\}')
_TAIL_SIZE = 98


class Signed(Struct, frozen=True, omit_defaults=True):
    """What a signature says."""

    lock: str
    """SHA-256 of the lock, in hexadecimal."""
    serial: int
    """Milliseconds since 1970 when it was signed, or one more than the serial before."""
    key: str
    """The id of the key."""
    project: str = ""
    """Whose lock it is; empty: signatures of earlier versions do not say that."""


def lock_digest(data: bytes) -> str:
    """By what a signature names a lock. Line ends do not count: version control may change them."""
    return sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def sign_lock(data: bytes, serial: int, private: "Ed25519PrivateKey", project: str = "") -> bytes:
    """The file that goes beside the lock with these bytes. `project`: whose lock it is; empty: that is not said."""
    body = msgspec.json.encode(Signed(lock_digest(data), serial, key_id(private.public_key()), project))[:-1]
    return b'%b,"sig":"%b"}\n' % (body, b64encode(private.sign(_PURPOSE + body)))


def read_signature(line: bytes) -> Signed | None:
    """What the file beside a lock says, whoever wrote it; None: it is no signature."""
    body, tail = _parts(line)
    if not tail:
        return None
    try:
        return msgspec.json.decode(body + b"}", type=Signed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def why_not_signed(data: bytes, line: bytes, keys: Sequence["Ed25519PublicKey"]) -> str:
    """Why the lock with these bytes is not signed by one of these keys; completes "the lock …". Empty: it is."""
    from cryptography.exceptions import InvalidSignature

    found, (body, signature) = read_signature(line), _parts(line)
    if found is None:
        return "has a file beside it that is no signature"
    key = next((one for one in keys if key_id(one) == found.key), None)
    if key is None:
        return f"is signed by key {found.key}, which is not trusted here"
    try:
        key.verify(signature, _PURPOSE + body)
    except InvalidSignature:
        return "has a wrong signature"
    return "" if found.lock == lock_digest(data) else "was changed after it was signed"


def _parts(line: bytes) -> tuple[bytes, bytes]:
    line = line.strip()
    tail = _TAIL.fullmatch(line[-_TAIL_SIZE:])
    if tail is None or b64encode(signature := b64decode(tail[1])) != tail[1]:  # its last letter has bits to spare
        return b"", b""
    return line[:-_TAIL_SIZE], signature
