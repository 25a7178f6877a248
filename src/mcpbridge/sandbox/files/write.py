"""Writes a file whole or not at all: beside it first, then in its place by one rename.

Whoever reads it meanwhile has the old content or the new, also after a crash. Its mode and owner stay. A name that has
become a link meanwhile is replaced itself; nothing is written through it.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from mcpbridge.sandbox.files.names import Parts, refused
from mcpbridge.sandbox.files.paths import Opened, Root, kind_of
from mcpbridge.sandbox.files.walk import Place, look

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY

_EFFECTIVE = os.access in os.supports_effective_ids

MakeContent = Callable[[Opened | None], bytes]
"""From the file as it is (None: there is none) to what shall be in it."""


class Changed(Exception):
    """Somebody else changed the file meanwhile; nothing was written."""


class Written(Struct, frozen=True):
    """What came of it."""

    parts: Parts
    """Where, on the disk."""
    size: int
    was_there: bool


def write(
    root: Root,
    parts: Parts,
    content: MakeContent,
    *,
    creates: bool = True,
    replaces: bool = True,
    makes_directories: bool = False,
    commit: Callable[[], None] = lambda: None,
) -> Written:
    """Put what `content` makes into a file. `commit` is called at the last moment, and raises to leave all as it was.

    `creates`: it may be a new file; `replaces`: it may be one that is there.

    Raises:
        PathRefused: tools do not write there.
        Changed: it was changed by somebody else in the meantime.
        FileExistsError, FileNotFoundError: as `creates` and `replaces` have it.
        IsADirectoryError: it is a directory.
        OSError: as open(2) and write(2).
    """
    with root.place(parts, makes=makes_directories) as place:
        data = _new_content(root, place, content, creates=creates, replaces=replaces)
        _put(place, data, commit)
        return Written(place.parts, len(data), place.status is not None)


def check_write(
    root: Root,
    parts: Parts,
    content: MakeContent,
    *,
    creates: bool = True,
    replaces: bool = True,
    makes_directories: bool = False,
) -> None:
    """Raise what `write` would, as far as that can be known without changing anything. Arguments as there."""
    try:
        with root.place(parts) as place:
            _check_writable(root, place)
            _new_content(root, place, content, creates=creates, replaces=replaces)
    except FileNotFoundError:
        if not (creates and makes_directories) or not _can_make_directories(root, parts):
            raise
        content(None)


def _can_make_directories(root: Root, parts: Parts) -> bool:
    """Whether directories that are missing on the way to a file may be made; False: none is missing."""
    for length in range(len(parts) - 1, -1, -1):
        with suppress(FileNotFoundError), root.place(parts[:length]) as place:
            if place.status is None:
                continue
            names = (*place.parts, *parts[length:])
            if length == len(parts) - 1 or ".." in parts[length:]:
                return False
            if why := root.why_unwritten(names, None):
                raise refused(root.path_of(names), why)
            _check_writable(root, Place(place.directory, names[-1], names, None), beneath=place.name)
            return True
    return False


def _check_writable(root: Root, place: Place, *, beneath: str = ".") -> None:
    """Writing makes a new file beside the old one, so the directory counts."""
    if not os.access(beneath, os.W_OK | os.X_OK, dir_fd=place.directory, effective_ids=_EFFECTIVE):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), root.path_of(place.parts))


def _new_content(root: Root, place: Place, content: MakeContent, *, creates: bool, replaces: bool) -> bytes:
    _check(root, place)
    if place.status is None:
        if not creates:
            raise FileNotFoundError(root.path_of(place.parts))
        return content(None)
    if not replaces:
        raise FileExistsError(root.path_of(place.parts))
    return _content_for(root, place, content)


def _check(root: Root, place: Place) -> None:
    status = place.status
    why = root.why_unwritten(place.parts, status)
    if not why and status is not None:
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(root.path_of(place.parts))
        if kind := kind_of(status):
            why = f"it is {kind}, and only regular files are read and written"
        elif status.st_nlink > 1:
            why = "it has several names (hard links), so writing it could change another file"
        elif not status.st_mode & 0o222:
            why = "it is marked as not to be written"
    if why:
        raise refused(root.path_of(place.parts), why)


def _content_for(root: Root, place: Place, content: MakeContent) -> bytes:
    """What shall stand in a file that is there, which is the one that was looked at."""
    descriptor = os.open(place.name, _READ, dir_fd=place.directory)
    try:
        now = os.fstat(descriptor)
        if not _is_as_before(place.status, now):
            raise Changed(root.path_of(place.parts))
        return content(Opened(descriptor, place.parts, now))
    finally:
        os.close(descriptor)


def _put(place: Place, data: bytes, commit: Callable[[], None]) -> None:
    beside = f".mcpbridge-{secrets.token_hex(8)}.tmp"
    status = place.status
    descriptor = os.open(beside, _NEW, 0o666 if status is None else 0o600, dir_fd=place.directory)
    try:
        try:
            if status is not None:
                _take_after(descriptor, status)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        commit()
        if status is None:
            _name_new(place, beside)
        else:
            if not _is_as_before(status, look(place.directory, place.name)):
                raise Changed(place.name)
            os.replace(beside, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=place.directory)
        raise
    _keep_names(place.directory)


def _take_after(descriptor: int, status: os.stat_result) -> None:
    """Owner and mode of the file that is replaced; what only its owner may set is left out where we are not."""
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        with suppress(OSError):
            os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, status.st_mode & 0o777)


def _name_new(place: Place, beside: str) -> None:
    """Give a new file its name, if nobody else has taken it. Raises FileExistsError if so."""
    both = {"src_dir_fd": place.directory, "dst_dir_fd": place.directory}
    try:
        os.link(beside, place.name, follow_symlinks=False, **both)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # a file system, or a system, without hard links
        os.close(os.open(place.name, _NEW, 0o600, dir_fd=place.directory))
        os.replace(beside, place.name, **both)  # noqa: PTH105 - beneath descriptors
    else:
        os.unlink(beside, dir_fd=place.directory)


def _is_as_before(status: os.stat_result | None, now: os.stat_result | None) -> bool:
    if status is None or now is None:
        return status is now
    return _state(status) == _state(now)


def _state(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_nlink,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _keep_names(directory: int) -> None:
    """A name survives a crash of the machine once its directory is on the disk."""
    with suppress(OSError):  # file systems that cannot do so
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
