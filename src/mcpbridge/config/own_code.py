"""What the tools and servers of a configuration are made of: code, programs and documents that it names.

Whoever may write these has the bridge do whatever they please, outside of any sandbox.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

from mcpbridge.config.schema import Settings
from mcpbridge.sandbox.paths_names import fold
from mcpbridge.sandbox.paths_sealed import Sealed

__all__ = ["OwnCode"]

_PYTHON = (".py", ".pyc", ".pyd", ".so", ".zip", ".egg")
_OBJECTS = ("function", "executor_class")
_DOCUMENTS = ("openapi", "descriptor")


class OwnCode:
    """The files of one configuration."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._directory = Path(settings.source).parent if settings.source else Path()
        self._has_python = bool(settings.packs) or any(True for _ in _objects(settings))
        self._modules = {fold(name.partition(":")[0].partition(".")[0]) for name in _objects(settings)}
        self._made: tuple[Sealed, tuple[str, ...]] | None = None

    def holds(self, path: Sequence[str]) -> bool:
        """Whether a file is one of these. `path`: from the root of the file system down, without links."""
        if self._made is None:  # in the thread of the first call, as it looks at files
            top = os.path.realpath(self._directory)
            self._made = Sealed(self._named()), tuple(fold(part) for part in Path(top).parts)
        named, beside = self._made
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


def _objects(settings: Settings) -> Iterator[str]:
    """The names of Python objects, `pkg.mod:name`."""
    for tool in settings.tools.values():
        for key in _OBJECTS:
            if isinstance(value := getattr(tool, key, None), str):
                yield value
        agent: object = getattr(tool, "agent", None)
        if isinstance(agent, str) and "://" not in agent:
            yield agent
    yield from settings.packs
