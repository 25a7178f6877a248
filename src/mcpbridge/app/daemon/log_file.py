"""The daemon's log: standard error, which whoever started it has let lead to a file; kept from growing without end."""

import os
import stat
import sys
from pathlib import Path

LARGEST = 5 << 20
"""Bytes at which a file is put aside; one old one is kept beside the new. Whoever starts a daemon reads it, too."""
KEPT = ".1"
"""What the old one's name ends with."""

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


def rotate(path: Path, descriptor: int, *, largest: int = LARGEST) -> bool:
    """If the file is too large, put it aside and let the descriptor lead to a new one. Says whether it did.

    Processes that have it open go on writing to the old one.
    """
    try:
        if os.fstat(descriptor).st_size < largest:
            return False
        path.replace(path.with_name(path.name + KEPT))
        fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:  # it may have been removed, or the disk is full: the log goes on where it was
        return False
    os.dup2(fresh, descriptor, inheritable=True)
    os.close(fresh)
    return True


async def keep_small(path: Path, descriptor: int = 2) -> None:
    """Look at the size now and then, until cancelled. Cancelling is safe."""
    import anyio  # late: the proxy, which starts daemons, reads the numbers above

    while True:
        rotate(path, descriptor)
        await anyio.sleep(_LOOK_EVERY)
