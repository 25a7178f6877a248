"""Which files of a repository a command runs without naming them: what its program looks for by itself.

Such as the `Makefile` of `make x`, the `package.json` of `npm start`, the `.npmrc` and the `node_modules` that `npx x`
prefers to a download, and the code of `./local` in `npx ./local`. Files only: what is not there is not found.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from mcpbridge.upstream.isolation.packages import package_of

_MAKE = "GNUmakefile makefile Makefile"
_NODE = "package.json .npmrc"
_UV = "pyproject.toml uv.toml uv.lock .python-version"
_COMPOSE = "docker-compose.yml docker-compose.yaml compose.yml compose.yaml compose.override.yml compose.override.yaml"
_LOOKS_FOR: Mapping[str, str] = {
    "make": _MAKE,
    "gmake": _MAKE,
    "just": "justfile Justfile .justfile .env",
    "task": "Taskfile.yml Taskfile.yaml taskfile.yml taskfile.yaml .env",
    "npm": _NODE,
    "npx": ".npmrc",
    "pnpm": f"{_NODE} .pnpmfile.cjs pnpm-workspace.yaml",
    "yarn": f"{_NODE} .yarnrc .yarnrc.yml",
    "bun": f"{_NODE} bunfig.toml .env",
    "bunx": ".npmrc bunfig.toml .env",
    "node": "package.json",
    "tsx": "package.json tsconfig.json",
    "ts-node": "package.json tsconfig.json",
    "deno": "deno.json deno.jsonc package.json .npmrc",
    "uv": _UV,
    "uvx": "uv.toml .python-version",
    "poetry": "pyproject.toml poetry.toml poetry.lock",
    "pdm": "pyproject.toml pdm.toml pdm.lock",
    "hatch": "pyproject.toml hatch.toml",
    "pipenv": "Pipfile Pipfile.lock .env",
    "docker": f"{_COMPOSE} Dockerfile .env",
    "docker-compose": f"{_COMPOSE} Dockerfile .env",
    "podman": f"{_COMPOSE} Dockerfile Containerfile .env",
    "cargo": "Cargo.toml build.rs .cargo/config.toml rust-toolchain.toml",
    "go": "go.mod go.work",
    "ruby": "Gemfile",
    "bundle": "Gemfile Gemfile.lock .bundle/config",
    "direnv": ".envrc",
    "mise": "mise.toml .mise.toml .tool-versions",
}
"""By program, the files that it looks for in its directory and in those above."""
_ENGINES = frozenset({"docker", "podman"})
_BUILDS = frozenset({"build", "buildx", "compose"})
_OF_A_PROGRAM = (
    "package.json pyproject.toml setup.py setup.cfg __main__.py index.js index.mjs index.cjs index.ts Cargo.toml "
    f"build.rs go.mod deno.json Dockerfile {_MAKE}"
)
"""What makes a directory that a command names a program, and not data."""
_RUNS_A_DIRECTORY: Mapping[str, int] = {
    **dict.fromkeys(("node", "tsx", "ts-node"), 1),
    **dict.fromkeys(("bun", "cargo", "deno", "docker", "go", "npm", "pnpm", "podman", "uv", "yarn"), 2),
}
"""Programs that run a directory, and by which of their words that are no options it may be named."""
_MODULE_ENDINGS = (".js", ".cjs", ".mjs", ".json", ".ts", ".mts", ".node")
_NOT_ITS_CODE = frozenset({"node_modules", "__pycache__", "venv", "target"})
_MOST_FILES = 3000
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*|py")
_ENDINGS = re.compile(r"\.(?:exe|cmd|bat|ps1)$", re.IGNORECASE)


def program_of(word: str) -> str:
    """What a program is called, without its directory and ending."""
    return _ENDINGS.sub("", PurePath(word.replace("\\", "/")).name)


def implicit_files(
    command: Sequence[str],
    every: Sequence[str],
    env: Mapping[str, str],
    of_env: Sequence[str],
    start: Path,
    root: Path,
    code: frozenset[str],
) -> Iterator[Path]:
    """Files that may be there and count if they are.

    `every`: all words of the command, those within a word too; `of_env`: those of its variables.
    `start`: where it runs. `root`: of the repository.
    `code`: endings of files that are run.
    """
    if not command:
        return
    programs = {program_of(word) for word in every}
    above = [start, *(one for one in start.parents if one.is_relative_to(root))]
    named = named_directories(every, start, root)
    if not _BUILDS.intersection(every):
        programs -= _ENGINES  # `docker run` looks for none of their files
    for program in sorted(programs & _LOOKS_FOR.keys()):
        for folder in (*above, *named):
            yield from (folder / name for name in _LOOKS_FOR[program].split())
    yield from _local_packages(command, above)
    for folder in _run_directories(command, start, root):
        yield from _code_in(folder, code, is_whole=folder != root)
    if "/" not in command[0]:
        for folder in env.get("PATH", "").split(os.pathsep):
            if folder:
                yield start / folder / command[0]
    for word in (*every, *of_env):
        if "node" in programs or "--require" in word or word.startswith(("./", "../")):
            yield from (start / f"{word}{ending}" for ending in _MODULE_ENDINGS if not word.endswith(ending))


def named_directories(every: Sequence[str], start: Path, root: Path) -> list[Path]:
    """The directories of the repository that a command names; a command such as `env -C lib node x.js` runs there."""
    found = dict[Path, None]()
    for word in every:
        path = start / word
        if word not in ("", ".", "/") and _is_folder(path) and _within(path, root):
            found[path] = None
    return list(found)[:20]


def modules_that_come_first(names: Sequence[str], folder: Path) -> list[str]:
    """Modules in a directory that Python takes in the place of its own, since it looks there first."""
    import sys

    own = {*sys.stdlib_module_names, "sitecustomize", "usercustomize", *names}
    try:
        entries = os.listdir(folder)  # noqa: PTH208 - text is wanted
    except OSError:
        return []
    return sorted({stem for entry in entries if (stem := entry.partition(".")[0]) in own})


def entry_modules(command: Sequence[str], start: Path) -> list[str]:
    """The modules of a program that `uv run NAME` and the like start, as `pyproject.toml` names them."""
    package = package_of(command[0], command[1:]) if command else None
    if package is None or package.runner not in ("uv run", "uvx") or not package.before:
        return []
    try:
        document: Any = tomllib.loads((start / "pyproject.toml").read_text("utf-8"))
        scripts = document["project"]["scripts"]
        return [str(scripts[name]).partition(":")[0] for name in package.before if name in scripts]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def is_python(every: Sequence[str]) -> bool:
    """Whether a command runs Python."""
    return any(_PYTHON.fullmatch(program_of(word)) for word in every)


def _local_packages(command: Sequence[str], above: Sequence[Path]) -> Iterator[Path]:
    """What `npx NAME` finds in `node_modules` before it downloads anything."""
    package = package_of(command[0], command[1:])
    if package.runner not in ("npx", "bunx") or not re.fullmatch(r"(?:@[\w.-]+/)?\w[\w.-]*", package.name):
        return
    program = package.before[-1] if package.before else ""
    for folder in above:
        modules = folder / "node_modules"
        yield modules / package.name / "package.json"
        for name in {package.name.rpartition("/")[2], re.sub(r"(?<=.)@.*", "", program).rpartition("/")[2]} - {""}:
            yield modules / ".bin" / name


def _run_directories(command: Sequence[str], start: Path, root: Path) -> Iterator[Path]:
    """Directories of the repository that are the program itself: of `npx ./local`, `python pkg`, `go run ./cmd`."""
    package = package_of(command[0], command[1:])
    program = program_of(command[0])
    if package.runner:
        words: Sequence[str] = (package.spec, *package.before)
    elif program in _RUNS_A_DIRECTORY or _PYTHON.fullmatch(program):
        count = _RUNS_A_DIRECTORY.get(program, 1)
        positional = [place for place, word in enumerate(command) if place and not word.startswith("-")]
        words = command[1 : positional[:count][-1] + 1] if positional else ()
    else:
        return
    for word in words:
        path = Path(os.path.normpath(start / word)) if word and not word.startswith("-") else None
        if path is None or not _is_folder(path) or not _within(path, root):
            continue
        if any((path / name).exists() for name in _OF_A_PROGRAM.split()):
            yield path


def _code_in(folder: Path, code: frozenset[str], *, is_whole: bool) -> Iterator[Path]:
    """The files that make a directory a program, and, unless it is the whole repository, all code in it."""
    yield from (folder / name for name in _OF_A_PROGRAM.split())
    if not is_whole:
        return
    count = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NOT_ITS_CODE and not name.startswith("."))
        for name in sorted(files):
            if os.path.splitext(name)[1].lower() in code:  # noqa: PTH122 - of text
                count += 1
                if count > _MOST_FILES:
                    return
                yield Path(place, name)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _within(path: Path, root: Path) -> bool:
    try:
        return Path(os.path.realpath(path)).is_relative_to(root)
    except (OSError, ValueError):
        return False
