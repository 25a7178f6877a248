"""How much a job holds on disk: what is in its work folder, and files without a name that it keeps open.

What it may hide from us (in a directory that nobody may read, or very deep) cannot be counted. Once it
hides something, whatever the file system has lost meanwhile counts as the job's.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterable

from msgspec import Struct

from mcpbridge.sandbox.job import Limits

__all__ = ["Written"]

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


def _size(found: os.stat_result) -> int:
    """Bytes that it takes, holes left out."""
    return found.st_blocks * _BLOCK if hasattr(found, "st_blocks") else found.st_size


def _free(folder: str) -> tuple[int, int]:
    """Bytes and entries for which the file system has room."""
    if not hasattr(os, "statvfs"):
        return 0, 0
    found = os.statvfs(folder)
    return found.f_bfree * found.f_frsize, found.f_ffree
