"""Repositories within the working tree: git enters them by itself, in a process that forgets what was neutralised.

`git add`, `stash` and others ask each submodule whether it changed. That process clears the variables by which settings
are passed, so what the submodule's own configuration names would run. Such a repository is not worked on.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from mcpbridge.builtin.git_hardening import LISTING, entries_of
from mcpbridge.builtin.git_places import Place, place_of
from mcpbridge.errors import PathRefused

__all__ = ["Reader", "check_nested"]

Reader = Callable[[tuple[str, ...], Place], Awaitable[bytes]]
"""The output of a git command that only reads, in a place.

Raises:
    PathRefused: it failed, or says too much.
"""

_DEEPEST = 5
_RUNS = re.compile(r"core\.(fsmonitor|hookspath)|filter\..*\.(clean|smudge|process)", re.DOTALL | re.IGNORECASE)
_HARMLESS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", ""})


async def check_nested(place: Place, roots: Sequence[str], read: Reader, depth: int = 0) -> None:
    """Look at every submodule that is there, and at those within.

    Raises:
        PathRefused: the configuration of one names a program, or one lies too deep to look at.
    """
    if not place.tree:
        return
    listed = await read(("ls-files", "-s", "-z", "--", ":/"), place)
    for path in await asyncio.to_thread(_present, place.tree, listed):
        if depth == _DEEPEST:
            raise PathRefused(f"submodules are nested more than {_DEEPEST} deep: {path[:200]}")
        inner = await asyncio.to_thread(place_of, str(Path(place.tree, path)), roots)
        for key, value, _ in await asyncio.to_thread(entries_of, await read(LISTING, inner)):
            if _RUNS.fullmatch(key) and value.lower() not in _HARMLESS:
                raise PathRefused(
                    f"the submodule {path[:200]} names a program in its configuration (`{key[:100]}`), which git would "
                    "run to see whether it changed"
                )
        await check_nested(inner, roots, read, depth + 1)


def _present(tree: str, listed: bytes) -> list[str]:
    """The submodules that are there, of what `ls-files -s -z` listed: their paths in the tree."""
    links = (entry.partition(b"\t")[2] for entry in listed.split(b"\0") if entry.startswith(b"160000 "))
    paths = [link.decode("utf-8", "surrogateescape") for link in links]
    return [path for path in paths if Path(tree, path, ".git").exists()]
