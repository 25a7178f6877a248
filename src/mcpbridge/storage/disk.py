"""Whether a directory can take files: for `status` and `doctor`, which say so before something is lost."""

import os
from collections.abc import Iterable
from pathlib import Path

from mcpbridge.base.units import show_bytes

LEAST_FREE = 16 * 1024**2
"""Bytes of free room below which a disk counts as full: SQLite's journal alone may need as many."""
_READ_ONLY = 1
"""ST_RDONLY of statvfs(3)."""


def disk_problem(directory: Path) -> str:
    """Why nothing can be kept in a directory, or in the nearest one above it in which it would be made; empty: it can.

    Looks, and writes nothing.
    """
    if "\0" in str(directory):
        return f"no directory can be called {str(directory)!r}"
    try:
        where = next((one for one in (directory, *directory.parents) if one.exists()), directory)
        if not where.is_dir():
            return f"{directory} cannot be made: {where} is no directory"
        if hasattr(os, "statvfs"):
            found = os.statvfs(where)
            if found.f_flag & _READ_ONLY:
                return f"{where} is on a file system that is mounted read-only"
            free = found.f_bavail * found.f_frsize
            if free < LEAST_FREE:
                return f"the disk of {where} is full: {show_bytes(free)} are free"
        if not os.access(where, os.W_OK | os.X_OK):
            return f"this user may not write into {where}"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"{directory} cannot be used: {reason}"
    return ""


def disk_problems(directories: Iterable[Path]) -> list[str]:
    """What is wrong with any of them, each once."""
    return list(dict.fromkeys(filter(None, map(disk_problem, dict.fromkeys(directories)))))
