"""Reads and replaces files of other programs: whole or not at all, and never over a change made meanwhile."""

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from mcpbridge.base.errors import ConfigError

_LARGEST_FILE = 64 * 1024**2
_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""By their byte order marks; PowerShell writes the first."""


class ChangedMeanwhile(Exception):
    """The file is not as it was read."""


def read_bytes(path: Path) -> bytes | None:
    """The content of a file; None: it is not there.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    if len(data) > _LARGEST_FILE:
        raise ConfigError("larger than 64 MiB, which no configuration is", file=str(path))
    return data


def decoded(data: bytes, path: Path) -> str:
    """The text of a file, with its line ends and its byte order mark.

    Raises:
        ConfigError: it is no text.
    """
    try:
        return data.decode(_UTF_16.get(data[:2], "utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8", file=f"{path}:{line}", hint="Save it as UTF-8.") from error


def encoded(text: str, like: bytes) -> bytes:
    """The text in the encoding of the file that it was.

    Raises:
        ConfigError: it has half characters in it, as paths may.
    """
    try:
        return text.encode(_UTF_16.get(like[:2], "utf-8"))
    except UnicodeEncodeError as error:
        raise ConfigError("the path of a program or configuration is not UTF-8 and cannot be written down") from error


def replace_file(path: Path, before: bytes | None, after: bytes | None, *, private: bool) -> None:
    """Write `after` into a file that held `before`; None: no file. Mode and owner of the file stay as they are.

    `path` is no symbolic link. A new file is for its owner alone if it is `private`. Directories are made as needed.

    Raises:
        ChangedMeanwhile: it holds something else by now.
        ConfigError: it cannot be written.
    """
    try:
        if after is None:
            _check(path, before)
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(after)
                _take_over(path, Path(name), private=private)
                file.flush()
                os.fsync(file.fileno())
            _check(path, before)  # last, so that little can happen in between
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error


def _check(path: Path, before: bytes | None) -> None:
    if read_bytes(path) != before:
        raise ChangedMeanwhile(str(path))


def _take_over(path: Path, new: Path, *, private: bool) -> None:
    """Give a new file the mode and the owner of the old one."""
    try:
        old = path.stat()
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        new.chmod(0o600 if private else 0o666 & ~mask)
        return
    shutil.copystat(path, new)  # extended attributes too
    os.utime(new)
    if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.chown(new, old.st_uid, old.st_gid)
    new.chmod(stat.S_IMODE(old.st_mode))
