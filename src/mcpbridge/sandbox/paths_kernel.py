"""openat2(2): the kernel resolves a path beneath a directory and follows no link on the way.

Python has no name for it. Where the kernel has none either, or a filter of a container forbids it, `paths_walk` takes
the same steps one by one.
"""

import errno
import os
import platform
import sys
from collections.abc import Callable, Sequence
from functools import cache
from struct import pack

__all__ = ["DIRECTORY", "NOT_HERE", "can_openat2", "open_directory"]

_NUMBER = 437
"""Of the system call, on these machines alike."""
_MACHINES = {"x86_64", "aarch64", "arm64", "riscv64"}
_BENEATH, _NO_MAGIC_LINKS, _NO_LINKS = 0x08, 0x02, 0x04

DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens a directory to go on from there; it need not be readable."""

NOT_HERE = {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG, errno.EAGAIN}
"""Errors after which it is worth to walk: the call is missing, forbidden, or too much was moved meanwhile."""

_Call = Callable[[int, int, bytes, bytes, int], int]


def open_directory(top: int, parts: Sequence[str]) -> int:
    """A descriptor of the directory `parts` beneath the directory `top`; none of the names is a link.

    Raises:
        OSError: as open(2); ELOOP where a name is a link. See `NOT_HERE`.
    """
    call = _system_call()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = pack("=QQQ", DIRECTORY & ~os.O_NOFOLLOW, 0, _BENEATH | _NO_MAGIC_LINKS | _NO_LINKS)
    found = call(_NUMBER, top, os.fsencode("/".join(parts) or "."), how, len(how))
    if found < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "/".join(parts))
    return found


@cache
def can_openat2() -> bool:
    """It works here: tried once, as filters of containers forbid it in several ways."""
    try:
        top = os.open("/", DIRECTORY)
    except OSError:
        return False
    try:
        os.close(open_directory(top, ()))
    except OSError:
        return False
    finally:
        os.close(top)
    return True


@cache
def _system_call() -> _Call | None:
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return None
    import ctypes  # some milliseconds, paid with the first file

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    return call
