"""Runs of `mcpbridge demo` as a process, in a home and a directory for temporary files of their own."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

LONGEST = 300
"""Seconds for a run, on a slow and loaded machine."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory for temporary files with a short path, since sockets are made below it."""
    made = Path(tempfile.mkdtemp(prefix="mb-"))
    (made / "home").mkdir()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def environment(place: Path) -> dict[str, str]:
    kept = ("PATH", "LANG", "LC_ALL", "PYTHONPATH")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "TMPDIR": str(place),
        "HOME": str(place / "home"),
        "TERM": "xterm-256color",
    }


def left_behind(place: Path) -> list[str]:
    """Files that a run has left, and processes: their environment names the place."""
    found = [path.name for path in place.iterdir() if path.name != "home"] + list(map(str, (place / "home").iterdir()))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(place).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or is somebody else's
            continue
    return found
