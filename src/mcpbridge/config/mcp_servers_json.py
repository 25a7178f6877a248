"""Turns the `mcpServers` JSON of other programs into what `servers.toml` would say.

Such a file is shared with those programs. So an unknown key is a warning and never an error, and a server that we
cannot serve yet is unavailable instead of wrong. Sections of ours beside the servers (`expose`, `permissions`, …) are
read as in `servers.toml`; other programs use some of the same words, so one counts only if it looks like ours, and
what is left out is reported. Sources: the settings of Claude Code and Claude Desktop, Cursor, VS
Code (`servers`, `type`), Gemini CLI (`httpUrl`, `includeTools`, milliseconds), Windsurf (`serverUrl`,
`disabledTools`), Cline (`timeout` in seconds, `autoApprove`).
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, cast, get_args, get_origin

from pydantic import BaseModel

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.late_pattern import late
from mcpbridge.base.suggestions import nearest
from mcpbridge.core.model import OWN
from mcpbridge.tools.builtin.base_settings import BuiltinDefaults
from mcpbridge.upstream.settings import TRANSPORT_SPELLINGS, PinPolicy, ServerSettings

NAME = late(r"[A-Za-z0-9][A-Za-z0-9_-]*")
NAME_LENGTH = 32

_TRANSPORTS = {
    **dict.fromkeys(("stdio", "local"), "stdio"),
    **TRANSPORT_SPELLINGS,
    "remote": None,
}
"""What other programs call a transport; None: the URL decides."""
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

_HARMLESS_AT_TOP = {"inputs", "version", "$comment"}
"""The same beside the servers; `inputs` are questions that VS Code asks its user."""

_OURS = (ServerSettings.model_fields.keys() - {"unavailable", "project_texts", "written", "transport", "sandbox"}) | {
    "isolation"
}

_JSON_TOKEN = late(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = late(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)


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
    sections, left_out = _sections(cast("dict[str, object]", document), file)
    return {**sections, "servers": translated}, warnings + left_out


_SERVERS = ("mcpServers", "servers", "mcp.servers")
"""Where the servers are; the first that is there counts."""


def _servers(document: object, file: str) -> dict[str, object]:
    if isinstance(document, dict):
        top = cast("dict[str, object]", document)
        if (key := _key_of_servers(top)) is not None:
            return cast("dict[str, object]", top[key])
    hint = 'A JSON configuration looks like {"mcpServers": {"time": {"command": "mcp-server-time"}}}.'
    raise ConfigError("expected an object with `mcpServers` (or `servers`)", file=file, hint=hint)


def _key_of_servers(top: dict[str, object]) -> str | None:
    return next((key for key in _SERVERS if isinstance(top.get(key), dict)), None)


_MOST_NAMED = 8
"""Keys that one warning names: the files of some programs hold dozens."""


def _sections(top: dict[str, object], file: str) -> tuple[dict[str, object], list[str]]:
    """The sections of ours that stand beside the servers, and warnings of what is left out."""
    from mcpbridge.config.schema import Settings  # which knows what stands in each

    sections: dict[str, object] = {}
    warnings: list[str] = []
    unknown: list[str] = []
    ours = Settings.model_fields.keys() - {"servers", "source"}
    for key, value in top.items():
        if key == _key_of_servers(top) or key in _HARMLESS or key in _HARMLESS_AT_TOP or value is None:
            continue
        if key not in ours:
            unknown.append(key)
        elif strange := _strange(Settings.model_fields[key].annotation, value):
            warnings.append(f"{file}: {key} was left out: {strange}, so it seems to be of another program")
        else:
            sections[key] = value
    if unknown:
        more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
        names = ", ".join(repr(key) for key in unknown[:_MOST_NAMED])
        warnings.append(f"{file}: left out, since they are not known here: {names}{more}")
    return sections, warnings


def _strange(kind: object, value: object) -> str:
    """Why a value is no section of ours; empty: it is one, though it may be wrong. `kind`: the type of the section."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is list:
        return "" if isinstance(value, list) else "expected a list"
    if kind == PinPolicy | None:
        return "" if value in get_args(PinPolicy) else "expected off, warn or hold"
    if not isinstance(value, dict):
        return "expected an object"
    members = cast("dict[str, object]", value)
    if get_origin(kind) is dict:  # of tables by name
        return next((f"expected an object at {name!r}" for name, one in members.items() if type(one) is not dict), "")
    known = _fields_of(kind)
    close = {name: nearest(name, known, limit=1) for name in members if name not in known}
    for name, near in close.items():
        return f"the key {name!r} is not known here" + (f" (did you mean {near[0]!r}?)" if near else "")
    return ""


def _fields_of(kind: object) -> Collection[str]:
    if isinstance(kind, type) and issubclass(kind, BuiltinDefaults):
        from mcpbridge.tools.builtin.settings import BuiltinSettings

        kind = BuiltinSettings
    return kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else ()


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
