"""Follows a path from a root down to a file on descriptors, so that nothing which is swapped meanwhile leads out.

Each directory is opened from the one before it, and never through a link. A link is read and its target walked in the
same way: beneath the root it leads on, out of it the way ends. The result is the directory that the file is in and the
names on the disk, by which rules are applied: `docs/x` that is `.git/config` by a link counts as the latter.

Where the kernel has openat2(2), it resolves a path without links in one step; Python has no name for that call. Where
the kernel has none, or a filter of a container forbids it, the steps are taken one by one.
"""

import errno
import os
import platform
import stat
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from struct import pack
from types import TracebackType
from typing import Self

from mcpbridge.sandbox.files.names import Parts

_NUMBER = 437
"""Of the system call, on these machines alike."""
_MACHINES = {"x86_64", "aarch64", "arm64", "riscv64"}
_BENEATH, _NO_MAGIC_LINKS, _NO_LINKS = 0x08, 0x02, 0x04

DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens a directory to continue from there; it need not be readable."""

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


MOST_LINKS = 32
"""Links on one way."""


class LeadsOut(Exception):
    """A link on the way leads out of the root, or in circles; the message completes "it is refused: …"."""


class Place:
    """Where a file is, or would be: a name in an open directory. A context manager that closes the directory."""

    def __init__(self, directory: int, name: str, parts: Parts, status: os.stat_result | None) -> None:
        self.directory = directory
        """Its descriptor."""
        self.name = name
        """`.` if the place is the directory itself."""
        self.parts = parts
        """From the root down to it, as it stands on the disk: none of the names is a link."""
        self.status = status
        """What is there; None: nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.directory)


def descend(top: int, parts: Parts, inside: Callable[[str], Sequence[str] | None], *, uses_openat2: bool) -> Place:
    """The place of a file that may be missing; its directory is there.

    `inside`: the names beneath the root of an absolute path, unresolved; None: it is not beneath. The kernel takes all
    steps at once where it can and there are no links.

    Raises:
        LeadsOut: see there.
        OSError: as open(2): a directory is missing or is none.
    """
    if uses_openat2 and parts and can_openat2():
        try:
            directory = open_directory(top, parts[:-1])
        except OSError as error:
            if error.errno not in NOT_HERE and not _may_be_link(error):
                raise
        else:
            place = Place(directory, parts[-1], parts, None)
            try:
                place.status = look(directory, parts[-1])
            except BaseException:
                os.close(directory)
                raise
            if place.status is None or not stat.S_ISLNK(place.status.st_mode):
                return place
            os.close(directory)
    return walk(top, parts, inside)


def _may_be_link(error: OSError) -> bool:
    return error.errno in (errno.ELOOP, errno.ENOTDIR)


def walk(
    top: int,
    parts: Sequence[str],
    inside: Callable[[str], Sequence[str] | None],
    *,
    allow: Callable[[Parts], None] | None = None,
) -> Place:
    """As `descend`, step by step. With `allow`, directories that are missing are made, if it does not raise.

    `allow` is handed the place of the file, of which no name can be a link, before the first is made.
    """
    way = _Walk(top, parts, inside)
    try:
        while way.queue:
            name = way.queue.popleft()
            if name == "..":
                way.up()
                continue
            status = look(way.directory, name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                way.follow(name)
            elif not way.queue:
                return Place(way.directory, name, (*way.names, name), status)
            else:
                if status is None and allow is not None and ".." not in way.queue:
                    allow((*way.names, name, *way.queue))
                    way.make(name)
                way.down(name)
        return Place(way.directory, ".", tuple(way.names), os.fstat(way.directory))
    except BaseException:
        os.close(way.directory)
        raise


def look(directory: int, name: str) -> os.stat_result | None:
    """What is under a name; a link is itself. None: nothing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


class _Walk:
    """Where a walk is."""

    def __init__(self, top: int, parts: Sequence[str], inside: Callable[[str], Sequence[str] | None]) -> None:
        self.queue = deque(parts)
        """Names that are still to go."""
        self.names: list[str] = []
        """Names gone, on the disk."""
        self.directory = os.open(".", DIRECTORY, dir_fd=top)
        self._top, self._inside, self._links = top, inside, 0

    def down(self, name: str) -> None:
        """Into a directory, which is no link even if it has just become one."""
        self._move(os.open(name, DIRECTORY, dir_fd=self.directory))
        self.names.append(name)

    def make(self, name: str) -> None:
        """Make a directory, unless somebody else just did."""
        try:
            os.mkdir(name, dir_fd=self.directory)
        except FileExistsError:
            pass

    def up(self) -> None:
        """Out of one, by the names: what `..` says on the disk may have been moved."""
        if not self.names:
            raise LeadsOut("a link leads out of the directories that are open to tools")
        self._restart(self.names[:-1])

    def follow(self, name: str) -> None:
        """Go where a link points."""
        self._links += 1
        if self._links > MOST_LINKS:
            raise LeadsOut("links in it lead in circles")
        target = os.readlink(name, dir_fd=self.directory)
        names: Sequence[str] = target.split("/")
        if target.startswith("/"):
            beneath = self._inside(target)
            if beneath is None:
                raise LeadsOut("a link leads out of the directories that are open to tools")
            names = beneath
            self._restart(())
        self.queue.extendleft(reversed([name for name in names if name not in ("", ".")]))

    def _restart(self, names: Sequence[str]) -> None:
        self._move(os.open(".", DIRECTORY, dir_fd=self._top))
        self.names = []
        for name in names:
            self.down(name)

    def _move(self, directory: int) -> None:
        os.close(self.directory)
        self.directory = directory
