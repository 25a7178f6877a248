"""Files beneath a root: the only way by which tools reach files for a model.

A root is a directory that is held by a descriptor. Whatever a path says, it is followed from there (`walk.py`), so
nobody who swaps directories for links meanwhile gets anything else opened; checking a path first and opening it then
lets such a swap through. Only regular files are read, as reading a pipe or device can wait for ever or do something.

`entries` lists what is beneath a directory, in order, by descriptors: links are named and never followed.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock

from msgspec import Struct

from mcpbridge.sandbox.files.hard_links import PATIENCE, PAUSE, SEVERAL_NAMES, HardLinks, is_only_name, others_may_write
from mcpbridge.sandbox.files.names import Parts, Sealed, refused
from mcpbridge.sandbox.files.rules import Rules
from mcpbridge.sandbox.files.walk import DIRECTORY, LeadsOut, Place, descend, look, walk

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNREAL = ("/proc", "/proc/sys/fs/binfmt_misc", "/sys", "/sys/fs/cgroup", "/sys/fs/bpf", "/sys/kernel/debug")
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(status: os.stat_result) -> str:
    """What is there, with its article; empty: a regular file."""
    return "" if stat.S_ISREG(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")


class Opened:
    """A regular file that is open for reading. Who gets it closes `descriptor`."""

    def __init__(self, descriptor: int, parts: Parts, status: os.stat_result) -> None:
        self.descriptor, self.parts, self.status = descriptor, parts, status

    def read(self, most: int, start: int = 0) -> bytes:
        """Up to so many bytes from `start` on; fewer if it is shorter, also if it just became so."""
        pieces: list[bytes] = []
        while most > 0:
            piece = os.pread(self.descriptor, min(most, 1 << 20), start)
            if not piece:
                break
            pieces.append(piece)
            most -= len(piece)
            start += len(piece)
        return b"".join(pieces)


class Root:
    """One directory beneath which tools work. Its methods may be called from several threads at a time."""

    def __init__(
        self,
        path: Path | str,
        *,
        name: str = "",
        rules: Rules | None = None,
        sealed: Sealed | None = None,
        hard_links: HardLinks = "auto",
        uses_openat2: bool = True,
    ) -> None:
        """`path`: absolute; links in it count as they are now. `name`: what paths in messages begin with.

        `hard_links`: whether files with several names are read. `uses_openat2`: where the kernel has it; without, every
        step is taken here.
        """
        self.name, self.rules = name, rules or Rules()
        self.path = Path(os.path.realpath(path))
        self._spelt = {tuple(Path(os.path.abspath(path)).parts[1:]), self.path.parts[1:]}  # noqa: PTH100 - keeps links
        self._sealed, self._hard_links, self._uses_openat2 = sealed or Sealed(), hard_links, uses_openat2
        self._held: int | None = None
        self._lock = Lock()

    def close(self) -> None:
        """Let go of the directory. Used again, it is opened again."""
        with self._lock:
            if self._held is not None:
                os.close(self._held)
            self._held = None

    def __del__(self) -> None:
        if getattr(self, "_held", None) is not None:
            self.close()

    def beneath(self, path: str) -> Sequence[str] | None:
        """The names of an absolute path below this root, `..` among them unchanged; None: it is not below."""
        names = [name for name in path.split("/") if name not in ("", ".")]
        for spelt in self._spelt:
            if tuple(names[: len(spelt)]) == spelt:
                return names[len(spelt) :]
        return None

    def path_of(self, parts: Sequence[str]) -> str:
        """A path as the tools take it."""
        return "/".join((self.name, *parts) if self.name else parts) or "."

    @contextmanager
    def place(self, parts: Parts, *, makes: bool = False) -> Generator[Place]:
        """Where a file is or would be; nothing is checked but that it is beneath. `makes` as `why_unwritten` lets.

        Raises:
            PathRefused: it is not beneath, or the root is not there.
            OSError: as open(2): a directory on the way is missing or is none.
        """
        top = self._opened()
        try:
            if makes:
                place = walk(top, parts, self.beneath, allow=self._allow)
            else:
                place = descend(top, parts, self.beneath, uses_openat2=self._uses_openat2)
        except LeadsOut as error:
            raise refused(self.path_of(parts), str(error)) from None
        finally:
            os.close(top)
        with place:
            yield place

    @contextmanager
    def opened(self, parts: Parts) -> Generator[Opened]:
        """A regular file, open for reading.

        Raises:
            PathRefused: it is none of those that tools may read.
            OSError: as open(2), such as FileNotFoundError; IsADirectoryError for a directory.
        """
        with self.place(parts) as place:
            opened = self.open_at(place)
        try:
            yield opened
        finally:
            os.close(opened.descriptor)

    def open_at(self, place: Place) -> Opened:
        """As `opened`, of a place. The caller closes the descriptor."""
        status = place.status
        if why := self.why_unread(place.parts, status):
            raise refused(self.path_of(place.parts), why)
        if status is None:
            raise FileNotFoundError(self.path_of(place.parts))
        self._only_regular(place, status)  # before it is opened: opening a device can do something
        is_strict, until = self.refuses_hard_links(place.directory), time.monotonic() + PATIENCE
        while True:
            opened = self._opened_at(place)
            try:
                is_only = not is_strict or is_only_name(place.name, place.directory, opened.descriptor)
            except BaseException:
                os.close(opened.descriptor)
                raise
            if is_only:
                return opened
            os.close(opened.descriptor)
            if is_only is False:
                raise refused(self.path_of(place.parts), SEVERAL_NAMES)
            if time.monotonic() > until:
                raise refused(self.path_of(place.parts), "names change there all the time, so it cannot be checked")
            time.sleep(PAUSE)

    def _opened_at(self, place: Place) -> Opened:
        descriptor = os.open(place.name, _READ, dir_fd=place.directory)
        try:
            status = os.fstat(descriptor)
            self._only_regular(place, status)
            if status.st_nlink > 1 and (why := self.why_unread(place.parts, status)):
                raise refused(self.path_of(place.parts), why)
        except BaseException:
            os.close(descriptor)
            raise
        return Opened(descriptor, place.parts, status)

    def refuses_hard_links(self, directory: int) -> bool:
        """Whether files with several names are not read in a directory beneath this root."""
        if self._hard_links != "auto":
            return self._hard_links == "refuse"
        if others_may_write(os.fstat(directory)):
            return True
        top = self._opened()
        try:
            return others_may_write(os.fstat(top))
        finally:
            os.close(top)

    @contextmanager
    def directory(self, parts: Parts) -> Generator[tuple[int, Parts]]:
        """A directory open to be listed, and where it is on the disk.

        Raises:
            PathRefused: tools are not to look there.
            OSError: as open(2), such as NotADirectoryError.
        """
        with self.place(parts) as place:
            if self.rules.hides(place.parts) or self.is_sealed(place.parts, place.status):
                raise refused(self.path_of(place.parts), "it is not open to tools")
            descriptor = os.open(place.name, _LIST, dir_fd=place.directory)
        try:
            yield descriptor, place.parts
        finally:
            os.close(descriptor)

    def why_unread(self, parts: Parts, status: os.stat_result | None) -> str:
        """Why the content of a file is not shown; empty: it may be."""
        if status is not None and status.st_dev in _unreal():
            return "it belongs to the system, not to a disk"
        if self.is_sealed(parts, status):
            return "it is the bridge's own"
        return self.rules.why_unread(parts)

    def why_unwritten(self, parts: Parts, status: os.stat_result | None) -> str:
        """Why a file is not written; empty: it may be."""
        if status is not None and status.st_dev in _unreal():
            return "it belongs to the system, not to a disk"
        if self.is_sealed(parts, status):
            return "it is the bridge's own"
        return self.rules.why_unwritten(parts)

    def is_sealed(self, parts: Parts, status: os.stat_result | None) -> bool:
        """It belongs to the bridge itself."""
        return self._sealed.holds((*self.path.parts, *parts), status)

    def _allow(self, parts: Parts) -> None:
        if why := self.why_unwritten(parts, None):
            raise refused(self.path_of(parts), why)

    def _only_regular(self, place: Place, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(self.path_of(place.parts))
        if kind := kind_of(status):
            raise refused(self.path_of(place.parts), f"it is {kind}, and only regular files are read and written")

    def _opened(self) -> int:
        """A descriptor of the root for one use.

        The directory is held. One that took its place since (a fresh checkout) is taken up, but only at the same place
        without a link on the way: else whoever may write beside the root could point it elsewhere.
        """
        with self._lock:
            try:
                now = self.path.lstat()
                if self._held is None or not os.path.samestat(os.fstat(self._held), now):
                    fresh = self._reached()
                    if self._held is not None:
                        os.close(self._held)
                    self._held = fresh
                return os.dup(self._held)
            except OSError as error:
                why = error.strerror or "it cannot be opened"
                raise refused(self.name or str(self.path), f"the root does not exist: {why}") from None

    def _reached(self) -> int:
        """The directory anew, through no link."""
        top = os.open("/", DIRECTORY)
        try:
            with walk(top, self.path.parts[1:], lambda _: None) as place:
                if place.parts != self.path.parts[1:]:
                    raise LeadsOut
                return os.open(place.name, DIRECTORY, dir_fd=place.directory)
        except LeadsOut:
            raise NotADirectoryError(errno.ENOTDIR, "there is a link now") from None
        finally:
            os.close(top)


@cache
def _unreal() -> frozenset[int]:
    """Devices of file systems that the kernel makes up: what stands there tells of processes, this one included."""
    devices = set[int]()
    for path in _UNREAL:
        try:
            devices.add(os.stat(path).st_dev)  # noqa: PTH116 - a text comes in, and a `Path` is of no use
        except OSError:
            continue
    return frozenset(devices - {os.stat("/").st_dev})  # noqa: PTH116 - a text comes in, and a `Path` is of no use


MOST_NAMES = 200_000
"""Names that a directory may have to be listed."""

_CLOSED = frozenset((".git", ".hg", ".svn", ".jj"))
"""Named, and not looked into: thousands of files that say nothing to a reader."""

_LAST = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))
"""Looked into after all others, as are names with a dot: large, and mostly not what is looked for."""


class Entry(Struct):
    """One thing in a directory. Its `directory` is open until the next one is asked for."""

    parts: Parts
    """From the root down to it."""
    status: os.stat_result
    directory: int
    """Descriptor of what it is in."""
    above: int
    """How many of the names lead to where the listing began."""
    cut: str = ""
    """Why it was not looked into, if it is a directory that should have been."""

    @property
    def name(self) -> str:
        """Its own."""
        return self.parts[-1]

    @property
    def beneath(self) -> Parts:
        """From where the listing began down to it."""
        return self.parts[self.above :]

    @property
    def is_directory(self) -> bool:
        """It can have entries of its own."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def place(self) -> Place:
        """For `Root.open_at`; nobody else closes its directory."""
        return Place(self.directory, self.name, self.parts, self.status)

    def target(self) -> str:
        """Where a link points; empty: it is none, or is gone."""
        try:
            return os.readlink(self.name, dir_fd=self.directory)
        except OSError:
            return ""


class _Listing(Struct):
    """How is looked."""

    root: Root
    above: int
    hidden: bool
    enters: Callable[[Parts], bool]
    look_up: Callable[[], None]


def entries(
    root: Root,
    parts: Parts,
    *,
    depth: int,
    hidden: bool,
    enters: Callable[[Parts], bool] = lambda _: True,
    look_up: Callable[[], None] = lambda: None,
) -> Generator[Entry]:
    """What is in the directory `parts`, by name, each directory followed by what is in it, `depth` levels down.

    `hidden`: also names that begin with a dot. `enters` says of a directory, by the names from where the listing began,
    whether the walk enters it. `look_up` is called for each entry, and raises to end it.

    Raises:
        PathRefused: tools are not to look there.
        OSError: as `Root.directory`.
    """
    with root.directory(parts) as (descriptor, there):
        look_for = _Listing(root, len(there), hidden, enters, look_up)
        yield from _within(look_for, descriptor, _names(descriptor, look_up), there, depth)


def _within(look_for: _Listing, directory: int, names: list[str], parts: Parts, depth: int) -> Generator[Entry]:
    root = look_for.root
    for name in names:
        look_for.look_up()
        inner = (*parts, name)
        if (name.startswith(".") and not look_for.hidden) or root.rules.hides(inner):
            continue
        status = look(directory, name)
        if status is None or root.is_sealed(inner, status):
            continue
        entry = Entry(inner, status, directory, look_for.above)
        if not entry.is_directory or depth <= 1 or name in _CLOSED or not look_for.enters(entry.beneath):
            yield entry
            continue
        try:
            descriptor = os.open(name, _LIST, dir_fd=directory)
        except OSError as error:  # gone, swapped for a link, or not readable
            entry.cut = error.strerror or "cannot be opened"
            yield entry
            continue
        try:
            below: list[str] = []
            try:
                below = _names(descriptor, look_for.look_up)
            except OSError as error:
                entry.cut = error.strerror or "cannot be listed"
            yield entry
            yield from _within(look_for, descriptor, below, inner, depth - 1)
        finally:
            os.close(descriptor)


def _names(directory: int, look_up: Callable[[], None]) -> list[str]:
    names: list[str] = []
    with os.scandir(directory) as listing:
        for entry in listing:
            look_up()
            names.append(entry.name)
            if len(names) > MOST_NAMES:
                raise OSError(errno.EFBIG, f"more than {MOST_NAMES:,} names in one directory")
    return sorted(names, key=lambda name: (name.startswith(".") or name in _LAST, name))
