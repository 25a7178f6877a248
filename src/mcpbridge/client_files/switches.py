"""Servers that a client has switched off elsewhere than where it describes them.

Sources: Gemini CLI's settings (`mcp.allowed`, `mcp.excluded`); Claude Code's documentation of `.mcp.json`, whose
servers a user may reject (`disabledMcpjsonServers`, in its settings or in `~/.claude.json` under the project) or switch
off for one project (`disabledMcpServers` there).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from mcpbridge.client_files.known import Place
from mcpbridge.client_files.reading import Document, parse, read_text
from mcpbridge.errors import ConfigError

__all__ = ["SwitchedOff", "switched_off"]

Json = dict[str, object]


class SwitchedOff:
    """Says of a name whether the client leaves that server out."""

    def __init__(self, excluded: list[object], allowed: list[object] | None = None) -> None:
        self._excluded, self._allowed = excluded, allowed

    def __call__(self, name: str) -> bool:
        """Whether the server of this name is off."""
        return name in self._excluded or (self._allowed is not None and name not in self._allowed)


def switched_off(place: Place, project: Path | None, claude: Path, documents: dict[Path, Document]) -> SwitchedOff:
    """What is off of a file. `claude`: where Claude Code keeps what it knows of projects. `documents`: read before."""
    if place.file.dialect == "gemini":
        mcp = _member(documents[place.path].value, "mcp")
        return SwitchedOff(_names(_member(mcp, "excluded")), _names(_member(mcp, "allowed")) or None)
    if place.client.id != "claude-code" or project is None:
        return SwitchedOff([])
    known = _member(_member(_value(claude, documents), "projects"), str(project))
    off = _names(_member(known, "disabledMcpServers"))
    if place.file.scope == "project":
        off += _names(_member(known, "disabledMcpjsonServers"))
        for settings in _settings(project):
            off += _names(_member(_value(settings, documents), "disabledMcpjsonServers"))
    return SwitchedOff(off)


def _settings(project: Path) -> Iterator[Path]:
    for name in ("settings.json", "settings.local.json"):
        yield project / ".claude" / name


def _value(path: Path, documents: dict[Path, Document]) -> object:
    """What a file says; nothing if it is not there or wrong, which others tell."""
    if path not in documents:
        try:
            documents[path] = parse(read_text(path), str(path), "jsonc")
        except (FileNotFoundError, ConfigError):
            return None
    return documents[path].value


def _member(value: object, key: str) -> object:
    return cast("Json", value).get(key) if isinstance(value, dict) else None


def _names(value: object) -> list[object]:
    return list(cast("list[object]", value)) if isinstance(value, list) else []
