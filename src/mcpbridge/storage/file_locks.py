"""Locks that all processes of one user see. The system frees a lock when its holder dies."""

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio

_LOOK = 0.05
"""Seconds between two tries."""


@asynccontextmanager
async def file_lock(path: Path, seconds: float) -> AsyncGenerator[None]:
    """Hold the lock that the file `path` stands for; waits at most `seconds`. The file stays behind, empty.

    Raises:
        TimeoutError: another holds it all the time.
        OSError: the file cannot be made.
    """
    descriptor = os.open(
        path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0), 0o600
    )
    try:
        with anyio.fail_after(seconds):
            while not _try_lock(descriptor):  # noqa: ASYNC110 - the other holder is another process
                await anyio.sleep(_LOOK)
        yield
    finally:
        os.close(descriptor)  # frees it


@contextmanager
def locked(path: Path) -> Generator[None]:
    """The same for a thread that may wait: as long as another holds it. Holders keep it for a moment only.

    Raises:
        OSError: the file cannot be made.
    """
    try:
        import fcntl
    except ImportError:  # Windows; two at a time are unlikely
        yield
        return
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class OwnedFile:
    """A file that shows that its process lives: locked from the beginning to the end, whatever that is."""

    def __init__(self, path: Path) -> None:
        """Make the file, which nobody else has, and lock it.

        Raises:
            OSError: it cannot be made.
        """
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self.descriptor = os.open(path, flags, 0o600)
        """Of the file, open to read and write."""
        _try_lock(self.descriptor)

    def close(self) -> None:
        """Remove the file and free the lock."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self.descriptor)


def is_owned(path: Path) -> bool:
    """Whether a process lives that holds this `OwnedFile`."""
    try:
        descriptor = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return False
    except OSError:  # it cannot be known; to say that it died would be worse
        return True
    try:
        return not _try_lock(descriptor, is_shared=True)  # several may look at a time
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, *, is_shared: bool = False) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return _try_lock_there(descriptor)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_there(descriptor: int) -> bool:  # pragma: no cover - Windows only
    import importlib

    msvcrt = importlib.import_module("msvcrt")
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
