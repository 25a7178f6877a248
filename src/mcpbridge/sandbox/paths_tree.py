"""What stands beneath a directory, in order, by descriptors: links are named and never followed."""

import errno
import os
import stat
from collections.abc import Callable, Generator

from msgspec import Struct

from mcpbridge.sandbox.paths import Root
from mcpbridge.sandbox.paths_names import Parts
from mcpbridge.sandbox.paths_walk import Place, look

__all__ = ["Entry", "entries"]

MOST_NAMES = 200_000
"""Names that a directory may have to be listed."""

_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CLOSED = frozenset((".git", ".hg", ".svn", ".jj"))
"""Named, and not looked into: thousands of files that say nothing to a reader."""

_LAST = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))
"""Looked into after all others, as are names with a dot: large, and mostly not what is looked for."""


class Entry(Struct):
    """One thing in a directory. Its `directory` is open until the next one is asked for."""

    parts: Parts
    """From the root down to it."""
    found: os.stat_result
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
        return stat.S_ISDIR(self.found.st_mode)

    @property
    def place(self) -> Place:
        """For `Root.open_at`; nobody else closes its directory."""
        return Place(self.directory, self.name, self.parts, self.found)

    def target(self) -> str:
        """Where a link points; empty: it is none, or is gone."""
        try:
            return os.readlink(self.name, dir_fd=self.directory)
        except OSError:
            return ""


class _Look(Struct):
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
    whether it is looked into. `look_up` is called for each entry, and raises to end it.

    Raises:
        PathRefused: tools are not to look there.
        OSError: as `Root.directory`.
    """
    with root.directory(parts) as (descriptor, there):
        look_for = _Look(root, len(there), hidden, enters, look_up)
        yield from _within(look_for, descriptor, _names(descriptor, look_up), there, depth)


def _within(look_for: _Look, directory: int, names: list[str], parts: Parts, depth: int) -> Generator[Entry]:
    root = look_for.root
    for name in names:
        look_for.look_up()
        inner = (*parts, name)
        if (name.startswith(".") and not look_for.hidden) or root.rules.hides(inner):
            continue
        found = look(directory, name)
        if found is None or root.is_sealed(inner, found):
            continue
        entry = Entry(inner, found, directory, look_for.above)
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
    found: list[str] = []
    with os.scandir(directory) as listing:
        for entry in listing:
            look_up()
            found.append(entry.name)
            if len(found) > MOST_NAMES:
                raise OSError(errno.EFBIG, f"more than {MOST_NAMES:,} names in one directory")
    return sorted(found, key=lambda name: (name.startswith(".") or name in _LAST, name))
