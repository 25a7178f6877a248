"""Keeps tokens and client registrations: in encrypted files in the user's data directory, or in memory.

Bridges that share a store have them on its server instead (`redis/shared_secrets.py`).

Each secret is one file, named by a digest of its key and sealed with AES-GCM. The encryption key is in the keyring or
in a file beside them (`storage/token_encryption_key.py`). A file is replaced whole: a crash leaves the old one or the
new one.
"""

import asyncio
import hashlib
import os
import secrets
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger
from mcpbridge.storage.file_locks import file_lock
from mcpbridge.storage.settings import StoreSettings, redis_address
from mcpbridge.storage.token_encryption_key import KeySource, best_source, check_private

if TYPE_CHECKING:
    from mcpbridge.storage.redis.shared_secrets import SharedSecrets

log = get_logger("mcpbridge.storage")

_NONCE_BYTES = 12
_MAGIC = b"mcpb1"
_LARGEST = 1 << 20


def secrets_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's secrets are kept: `mcpbridge/secrets` of the data directory. It may not exist yet."""
    asked = environ.get("XDG_DATA_HOME")
    if asked:
        return Path(asked) / "mcpbridge" / "secrets"
    from platformdirs import user_data_path

    return user_data_path("mcpbridge", appauthor=False) / "secrets"


def open_secrets(store: StoreSettings, keys: Callable[[], Sequence[str]] | None) -> "SealedFiles | SharedSecrets":
    """Where tokens are kept: on the server of a store that bridges share, if there are keys; else files of the user.

    `keys`: see `SharedSecrets`.
    """
    if store.kind != "redis" or keys is None:
        return SealedFiles()
    from mcpbridge.storage.redis.shared_secrets import SharedRows, SharedSecrets

    return SharedSecrets(SharedRows(redis_address(store), store.prefix), keys)


class SealedFiles:
    """A `SecretStore` (`upstream/auth/grant.py`) of encrypted files. Nothing is made before it is needed."""

    def __init__(self, directory: Path | None = None, source: KeySource | None = None) -> None:
        """`directory`: where the files are; left out, this user's own."""
        self._given = directory
        self._source = source
        self._has_complained = False

    @cached_property
    def _directory(self) -> Path:
        return self._given or secrets_directory(os.environ)

    async def load(self, key: str) -> bytes | None:
        """What is kept under `key`. See `SecretStore`."""
        path = self._path(key)
        try:
            is_there = path.exists()  # usually not: nobody signed in to this server. Not worth a thread
        except OSError as error:
            # Another user's, say. A server that needs no sign-in must not suffer for it.
            self._complain(error)
            is_there = False
        if not is_there:
            return None
        return await anyio.to_thread.run_sync(self._load, key, path)

    async def save(self, key: str, value: bytes) -> None:
        """Keep `value`. See `SecretStore`."""
        await anyio.to_thread.run_sync(self._save, key, value)

    async def close(self) -> None:
        """Nothing is open."""

    async def drop(self, key: str) -> bool:
        """Forget what is kept under `key`. See `SecretStore`."""
        try:
            self._path(key).unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def lock(self, name: str, seconds: float) -> AsyncGenerator[None]:
        """Hold a lock over all processes. See `SecretStore`."""
        self._make_directory()
        async with file_lock(self._directory / f"{_digest(name)}.lock", seconds):
            yield

    def _complain(self, error: OSError) -> None:
        """Once: whoever waits for a sign-in looks every few seconds."""
        if not self._has_complained:
            self._has_complained = True
            log.warning("the store of tokens cannot be read", directory=str(self._directory), reason=error.strerror)

    def _path(self, key: str) -> Path:
        return self._directory / f"{_digest(key)}.sealed"

    def _load(self, key: str, path: Path) -> bytes | None:
        try:
            check_private(self._directory)
            with path.open("rb") as file:
                data = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"a stored sign-in cannot be read: {error.strerror}", file=str(path)) from error
        plain = opened(data, self._key(), key) if len(data) <= _LARGEST else None
        if plain is None:
            # Of another key or damaged: as good as not there, and the next sign-in replaces it.
            log.warning("stored sign-in cannot be decrypted; ignoring it", file=str(path))
        return plain

    def _save(self, key: str, value: bytes) -> None:
        self._make_directory()
        path = self._path(key)
        try:
            write_private(path, sealed(value, self._key(), key))
        except OSError as error:
            raise ConfigError(f"a sign-in cannot be stored: {error.strerror}", file=str(path)) from error

    def _make_directory(self) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot be made: {error.strerror}", file=str(self._directory)) from error
        check_private(self._directory)

    def _key(self) -> bytes:
        if self._source is None:
            self._source = best_source(self._directory)
        return self._source.key()


def sealed(value: bytes, key: bytes, name: str) -> bytes:
    """The bytes to write for a value, which is bound to its name."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE_BYTES)
    return _MAGIC + nonce + AESGCM(key).encrypt(nonce, value, name.encode())


def opened(data: bytes, key: bytes, name: str) -> bytes | None:
    """What was sealed with this key under this name; None: it was not, or somebody changed it."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    rest = data.removeprefix(_MAGIC)
    if len(rest) == len(data):
        return None
    try:
        return AESGCM(key).decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], name.encode())
    except (InvalidTag, ValueError):
        return None


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its user can read, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


class MemorySecrets:
    """A `SecretStore` for the life of one process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._locks = defaultdict[str, asyncio.Lock](asyncio.Lock)

    async def load(self, key: str) -> bytes | None:
        """What is kept under `key`. See `SecretStore`."""
        return self._values.get(key)

    async def save(self, key: str, value: bytes) -> None:
        """Keep `value`. See `SecretStore`."""
        self._values[key] = value

    async def close(self) -> None:
        """Nothing is open."""

    async def drop(self, key: str) -> bool:
        """Forget what is kept under `key`. See `SecretStore`."""
        return self._values.pop(key, None) is not None

    @asynccontextmanager
    async def lock(self, name: str, seconds: float) -> AsyncGenerator[None]:
        """Hold a lock. See `SecretStore`."""
        lock = self._locks[name]
        with anyio.fail_after(seconds):
            await lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]
