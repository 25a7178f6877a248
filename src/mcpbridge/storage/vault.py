"""The vault: what single users have at single servers, encrypted, one file a row.

A row belongs to one principal and one server. Its head is readable: kind, principal, server, address, issuer and time,
so that rows can be listed and taken away without the key. The rest is sealed with AES-256-GCM
(`storage/encryption.py`), bound to the whole head: a row whose head was changed, or that was copied to the place of
another user, does not open. A file is replaced whole: a crash leaves the old one or the new one.
"""

import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Literal

import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger
from mcpbridge.storage.compression import Unreadable
from mcpbridge.storage.encryption import OtherKey, Seal, Seals
from mcpbridge.storage.file_locks import file_lock, locked
from mcpbridge.storage.token_encryption_key import check_private, create_once
from mcpbridge.storage.token_store import write_private
from mcpbridge.storage.vault_keys import VaultKeys, is_private_directory, vault_keys

log = get_logger("mcpbridge.storage")

_MAGIC = b"mcpv1\n"
_LARGEST = 1 << 20
_LARGEST_HEAD = 16 << 10

RowKind = Literal["account", "variables"]
"""`account`: what a sign-in brought. `variables`: values that a person set for a program."""


class Row(msgspec.Struct, frozen=True):
    """The readable part of one row."""

    kind: RowKind
    principal: str
    server: str
    url: str
    """The address of the server; what was given for one is not sent to another. Empty for a program."""
    issuer: str = ""
    """The authorization server that gave the tokens; empty for variables."""
    since: float = 0.0
    """Unix time at which the person signed in, or set the first value."""
    key: int = 0
    """Which key it is sealed with."""

    @property
    def place(self) -> str:
        """What names its file: there is one row of a kind for a principal at a server."""
        return hashlib.sha256(f"{self.kind}\n{self.server}\n{self.principal}".encode()).hexdigest()[:40]


_decode_row = msgspec.json.Decoder(Row).decode


class Vault:
    """The rows of all users of one bridge. Nothing is made before something is stored."""

    def __init__(self, directory: Callable[[], Path], keys: Callable[[Path], VaultKeys] = vault_keys) -> None:
        """`directory`: asked once, when it is first needed. `keys`: where its keys are."""
        self._ask_directory, self._ask_keys = directory, keys
        self.changed_elsewhere: Callable[[Row, bool], object] = lambda row, is_there: None
        """Gets each row that another bridge changed, and whether it is there; see `follow`."""
        self._seals: dict[str, Seals] = {}

    @cached_property
    def directory(self) -> Path:
        """Where the rows are."""
        return self._ask_directory()

    def has(self, row: Row) -> bool:
        """There is such a row, of whatever address; cheap. Whether it opens is another question."""
        return self._path(row).exists()

    def changed_at(self, row: Row) -> int:
        """A number that changes with the row; 0: there is none."""
        try:
            return self._path(row).stat().st_mtime_ns
        except OSError:
            return 0

    async def load(self, row: Row) -> bytes | None:
        """What is kept in this row; None: there is none, or it does not open.

        Raises:
            ConfigError: the key cannot be had, or others could read what is kept.
        """
        if not self.has(row):
            return None
        return await anyio.to_thread.run_sync(self.load_blocking, row)

    async def save(self, row: Row, value: bytes) -> None:
        """Keep this, in the place of what was there. `since` stays as it was where the row is there.

        Raises:
            ConfigError: it cannot be kept; says why.
        """
        await anyio.to_thread.run_sync(self.save_blocking, row, value)

    async def drop(self, row: Row) -> bool:
        """Take a row away. False: there was none."""
        return await anyio.to_thread.run_sync(self.drop_blocking, row)

    @asynccontextmanager
    async def lock(self, row: Row, what: str, seconds: float) -> AsyncGenerator[None]:
        """Alone among all processes of the user, as far as `what` of this row goes.

        Raises:
            TimeoutError: another holds it all the time.
        """
        is_private_directory(self.directory)
        async with file_lock(self.directory / f"{self.lock_name(row, what)}.lock", seconds):
            yield

    def lock_name(self, row: Row, what: str) -> str:
        """What names the lock."""
        return hashlib.sha256(f"{row.place}\n{what}".encode()).hexdigest()[:40]

    async def follow(self) -> None:
        """Take over what others changed. Here the files are the only ones."""

    async def rotate_all(self) -> tuple[int, int]:
        """Seal everything with another key; see `rotate`."""
        return await anyio.to_thread.run_sync(self.rotate)

    async def settle(self) -> None:
        """Everything that was changed is where others see it.

        Raises:
            StoreFailed: some is not.
        """

    async def close(self) -> None:
        """Nothing is open."""

    # -- on a worker thread

    def rows(self) -> list[Row]:
        """The heads of all rows, by server and principal. Damaged files are left out."""
        found: list[Row] = []
        with suppress(OSError):
            read = ((path.stem, _read(path)) for path in self.directory.glob("*.row"))
            found += [parts[0] for place, parts in read if parts is not None and parts[0].place == place]
        return sorted(found, key=lambda row: (row.server, row.principal, row.kind))

    def load_blocking(self, row: Row) -> bytes | None:
        """As `load`."""
        path = self._path(row)
        if (parts := self._checked(path)) is None:
            return None
        head, encoded, rest = parts
        if (head.kind, head.principal, head.server, head.url) != (row.kind, row.principal, row.server, row.url):
            log.warning("a row of the account vault is of another user or server; ignoring it", file=str(path))
            return None
        return self._opened(head, encoded, rest, path)

    def save_blocking(self, row: Row, value: bytes) -> None:
        """As `save`."""
        is_private_directory(self.directory)
        with locked(self.directory / "vault.lock"):
            before = _read(self._path(row))
            is_same = before is not None and before[0].url == row.url and before[0].principal == row.principal
            since = before[0].since if before is not None and is_same else row.since or time.time()
            self._write(replace(row, since=since), value, self._all_seals()[0])

    def drop_blocking(self, row: Row) -> bool:
        """As `drop`."""
        try:
            self._path(row).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"cannot be removed: {error.strerror}", file=str(self._path(row))) from error
        return True

    def rotate(self) -> tuple[int, int]:
        """Seal everything with another key, or with the one that is configured now.

        Returns how many rows are sealed with it now, and how many no key opens. The old key is forgotten once no row
        needs it.

        Raises:
            ConfigError: the keys cannot be had, or a row cannot be written. Every row still opens then.
        """
        is_private_directory(self.directory)
        with locked(self.directory / "vault.lock"):
            keys = self._ask_keys(self.directory)
            keys.renew()
            newest, done, lost = self._all_seals()[0], 0, 0
            for path in sorted(self.directory.glob("*.row")):
                if (parts := _read(path)) is None:
                    lost += 1
                    continue
                if (value := self._opened(*parts, path)) is None:
                    lost += 1
                    continue
                self._write(parts[0], value, newest, path)
                done += 1
            keys.forget_old()
        return done, lost

    # -- internals

    def _path(self, row: Row) -> Path:
        return self.directory / f"{row.place}.row"

    def _checked(self, path: Path) -> "tuple[Row, bytes, bytes] | None":
        try:
            check_private(self.directory)
        except OSError:
            return None
        return _read(path)

    def _opened(self, head: Row, encoded: bytes, rest: bytes, path: Path) -> bytes | None:
        for seal in self._all_seals():
            if seal.id == head.key:
                try:
                    return seal.open(rest, encoded.decode())
                except Unreadable:
                    log.warning("a row of the account vault was changed; ignoring it", file=str(path))
                    return None
        log.warning("a row of the account vault has another key; ignoring it", file=str(path), reason=str(_OTHER_KEY))
        return None

    def _write(self, row: Row, value: bytes, seal: Seal, path: Path | None = None) -> None:
        encoded = msgspec.json.encode(replace(row, key=seal.id))
        path = path or self._path(row)
        try:
            write_private(path, _MAGIC + encoded + b"\n" + seal.close(value, encoded.decode()))
        except OSError as error:
            raise ConfigError(f"an account cannot be stored: {error.strerror}", file=str(path)) from error

    def _all_seals(self) -> list[Seal]:
        """Of all keys, the newest first. The keys are read each time: another process may have others since."""
        salt = self._salt()
        found = self._ask_keys(self.directory).secrets()
        self._seals = {secret: self._seals.get(secret) or Seals(secret) for secret in found}
        return [seals.of(salt) for seals in self._seals.values()]

    def _salt(self) -> bytes:
        path = self.directory / "salt"
        try:
            if not path.exists():
                create_once(path, secrets.token_bytes(16))
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot be used: {error.strerror}", file=str(path)) from error


_OTHER_KEY = OtherKey("it was written with a key that is not configured any more")


def head_of(path: Path) -> Row | None:
    """The readable part of a row in a file; None: it is no row."""
    parts = _read(path)
    return parts[0] if parts is not None else None


def _read(path: Path) -> tuple[Row, bytes, bytes] | None:
    """The head, the bytes that it was read from, and what is sealed; None: it is no row."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError:
        return None
    rest = data.removeprefix(_MAGIC)
    encoded, line, value = rest[:_LARGEST_HEAD].partition(b"\n")
    if len(data) > _LARGEST or len(rest) == len(data) or not line:
        return None
    value = rest[len(encoded) + 1 :]
    try:
        return _decode_row(encoded), encoded, value
    except msgspec.DecodeError:
        return None
