"""Write a changed configuration, so that it can be taken back: whole or not at all, with a copy of what was there."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from mcpbridge.client_files.backups import Backups
from mcpbridge.client_files.file_writing import ChangedMeanwhile, decoded, encoded, read_bytes, replace_file
from mcpbridge.errors import ConfigError

__all__ = ["Repair"]


class Repair:
    """The repairs of one file."""

    def __init__(self, path: Path, environ: Mapping[str, str], *, now: Callable[[], datetime] = datetime.now) -> None:
        self._path = path.resolve()  # what a link points to is changed, and the link stays
        self._backups, self._now = Backups(environ), now
        self.backup: Path | None = None
        """The copy of the file as it was before the first change; None: nothing was changed."""

    @property
    def text(self) -> str:
        """What the file says now.

        Raises:
            ConfigError: it cannot be read.
        """
        return decoded(self._read(), self._path)

    def write(self, before: str, after: str) -> None:
        """Put `after` into the place of `before`.

        Raises:
            ConfigError: it cannot be written, or was changed by somebody meanwhile; nothing has changed then.
        """
        data = self._read()
        if self.backup is None:
            self.backup = self._backups.keep("doctor", self._path, data, self._now())
        try:
            replace_file(self._path, encoded(before, data), encoded(after, data), private=True)
        except ChangedMeanwhile as error:
            hint = "Run `mcpbridge doctor` once more."
            raise ConfigError("somebody else changed it meanwhile", file=str(self._path), hint=hint) from error

    def forget_backup(self) -> None:
        """Everything was taken back, so that the copy is of no use."""
        if self.backup is not None:
            self._backups.drop(str(self.backup))
            self.backup = None

    def _read(self) -> bytes:
        data = read_bytes(self._path)
        if data is None:
            raise ConfigError("it is gone", file=str(self._path))
        return data
