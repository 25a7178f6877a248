"""Encrypt stored values with AES-256-GCM: which key seals what, and what a sealed value is bound to.

The body and the label of a value are sealed. Each is bound to its name; the body also to its form and its size.
The key is made of the configured secret and of a salt that belongs to the file. A secret of 32 bytes, as hex or
base64, is a key already; anything else is a passphrase, which scrypt makes hard to guess. A sealed value cannot be
read, changed, or passed off as another one; kinds, handles, principals, sizes and times stay readable.
"""

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mcpbridge.storage.compression import Unreadable
from mcpbridge.storage.store import BytesLike


class OtherKey(Unreadable):
    """The value was sealed with another key. Whoever has that key can read it."""


_KEY_BYTES = 32
_NONCE_BYTES = 12
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43}=?")
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 2**15, 8, 1
"""32 MiB and about a tenth of a second for each guess. Changed, nothing that was written before can be read."""
_SCRYPT_MEMORY = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Seal:
    """Closes and opens values with one key."""

    salt: bytes
    id: int
    """Distinguishes keys: a number from 1 to 2^32, kept beside what is sealed. `NOT_SEALED` stands for what is not."""
    _cipher: Any = field(repr=False)

    def close(self, data: BytesLike, *name: str) -> bytes:
        """The bytes to write. `name`: all that has to be the same when it is opened."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, _bound(name))

    def open(self, sealed: bytes, *name: str) -> bytes:
        """What was closed under that name.

        Raises:
            Unreadable: it was not, or somebody changed it.
        """
        from cryptography.exceptions import InvalidTag

        try:
            view = memoryview(sealed)
            return self._cipher.decrypt(view[:_NONCE_BYTES], view[_NONCE_BYTES:], _bound(name))
        except (InvalidTag, ValueError) as error:
            raise Unreadable("it was changed or damaged since it was written") from error


NOT_SEALED = 0


def number_of(seal: Seal | None) -> int:
    """The number that is written beside what this seal closes. None: there is no key, and nothing is sealed."""
    return NOT_SEALED if seal is None else seal.id


def seal_for(number: int, seal: Seal | None) -> Seal | None:
    """The seal that opens what has this number beside it; None: it is not sealed. `seal`: the one there is.

    Raises:
        OtherKey: it was sealed with another key.
    """
    if number == NOT_SEALED:
        return None
    if seal is None:
        raise OtherKey("some were written with a key, and none is configured")
    if number != seal.id:
        raise OtherKey("some were written with another key")
    return seal


def body_binding(name: Sequence[str], form: int, size: int) -> tuple[str, ...]:
    """What the body of a value is bound to. `form`: how it is compressed; `size`: its bytes before that."""
    return "body", *name, str(form), str(size)


def label_binding(name: Sequence[str]) -> tuple[str, ...]:
    """What the label of a value is bound to."""
    return "label", *name


class Seals:
    """The seals that one secret makes, each with the salt of a file."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._known: dict[bytes, Seal] = {}

    def of(self, salt: bytes) -> Seal:
        """The seal for this salt. The first time takes a tenth of a second: for a worker thread."""
        if salt not in self._known:
            self._known = {salt: _seal(self._secret, salt)}  # a file has one salt, until it is made anew
        return self._known[salt]


def _seal(secret: str, salt: bytes) -> Seal:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    raw = _raw_key(secret)
    if raw is None:
        raw = hashlib.scrypt(
            secret.encode("utf-8", "surrogatepass"),
            salt=salt,
            n=_SCRYPT_N,
            r=_SCRYPT_R,
            p=_SCRYPT_P,
            maxmem=_SCRYPT_MEMORY,
            dklen=_KEY_BYTES,
        )
    key = hashlib.blake2b(salt, key=raw, person=b"mcpb store key", digest_size=_KEY_BYTES).digest()
    number = hashlib.blake2b(salt, key=raw, person=b"mcpb store id", digest_size=4).digest()
    return Seal(salt, 1 + int.from_bytes(number, "big"), AESGCM(key))


def _raw_key(secret: str) -> bytes | None:
    """The 32 bytes that a secret spells; None: it is a passphrase."""
    text = secret.strip()
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    if _BASE64.fullmatch(text):
        try:
            return base64.b64decode(text.rstrip("=").replace("-", "+").replace("_", "/") + "=", validate=True)
        except binascii.Error:
            return None
    return None


def _bound(name: Sequence[str]) -> bytes:
    """The parts of a name as bytes that no other parts give."""
    parts = [part.encode("utf-8", "surrogatepass") for part in name]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
