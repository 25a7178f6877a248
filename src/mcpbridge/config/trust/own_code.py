"""Code, programs and documents that a configuration names, and where `${PROJECT_ROOT}` would choose what runs. Pure.

Whoever may write these has the bridge do whatever they please, outside of any sandbox. A client says which directory
its project is, and whoever made that directory chose its name. As an argument it is data. Within the text that a shell
or an interpreter runs it is a part of the program; as the program itself, opening a project would run what lies there.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import cast

from msgspec import Struct

from mcpbridge.config.schema import Settings
from mcpbridge.sandbox.files.names import Sealed, fold
from mcpbridge.upstream.projects import ProjectText

_PYTHON = (".py", ".pyc", ".pyd", ".so", ".zip", ".egg")
_OBJECTS = ("function", "executor_class")
_DOCUMENTS = ("openapi", "descriptor")


class OwnCode:
    """The files of one configuration."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._directory = Path(settings.source).parent if settings.source else Path()
        self._has_python = bool(settings.packs) or any(True for _ in python_objects(settings))
        self._modules = {fold(name.partition(":")[0].partition(".")[0]) for name in python_objects(settings)}
        self._sealed: tuple[Sealed, tuple[str, ...]] | None = None

    def holds(self, path: Sequence[str]) -> bool:
        """Whether a file is one of these. `path`: from the root of the file system down, without links."""
        if self._sealed is None:  # in the thread of the first call, as it looks at files
            top = os.path.realpath(self._directory)
            self._sealed = Sealed(self._named()), tuple(fold(part) for part in Path(top).parts)
        named, beside = self._sealed
        if named.holds(path, None):
            return True
        names = tuple(fold(part) for part in path)
        if not self._has_python or names[: len(beside)] != beside:
            return False
        inner = names[len(beside) :]
        if not inner or not inner[-1].endswith(_PYTHON):
            return False
        return len(inner) == 1 or inner[0] in (*self._modules, "__pycache__") or self._is_package(path[len(beside)])

    def _is_package(self, name: str) -> bool:
        return (self._directory / name / "__init__.py").is_file()

    def _named(self) -> Iterator[Path]:
        for tool in self._settings.tools.values():
            for key in _DOCUMENTS:
                value: object = getattr(tool, key, None)
                if isinstance(value, str) and "://" not in value:
                    yield self._directory / value
            command = cast("list[object]", getattr(tool, "command", []))
            yield from self._files(command, getattr(tool, "cwd", None))
        for server in self._settings.servers.values():
            if server.command is not None:  # what an image runs is in the image
                yield from self._files([server.command, *server.args], server.cwd)
        for hook in self._settings.hooks:
            yield from self._files(hook.command or [], None)

    def _files(self, words: Iterable[object], directory: str | None) -> Iterator[Path]:
        """Those words of a command that are files: programs, and scripts that programs run."""
        for word in words:
            path = self._directory / (directory or "") / str(word or "")
            if word and isinstance(word, str) and _is_file(path):
                yield path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no path at all
        return False


def python_objects(settings: Settings) -> Iterator[str]:
    """The names of Python objects that a configuration has: `pkg.mod:name`, and packs."""
    for tool in settings.tools.values():
        for key in _OBJECTS:
            if isinstance(value := getattr(tool, key, None), str):
                yield value
        agent: object = getattr(tool, "agent", None)
        if isinstance(agent, str) and "://" not in agent:
            yield agent
    yield from settings.packs


_RULES = {
    r"(ba|z|da|k|c|tc|fi|a)?sh": r"-[A-Za-z]*c|--command(=.*)?",
    r"python[0-9.]*|pypy[0-9.]*": r"-[A-Za-z]*c.*",
    r"node|nodejs|bun|tsx|ts-node": r"-[A-Za-z]*[ep]+|--(eval|print)(=.*)?",
    r"deno": r"eval",
    r"ruby|perl[0-9.]*|lua[0-9.]*|osascript|Rscript": r"-[A-Za-z0-9]*[eE].*",
    r"php[0-9.]*": r"-[rBRE].*",
    r"npx|npm|pnpm|yarn": r"-c|--call(=.*)?",
    r"pwsh|powershell": r"(?i:[-/](c|command|e|ec|enc|encodedcommand|cwa|commandwithargs))",
    r"cmd": r"(?i:/[A-Z]*[ckr].*)",
}
"""By the name of a program: the option before its script, or with it."""
_TO_THE_END = re.compile(r"pwsh|powershell|cmd")
"""Programs that take all that follows for the script."""


class Misuse(Struct, frozen=True):
    """One `${PROJECT_ROOT}` that must not be where it is."""

    key: tuple[str, ...]
    what: str
    hint: str


def misuse(server: Mapping[str, object], texts: Sequence[ProjectText]) -> Misuse | None:
    """The first one of a server, if there is any. `texts`: all of it, with whole keys (`servers`, name, field, …)."""
    args = server.get("args")
    words = [str(word) for word in cast("list[object]", args)] if isinstance(args, list) else []
    at = {int(text.key[3]) + 1: text for text in texts if text.key[2] == "args" and len(text.key) == 4}
    for text in texts:
        if text.key[2] == "command":
            what = "${PROJECT_ROOT} in `command` runs whatever a project brings along, as soon as it is opened"
            hint = "Name a program that you installed; where it works is `cwd`, and its arguments may name the project."
            return Misuse(text.key, what, hint)
    for number in _scripts([str(server.get("command", "")), *words]):
        if (text := at.get(number)) is not None:
            what = "${PROJECT_ROOT} in a script: a directory's name would be run as a part of it"
            hint = 'Write env = { ROOT = "${PROJECT_ROOT}" } and "$ROOT" in the script, or use `cwd`.'
            return Misuse(text.key, what, hint)
    return None


def _scripts(words: Sequence[str]) -> set[int]:
    """Which of the words of a command line are run as text."""
    found = set[int]()
    for start, word in enumerate(words):
        name = re.sub(r"\.(exe|cmd|bat)$", "", PureWindowsPath(word).name, flags=re.IGNORECASE)
        option = next((rule for names, rule in _RULES.items() if re.fullmatch(names, name, re.IGNORECASE)), None)
        if option is not None:
            found |= _of_interpreter(words, start + 1, option, to_the_end=bool(_TO_THE_END.fullmatch(name.lower())))
    return found


def _of_interpreter(words: Sequence[str], start: int, option: str, *, to_the_end: bool) -> set[int]:
    found = set[int]()
    for number in range(start, len(words)):
        if not re.fullmatch(option, words[number], re.DOTALL):
            continue
        if to_the_end:
            return {*found, *range(number, len(words))}
        script = next((at for at in range(number + 1, len(words)) if words[at][:1] not in ("-", "+")), number)
        found |= {number, script}
    return found
