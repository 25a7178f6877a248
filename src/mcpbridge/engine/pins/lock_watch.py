"""Follow `servers.lock` while the bridge runs: is it there, which one is it, and what does it agree to.

It is read when it has changed, and understood only where something is compared with it: at most starts nothing is.
One that is broken agrees to nothing, or to what it did before, if this process has read it then.
"""

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

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

    def follow(self, source: str | None) -> None:
        """From now on it is the lock of this configuration."""
        path = Path(source).absolute().parent / LOCK_NAME if source is not None else None
        if path != self.path:
            self.path, self.digest, self.fault = path, "", ""
            self._stamp, self._lock, self._is_read = None, None, False
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
        if stamp == self._stamp and (stamp is None or self.digest):
            return False
        before, self._stamp = self.digest, stamp
        self.digest = self._digest() if stamp is not None else ""
        if self.digest == before:
            return False
        self._is_read = False
        return True

    @property
    def exists(self) -> bool:
        """There is one, whether or not it is understood."""
        return bool(self.digest)

    def status(self) -> dict[str, object]:
        """As JSON values."""
        return {"file": str(self.path or ""), "exists": self.exists, "fault": self.fault}

    def lock(self) -> "Lock":
        """What it agrees to. Never raises."""
        from mcpbridge.catalog.pins.lock_file import Lock, read_lock

        if not self._is_read and self.path is not None:
            self._is_read = True
            try:
                self._lock, self.fault = read_lock(self.path), ""
            except ConfigError as error:
                self.fault = str(error)
                log.error("servers.lock is not understood", reason=self.fault)
        return self._lock or Lock({})

    def definition(self, digest: str) -> bytes | None:
        """The agreed definition with this digest; None: it is lost."""
        from mcpbridge.catalog.pins.lock_file import read_definition

        return read_definition(self.path, digest) if self.path is not None else None

    def _digest(self) -> str:
        try:
            assert self.path is not None
            with self.path.open("rb") as file:
                return sha256(file.read()).hexdigest()
        except OSError:
            return "unreadable"
