"""Runs of `mcpbridge demo` as a process, in a home and a directory for temporary files of their own."""

import os
import shutil
import subprocess
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
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return {**kept, "TMPDIR": str(place), "HOME": str(place / "home"), "TERM": "xterm-256color"}


def left_behind(place: Path) -> list[str]:
    """Files and processes that a run has left."""
    files = [path.name for path in place.iterdir() if path.name != "home"]
    listed = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True).stdout
    return files + [line for line in listed.splitlines() if str(place) in line]
