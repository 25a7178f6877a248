"""What was done to files of clients: a copy of each as it was, and how to undo the edit without a trace.

Both are in the bridge's own state directory and the user's alone. Beside the file they would not be well placed:
copies hold secrets, a project's folder is under version control, and some clients read every file of a folder.

Show a change of a file without showing what others keep in it: values of its other lines may be secrets.
"""

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from mcpbridge.base.directories import state_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.files.edit import Edit, Undo
from mcpbridge.config.files.write_file import ChangedMeanwhile, read_bytes, replace_file

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
        with _alone(self._state / _LOCK):
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


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """No other install remembers anything meanwhile."""
    try:
        import fcntl
    except ImportError:  # Windows; two at a time are unlikely
        yield
        return
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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


_HIDDEN = "…"
_KEY = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_.-]+)"""
_STRUCTURE = re.compile(
    rf"\ufeff?\s*(?:-\s+)?(?:{_KEY}\s*:\s*)?[\[\]{{}},\s]*|\s*\[\[?mcp_servers(?:\.{_KEY})+\]\]?\s*"
)
"""A line without a value: brackets, a key of what comes below, or the header of a server in TOML."""
_VALUE = re.compile(rf"(\s*(?:-\s+)?{_KEY}\s*(?::|=(?!=))).*\S.*")

_Line = list[tuple[str, bool]]
"""The pieces of a line, and whether each is ours."""


def shown_change(path: str, before: str, after: str, edit: Edit = ()) -> str:
    """A unified diff. What `edit` put into `before` is shown as it is; without one, all values are hidden."""
    old = [_shown([(line, False)]) for line in before.split("\n")]
    new = [_shown(line) for line in _lines(before, after, edit)]
    return "\n".join(difflib.unified_diff(old, new, path, path, n=2, lineterm=""))


def _lines(before: str, after: str, edit: Edit) -> list[_Line]:
    pieces: _Line = []
    at = 0
    for splice in sorted(edit, key=lambda splice: (splice.start, splice.end)):
        pieces += [(before[at : splice.start], False), (splice.text, True)]
        at = splice.end
    pieces = [*pieces, (before[at:], False)] if edit else [(after, False)]
    lines: list[_Line] = [[]]
    for text, is_ours in pieces:
        first, *more = text.split("\n")
        lines[-1].append((first, is_ours))
        lines += [[(line, is_ours)] for line in more]
    return lines


def _shown(line: _Line) -> str:
    return "".join(text if is_ours else _blind(text) for text, is_ours in line if text).rstrip("\r")


def _blind(line: str) -> str:
    """A line with its keys, and without its values and comments."""
    if not line.strip() or _STRUCTURE.fullmatch(line):
        return line
    if found := _VALUE.match(line):
        return f"{found[1]} {_HIDDEN}"
    return re.sub(r"\S.*", _HIDDEN, line, flags=re.DOTALL)
