"""Follow `servers.lock` while the bridge runs: is it there, which one is it, and what does it agree to.

It is read when it has changed, and understood only where something is compared with it: at most starts nothing is.
One that is broken agrees to nothing, or to what it did before, if this process has read it then.
"""

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mcpbridge.base.directories import users_config_path
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger

if TYPE_CHECKING:  # loaded where a lock is compared with something
    from mcpbridge.catalog.pins.lock_file import Lock

log = get_logger("mcpbridge.pins")

LOCK_NAME = "servers.lock"
"""As in `catalog/pins/lock_file.py`, which is not loaded to find out that there is none."""


class LockWatch:
    """The lock of one configuration."""

    def __init__(self) -> None:
        self.path: Path | None = None
        """None: there is no configuration file, so there can be none."""
        self.digest = ""
        """SHA-256 of the file; empty: there is none."""
        self.fault = ""
        """Why it is not understood; empty: it is, or nobody has tried."""
        self._stamp: tuple[int, ...] | None = None
        self._lock: Lock | None = None
        self._is_read = False
        self._must_be_signed = False
        """The user trusts keys, so a lock counts only if one of these has signed it."""
        self._signature: tuple[int, ...] | None = None

    def follow(self, source: str | None) -> None:
        """From now on it is the lock of this configuration."""
        path = Path(source).absolute().parent / LOCK_NAME if source is not None else None
        if path != self.path:
            self.path, self.digest, self.fault = path, "", ""
            self._stamp, self._lock, self._is_read = None, None, False
            self._must_be_signed = path is not None and _are_keys_trusted()
        self.look()

    def look(self) -> bool:
        """See whether the file is another one now, which costs a `stat` if it is not."""
        if self.path is None:
            return False
        try:
            found = os.stat(self.path)  # noqa: PTH116 - once a second
            stamp = found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
        except FileNotFoundError:
            stamp = None
        except (OSError, ValueError):
            stamp = ()
        is_signed_anew = self._is_signed_anew() if self._must_be_signed else False
        if is_signed_anew:
            self._is_read = False
        if stamp == self._stamp and (stamp is None or self.digest):
            return is_signed_anew
        before, self._stamp = self.digest, stamp
        self.digest = self._digest() if stamp is not None else ""
        if self.digest == before:
            return is_signed_anew
        self._is_read = False
        if not self.exists:
            self.fault = ""
        return True

    @property
    def exists(self) -> bool:
        """There is one, or must be one, whether or not it is understood."""
        return bool(self.digest) or self._must_be_signed

    @property
    def basis(self) -> str:
        """What all depends on that is decided by it: its bytes and, where it must be signed, whether it may be used."""
        if self._must_be_signed:
            self.lock()
        return f"{self.digest} {self.fault}" if self._must_be_signed else self.digest

    def status(self) -> dict[str, object]:
        """As JSON values."""
        return {"file": str(self.path or ""), "exists": self.exists, "fault": self.fault}

    def lock(self) -> "Lock":
        """What it agrees to. Never raises."""
        from mcpbridge.catalog.pins.lock_file import Lock, read_lock

        if not self._is_read and self.path is not None:
            self._is_read = True
            try:
                self._lock, self.fault = self._signed_lock() if self._must_be_signed else read_lock(self.path), ""
            except ConfigError as error:
                self.fault = str(error)
                log.error("servers.lock is not understood", reason=self.fault)
        return self._lock or Lock({})

    def definition(self, digest: str) -> bytes | None:
        """The agreed definition with this digest; None: it is lost."""
        from mcpbridge.catalog.pins.lock_file import read_definition

        return read_definition(self.path, digest) if self.path is not None else None

    def _signed_lock(self) -> "Lock":
        """The lock, if it may be used. The bytes that are verified are those that are understood."""
        from mcpbridge.catalog.pins.lock_file import parse_lock
        from mcpbridge.catalog.pins.trusted_lock import lock_is_trusted

        assert self.path is not None, "the caller has looked"
        try:
            data = self.path.read_bytes()
        except OSError:
            data = None
        if why := lock_is_trusted(self.path, data):
            raise ConfigError(f"the lock {why}", file=str(self.path))
        if data is None:
            raise ConfigError("the lock was not there a moment ago", file=str(self.path))
        return parse_lock(data.decode(errors="replace").replace("\r\n", "\n"), str(self.path))

    def _is_signed_anew(self) -> bool:
        """Whether the signature is another one since the last look."""
        before, self._signature = self._signature, None
        try:
            found = os.stat(f"{self.path}.sig")  # noqa: PTH116 - once a second
            self._signature = found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
        except (OSError, ValueError):
            pass
        return self._signature != before

    def _digest(self) -> str:
        try:
            assert self.path is not None
            with self.path.open("rb") as file:
                return sha256(file.read()).hexdigest()
        except OSError:
            return "unreadable"


def _are_keys_trusted() -> bool:
    """As `must_be_signed` in `catalog/pins/trusted_lock.py`, which is not loaded to find out that none is."""
    return any(name.endswith(".pub") for name in _names_in(f"{users_config_path(os.environ)}/lock-keys"))


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - text is wanted
    except FileNotFoundError:
        return []
    except OSError:  # it cannot be known; to say that there are none would switch it off
        return [".pub"]
