"""The bridge as clients write down their servers: one entry in the words of each.

Sources beside those of `clients.py`: Codex's own check of its fields, goose's extension settings, OpenCode's "MCP
servers", Continue's reference of `config.yaml`, LibreChat's "MCP servers", GitHub's "Adding MCP servers for Copilot
CLI" (which shows no tool without `tools`).
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import cast

from mcpbridge.app.client_config.clients import Dialect
from mcpbridge.base.errors import ConfigError

NAME = "mcpbridge"
"""What the bridge is called in every client: short and without `_`, because clients put it before every tool."""

_START_SECONDS = 30
_CALL_SECONDS = 600
"""How long a client may wait for a call; the bridge itself gives up before, with a better answer."""

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Launch:
    """What a client does to reach the bridge: start a program, or visit a URL."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    """Of a bridge that serves HTTP; then there is no command."""
    token: str = field(default="", repr=False)
    """What that bridge asks for; empty: nothing, or what only people know."""
    variables: tuple[str, ...] = ()
    """Names of variables that the bridge needs from the client's environment."""


def launch_of_this_program(
    arguments: Sequence[str], *, portable: bool = False, variables: Sequence[str] = ()
) -> Launch:
    """How to start the `mcpbridge` that is running, with these arguments. `portable`: by its name, if that finds it."""
    program = _program()
    if program is None:
        # A client starts it in any project, and without -P modules of that directory would come first.
        return Launch(sys.executable, ("-P", "-m", "mcpbridge", *arguments), variables=tuple(variables))
    on_path = shutil.which(program.name)
    if portable and on_path and program.samefile(on_path):
        return Launch(program.name, tuple(arguments), variables=tuple(variables))
    return Launch(str(program), tuple(arguments), variables=tuple(variables))


def is_fleeting(command: str) -> bool:
    """Whether a program is in a cache of uv or pipx, from which it will vanish."""
    parts = Path(command).parts
    return any(one in ("uv", ".tmp") and other.startswith(("archive-v", "builds-v")) for one, other in pairwise(parts))


def entry_for(dialect: Dialect, client: str, launch: Launch, *, second_version: bool = False) -> Json:
    """The entry for a client's file. `second_version`: of OpenCode.

    Raises:
        ConfigError: the client's file holds no URLs.
    """
    if launch.url:
        entry = _remote(dialect, client, launch.url, second_version=second_version)
        return {**entry, **_headers(dialect, {"Authorization": f"Bearer {launch.token}"})} if launch.token else entry
    start: Json = {"command": launch.command, "args": list(launch.args)}
    named = list(launch.variables)
    by_dialect: Mapping[Dialect, Callable[[], Json]] = {
        "claude": lambda: {"type": "stdio", **start} if client == "claude-code" else start,
        "vscode": lambda: {"type": "stdio", **start},
        # without `required`, Codex asks its model before the tools are there
        "codex": lambda: {
            **start,
            **({"env_vars": named} if named else {}),  # it hands on no others
            "required": True,
            "startup_timeout_sec": _START_SECONDS,
            "tool_timeout_sec": _CALL_SECONDS,
        },
        # it keeps what is called KEY, TOKEN or SECRET to itself
        "gemini": lambda: {**start, **({"env": {name: f"${name}" for name in named}} if named else {})},
        "zed": lambda: {"source": "custom", **start},
        "continue": lambda: {"type": "stdio", **start},
        "librechat": lambda: {
            "type": "stdio",
            **start,
            "timeout": _CALL_SECONDS * 1000,
            "initTimeout": _START_SECONDS * 1000,
        },
        "goose": lambda: {
            **_goose("stdio"),
            "cmd": launch.command,
            "args": list(launch.args),
            "envs": {},
            "env_keys": [],
            "timeout": _CALL_SECONDS,
        },
        "opencode": lambda: {
            "type": "local",
            "command": [launch.command, *launch.args],
            **({} if second_version else {"enabled": True}),
        },
    }
    if client == "copilot":
        return {"type": "local", **start, "tools": ["*"]}
    return by_dialect.get(dialect, lambda: start)()


def _remote(dialect: Dialect, client: str, url: str, *, second_version: bool) -> Json:
    if client == "claude-desktop":
        hint = "Add the URL as a connector in its settings, or install without --http."
        raise ConfigError("the file of Claude Desktop holds no URLs", key="--http", hint=hint)
    by_client: dict[str, Json] = {
        "windsurf": {"serverUrl": url},
        "antigravity": {"serverUrl": url},
        "cline": {"type": "streamableHttp", "url": url},
        "roo": {"type": "streamable-http", "url": url},
        "copilot": {"type": "http", "url": url, "tools": ["*"]},
    }
    by_dialect: dict[Dialect, Json] = {
        "claude": {"type": "http", "url": url},
        "vscode": {"type": "http", "url": url},
        "codex": {
            "url": url,
            "required": True,
            "startup_timeout_sec": _START_SECONDS,
            "tool_timeout_sec": _CALL_SECONDS,
        },
        "gemini": {"httpUrl": url},
        "continue": {"type": "streamable-http", "url": url},
        "librechat": {"type": "streamable-http", "url": url, "timeout": _CALL_SECONDS * 1000},
        "goose": {**_goose("streamable_http"), "uri": url, "envs": {}, "env_keys": [], "timeout": _CALL_SECONDS},
        "opencode": {"type": "remote", "url": url, **({} if second_version else {"enabled": True})},
    }
    return by_client.get(client) or by_dialect.get(dialect) or {"url": url}


def _headers(dialect: Dialect, headers: Json) -> Json:
    """Headers in the words of a client."""
    if dialect == "codex":
        return {"http_headers": headers}
    if dialect == "continue":
        return {"requestOptions": {"headers": headers}}
    return {"headers": headers}


def _goose(kind: str) -> Json:
    about = "All MCP servers, through mcpbridge"
    return {"enabled": True, "type": kind, "name": NAME, "description": about}


def blank_document(dialect: Dialect) -> str:
    """What a new file must hold beside servers."""
    return f"name: {NAME}\nversion: 1.0.0\nschema: v1\n" if dialect == "continue" else ""


def with_choices(entry: Json, old: object) -> Json:
    """The entry with what people and the client have put into an older one beside it: approvals, filters, variables."""
    if not isinstance(old, dict):
        return entry
    kept = {k: v for k, v in cast("Json", old).items() if k not in _HOW_TO_START and _is_plain(v)}
    ours = {
        key: _both(value, kept[key])
        if key in kept and key in _VARIABLES
        else _both(kept[key], value)
        if key in kept and key in _HEADERS
        else value
        for key, value in entry.items()
    }
    return {**ours, **{key: value for key, value in kept.items() if key not in entry}}


def _both(ours: object, theirs: object) -> object:
    """Our variables, and what people have put beside them; of one that both have, theirs counts, but for headers."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {**cast("Json", ours), **cast("Json", theirs)}
    if isinstance(ours, list) and isinstance(theirs, list):
        return list(dict.fromkeys([*map(str, cast("list[object]", ours)), *map(str, cast("list[object]", theirs))]))
    return cast("object", ours)


_VARIABLES = {"env", "env_vars"}
_HEADERS = {"headers", "http_headers"}
"""A token that is written anew must be the one that holds."""


_HOW_TO_START = {
    "command",
    "args",
    "cmd",
    "uri",
    "url",
    "httpUrl",
    "serverUrl",
    "type",
    "transport",
    "source",
    "name",
} | {
    "enabled",  # who installs it, wants it
    "disabled",
    "isActive",
}


def _is_plain(value: object) -> bool:
    """Whether JSON, TOML and YAML can all say it."""
    if isinstance(value, dict):
        return all(map(_is_plain, cast("Json", value).values()))
    if isinstance(value, list):
        return all(map(_is_plain, cast("list[object]", value)))
    return isinstance(value, str | int | float) and value not in (inf, -inf) and value == value


def runs_bridge(given: object) -> bool:
    """Whether an entry of a client's file starts a bridge, whatever it is called."""
    if not isinstance(given, dict):
        return False
    words: list[str] = []
    for key in ("command", "cmd", "args"):
        value: object = given.get(key)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - parsed by us
        words += [str(word) for word in value] if isinstance(value, list) else [str(value or "")]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - parsed by us
    names = [word.replace("\\", "/").rpartition("/")[2].removesuffix(".exe") for word in words]
    return "serve" in names and any(name == NAME or name.startswith(f"{NAME}==") for name in names)


def _program() -> Path | None:
    """The `mcpbridge` that is running, as a file that can be started from anywhere; None: started as a module."""
    names = (NAME, f"{NAME}.exe")
    started = Path(sys.argv[0])
    if started.name in names and (found := shutil.which(started)):
        return Path(found).absolute()
    beside = (Path(sys.executable).parent / name for name in names)
    return next((path.absolute() for path in beside if path.is_file() and os.access(path, os.X_OK)), None)
