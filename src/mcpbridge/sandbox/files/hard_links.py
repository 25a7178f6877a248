"""Whether a file is read that has several names (hard links), one of which may be outside of the root.

A hard link is no link that could be followed or refused: the file is in both places. Who may write in a root can so
show to tools what the bridge's user alone may read, where the system lets him make the link. What is checked is the
open descriptor; the name is only compared with it.
"""

import os
import sys
import time
from typing import Literal

HardLinks = Literal["auto", "refuse", "allow"]
"""Files with several names: refused, read, or (`auto`) refused where other users may write."""

PATIENCE = 1.5
"""Seconds until a file is refused of which nobody can say how many names it has, since names change all the time."""
PAUSE = 0.005
"""Seconds between two looks at it; a clock tick of the kernel, which is how finely it notes changes, is 1 to 10 ms."""

SEVERAL_NAMES = (
    "it has several names (hard links), so it may be a file from outside, and other users may write where it is "
    "(`builtin.files.hard_links`)"
)


def others_may_write(directory: os.stat_result) -> bool:
    """Somebody beside this user and root may make names in a directory.

    Access lists count: what they allow shows in the bits of the group.
    """
    return bool(directory.st_mode & 0o022) or directory.st_uid not in (os.geteuid(), 0)


def is_only_name(name: str, directory: int, descriptor: int) -> bool | None:
    """Whether an open file has this name, in an open directory, and no other one; None: nobody can say at this moment.

    Counting its names is not enough: who takes the name away after it was opened leaves one, that outside. So the name
    must have been there all the while in which names were counted. The time of the last change proves it, that of the
    directory or that of the file: the same before and after, and so long ago that a change meanwhile would show.

    The kernel notes that time, and counts names, before a name is really gone. So a change that is under way at the
    first look is waited for before the second one.
    """
    now = _now()
    before = os.fstat(directory), os.fstat(descriptor)
    if before[1].st_nlink > 1:
        return False
    try:
        _wait_for_changes(directory)
        named = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, PermissionError):
        return None
    counted = os.fstat(descriptor)
    if counted.st_nlink != 1 or not os.path.samestat(named, counted):
        return None
    after = os.fstat(directory), counted
    return True if any(_is_unchanged(*pair, now) for pair in zip(before, after, strict=True)) else None


def _wait_for_changes(directory: int) -> None:
    """Return when no change of names in it is under way that began before: reading a directory needs its lock.

    Raises:
        PermissionError: it may not be read.
    """
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        with os.scandir(descriptor) as entries:
            next(entries, None)
    finally:
        os.close(descriptor)


def _is_unchanged(before: os.stat_result, after: os.stat_result, now: int) -> bool:
    """Nothing changed between two looks, of which the first was not before `now`."""
    changed = before.st_ctime_ns
    step = 0 if changed % 1_000_000_000 else 1_000_000_000  # some file systems note whole seconds
    return changed == after.st_ctime_ns and changed + step < now


_COARSE_CLOCK = 5
"""CLOCK_REALTIME_COARSE of Linux, for which Python has no name."""


def _now() -> int:
    """The time by which the kernel notes changes."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(_COARSE_CLOCK)
    return time.time_ns() - 10_000_000
