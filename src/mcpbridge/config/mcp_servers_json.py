"""Turns the `mcpServers` JSON of other programs into what `servers.toml` would say.

Such a file is shared with those programs. So an unknown key is a warning and never an error, and a server that we
cannot serve yet is unavailable instead of wrong. Sources: the settings of Claude Code and Claude Desktop, Cursor, VS
Code (`servers`, `type`), Gemini CLI (`httpUrl`, `includeTools`, milliseconds), Windsurf (`serverUrl`,
`disabledTools`), Cline (`timeout` in seconds, `autoApprove`).
"""

import re
from collections.abc import Iterable, Iterator
from typing import cast

from mcpbridge.base.errors import ConfigError
from mcpbridge.core.model import OWN
from mcpbridge.upstream.settings import TRANSPORT_SPELLINGS, ServerSettings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
NAME_LENGTH = 32

_TRANSPORTS = {
    **dict.fromkeys(("stdio", "local"), "stdio"),
    **TRANSPORT_SPELLINGS,
    "remote": None,
}
"""What other programs call a transport; None: the URL tells."""
_URLS = ("url", "httpUrl", "serverUrl")
_FILTERS = {
    "includeTools": "include",
    "enabledTools": "include",
    "excludeTools": "exclude",
    "disabledTools": "exclude",
}
_HARMLESS = {"$schema", "description", "displayName", "gallery", "icon", "id", "name", "note", "tags", "title"} | {
    "alwaysAllow",
    "autoApprove",
    "autoStart",
    "trust",
}
"""Keys that say nothing to a bridge: not worth a warning."""

_OURS = (ServerSettings.model_fields.keys() - {"unavailable", "project_texts", "transport", "sandbox"}) | {"isolation"}

_JSON_TOKEN = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)


def plain_json(text: str) -> str:
    """JSON with comments and trailing commas (as VS Code writes it) without them, each character in its old place."""

    def blank(match: re.Match[str]) -> str:
        return match[1] or re.sub(r"[^\n]", " ", match[0])

    return _TRAILING_COMMA.sub(blank, _JSON_TOKEN.sub(blank, text.replace("\ufeff", " ", 1)))


def translate(document: object, file: str) -> tuple[dict[str, object], list[str]]:
    """The document as our own raw configuration, and warnings about what was left out of it.

    Raises:
        ConfigError: it holds no servers, or two whose names become the same.
    """
    servers = _servers(document, file)
    translated: dict[str, object] = {}
    warnings: list[str] = []
    for name, given in servers.items():
        known_as = usable_name(name)
        if known_as in translated:
            raise ConfigError(f"another server is called {known_as!r} as well", file=file, key=name, hint="Rename one.")
        if known_as != name:
            warnings.append(f"{file}: the server {name!r} is called {known_as!r} here")
        if not isinstance(given, dict):
            raise ConfigError("expected an object that describes a server", file=file, key=name)
        server, unknown = translate_server(cast("dict[str, object]", given))
        unknown = [key for key in unknown if key not in _HARMLESS]
        warnings += [f"{file}: {name}: the key {key!r} is not known here and was left out" for key in unknown]
        translated[known_as] = server
    return {"servers": translated}, warnings


def _servers(document: object, file: str) -> dict[str, object]:
    if isinstance(document, dict):
        top = cast("dict[str, object]", document)
        for key in ("mcpServers", "servers", "mcp.servers"):
            value = top.get(key)
            if isinstance(value, dict):
                return cast("dict[str, object]", value)
    hint = 'A JSON configuration looks like {"mcpServers": {"time": {"command": "mcp-server-time"}}}.'
    raise ConfigError("expected an object with `mcpServers` (or `servers`)", file=file, hint=hint)


def usable_name(name: str) -> str:
    """A name that other programs allow, as one that we do."""
    if name in OWN:  # in a client's file usually the bridge itself, or another one
        return f"{name}-server"
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:NAME_LENGTH] or "server"


def translate_server(given: dict[str, object]) -> tuple[dict[str, object], list[str]]:
    """One foreign server in our words, unchecked, and those of its keys that have no counterpart here."""
    server: dict[str, object] = {}
    unknown: list[str] = []
    for key, value in given.items():
        if value is None:
            continue
        ours = list(_member(key, value))
        for name, translated in ours:
            if name == "tools":
                tools = cast("dict[str, object]", server.setdefault("tools", {}))
                tools |= cast("dict[str, object]", translated)
            else:
                server[name] = translated
        if not ours:
            unknown.append(key)
    if "url" in server and "command" not in server:
        server = {key: value for key, value in server.items() if key not in ("args", "env", "cwd") or value}
    if isinstance(longest := server.get("call_timeout"), int | float) and longest > 600:
        server.setdefault("max_call_timeout", longest)
    return server, unknown


def as_globs(names: Iterable[object]) -> list[str]:
    """Patterns that match just these names."""
    return [re.sub(r"([*?[])", r"[\1]", str(name)) for name in names]


def _member(key: str, value: object) -> Iterator[tuple[str, object]]:
    """What one key of a foreign server says in ours; nothing for a key that has no counterpart."""
    if key in ("type", "transport") and isinstance(value, str):
        yield "transport", _TRANSPORTS.get(value, value)
    elif key in _URLS:
        yield "url", value
    elif key in ("enabled", "isActive"):
        yield "disabled", not value
    elif key == "timeout" and isinstance(value, int | float) and abs(value) < 1e12:
        yield "call_timeout", value / 1000 if value >= 1000 else value  # some count milliseconds, some seconds
    elif key in _FILTERS and isinstance(value, list):
        yield "tools", {_FILTERS[key]: as_globs(cast("list[object]", value))}
    elif key == "tools" and not isinstance(value, dict):
        if isinstance(value, list):  # Copilot CLI; `*` there is all
            names = cast("list[object]", value)
            yield "tools", {} if "*" in names else {"include": as_globs(names)}
    elif key in _OURS:
        yield key, value
