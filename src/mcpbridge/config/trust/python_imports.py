"""Which Python files a configuration brings along: the modules that it names beside it, and what these import there.

Nothing is run: imports are read from the text. Modules that are installed come first when Python looks, but whether
one is installed may change, so a file beside the configuration counts in any case. An import that is put together
while the code runs is not seen. Links are followed, as Python does.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_MOST_FILES = 2000
_LARGEST_FILE = 8 << 20
_ENDINGS = (".py", ".so", ".pyd", ".pyc")
_IS_HASHED = 1
"""A flag of compiled files (PEP 552): Python does not compare them with the time of their source."""


def python_files(directory: Path, modules: Iterable[str]) -> dict[Path, bytes]:
    """The files of these modules (`package.module`) below a directory, with those that they import, and their bytes."""
    found: dict[Path, bytes] = {}
    seen = set[str]()
    waiting = list(modules)
    listed = cache(_listed)  # for the time of this search
    while waiting and len(found) < _MOST_FILES:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for file, package in _files_of(directory, name, listed):
            if file in found or (data := _read(file)) is None:
                continue
            found[file] = data
            if file.suffix == ".py":
                waiting += _imports(data, package)
    return found


def _files_of(directory: Path, name: str, listed: Callable[[Path], list[Path]]) -> Iterator[tuple[Path, str]]:
    """The files that an import of `name` may run, each with the package that it is in."""
    parts = name.split(".")
    for number, part in enumerate(parts):
        package, folder = ".".join(parts[:number]), directory.joinpath(*parts[:number])
        for file in listed(folder):
            if file.suffix in _ENDINGS and file.name.partition(".")[0] == part:
                yield file, package
        for file in listed(folder / part):
            if file.suffix in _ENDINGS and file.name.partition(".")[0] == "__init__":
                yield file, ".".join(parts[: number + 1])
        for compiled in (folder / "__pycache__", folder / part / "__pycache__"):
            for file in listed(compiled):
                if file.name.partition(".")[0] in (part, "__init__") and _is_hashed(file):
                    yield file, package


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (OSError, ValueError):  # no folder, or a name that no file can have
        return []


def _is_hashed(file: Path) -> bool:
    """Whether a compiled file can stand in for its source without having been made from it by this Python."""
    with suppress(OSError):
        with file.open("rb") as opened:
            head = opened.read(8)
        return len(head) == 8 and bool(int.from_bytes(head[4:], "little") & _IS_HASHED)
    return False


def _read(file: Path) -> bytes | None:
    try:
        if not file.is_file():
            return None
        with file.open("rb") as opened:
            return opened.read(_LARGEST_FILE)
    except OSError:
        return None


def _imports(source: bytes, package: str) -> Iterator[str]:
    """The modules that a text imports, by their whole names."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # Python cannot run it either
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".") if package else []
            start = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{one.name}" if base else one.name for one in node.names if one.name != "*")
