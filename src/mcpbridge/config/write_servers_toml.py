"""Writes changes of the user's own servers.toml: checked as a whole before, with a backup, whole or not at all."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mcpbridge.base.directories import config_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.files.backups import Backups
from mcpbridge.config.files.write_file import ChangedMeanwhile, decoded, encoded, read_bytes, replace_file
from mcpbridge.config.load import Loaded, read
from mcpbridge.config.trust.content import whole_content
from mcpbridge.config.trust.decisions import TrustStore


@dataclass(frozen=True, slots=True)
class Change:
    """What a file is to come to."""

    path: Path
    """Links resolved: what a link points to is changed, and the link stays."""
    data: bytes | None
    """What it held; None: there is no file."""
    before: str
    after: str
    loaded: Loaded | None
    """What it comes to; None: nothing changes."""

    @property
    def written(self) -> bytes:
        """What it holds afterwards."""
        return encoded(self.after, self.data or b"")


@contextmanager
def keep_trust(path: Path, environ: Mapping[str, str], after: str) -> Generator[None]:
    """Within, one of our own commands writes `after` to a configuration: it stays trusted if it was.

    A file that is new is trusted, since nobody else wrote any of it; the user's own needs no trust.
    """
    store = TrustStore(environ)
    is_new = not path.exists() and path.parent != config_directory(environ)
    is_kept = is_new or (store.find(path) is not None and _is_trusted(path, environ, store))
    yield
    if is_kept:
        loaded = read(path, environ, text=after)
        store.add(path, whole_content(loaded.judged, loaded.content), loaded.masked_text)


def _is_trusted(path: Path, environ: Mapping[str, str], store: TrustStore) -> bool:
    try:
        loaded = read(path, environ)
    except ConfigError:
        return False
    return store.trusts(path, whole_content(loaded.judged, loaded.content))


def prepared(path: Path, edit: Callable[[str], str], environ: Mapping[str, str]) -> Change:
    """The change that `edit` makes of the text of a configuration. Nothing is written.

    Raises:
        ConfigError: the file, or what it would come to, is wrong; or it is none that is written here.
    """
    if path.suffix.lower() in (".json", ".jsonc"):
        hint = "Edit it, or take it over into a servers.toml: `mcpbridge import`."
        raise ConfigError("it is an mcpServers JSON of another program", file=str(path), hint=hint)
    path = path.resolve()
    data = read_bytes(path)
    before = decoded(data, path) if data is not None else ""
    after = edit(before)
    loaded = read(path, environ, text=after) if after != before else None
    return Change(path, data, before, after, loaded)


def write(change: Change, environ: Mapping[str, str]) -> None:
    """Write it; a copy of the file as it was is kept.

    Raises:
        ConfigError: it cannot be written, or somebody else changed the file meanwhile.
    """
    with keep_trust(change.path, environ, change.after):
        _write(change, environ)


def _write(change: Change, environ: Mapping[str, str]) -> None:
    if change.data is not None:
        Backups(environ).keep("change", change.path, change.data, datetime.now())
    else:
        change.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        replace_file(change.path, change.data, change.written, private=True)
    except ChangedMeanwhile:
        hint = "Nothing was written; do it once more."
        raise ConfigError("it was changed by somebody else in the meantime", file=str(change.path), hint=hint) from None


def undo(change: Change, environ: Mapping[str, str]) -> None:
    """Have the file as it was, unless somebody else changed it since. It is trusted then if it was before.

    Raises:
        ConfigError: it cannot be written.
    """
    with keep_trust(change.path, environ, change.before), suppress(ChangedMeanwhile):
        replace_file(change.path, change.written, change.data, private=True)
