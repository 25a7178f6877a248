"""Which version of its package a running server has: `npx` and `uvx` choose one where the command line names none.

It is read from the installation that the server's processes run from: the `package.json` in `node_modules`, or the name
of the `.dist-info` directory beside the modules of Python. Only Linux says what runs; elsewhere nothing is known. A
server could name another installation than its own, as it can lie about its version: this finds updates, not lies.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import cast

import msgspec

from mcpbridge.upstream.isolation.packages import Package

_MOST_PROCESSES = 50
_LARGEST = 1 << 20
"""Bytes of a `package.json`, and of a command line."""
_NAME = re.compile(r"(?:@[\w.-]+/)?\w[\w.-]*")
_VERSION = re.compile(r"[\w.+!~-]{1,100}")
_DIST_INFO = ".dist-info"


def running_version(package: Package, pid: int) -> str:
    """The version of the package that this process, or one that it started, runs from; empty: it cannot be found."""
    name = re.sub(r"\[.*", "", package.name)  # extras of a package of Python
    if not package.runner or not _NAME.fullmatch(name):
        return ""
    find = _of_node if package.runner in ("npx", "bunx") else _of_python
    for process in _descendants(pid):
        for word in _command_line(process):
            if word.startswith("/") and (version := find(f"/proc/{process}/root", PurePosixPath(word), name)):
                return version if _VERSION.fullmatch(version) else ""
    return ""


def _of_node(root: str, path: PurePosixPath, name: str) -> str:
    parts = path.parts
    for place, part in enumerate(parts):
        if part == "node_modules":
            data = _read(f"{root}{PurePosixPath(*parts[: place + 1], name, 'package.json')}")
            try:
                document: object = msgspec.json.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            version = cast("dict[str, object]", document).get("version") if isinstance(document, dict) else None
            if isinstance(version, str):
                return version
    return ""


def _of_python(root: str, path: PurePosixPath, name: str) -> str:
    """`path`: a program in the `bin` of an environment."""
    if path.parent.name != "bin":
        return ""
    wanted = _normal(name)
    library = f"{root}{path.parent.parent}/lib"
    for python in _names_in(library):
        if python.startswith("python"):
            for entry in _names_in(f"{library}/{python}/site-packages"):
                project, dash, version = entry.removesuffix(_DIST_INFO).partition("-")
                if dash and entry.endswith(_DIST_INFO) and _normal(project) == wanted:
                    return version
    return ""


def _descendants(pid: int) -> Iterator[int]:
    """This process and all that it started, as far as they are still its own."""
    waiting, count = [pid], 0
    while waiting and count < _MOST_PROCESSES:
        one, count = waiting.pop(0), count + 1
        yield one
        for thread in _names_in(f"/proc/{one}/task"):
            children = _read(f"/proc/{one}/task/{thread}/children", is_kernels=True)
            waiting += [int(child) for child in children.split() if child.isdigit()]


def _command_line(pid: int) -> list[str]:
    return os.fsdecode(_read(f"/proc/{pid}/cmdline", is_kernels=True)).split("\0")[:50]


def _normal(name: str) -> str:
    """As names of packages are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - text is wanted
    except OSError:
        return []


def _read(path: str, *, is_kernels: bool = False) -> bytes:
    """The beginning of a file; empty: there is none, or it is no plain file. Never waits for a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        if not is_kernels and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_LARGEST)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
