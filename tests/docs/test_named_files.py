"""A file that a docstring, a comment or a page of the documentation names is there."""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "mcpbridge"
FOLDERS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
UNMISTAKABLE = sorted(set(FOLDERS) - {"tools"})
"""`tools/call` is a method of MCP, and `tools/weather` may be a tool."""

NAMED = re.compile(r"`(?:src/mcpbridge/|mcpbridge/)?((?:[\w.-]+/)*[\w-]+\.py)`")
"""A Python file between backticks: `plan.py`, `pipeline/plan.py`."""
NAMED_MODULE = re.compile(rf"`((?:{'|'.join(UNMISTAKABLE)})/[\w/]+)`")
"""A module or folder of the package without its ending: `pipeline/plan`."""
GONE = (
    *("admin", "arguments", "backends", "builtin", "cassettes", "cli", "client_files", "daemon", "doctor", "hooks"),
    *("models", "policy", "routing", "shim", "wire"),
)
"""Folders that were at the top of the package before it had fifteen."""
NAMED_GONE = re.compile(rf"`(?:src/mcpbridge/|mcpbridge/)?((?:{'|'.join(GONE)})/[\w/]*(?:\.py)?)`")
"""A path in one of these: `wire/peer`, `wire/`."""
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)[^)]*\)")
"""The file that a document links to."""
PLACEHOLDER = re.compile(r"(?<![A-Za-z])[A-Z]{4,}(?![a-z])")
"""What stands for a name that the reader chooses: `stages/NAME.py`."""
EXAMPLES = {"server.py", "weather.py", "tools.py", "main.py", "a/b/c.py"}
"""Files of users, in examples."""


def known_files() -> frozenset[str]:
    """Every way to name a Python file of the repository by the end of its path."""
    names = set[str]()
    for top in ("src", "tests", "scripts", "benchmarks", "examples"):
        for path in (ROOT / top).rglob("*.py"):
            parts = path.relative_to(ROOT).parts
            names.update("/".join(parts[start:]) for start in range(len(parts)))
    return frozenset(names)


KNOWN = known_files()


def known_modules() -> frozenset[str]:
    """Every way to name a module or folder of the package by the end of its path."""
    names = set[str]()
    for path in (*SOURCE.rglob("*.py"), *(path.parent for path in SOURCE.rglob("*.py"))):
        parts = path.with_suffix("").relative_to(SOURCE).parts
        names.update("/".join(parts[start:]) for start in range(len(parts)))
    return frozenset(names)


MODULES = known_modules()


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The comments and strings of a Python file, or the lines of a document, with their line numbers."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), token.start[0])


def gone(path: Path) -> list[str]:
    """What a file names and is not there."""
    return list(named_wrongly(path, prose(path)))


def named_wrongly(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[str]:
    """What these lines of a file name and is not there."""
    for number, line in lines:
        files = [name for name in NAMED.findall(line) if name not in KNOWN | EXAMPLES]
        names = [name for name in files if not (path.parent / name).exists()]
        names += [name for name in NAMED_MODULE.findall(line) if not is_module(name)]
        names += [name for name in NAMED_GONE.findall(line) if not is_module(name)]
        names += [name for name in LINK.findall(line) if path.suffix == ".md" and not (path.parent / name).exists()]
        yield from (f"{path.relative_to(ROOT)}:{number} names {name}" for name in names if not PLACEHOLDER.search(name))


def is_module(name: str) -> bool:
    """The package has such a module or folder."""
    return name.rstrip("/").removesuffix(".py") in MODULES


@pytest.mark.parametrize("folder", [*(f"src/mcpbridge/{name}" for name in FOLDERS), "scripts", "benchmarks"])
def test_files_that_modules_name_are_there(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert [line for path in paths for line in gone(path)] == []


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))], ids=lambda path: path.name
)
def test_files_that_documents_name_are_there(path: Path) -> None:
    assert gone(path) == []


def test_what_is_gone_is_found() -> None:
    document = ROOT / "docs" / "not_there.md"
    line = "See `plan.py`, `pipeline/nothing`, `wire/peer`, `shim/`, `pipeline/old.py` and [this](nowhere.md#x)."
    assert list(named_wrongly(document, [(1, line)])) == [
        f"docs/not_there.md:1 names {name}"
        for name in ("pipeline/old.py", "pipeline/nothing", "wire/peer", "shim/", "nowhere.md")
    ]
