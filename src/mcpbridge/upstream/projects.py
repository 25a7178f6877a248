"""The project that a server works in: `${PROJECT_ROOT}` of its settings, and what a client's project makes of it.

Loading keeps such references apart from all other text (`ProjectText`), since the project is known only when a client
comes; here they become the path. Pure: a project is data, and no part of it is ever read as a reference.
"""

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from pydantic import BaseModel, ConfigDict

PROJECT_ROOT = "PROJECT_ROOT"
"""The name of the variable that stands for the directory of the client's project."""
PROJECT_FIELDS = frozenset({"command", "args", "env", "cwd", "url", "headers"})
"""Where in a server's table it may be."""
WAITS_FOR_PROJECT = (
    "it works in a project, and no client has named one yet (of what clients over HTTP name, that counts which "
    "`http.projects` allows)"
)
"""Why a server is not started that needs one."""
_ELSEWHERE = "elsewhere:"
_ENCODED = frozenset({"url", "headers"})
"""Where the path is percent-encoded: neither takes every character."""


class ProjectText(BaseModel):
    """One text of a server's settings with `${PROJECT_ROOT}` in it. Made while loading, never by people."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: tuple[str, ...]
    """Where it is in the server's table: `("args", "1")`, `("env", "ROOT")`, `("cwd",)`."""

    parts: tuple[str, ...]
    """The text before, between and behind the references: one more than there are of them."""

    defaults: tuple[str | None, ...]
    """What replaces each reference where there is no project (`${PROJECT_ROOT:-default}`); None: nothing does."""

    def in_directory(self, directory: str) -> str:
        """The text for a project with this directory; empty: for none. Only where all references have defaults."""
        if directory and self.key[0] in _ENCODED:
            directory = quote(os.fsencode(directory))
        text = self.parts[0]
        for default, part in zip(self.defaults, self.parts[1:], strict=True):
            text += (directory or default or "") + part
        return text

    @property
    def needs_project(self) -> bool:
        """There is no text without a project."""
        return None in self.defaults


@lru_cache(maxsize=256)
def directory_of(project: str) -> str:
    """The absolute path that the URI of a project names; empty when it names none on this machine."""
    parts = urlsplit(project)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return ""
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if sys.platform == "win32":
        path = path.removeprefix("/")
    return os.path.normpath(path) if Path(path).is_absolute() and "\0" not in path else ""


def elsewhere(project: str) -> str:
    """A project as one of another machine: it is distinguished from others, and names no directory of this one."""
    return f"{_ELSEWHERE}{project}" if project else ""


def uri_of_elsewhere(project: str) -> str:
    """The URI of a project which counts as one of another machine; empty: it does not."""
    return project.removeprefix(_ELSEWHERE) if project.startswith(_ELSEWHERE) else ""


def is_there(project: str) -> bool:
    """It names a directory of this machine, if any, that exists."""
    directory = directory_of(project)
    return not directory or os.path.isdir(os.path.realpath(directory))  # noqa: PTH112 - never raises


def within(project: str, allowed: Iterable[str]) -> str:
    """The project, with the links on its way resolved, if its directory is one of these or below; else as elsewhere."""
    directory = directory_of(project)
    if directory:
        real = Path(os.path.realpath(directory))
        if any(real.is_relative_to(os.path.realpath(root)) for root in allowed):
            return real.as_uri()
    return elsewhere(project)


def place_of(project: str) -> str:
    """What distinguishes projects: `file:///a/` and `file:///a` are one."""
    return directory_of(project) or project


def with_project(texts: tuple[ProjectText, ...], given: dict[str, Any], directory: str) -> dict[str, Any]:
    """The settings `given`, of the fields in `PROJECT_FIELDS`, with every reference replaced."""
    replaced = dict(given)
    for text in texts:
        field, *rest = text.key
        in_place = text.in_directory(directory)
        if not rest:
            replaced[field] = in_place
        elif isinstance(replaced[field], list):
            items: list[str] = list(replaced[field])
            items[int(rest[0])] = in_place
            replaced[field] = items
        else:
            replaced[field] = {**replaced[field], rest[0]: in_place}
    return replaced
