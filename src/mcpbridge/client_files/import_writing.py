"""Carry out the plan of an import: secrets into private files, a copy of the configuration, then the configuration."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from mcpbridge.client_files.file_writing import ChangedMeanwhile, encoded, read_bytes, replace_file
from mcpbridge.client_files.importing import Plan
from mcpbridge.client_files.secret_names import Moved
from mcpbridge.errors import ConfigError

__all__ = ["carry_out"]


def carry_out(plan: Plan, now: datetime) -> Path | None:
    """Write what was planned, and return where what stood there before is kept; None: nothing did.

    Raises:
        ConfigError: it cannot be written, or the file is not as it was when the plan was made.
    """
    if plan.secrets_to == "file" and plan.moved:
        _make_private(plan.folder)
        for one in plan.moved:
            _write_secret(plan.folder, one)
    after = encoded(plan.text, plan.before or b"")
    if after == plan.before:
        return None
    backup = None
    try:
        if plan.before is not None:
            backup = _kept(plan.path, plan.before, now)
            if plan.kept:
                plan.path.chmod(plan.path.stat().st_mode & 0o700)
        replace_file(plan.path, plan.before, after, private=bool(plan.kept))
    except ChangedMeanwhile as error:
        raise ConfigError("somebody changed it meanwhile", file=str(plan.path), hint="Run it again.") from error
    return backup


def _kept(path: Path, data: bytes, now: datetime) -> Path:
    """A copy of the file, beside it, under a name that none has."""
    for copy in _names(path, now):
        with suppress(ChangedMeanwhile):
            replace_file(copy, None, data, private=True)
            return copy
    raise AssertionError("numbers do not end")


def _names(path: Path, now: datetime) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.{now:%Y-%m-%d-%H%M%S}.bak")
    for number in count(2):
        yield path.with_name(f"{path.name}.{now:%Y-%m-%d-%H%M%S}-{number}.bak")


def _make_private(folder: Path) -> None:
    if folder.is_symlink():
        hint = "Make it a directory of its own, or import with --secrets env."
        raise ConfigError("is a link, and private files go into no directory elsewhere", file=str(folder), hint=hint)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", file=str(folder)) from error


def _write_secret(folder: Path, secret: Moved) -> None:
    path = folder / secret.variable
    before = read_bytes(path)
    after = f"{secret.value}\n".encode()
    if before != after:
        replace_file(path, before, after, private=True)
