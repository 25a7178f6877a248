"""Values that only who has the key can read: AES-256-GCM, bound to the name they are kept under.

The key is made of the configured secret and of a salt that belongs to the file. A secret of 32 bytes, as hex or
base64, is a key already; anything else is a passphrase, which scrypt makes hard to guess. What is sealed cannot be
read, changed, or passed off as another value; kinds, handles, principals, sizes and times stay readable.

The key that stored secrets are encrypted with: in the system's keyring, or in a file that only its user can read.

The keyring holds the key alone, not the secrets: some keyrings take no more than two kilobytes, and none has locks.
"""

import base64
import binascii
import hashlib
import importlib
import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.compression import Unreadable

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
    """Tells keys apart: a number from 1 to 2^32, kept beside what is sealed. 0 stands for what is not."""
    _cipher: Any = field(repr=False)

    def close(self, data: bytes, *name: str) -> bytes:
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


KEY_BYTES = 32
_SERVICE, _ENTRY = "mcpbridge", "secret store"


class KeySource(Protocol):
    """Where the key is. Called on a worker thread: a keyring may ask the user first."""

    def key(self) -> bytes:
        """The key, made if there is none yet; `KEY_BYTES` bytes.

        Raises:
            ConfigError: it cannot be had, or others could have it too.
        """
        ...


class KeyFile:
    """A file of the user's data directory, readable by nobody else."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def key(self) -> bytes:
        """The key in the file. See `KeySource`."""
        path = self._path
        try:
            if not path.exists():
                _create_once(path, base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            check_private(path)
            key = base64.b64decode(path.read_bytes(), validate=False)
        except (OSError, binascii.Error) as error:
            raise ConfigError(f"the key of the stored sign-ins cannot be used: {error}", file=str(path)) from error
        if len(key) != KEY_BYTES:
            hint = "Remove it; every server has to be signed in to anew then."
            raise ConfigError("this is not the key of the stored sign-ins", file=str(path), hint=hint)
        return key


class KeyringKey:
    """An entry of the keyring of the desktop, through the package `keyring`."""

    def __init__(self, keyring: Any) -> None:
        self._keyring = keyring

    def key(self) -> bytes:
        """The key in the keyring. See `KeySource`."""
        try:
            text = self._keyring.get_password(_SERVICE, _ENTRY)
            if text is None:
                self._keyring.set_password(_SERVICE, _ENTRY, base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode())
                text = self._keyring.get_password(_SERVICE, _ENTRY)  # another process may have been quicker
            key = base64.b64decode(text or "")
        except Exception as error:  # back ends raise what they like; whatever it is, there is no key
            raise ConfigError(f"the keyring does not give the key of the stored sign-ins: {error}") from error
        if len(key) != KEY_BYTES:
            raise ConfigError(f"the keyring entry {_SERVICE!r} / {_ENTRY!r} is not the key of the stored sign-ins")
        return key


def best_source(directory: Path) -> KeySource:
    """Where the key of the secrets in `directory` is, or should be made.

    A key file that exists is used: to change over, remove it. Otherwise the keyring, if the package is installed and
    has a real back end; otherwise a key file.
    """
    path = directory / "key"
    if not path.exists():
        keyring = _keyring()
        if keyring is not None:
            return KeyringKey(keyring)
    return KeyFile(path)


def check_private(path: Path) -> None:
    """Make sure that a file or directory is this user's alone.

    Raises:
        ConfigError: others own it, or can read or write it.
        OSError: it is not there.
    """
    found = path.lstat()
    if not hasattr(os, "getuid"):  # pragma: no cover - Windows: the user's profile has its own protection
        return
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        hint = f"Run: chmod {'700' if path.is_dir() else '600'} {path}"
        raise ConfigError("others than its user can get at it, and it holds secrets", file=str(path), hint=hint)


def _create_once(path: Path, data: bytes) -> None:
    """Write a new file, whole or not at all; of two processes that do it at once, one wins."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _keyring() -> Any:
    """The package `keyring`, if it is installed and has something to keep secrets in."""
    try:
        keyring: Any = importlib.import_module("keyring")
    except ImportError:
        return None
    # Below 1 are those that keep nothing (`fail`, `null`) and those that keep it in a plain file, as we can ourselves.
    return keyring if getattr(keyring.get_keyring(), "priority", 0) >= 1 else None
