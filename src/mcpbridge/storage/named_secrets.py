"""The secrets that `mcpbridge secret set` stored: one encrypted file, beside the sign-ins of `token_store.py`.

The file holds names, values and times; nothing of them can be read without the key, which is in the system's keyring
or, without one, in a file that only its user can read (`token_encryption_key.py`). A file that cannot be opened is left
as it is: nothing is written over secrets that another key may still open. All calls block.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from msgspec import Struct

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.file_locks import locked
from mcpbridge.storage.token_encryption_key import KeySource, best_source, check_private
from mcpbridge.storage.token_store import opened, sealed, secrets_directory, write_private

FILE = "named.sealed"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:/-]{0,127}")
"""What a secret may be called: it is between the braces of `${secret:NAME}`."""
LARGEST = 64 * 1024
"""Bytes that a value may have."""
_LARGEST_FILE = 16 << 20
_BINDING = "named secrets"


class NamedSecret(Struct, frozen=True):
    """What may be shown of a secret."""

    name: str
    at: str
    """When it was set, as an ISO time."""


class NamedSecrets:
    """The secrets of this user. Nothing is made before something is stored."""

    def __init__(self, environ: Mapping[str, str], source: KeySource | None = None) -> None:
        """`source`: where the key is; left out, the best place of this machine."""
        self._directory = secrets_directory(environ)
        self.path = self._directory / FILE
        """The file. Whoever follows changes looks at it."""
        self._source = source

    def get(self, name: str) -> str | None:
        """The value; None: there is no secret of this name.

        Raises:
            ConfigError: the file or its key cannot be used.
        """
        found = self._all().get(name)
        return None if found is None else found["value"]

    def list(self) -> list[NamedSecret]:
        """All there are, by name, without their values.

        Raises:
            ConfigError: the file or its key cannot be used.
        """
        return [NamedSecret(name, one["at"]) for name, one in sorted(self._all().items())]

    def set(self, name: str, value: str) -> bool:
        """Store a value, in the place of the one with this name. Says whether there was one.

        Raises:
            ConfigError: the name or the value cannot be stored, or the file cannot be used.
        """
        if NAME.fullmatch(name) is None:
            hint = "Use at most 128 letters, digits and _ . @ : / -; begin with a letter, a digit or _."
            raise ConfigError(f"not usable as the name of a secret: {name[:80]!r}", hint=hint)
        if not value or "\0" in value or len(value.encode()) > LARGEST:
            raise ConfigError(f"a secret is text of 1 byte to {LARGEST // 1024} KiB without NUL characters")
        self._make_directory()
        with locked(self._directory / "named.lock"):
            secrets = self._all()
            is_there = name in secrets
            secrets[name] = {"value": value, "at": datetime.now(UTC).isoformat(timespec="seconds")}
            self._write(secrets)
        return is_there

    def remove(self, name: str) -> bool:
        """Take a secret out. Says whether there was one.

        Raises:
            ConfigError: the file or its key cannot be used.
        """
        if name not in self._all():
            return False
        with locked(self._directory / "named.lock"):
            secrets = self._all()
            secrets.pop(name, None)
            self._write(secrets)
        return True

    def _all(self) -> dict[str, dict[str, str]]:
        try:
            if not self.path.exists():
                return {}
            check_private(self._directory)
            check_private(self.path)
            with self.path.open("rb") as file:
                data = file.read(_LARGEST_FILE + 1)
        except OSError as error:
            raise ConfigError(f"the stored secrets cannot be read: {error.strerror}", file=str(self.path)) from error
        plain = opened(data, self._key(), _BINDING) if len(data) <= _LARGEST_FILE else None
        if plain is None:
            hint = "It was written with another key, or is damaged. Remove it, and set your secrets again."
            raise ConfigError("the stored secrets cannot be decrypted", file=str(self.path), hint=hint)
        return cast("dict[str, dict[str, str]]", json.loads(plain))

    def _write(self, secrets: Mapping[str, Mapping[str, str]]) -> None:
        data = json.dumps(secrets, sort_keys=True).encode()
        try:
            write_private(self.path, sealed(data, self._key(), _BINDING))
        except OSError as error:
            raise ConfigError(f"the secrets cannot be stored: {error.strerror}", file=str(self.path)) from error

    def _key(self) -> bytes:
        return (self._source or best_source(self._directory)).key()

    def _make_directory(self) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot be made: {error.strerror}", file=str(self._directory)) from error
        check_private(self._directory)


def secrets_file(environ: Mapping[str, str]) -> Path:
    """Where the secrets of this user are, or will be."""
    return secrets_directory(environ) / FILE
