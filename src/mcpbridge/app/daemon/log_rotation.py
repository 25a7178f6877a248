"""The daemon's log file: opened by whoever starts the daemon, and put aside when it has grown too large.

Standard error of the daemon leads to it. The file is looked at when it is opened and every 30 seconds while the daemon
runs.
"""

import os
import stat
import sys
from pathlib import Path

LARGEST = 5 << 20
"""Bytes at which the file is put aside; one old file stays beside the new one."""
OLD_ENDING = ".1"
"""The name of the file that was put aside ends with it."""

_LOOK_EVERY = 30.0
"""Seconds between two looks at the size."""


def file_of(descriptor: int) -> Path | None:
    """The regular file that a descriptor leads to; None: it is something else, or its name is unknown."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        if sys.platform == "darwin":
            import fcntl

            named = fcntl.fcntl(descriptor, 50, bytes(1024)).rstrip(b"\0").decode()  # F_GETPATH
        else:
            named = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a path that is none
        path = Path(named)
        return path if os.path.samestat(path.stat(), os.fstat(descriptor)) else None
    except (OSError, ValueError):
        return None


def open_log(path: Path) -> int:
    """Open the log to append to, and put it aside first if it is too large. Returns its descriptor.

    Where no log can be written the descriptor leads to /dev/null.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(path, flags, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    if stat.S_ISREG(os.fstat(log).st_mode):
        rotate(path, log)
    return log


def rotate(path: Path, descriptor: int, *, largest: int = LARGEST) -> bool:
    """If the file is too large, put it aside and let the descriptor lead to a new one. Says whether it did.

    Processes that have it open continue to write to the old one.
    """
    try:
        if os.fstat(descriptor).st_size < largest:
            return False
        path.replace(path.with_name(path.name + OLD_ENDING))
        fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:  # it may have been removed, or the disk is full: the log goes on where it was
        return False
    os.dup2(fresh, descriptor, inheritable=os.get_inheritable(descriptor))
    os.close(fresh)
    return True


async def keep_small(path: Path, descriptor: int = 2) -> None:
    """Look at the size now and then, until cancelled. Cancelling is safe."""
    import anyio  # late: the proxy, which starts daemons, opens the log with this module

    while True:
        rotate(path, descriptor)
        await anyio.sleep(_LOOK_EVERY)
