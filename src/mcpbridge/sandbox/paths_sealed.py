"""The bridge's own files, which no tool touches: its configuration has secrets, its store the results of others."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from mcpbridge.sandbox.paths_names import fold

__all__ = ["Sealed"]

_BESIDE = ("-wal", "-shm", "-journal", ".lock", ".tmp", ".bak", ".new", ".old", "~")
"""Ends of names of what programs put beside a file; it holds the same."""


class Sealed:
    """Files and directories of the bridge itself, such as its configuration and store."""

    def __init__(self, paths: Iterable[Path | str] = ()) -> None:
        """They need not exist yet."""
        self._paths = [Path(os.path.realpath(path)) for path in paths]
        self._names = [tuple(fold(part) for part in path.parts) for path in self._paths]

    def holds(self, path: Sequence[str], found: os.stat_result | None) -> bool:
        """The place is one of them, beside one or beneath one; also a second name of such a file (a hard link).

        `path`: from the root of the file system down, without links; `found`: what is there.
        """
        if not self._paths:
            return False
        names = tuple(fold(part) for part in path)
        return any(_is_within(names, own) for own in self._names) or (
            found is not None and found.st_nlink > 1 and any(_is_same(own, found) for own in self._paths)
        )


def _is_within(names: tuple[str, ...], own: tuple[str, ...]) -> bool:
    if names[: len(own)] == own:
        return True
    is_beside = len(names) == len(own) and names[:-1] == own[:-1] and names[-1].startswith(own[-1])
    return is_beside and names[-1].removeprefix(own[-1]) in _BESIDE


def _is_same(path: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), found)
    except OSError:
        return False
