"""Backups of files that the bridge edits: a copy of each as it was, and a record of how to undo the edit.

Both are in the bridge's own state directory and the user's alone. Beside the file they would not be well placed:
copies hold secrets, a project's folder is under version control, and some clients read every file of a folder.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from mcpbridge.base.directories import state_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.files.edit import Undo
from mcpbridge.config.files.write_file import ChangedMeanwhile, read_bytes, replace_file
from mcpbridge.storage.file_locks import locked

_INDEX = "installs.json"
_LOCK = "installs.lock"


@dataclass(frozen=True, slots=True)
class Record:
    """One install."""

    client: str
    file: str
    """Its path, links resolved."""
    table: tuple[str, ...]
    """Where in it the entry is; one file may hold several tables."""
    written: str
    """The digest of the file as the install left it."""
    backup: str = ""
    """The path of the copy; empty: there was no file."""
    undo: Undo | None = None
    replaced: tuple[str, ...] = ()
    """Names of servers that were taken out of the file, and are in `servers.toml` since."""


def digest(data: bytes) -> str:
    """By which a file is recognised."""
    return hashlib.sha256(data).hexdigest()


class Backups:
    """The copies and records of this user."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._state = state_directory(environ)

    def keep(self, client: str, path: Path, data: bytes, at: datetime) -> Path:
        """A copy of a file's content.

        Raises:
            ConfigError: it cannot be written.
        """
        folder = self._state / "backups"
        self._make(folder)
        for number in range(1000):
            again = f"-{number}" if number else ""
            copy = folder / f"{client}-{path.name.lstrip('.')}.mcpbridge-{at:%Y%m%d-%H%M%S}{again}.bak"
            with suppress(ChangedMeanwhile):
                replace_file(copy, None, data, private=True)
                return copy
        raise ConfigError("too many copies of one moment", file=str(folder))

    def drop(self, copy: str) -> None:
        """Forget a copy that holds nothing that the file itself does not."""
        if copy:
            Path(copy).unlink(missing_ok=True)

    def find(self, path: Path, table: tuple[str, ...]) -> Record | None:
        """What the last install did there."""
        return _records(self._read()).get(_key(str(path), table))

    def remember(self, record: Record) -> None:
        """Keep it, in the place of an older one.

        Raises:
            ConfigError: it cannot be written.
        """
        self._update(lambda records: records.update({_key(record.file, record.table): record}))

    def forget(self, path: Path, table: tuple[str, ...]) -> None:
        """Nothing is installed there any more.

        Raises:
            ConfigError: it cannot be written.
        """
        if self.find(path, table):
            self._update(lambda records: records.pop(_key(str(path), table), None))

    def all(self) -> list[Record]:
        """What is installed, as far as it is remembered."""
        return list(_records(self._read()).values())

    def _read(self) -> bytes | None:
        return read_bytes(self._state / _INDEX)

    def _update(self, change: Callable[[dict[str, Record]], object]) -> None:
        self._make(self._state)
        with locked(self._state / _LOCK):
            before = self._read()
            records = _records(before)
            change(records)
            document = json.dumps({key: asdict(record) for key, record in records.items()}, indent=1)
            replace_file(self._state / _INDEX, before, document.encode(), private=True)

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder != self._state:
                folder.chmod(0o700)
        except OSError as error:
            raise ConfigError(f"cannot be made: {error.strerror}", file=str(folder)) from error


def _records(data: bytes | None) -> dict[str, Record]:
    """The records in the file; without those that are damaged, which uninstall does without."""
    try:
        document = cast("object", json.loads(data or b"{}"))
    except ValueError:
        return {}
    found: dict[str, Record] = {}
    for key, kept in cast("dict[str, dict[str, Any]]", document).items() if isinstance(document, dict) else ():
        with suppress(TypeError, KeyError, AttributeError):
            undo = Undo(**kept["undo"]) if kept["undo"] else None
            values: dict[str, Any] = {**kept, "undo": undo}
            values |= {name: tuple(map(str, kept[name])) for name in ("table", "replaced")}
            found[key] = Record(**values)
    return found


def _key(path: str, table: tuple[str, ...]) -> str:
    return f"{path}#{json.dumps(table)}"
