"""Files that a repository's configuration makes git read: one elsewhere would be shown, line by line, in complaints.

Most such settings are neutralised. These cannot be: an include is followed before anything else, and an empty value of
`blame.ignoreRevsFile` does not take back those before it. So their files have to lie where repositories may be.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mcpbridge.builtin.git_hardening import Entry
from mcpbridge.builtin.git_places import Place
from mcpbridge.errors import PathRefused

__all__ = ["check_files"]

_INCLUDE = re.compile(r"include\.path|includeif\..*\.path", re.DOTALL)


def check_files(place: Place, entries: Iterable[Entry], roots: Sequence[str], *, blames: bool) -> None:
    """Look at every file that git would read. `blames`: whether it is `git blame` that reads.

    Raises:
        PathRefused: one lies outside.
    """
    allowed = [os.path.realpath(root) for root in roots]
    for entry in entries:
        if _INCLUDE.fullmatch(entry.key):
            base = Path(place.directory, entry.origin).parent
        elif blames and entry.key == "blame.ignorerevsfile":
            base = Path(place.tree or place.git_dir)
        else:
            continue
        real = Path(os.path.realpath(base / entry.value))
        outside = entry.value.startswith(("~", "%")) or not any(real.is_relative_to(root) for root in allowed)
        if entry.value and outside:
            raise PathRefused(f"`{entry.key[:100]}` of the repository names a file elsewhere: {entry.value[:200]}")
