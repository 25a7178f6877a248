"""The private work folder of one job: made, filled, and removed whatever the job did to it.

While it is in use it is locked: so those that a killed bridge left behind are known, and the next one removes them.
"""

import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mcpbridge.logs import get_logger

__all__ = ["make_folder", "remove_folder", "remove_leftovers", "temporary_directory"]

log = get_logger("mcpbridge.sandbox")

_PREFIX = "mcpbridge-job-"
_OLD = 60.0
"""Seconds after which a folder that is not locked is nobody's: it was not merely about to be."""

_locks: dict[str, int] = {}


def temporary_directory() -> str:
    """Where private folders are made, without links."""
    return str(Path(tempfile.gettempdir()).resolve())


def make_folder(files: Mapping[str, bytes], uid: int | None) -> str:
    """Its path, without links. Nobody but `uid` (None: the user of the bridge) gets into it.

    Raises:
        ValueError: a file's name is no plain name.
    """
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=temporary_directory()))
    try:
        _lock(str(folder))
        for name, data in files.items():
            if name in ("", ".", "..") or "\0" in name or Path(name).name != name:
                raise ValueError(f"'{name}' is no plain file name")
            (folder / name).write_bytes(data)
            if uid is not None:
                os.chown(folder / name, uid, uid)
        if uid is not None:
            os.chown(folder, uid, uid)
    except BaseException:
        remove_folder(str(folder))
        raise
    return str(folder)


def remove_folder(folder: str) -> None:
    """Remove it with all that is in it, also what the job made unreadable or nested without end. Never raises.

    Links are removed, not followed.
    """
    try:
        _clear(folder)
    except OSError as error:
        log.warning("a work folder cannot be removed", folder=folder, reason=error.strerror)
    finally:
        if (lock := _locks.pop(folder, None)) is not None:
            os.close(lock)


def remove_leftovers() -> None:
    """Remove the folders of bridges that were killed."""
    if sys.platform == "win32":
        return
    for folder in Path(temporary_directory()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            ours = os.geteuid() in (0, found.st_uid)
            if ours and stat.S_ISDIR(found.st_mode) and found.st_mtime < time.time() - _OLD and _is_free(str(folder)):
                remove_folder(str(folder))


def _lock(folder: str) -> None:
    if sys.platform != "win32":
        import fcntl

        _locks[folder] = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(_locks[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_free(folder: str) -> bool:
    """Whether nobody, in whatever container, has locked it."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _clear(folder: str) -> None:
    """Remove a folder level by level: no recursion, and no path longer than a name. All that ran in there is dead."""
    if sys.platform == "win32":
        shutil.rmtree(folder, ignore_errors=True)
        return
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(top, 0o700)
        mark, count = secrets.token_hex(8), 0
        waiting = _unlinked(top)
        while waiting:
            name = waiting.pop()
            os.chmod(name, 0o700, dir_fd=top)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            try:
                for below in _unlinked(inner):
                    count += 1
                    os.chmod(below, 0o700, dir_fd=inner)
                    os.rename(below, f"{mark}{count}", src_dir_fd=inner, dst_dir_fd=top)
                    waiting.append(f"{mark}{count}")
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(folder)  # noqa: PTH106


def _unlinked(descriptor: int) -> list[str]:
    """The directories in one, of which everything else was removed."""
    found: list[str] = []
    with os.scandir(descriptor) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                found.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=descriptor)
    return found
