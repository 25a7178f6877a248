"""`mcpbridge status`: the bridges of this user that are running, and how their servers are."""

from typing import cast

import click

from mcpbridge.admin.control_socket import Document
from mcpbridge.cli.bridges import show_all
from mcpbridge.cli.options import as_json_option
from mcpbridge.cli.output import print_table, visible
from mcpbridge.cli.states import State, describe, offers
from mcpbridge.units import show_seconds

__all__ = ["command"]


@click.command("status")
@as_json_option
def command(*, as_json: bool) -> int:
    """Show the bridges that are running, and how their servers are. Exit code 4 if there is none."""
    return show_all(_show, as_json=as_json)


def _show(bridge: Document) -> None:
    up = show_seconds(round(float(str(bridge.get("uptime_s", 0)))))
    clients = bridge.get("clients", 0)
    told = f"up {up}, {clients} {'client' if clients == 1 else 'clients'}"
    print(visible(f"mcpbridge {bridge.get('version')}, process {bridge.get('pid')}, {bridge.get('front')}, {told}"))
    servers = cast("list[State]", bridge.get("servers", []))
    if servers:
        titles = ["Server", "State", "Transport", "Protocol", "Process", "Restarts", "Calls", "Offers"]
        print_table(titles, list(map(_row, servers)), wraps="State" if any(map(_is_troubled, servers)) else "Offers")
    for warning in cast("list[str]", bridge.get("warnings", [])):
        print(visible(f"warning: {warning}"))


def _is_troubled(server: State) -> bool:
    return bool(server.get("reason"))


def _row(server: State) -> list[str]:
    cells = [str(server.get(key) or "-") for key in ("transport", "protocol", "pid")]
    cells += [str(server.get("restarts", 0)), _calls(server)]
    return [str(server["name"]), describe(server), *cells, offers(server)]


def _calls(server: State) -> str:
    calls, errors = server.get("calls"), server.get("errors")
    if calls is None:
        return "-"
    return f"{calls}, {errors} failed" if errors else str(calls)
