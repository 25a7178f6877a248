"""Lock files on disk: `servers.lock` beside the configuration, and its definitions in `servers.lock.d/`.

A definition is read by its digest, and what does not have that digest does not count. Files are written whole.
"""

from collections.abc import Mapping
from pathlib import Path

from mcpbridge.base.errors import ConfigError
from mcpbridge.catalog.definitions.pins.canonical import Ignored, canonical, digest
from mcpbridge.catalog.definitions.pins.lock_file import Lock, parse_lock, render_lock

LARGEST = 32 * 1024**2
"""Bytes of a lock file or of one definition."""


def lock_path(config: str) -> Path:
    """The lock file of a configuration: beside it, with `.lock` in the place of its suffix."""
    return Path(config).with_suffix(".lock")


class LockFiles:
    """A lock file and the directory of its definitions."""

    def __init__(self, path: Path, *, private: bool = False) -> None:
        """`private`: only this user may read what is written."""
        self.path = path
        self.directory = path.with_name(f"{path.name}.d")
        self._mode = 0o600 if private else 0o644
        self._directory_mode = 0o700 if private else 0o755

    def read(self) -> Lock | None:
        """What is approved; None: there is no such file.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            if self.path.stat().st_size > LARGEST:
                raise ConfigError("it is too large for a lock file", file=str(self.path))
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"it cannot be read: {error}", file=str(self.path)) from error
        return parse_lock(text, str(self.path))

    def definition(self, wanted: str, ignored: Ignored = ()) -> bytes | None:
        """The definition of this digest; None: there is none, or it is not what it claims to be."""
        try:
            file = self.directory / f"{wanted}.json"
            if file.stat().st_size > LARGEST:
                return None
            raw = file.read_bytes().strip()
        except OSError:
            return None
        return raw if digest(raw, ignored) == wanted else None

    def write(self, lock: Lock, definitions: Mapping[str, bytes]) -> bool:
        """Write a lock, and the definitions that it names and that are given by digest; others go. Says if it changed.

        Raises:
            ConfigError: it cannot be written.
        """
        text = render_lock(lock).encode()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.mkdir(mode=self._directory_mode, exist_ok=True)
            named = lock.digests()
            for name in sorted(named & definitions.keys()):
                file = self.directory / f"{name}.json"
                content = canonical(definitions[name]) + b"\n"
                if not file.exists() or file.read_bytes() != content:
                    self._put(file, content)
            is_new = not self.path.exists() or self.path.read_bytes() != text
            if is_new:
                self._put(self.path, text)
            for file in self.directory.glob("*.json"):
                if file.stem not in named:
                    file.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"it cannot be written: {error.strerror}", file=str(self.path)) from error
        return is_new

    def _put(self, file: Path, content: bytes) -> None:
        draft = file.with_name(f"{file.name}.new")
        draft.write_bytes(content)
        draft.chmod(self._mode)
        draft.replace(file)
