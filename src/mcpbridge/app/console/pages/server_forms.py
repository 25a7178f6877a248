"""The forms of servers: the table that a filled-in form stands for, and servers out of the clients' own files."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.datastructures import FormData

from mcpbridge.app.client_config.discover.discover import find_all
from mcpbridge.app.client_config.discover.discovered_servers import Found, Problem
from mcpbridge.base.errors import ConfigError

if TYPE_CHECKING:  # loaded when something is taken over
    from mcpbridge.app.client_config.importing.merge import Outcome
    from mcpbridge.app.client_config.importing.plan import Plan


class FoundHere(Struct, frozen=True):
    """A server in the file of a client on this machine."""

    name: str
    client: str
    """The client's id."""
    title: str
    """What people call the client."""
    file: str
    place: str
    """The file, with the line where that is known."""
    start: str
    """How it is started or reached, without its secrets."""
    skipped: str
    """Why it cannot be taken over; empty: it can."""


class Takeover(Struct, frozen=True):
    """A client's server on its way into `servers.toml`."""

    edit: Callable[[str], str]
    notes: Sequence[str]
    """What a person should know before it is written."""
    prepare: Callable[[], None]
    """Writes its secrets into private files; called before the text that names them is written."""


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


def found_in_clients() -> tuple[list[FoundHere], list[Problem]]:
    """The servers that clients on this machine have, and what is wrong with the files of clients."""
    found = _discover_servers()
    servers = [
        FoundHere(
            one.name,
            one.client,
            one.title,
            str(one.file),
            one.place,
            "" if one.skipped else _start(dict(one.server)),
            one.skipped,
        )
        for one in found.servers
        if not _is_bridge(one.name, dict(one.server))
    ]
    return servers, list(dict.fromkeys(replace(one, client="") for one in found.problems))


def take_over(name: str, client: str, file: str, path: Path) -> Takeover:
    """What puts a client's server into the configuration; its secrets go into private files beside that.

    Raises:
        ConfigError: there is no such server, it cannot be taken over, or the configuration cannot take it.
    """
    from mcpbridge.app.client_config.importing.plan import plan_import, write_private_files

    found = _discover_servers()
    wanted = [one for one in found.servers if (one.name, one.client, str(one.file)) == (name, client, file)]
    if not wanted:
        raise ConfigError(f"that client has no server called {name[:60]!r} any more")
    plan = plan_import(replace(found, servers=(wanted[0],)), path, os.environ, secrets_to="file")
    (outcome,) = plan.outcomes
    if not outcome.is_written:
        why = outcome.detail or "it is there already"
        raise ConfigError(f"{name[:60]} was not taken over: {why}")

    def edit(text: str) -> str:
        if text != plan.before_text:
            raise ConfigError("servers.toml was changed meanwhile: try again")
        return plan.text

    return Takeover(edit, [*_notes(plan, outcome)], partial(write_private_files, plan))


def _notes(plan: "Plan", outcome: "Outcome") -> Iterator[str]:
    if outcome.detail:
        yield f"{outcome.entry.name}: {outcome.detail}."
    yield from outcome.entry.notes
    if plan.moved:
        names = ", ".join(str(plan.folder / one.variable) for one in plan.moved)
        yield f"Its secrets go into private files, which only you can read: {names}"
    for variable in plan.unset:
        yield f"Set {variable} in the environment of the bridge; until then the server is off."
    if outcome.entry.left_out:
        yield f"These have no counterpart here, and stay as comments: {', '.join(outcome.entry.left_out)}"


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
