"""What is looked at in a repository before git is started: never without end, and never a pipe or a device.

A repository may be made to do harm: a file of many gigabytes costs nothing where it has holes, and a pipe is never read
to its end.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from mcpbridge.errors import PathRefused

__all__ = ["Entries", "whole"]

_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY"))
_MOST_ENTRIES = 10_000


class Entries:
    """Entries of the directories of one repository; together there are no more than an honest one has."""

    def __init__(self) -> None:
        self._left = _MOST_ENTRIES

    def of(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        """Those of a directory; none where it is not there, or none.

        Raises:
            PathRefused: all of them together are too many.
            OSError: it could not be read.
        """
        try:
            found = os.scandir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        with found:
            for entry in found:
                self._left -= 1
                if self._left < 0:
                    raise PathRefused(f"{folder}: there are more than {_MOST_ENTRIES:,} entries up to here")
                yield entry


def whole(file: Path, most: int) -> bytes:
    """What stands in a file of at most `most` bytes.

    Raises:
        PathRefused: it is larger, or no file.
        OSError: it cannot be read, or is a link.
    """
    descriptor = os.open(file, _FLAGS)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PathRefused(f"{file} is no plain file")
        data = opened.read(most + 1)
    if len(data) > most:
        raise PathRefused(f"{file} is larger than {most:,} bytes")
    return data
