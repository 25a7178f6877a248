"""The keys of the vault (`vault.py`): a configured secret, an entry of the keyring, or a file of the bridge's own.

A source gives several secrets, the newest first. New rows are sealed with the first; the others open rows that were
sealed before, until all are sealed anew (`Vault.rotate`).
"""

import base64
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.token_encryption_key import KEY_BYTES, check_private, create_once, keyring_of_desktop
from mcpbridge.storage.token_store import write_private

_SERVICE, _ENTRY = "mcpbridge", "account vault"
_MOST = 64
"""Keys in one place; so many rotations that did not come to their end are no accident."""


class VaultKeys(Protocol):
    """Where the keys are. Called on a worker thread: a keyring may ask the user first."""

    def secrets(self) -> Sequence[str]:
        """The secrets, newest first; at least one, which is made if there is none yet.

        Raises:
            ConfigError: they cannot be had, or others could have them too.
        """
        ...

    def renew(self) -> None:
        """Have another secret in front of the others. Nothing where people set the secrets themselves."""
        ...

    def forget_old(self) -> None:
        """Have the first secret alone. Nothing where people set the secrets themselves."""
        ...


class ConfiguredKeys:
    """`accounts.key` and `accounts.old_keys` of the configuration."""

    def __init__(self, key: str, old: Sequence[str]) -> None:
        self._secrets = (key, *old)

    def secrets(self) -> Sequence[str]:
        """As configured. See `VaultKeys`."""
        return self._secrets

    def renew(self) -> None:
        """People do. See `VaultKeys`."""

    def forget_old(self) -> None:
        """People do. See `VaultKeys`."""


class KeysInFile:
    """A file beside the rows, readable by its user alone: one secret a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def secrets(self) -> Sequence[str]:
        """The lines. See `VaultKeys`."""
        try:
            if not self._path.exists():
                create_once(self._path, f"{_new_secret()}\n".encode())
            check_private(self._path)
            lines = self._path.read_text("ascii").split()
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"the key of the account vault cannot be used: {error}", file=str(self._path)) from error
        return _checked(lines, str(self._path))

    def renew(self) -> None:
        """Another line, in front. See `VaultKeys`."""
        self._write([_new_secret(), *self.secrets()])

    def forget_old(self) -> None:
        """The first line stays. See `VaultKeys`."""
        self._write(self.secrets()[:1])

    def _write(self, lines: Sequence[str]) -> None:
        try:
            write_private(self._path, "".join(f"{secret}\n" for secret in lines).encode())
        except OSError as error:
            raise ConfigError(
                f"the key of the account vault cannot be stored: {error}", file=str(self._path)
            ) from error


class KeysInKeyring:
    """An entry of the keyring of the desktop, through the package `keyring`."""

    def __init__(self, keyring: Any) -> None:
        self._keyring = keyring

    def secrets(self) -> Sequence[str]:
        """The words of the entry. See `VaultKeys`."""
        try:
            if self._keyring.get_password(_SERVICE, _ENTRY) is None:
                self._keyring.set_password(_SERVICE, _ENTRY, _new_secret())
            lines = (self._keyring.get_password(_SERVICE, _ENTRY) or "").split()
        except Exception as error:  # back ends raise what they like; whatever it is, there is no key
            raise ConfigError(f"the keyring does not give the key of the account vault: {error}") from error
        return _checked(lines, f"keyring {_SERVICE!r} / {_ENTRY!r}")

    def renew(self) -> None:
        """Another word, in front. See `VaultKeys`."""
        self._write([_new_secret(), *self.secrets()])

    def forget_old(self) -> None:
        """The first word stays. See `VaultKeys`."""
        self._write(self.secrets()[:1])

    def _write(self, lines: Sequence[str]) -> None:
        try:
            self._keyring.set_password(_SERVICE, _ENTRY, " ".join(lines))
        except Exception as error:
            raise ConfigError(f"the keyring does not take the key of the account vault: {error}") from error


def vault_keys(directory: Path, key: str | None = None, old: Sequence[str] = ()) -> VaultKeys:
    """Where the keys of the vault in `directory` are.

    As configured; else in a key file that exists; else in the keyring, if the package is installed and has a real back
    end; else in a new key file.
    """
    if key:
        return ConfiguredKeys(key, old)
    path = directory / "key"
    if not path.exists() and (keyring := keyring_of_desktop()) is not None:
        return KeysInKeyring(keyring)
    return KeysInFile(path)


def _new_secret() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _checked(lines: Sequence[str], where: str) -> Sequence[str]:
    if not 1 <= len(lines) <= _MOST or any(len(secret) < KEY_BYTES for secret in lines):
        hint = "Remove it; everybody then has to sign in to the servers again."
        raise ConfigError("this is not the key of the account vault", file=where, hint=hint)
    return lines


def is_private_directory(directory: Path) -> None:
    """Make the directory of a vault, if it is not there, and make sure that it is this user's alone.

    Raises:
        ConfigError: it cannot be made, or others can get at it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "posix":
            check_private(directory)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", file=str(directory)) from error
