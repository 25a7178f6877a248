"""What `mcpbridge` prints without a command: five lines on how things are, and the next thing to do.

1. No configuration: `mcpbridge init`.
2. A configuration that no client starts: `mcpbridge install CLIENT`.
3. Else: `mcpbridge status`, or what is wrong with the configuration.

Nothing is started and nothing is written.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from mcpbridge.app.cli.help.names import ConfigNames, config_names
from mcpbridge.app.cli.output import StatusLine, counted, visible
from mcpbridge.app.cli.running_bridges import survey
from mcpbridge.app.exit_codes import OK
from mcpbridge.base.config_file import FILE_NAME, find_config
from mcpbridge.base.directories import users_config_path
from mcpbridge.base.version import __version__

if TYPE_CHECKING:
    from mcpbridge.app.cli.server_states import State
    from mcpbridge.app.client_config.discover.discovered_servers import ClientEnvironment

_SHOWN = 3
"""Clients that are named."""


class NextStep(NamedTuple):
    """A command to type, and what it does."""

    command: str
    about: str


def start_page() -> int:
    """Print the page; returns the exit code."""
    path = find_config(None, os.environ)
    names = config_names(path) if path else ConfigNames()
    clients: Sequence[str] = ()
    if path:
        line = StatusLine()
        line.show("looking for clients that start the bridge …")
        clients = _clients_with_bridge(os.environ)
        line.clear()
    step = next_step(path, names, clients, _clients_here() if path and not clients else ())
    lines = {
        f"mcpbridge {__version__}": "one MCP server in front of all of yours; `mcpbridge --help` lists the commands",
        "configuration": _configuration(path, names),
        "clients": _few(clients) if clients else "none starts the bridge yet",
        "daemon": _daemon(path),
        "next": f"{step.command}   # {step.about}",
    }
    width = max(map(len, lines))
    for name, text in lines.items():
        print(f"{name.ljust(width)}  {visible(text)}")
    return OK


def next_step(path: str | None, names: ConfigNames, clients: Sequence[str], here: Sequence[str]) -> NextStep:
    """The next thing to do. `here`: clients that are on this machine, as `install` takes them."""
    if path is None:
        return NextStep("mcpbridge init", "set up: find your servers, and put the bridge into your clients")
    if names.problem:
        return NextStep("mcpbridge check", "see what is wrong with the configuration")
    if not names.servers and not names.tools:
        return NextStep("mcpbridge import", "take over the servers that your clients have")
    if not clients:
        client = here[0] if len(here) == 1 else "--all" if here else "CLIENT"
        return NextStep(f"mcpbridge install {client}", "have your client start the bridge")
    return NextStep("mcpbridge status", "see how the bridge and its servers are")


def _configuration(path: str | None, names: ConfigNames) -> str:
    if path is None:
        return f"none yet; it would be {_short(os.path.join(users_config_path(os.environ), FILE_NAME))}"  # noqa: PTH118 - text in, text out
    if names.problem:
        return f"{_short(path)}: {names.problem}"
    tools = f", {counted(len(names.tools), 'tool')} of its own" if names.tools else ""
    return f"{_short(path)}: {counted(len(names.servers), 'server')}{tools}"


def _daemon(path: str | None) -> str:
    if path is None:
        return "does not run; it starts with the first client"
    found = survey(Path(path).resolve())
    if found.daemons:
        servers = cast("list[State]", found.daemons[-1].status.get("servers") or [])
        states = [one["state"] for one in servers if one["state"] != "disabled"]
        ready = sum(state in ("ready", "idle") for state in states)
        return f"runs, process {found.daemons[-1].pid}; {ready} of {counted(len(states), 'server')} ready"
    if found.bridges:
        return f"does not run; a bridge does, process {found.bridges[-1].pid}"
    return "does not run; it starts with the first client"


def _clients_with_bridge(environ: Mapping[str, str]) -> list[str]:
    """The clients that start the bridge: those that it was installed into; else by a look into their files."""
    from mcpbridge.app.client_config.clients import CLIENTS
    from mcpbridge.base.errors import ConfigError
    from mcpbridge.config.files.backups import Backups

    titles = {client.id: client.title for client in CLIENTS}
    try:
        installed = [record.client for record in Backups(environ).all()]
    except ConfigError:
        installed = []
    if not installed:
        from mcpbridge.app.client_config.discover.discover import find_all
        from mcpbridge.app.client_config.importing.merge import is_bridge

        around = _around()
        found = find_all(environ, around.home, around.platform, around.project)
        installed = [one.client for one in found.servers if is_bridge(one.name, one.server)]
    return list(dict.fromkeys(titles.get(client, client) for client in installed))


def _clients_here() -> list[str]:
    """The clients that are on this machine, as `install` takes them."""
    from mcpbridge.app.client_config.install import all_targets

    return list(dict.fromkeys(target.client.id for target in all_targets(_around())))


def _around() -> "ClientEnvironment":
    from mcpbridge.app.cli.clients.install import client_environment

    return client_environment(None)


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _short(path: str) -> str:
    home = os.environ.get("HOME", "")
    full = os.path.abspath(path)  # noqa: PTH100 - a link stays what it is
    return f"~{full[len(home) :]}" if home and full.startswith(f"{home}{os.sep}") else full
