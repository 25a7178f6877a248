"""The private work folder of one job: created, filled, measured, and removed whatever the job did to it.

While it is in use it is locked: so those that a killed bridge left behind are known, and the next one removes them.

How much a job holds on disk is what is in its work folder, and files without a name that it keeps open. What it may
hide from us (in a directory that nobody may read, or very deep) cannot be counted. Once it hides something, whatever
the file system has lost meanwhile counts as the job's.
"""

import asyncio
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from mcpbridge.base.log import get_logger
from mcpbridge.sandbox.job import Limits

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
        log.warning("work folder cannot be removed", folder=folder, reason=error.strerror)
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
    os.rmdir(folder)  # noqa: PTH106 - as the lines above, which have no form with a `Path`


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


_LOOK_SECONDS = 0.1
"""Seconds between two looks, at least."""
_PAUSE = 5
"""So many times as long as a look took is the pause before the next."""
_DEEPEST = 100
"""Directories within each other that are looked into: what lies deeper takes ever longer to reach."""
_BLOCK = 512
"""Bytes of what `st_blocks` counts, on every system."""


class _Count(Struct):
    size: int = 0
    entries: int = 0
    hides: bool = False


class Written:
    """Looks at one job."""

    def __init__(self, folder: str, limits: Limits, pids: Callable[[], Iterable[int]]) -> None:
        """`pids`: its processes, asked at each look in another thread."""
        self._folder, self._limits, self._pids = folder, limits, pids
        self._free = _free(folder)

    async def exceeds(self) -> None:
        """Return as soon as it holds more than it may."""
        loop, pause = asyncio.get_running_loop(), _LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = loop.time()
            if await asyncio.to_thread(self.is_too_much):
                return
            pause = max(_LOOK_SECONDS, _PAUSE * (loop.time() - began))

    def is_too_much(self) -> bool:
        """Whether it holds more bytes, or entries of directories, than it may."""
        count = _Count()
        self._add_folder(count)
        if not self._is_over(count.size, count.entries):
            self._add_unnamed(count)
        if count.hides and not self._is_over(count.size, count.entries):
            lost = [before - now for before, now in zip(self._free, _free(self._folder), strict=True)]
            return self._is_over(*lost)
        return self._is_over(count.size, count.entries)

    def _is_over(self, size: int, entries: int) -> bool:
        return size > self._limits.disk or entries > self._limits.entries

    def _add_folder(self, count: _Count) -> None:
        waiting, seen = [(self._folder, 0)], set[int]()
        while waiting and not self._is_over(count.size, count.entries):
            inside, depth = waiting.pop()
            if depth > _DEEPEST:
                count.hides = True
                continue
            try:
                with os.scandir(inside) as entries:
                    for entry in entries:
                        count.entries += 1
                        found = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(found.st_mode):
                            waiting.append((entry.path, depth + 1))
                        if found.st_nlink == 1 or found.st_ino not in seen:
                            count.size += _size(found)
                        if found.st_nlink > 1:
                            seen.add(found.st_ino)
                        if self._is_over(count.size, count.entries):
                            break
            except (FileNotFoundError, NotADirectoryError):
                continue  # it is gone meanwhile
            except OSError:
                count.hides = True

    def _add_unnamed(self, count: _Count) -> None:
        """Files that were removed while they are open: their bytes stay until they are closed."""
        seen = set[tuple[int, int]]()
        for pid in self._pids():
            try:
                with os.scandir(f"/proc/{pid}/fd") as entries:
                    for entry in entries:
                        found = os.stat(entry.path)  # noqa: PTH116 - there may be many
                        if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                            if (key := (found.st_dev, found.st_ino)) not in seen:
                                count.size += _size(found)
                                count.entries += 1
                            seen.add(key)
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError:
                count.hides = True


def _size(status: os.stat_result) -> int:
    """Bytes that it takes, holes left out."""
    return status.st_blocks * _BLOCK if hasattr(status, "st_blocks") else status.st_size


def _free(folder: str) -> tuple[int, int]:
    """Bytes and entries for which the file system has room."""
    if not hasattr(os, "statvfs"):
        return 0, 0
    found = os.statvfs(folder)
    return found.f_bfree * found.f_frsize, found.f_ffree
