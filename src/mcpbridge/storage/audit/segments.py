"""The files of the audit log: their names, how they are read from either end, and how one is begun.

Each is named after the number of its first line, so that their order is that of their names.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from mcpbridge.storage.audit.lines import Line, fields_of, read_line

LOCK = "lock"
"""The file whose lock a writer holds."""
_NAME = re.compile(r"([0-9]{12,18})\.jsonl")
_CHUNK = 64 * 1024
_LONGEST_LINE = 16 * 1024**2
"""Bytes; of a longer line only so much is read at a time."""


class Segment(Struct, frozen=True):
    """One file."""

    path: Path
    first: int
    """The number of its first line, as its name says."""

    @property
    def size(self) -> int:
        """Bytes of it."""
        return self.path.stat().st_size

    def began(self) -> str:
        """When its first line was written, as the line says; empty: that cannot be read."""
        with self.path.open("rb") as file:
            at = fields_of(file.readline(_LONGEST_LINE)).get("at")
        return at if isinstance(at, str) else ""

    def chain(self) -> str:
        """The id of the chain, as its first line says; empty: that cannot be read."""
        with self.path.open("rb") as file:
            chain = fields_of(file.readline(_LONGEST_LINE)).get("chain")
        return chain if isinstance(chain, str) else ""


class End(Struct, frozen=True):
    """How a file ends."""

    line: Line | None
    """The last one that is intact; None: there is none."""
    torn: bytes
    """What follows the last line end."""
    size: int
    is_clean: bool
    """The last line is the intact one."""


def segments_in(folder: Path) -> list[Segment]:
    """The files of a log, in the order of the chain; none if there is no folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - text is wanted
    except FileNotFoundError:
        return []
    found = [Segment(folder / name, int(match[1])) for name in names if (match := _NAME.fullmatch(name))]
    return sorted(found, key=lambda one: one.first)


def segment_at(folder: Path, first: int) -> Segment:
    """The file that begins with this line."""
    return Segment(folder / f"{first:012d}.jsonl", first)


def open_segment(path: Path) -> int:
    """A descriptor that appends to a file, which is made for its owner alone.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.open(path, flags, 0o600)


def lines_in(path: Path, size: int | None = None, offset: int = 0) -> Iterator[bytes]:
    """The lines of a file with their ends; the last may have none. `size`: bytes of it that are read; None: all."""
    left = None if size is None else size - offset
    with path.open("rb") as file:
        file.seek(offset)
        while raw := file.readline(_LONGEST_LINE if left is None else min(left, _LONGEST_LINE)):
            yield raw
            if left is not None:
                left -= len(raw)
                if left <= 0:
                    return


def end_of(path: Path) -> End:
    """How a file ends. It is read from its end, as far as needed."""
    size = path.stat().st_size
    length = min(size, _CHUNK)
    while True:
        with path.open("rb") as file:
            file.seek(size - length)
            data = file.read(length)
        whole, mark, torn = data.rpartition(b"\n")
        lines = (whole + mark).splitlines(keepends=True) if mark else []
        if length < size:
            lines = lines[1:]  # it may begin within this one
        for number, raw in enumerate(reversed(lines)):
            line = read_line(raw)
            if line is not None and line.is_intact:
                return End(line, torn if mark else data, size, not number and not torn)
        if length == size:
            return End(None, torn if mark else data, size, not size)
        length = min(size, length * 4)
