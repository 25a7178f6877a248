"""The key that stored sign-ins and named secrets are encrypted with.

It is in the system's keyring, or in a file that only its user can read. The keyring holds the key alone, not the
secrets: some keyrings take no more than two kilobytes, and none has locks.
The key of the store comes from the configuration (`storage/encryption.py`).
"""

import base64
import binascii
import importlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from mcpbridge.base.errors import ConfigError

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
                create_once(path, base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            check_private(path)
            key = base64.b64decode(path.read_bytes(), validate=False)
        except (OSError, binascii.Error) as error:
            raise ConfigError(f"the key of the stored sign-ins cannot be used: {error}", file=str(path)) from error
        if len(key) != KEY_BYTES:
            hint = "Remove it; you then have to sign in to every server again, and to set your secrets again."
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
        keyring = keyring_of_desktop()
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


def create_once(path: Path, data: bytes) -> None:
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


def keyring_of_desktop() -> Any:
    """The package `keyring`, if it is installed and has something to keep secrets in; None: there is none."""
    try:
        keyring: Any = importlib.import_module("keyring")
    except ImportError:
        return None
    # Below 1 are those that keep nothing (`fail`, `null`) and those that keep it in a plain file, as we can ourselves.
    return keyring if getattr(keyring.get_keyring(), "priority", 0) >= 1 else None
