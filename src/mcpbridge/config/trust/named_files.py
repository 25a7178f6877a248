"""Which files of its repository a configuration runs or hands to what it runs: programs, scripts, hooks, documents.

These count when a person trusts it. Words of commands are looked at as a shell would split them, also behind an `=`, as
are values of `env`. Of a Python script the modules beside it that it imports count too. What a program looks for by
itself is in `project_files.py`. Data does not count, such as the database that a server keeps: servers change it. Not
seen: what is in a directory of data, what other programs load themselves, and everything outside of the repository.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

from mcpbridge.config.schema import Settings
from mcpbridge.config.trust.project_files import (
    entry_modules,
    implicit_files,
    is_python,
    modules_that_come_first,
    named_directories,
)
from mcpbridge.upstream.settings import ServerSettings

_DOCUMENTS = ("openapi", "descriptor")
_CODE_ENDINGS = (
    "py pyc pyz pyd so zip egg whl js mjs cjs ts mts cts jsx tsx wasm node sh bash zsh fish rb pl pm php lua ps1 psm1 "
    "bat cmd exe dll dylib jar class r jl go rs java kt groovy scala ex exs erl clj awk sed sql tcl"
)
_CODE = frozenset(f".{ending}" for ending in _CODE_ENDINGS.split())
_SETTINGS_ENDINGS = "json jsonc json5 toml yaml yml ini cfg conf properties xml env"
_SETTINGS = frozenset(f".{ending}" for ending in _SETTINGS_ENDINGS.split())
"""Of arguments these choose what runs; a variable more often names a file of data in such a form."""
_REQUIREMENTS = re.compile(r"(?:requirements|constraints).*\.(?:txt|in)")
_RUNS_MODULE = re.compile(r"-[A-Za-z]*m([A-Za-z_][\w.]*)")
"""An option of Python with the module in the same word."""
_IMPORTED = re.compile(r"\b(?:import|from)\s+([A-Za-z_][\w.]*)")
_LONGEST_WORD = 4096
_PIECE = 1 << 20
_MOST_BYTES = 256 << 20
"""Of a larger file the beginning, the size and the time of its last change count."""
_OF_REPOSITORIES = (".git", ".hg", ".jj", ".svn")


def repository_of(directory: Path) -> Path:
    """The root of the repository that a directory is in; the directory itself if it is in none."""
    real = Path(os.path.realpath(directory))
    return next((one for one in (real, *real.parents) if any((one / name).exists() for name in _OF_REPOSITORIES)), real)


def named_files(settings: Settings) -> dict[str, str]:
    """All of them with the digests of their bytes, by their paths from the root on, links resolved."""
    directory = Path(settings.source or ".").parent
    found = dict[str, str]()
    for server in settings.servers.values():
        found |= files_of_server(server, directory)
    for tool in settings.tools.values():
        words = [*map(str, cast("list[object]", getattr(tool, "command", None) or []))]
        documents = [str(getattr(tool, key, None) or "") for key in _DOCUMENTS]
        env = cast("dict[str, str]", getattr(tool, "env", None) or {})
        found |= _digests(words, env, directory, getattr(tool, "cwd", None), documents)
    for hook in settings.hooks:
        found |= _digests(hook.command or [], hook.env, directory, None)
    return found


def files_of_server(server: ServerSettings, directory: Path) -> dict[str, str]:
    """Those of one server, as `named_files` has them. `directory`: where the configuration is."""
    if server.command is None or server.disabled:
        return {}
    return _digests([server.command, *server.args], server.env, directory, server.cwd)


def directories_of(settings: Settings) -> list[str]:
    """The directories of the repository that commands name. What is in them is not compared."""
    directory = Path(settings.source or ".").parent
    root = repository_of(directory)
    found = dict[str, None]()
    for server in settings.servers.values():
        if server.command is not None and not server.disabled:
            start = directory / (server.cwd or "")
            paths = (start / word for word in _words([server.command, *server.args]))
            found |= {str(path): None for path in paths if _is_within(path, root) and _is(path, Path.is_dir)}
    return list(found)


def digest_of(path: str | os.PathLike[str]) -> str:
    """The digest of a file's bytes; empty: it cannot be read."""
    digest, left = hashlib.sha256(), _MOST_BYTES
    try:
        with Path(path).open("rb") as file:
            while left > 0 and (piece := file.read(_PIECE)):
                digest.update(piece)
                left -= len(piece)
            facts = os.fstat(file.fileno())
    except OSError:
        return ""
    if left <= 0:
        digest.update(f"{facts.st_size} {facts.st_mtime_ns}".encode())
    return digest.hexdigest()


def _digests(
    command: Sequence[str], env: Mapping[str, str], directory: Path, cwd: str | None, documents: Sequence[str] = ()
) -> dict[str, str]:
    root, start = repository_of(directory), directory / (cwd or "")
    found = dict[str, str]()
    every = list(_words([*command, *documents]))
    of_env = list(_words(env.values()))
    candidates = [*((word, _CODE | _SETTINGS) for word in every), *((word, _CODE) for word in of_env)]
    for folder in (start, *named_directories(every, start, root)):
        for word, endings in candidates:
            path = folder / word
            if not _is_within(path, root) or not _is(path, Path.is_file) or not _is_code(path, endings):
                continue
            found[os.path.realpath(path)] = digest_of(path)
            if path.suffix == ".py":
                beside = Path(os.path.realpath(path)).parent
                found |= _imported(beside, modules_that_come_first([path.stem], beside))
    start = Path(os.path.realpath(start))
    for path in implicit_files(command, every, env, of_env, start, root, _CODE):
        if _is_within(path, root) and _is(path, Path.is_file):
            found[os.path.realpath(path)] = digest_of(path)
    return found | _modules(command, every, env, start, root)


def _modules(
    command: Sequence[str], every: Sequence[str], env: Mapping[str, str], start: Path, root: Path
) -> dict[str, str]:
    """What Python imports from the directories in which it looks first: its own, and those of `PYTHONPATH`."""
    run = [after for before, after in pairwise(every) if before == "-m"]
    run += [found[1] for word in every if (found := _RUNS_MODULE.fullmatch(word)) is not None]
    modules = [*run, *(f"{name}.__main__" for name in run)]
    code = [after for before, after in pairwise(command) if re.fullmatch(r"-[A-Za-z]*c", before)]
    modules += [name for text in code for name in _IMPORTED.findall(text)] if is_python(every) else []
    entries = entry_modules(command, start)
    folders = [start / one for one in env.get("PYTHONPATH", "").split(os.pathsep) if one]
    found = _imported(start, modules_that_come_first(modules, start) if run or code else [])
    found |= {**_imported(start, [*modules, *entries]), **_imported(start / "src", entries)}
    for folder in folders:
        if _is_within(folder, root):
            found |= _imported(folder, [*modules, *modules_that_come_first([], folder)])
    return found


def _is_code(path: Path, endings: frozenset[str]) -> bool:
    """Whether a file is run, or says what is: by its ending, or as it has none or may be executed."""
    return path.suffix.lower() in endings or not path.suffix or _is_settings(path.name) or os.access(path, os.X_OK)


def _is_settings(name: str) -> bool:
    return name.startswith(".env") or _REQUIREMENTS.fullmatch(name) is not None


def _imported(directory: Path, modules: list[str]) -> dict[str, str]:
    if not modules:
        return {}
    from mcpbridge.config.trust.python_imports import python_files

    found = python_files(directory, modules)
    return {os.path.realpath(path): hashlib.sha256(data).hexdigest() for path, data in found.items()}


def _words(words: Iterable[str]) -> Iterator[str]:
    """The words of a command that may be paths, those within a word too: `--config=./x`, `sh -c "./x y"`."""
    for word in words:
        if not word or len(word) > _LONGEST_WORD:
            continue
        yield word
        try:
            parts = shlex.split(word)
        except ValueError:
            parts = word.split()
        for part in parts:
            short = part[2:] if part[:1] == "-" and part[1:2] not in ("", "-") else ""  # `-rrequirements.txt`
            for inner in (
                part,
                part.partition("=")[2],
                part.lstrip("@"),
                short.lstrip("@"),
                *re.split(r"[;&|<>():,]", part),
            ):
                if inner and inner != word:
                    yield inner


def _is_within(path: Path, root: Path) -> bool:
    """Whether a path is in the repository, or a link there leads elsewhere."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(root) or Path(os.path.normpath(path)).is_relative_to(root)
    except (OSError, ValueError):
        return False


def _is(path: Path, what: Callable[[Path], bool]) -> bool:
    try:
        return what(path)
    except (OSError, ValueError):  # no path at all
        return False
