"""The forms of servers: the table that a filled-in form stands for, and servers out of the clients' own files."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.datastructures import FormData

from mcpbridge.app.client_config.discover.discover import find_all
from mcpbridge.app.client_config.discover.discovered_servers import Found
from mcpbridge.base.errors import ConfigError


class FoundHere(Struct, frozen=True):
    """A server in the file of a client on this machine."""

    name: str
    client: str
    start: str
    """How it is started or reached, without its secrets."""


def table_of(form: FormData) -> dict[str, Any]:
    """The table of `[servers.NAME]` that a form stands for.

    Raises:
        ConfigError: something is missing or cannot be read; says what.
    """

    def text(name: str) -> str:
        value = form.get(name, "")
        return value.strip() if isinstance(value, str) else ""

    if not text("name"):
        raise ConfigError("the server needs a name", key="name")
    kind, pairs = text("kind"), "env" if text("kind") == "command" else "headers"
    if kind == "command":
        try:
            words = shlex.split(text("command"))
        except ValueError as error:
            raise ConfigError(f"the command cannot be read: {error}", key="command") from None
        if not words:
            raise ConfigError("the command is empty", key="command", hint="Such as: uvx mcp-server-time")
        table: dict[str, Any] = {"command": words[0], **({"args": words[1:]} if words[1:] else {})}
    elif kind == "url":
        if "://" not in text("url"):
            raise ConfigError("the address is no URL", key="url", hint="Such as: https://mcp.example.com/mcp")
        table = {"url": text("url")}
    else:
        raise ConfigError("say whether it is a command or a URL", key="kind")
    lines = [line.strip() for line in text(pairs).splitlines() if line.strip()]
    given = dict(_pair(line, pairs) for line in lines)
    return {**table, **({pairs: given} if given else {})}


def _pair(line: str, key: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"a line must be NAME=VALUE, not {line[:40]!r}", key=key)
    return name.strip(), value.strip()


def found_in_clients() -> list[FoundHere]:
    """The servers that clients on this machine have; what cannot be read is left out."""
    return [
        FoundHere(one.name, one.title, _start(dict(one.server)))
        for one in _discover_servers().servers
        if not _is_bridge(one.name, dict(one.server))
    ]


def import_edit(name: str, path: Path) -> Callable[[str], str]:
    """The edit that puts a client's server into the configuration; its secrets become variables.

    Raises:
        ConfigError: there is no such server, or the file cannot take it.
    """
    from dataclasses import replace

    from mcpbridge.app.client_config.importing.plan import plan_import

    found = _discover_servers()
    servers = tuple(one for one in found.servers if one.name == name)[:1]
    if not servers:
        raise ConfigError(f"no client has a server called {name[:60]!r}")
    plan = plan_import(replace(found, servers=servers), path, os.environ)
    return lambda _: plan.text


def _discover_servers() -> Found:
    home = Path(os.environ.get("HOME") or Path.home()).absolute()
    return find_all(os.environ, home, sys.platform, None)


def _start(server: dict[str, Any]) -> str:
    from mcpbridge.app.client_config.importing.merge import program_of

    if url := server.get("url"):
        return str(url).partition("?")[0]
    program, arguments = program_of(server)
    return " ".join([program, *arguments[:3]])


def _is_bridge(name: str, server: dict[str, Any]) -> bool:
    from mcpbridge.app.client_config.importing.merge import is_bridge

    return is_bridge(name, server)
