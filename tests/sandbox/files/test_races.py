"""Files beneath a root while another process swaps a directory for a link that leads out of it.

First the harness is held against the check that most programs have (`realpath`, then open), which must let some
through: else a count of none would prove nothing.
"""

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcpbridge.base.errors import PathRefused
from mcpbridge.sandbox.files.names import parts_of
from mcpbridge.sandbox.files.paths import Root
from mcpbridge.sandbox.files.walk import can_openat2
from mcpbridge.sandbox.files.write import Changed, write

READS = 20_000
WRITES = 1_500
INSIDE, OUTSIDE = b"inside", b"secret"
PATIENCE = 60.0
"""Seconds until the other process must have had its part in it: a busy machine may hold it up."""

SWAPPER = """
import ctypes, os, sys
os.chdir(sys.argv[1])
exchange = getattr(ctypes.CDLL(None), "renameat2", None)
def swap():
    if exchange is None or exchange(-100, b"sub", -100, b"other", 2):  # at once, where the system can
        os.rename("sub", "aside"); os.rename("other", "sub"); os.rename("aside", "other")
swap(); swap()
print("ready", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(200):
        swap()
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """`root/sub/file` inside, and `root/other`, a link to `outside`; the two change places all the time."""
    for place, content in (("root/sub", INSIDE), ("outside", OUTSIDE)):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "file").write_bytes(content)
    (tmp_path / "root/other").symlink_to(tmp_path / "outside")
    return tmp_path


@contextmanager
def swapping(tree: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", SWAPPER, str(tree / "root")], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.communicate()


def tries(least: int, is_enough: Callable[[], object]) -> Iterator[int]:
    """At least so many, and then until it is enough."""
    until = time.monotonic() + PATIENCE
    return itertools.takewhile(
        lambda number: number < least or (not is_enough() and time.monotonic() < until), itertools.count()
    )


def read_so(read: Callable[[str], bytes], least: int = 0, *, until_escape: bool = False) -> Counter[str]:
    """How often it read what is inside, what is outside, and nothing."""
    seen = Counter[str]()
    for number in tries(least, lambda: seen["outside"] if until_escape else seen["inside"] and seen["refused"]):
        try:
            content = read(("sub/file", "other/file")[number & 1])
        except (PathRefused, OSError):
            seen["refused"] += 1
        else:
            seen[{INSIDE: "inside", OUTSIDE: "outside"}.get(content, "neither")] += 1
    return seen


def test_the_usual_check_lets_some_through(tree: Path) -> None:
    """The race is real in this harness."""
    top = os.path.realpath(tree / "root")

    def read(path: str) -> bytes:
        given = f"{top}/{path}"
        if not os.path.realpath(given).startswith(f"{top}/"):
            raise PathRefused(path)
        return Path(given).read_bytes()

    with swapping(tree):
        assert read_so(read, until_escape=True)["outside"] > 0


@pytest.mark.parametrize("way", ["openat2", "walk"])
def test_no_read_leads_out(tree: Path, way: str) -> None:
    """Issue 8: 0 escapes in 20,000 reads."""
    if way == "openat2" and not can_openat2():
        pytest.skip("this system has no openat2")
    root = Root(tree / "root", uses_openat2=way == "openat2")

    def read(path: str) -> bytes:
        with root.opened(parts_of(path)) as opened:
            return opened.read(100)

    with swapping(tree):
        seen = read_so(read, READS)
    assert seen.keys() == {"inside", "refused"}  # the link was met
    assert seen.total() >= READS


def test_no_write_leads_out(tree: Path) -> None:
    """Neither an existing file nor a new one, nor one that only lies there meanwhile."""
    root = Root(tree / "root")
    seen = Counter[str]()
    with swapping(tree):
        for number in tries(WRITES, lambda: seen["written"] and seen["refused"]):
            name = "file" if number % 3 or number > WRITES else f"new{number}"
            try:
                write(root, parts_of(f"sub/{name}"), lambda _: b"changed", makes_directories=number % 2 == 0)
                seen["written"] += 1
            except (PathRefused, Changed, OSError):
                seen["refused"] += 1
    assert [path.name for path in (tree / "outside").iterdir()] == ["file"]
    assert (tree / "outside/file").read_bytes() == OUTSIDE
    assert seen.keys() == {"written", "refused"}
    assert list(tree.rglob(".mcpbridge-*")) == []
