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
    """Show the bridges that are running, and how their servers are.

    Exit code 4 if there is none; 7 if one does not answer.
    """
    return show_all(_show, as_json=as_json)


def _show(bridge: Document) -> None:
    up = show_seconds(round(float(str(bridge.get("uptime_s", 0)))))
    clients = bridge.get("clients", 0)
    told = f"up {up}, {clients} {'client' if clients == 1 else 'clients'}"
    print(visible(f"mcpbridge {bridge.get('version')}, process {bridge.get('pid')}, {bridge.get('front')}, {told}"))
    if bridge.get("config"):
        print(visible(f"configuration: {bridge['config']}"))
    servers = cast("list[State]", bridge.get("servers", []))
    if servers:
        titles = ["Server", "State", "Transport", "Protocol", "Process", "Restarts", "Calls", "Offers"]
        print_table(titles, list(map(_row, servers)), wraps="State" if any(map(_is_troubled, servers)) else "Offers")
    _show_tools(bridge)
    if daemon := cast("State", bridge.get("daemon") or {}):
        _show_daemon(daemon)
    for warning in cast("list[str]", bridge.get("warnings", [])):
        print(visible(f"warning: {warning}"))
    if wrong := cast("State", bridge.get("config_error") or {}):
        print(visible(f"the configuration file as it is now is not in effect: {wrong.get('message')}"))
    if waiting := cast("list[str]", bridge.get("needs_restart") or []):
        print(visible(f"after a restart: {', '.join(waiting)}"))


def _show_tools(bridge: Document) -> None:
    """What does not work of the tools that no server has, and what is not as the file has it."""
    if cast("State", bridge.get("sandbox") or {}).get("mode") == "off":
        print("the sandbox is switched off: what runs for models has all rights of this user")
    for one in cast("list[State]", bridge.get("backends", [])):
        if one["state"] == "failed":
            print(visible(f"tool {one['name']} ({one['kind']}) does not work: {one['reason']}"))
    for one in cast("list[State]", bridge.get("inactive", [])):
        print(visible(f"tool {one['name']} is inactive: {one['reason']}"))
    for one in cast("list[State]", bridge.get("health", [])):
        if not one["ok"]:
            print(visible(f"{one['kind']} {one['name']} did not work at {one['at']}: {one['detail']}"))
    for one in cast("list[State]", bridge.get("added", [])):
        print(visible(_told(one)))


def _told(said: State) -> str:
    """What was said of a server or tool while the bridge runs, and by whom."""
    kind, by = "server" if said["section"] == "servers" else "tool", str(said["by"])
    who = f"over the API by {by.removeprefix('api:')}" if by.startswith("api:") else f"by the {by}"
    switched = [f"switched {'off' if said['disabled'] else 'on'}"] if "disabled" in said else []
    tools = cast("dict[str, bool]", said.get("tools", {}))
    switched += [f"{tool} switched {'off' if is_off else 'on'}" for tool, is_off in tools.items()]
    done = ", ".join([*([str(said["said"])] if said["said"] != "switched" else []), *switched])
    until = "" if said["kept"] else ", until it ends"
    hidden = "; not in effect, since the configuration file has this name" if said.get("hidden") else ""
    return f"{kind} {said['name']}: {done} {who} at {said['at']}{until}{hidden}"


def _show_daemon(daemon: State) -> None:
    for client in cast("list[State]", daemon.get("clients", [])):
        parts = [f"{kind} {client[kind]}" for kind in ("server", "profile") if client.get(kind)]
        if client.get("running"):
            parts.append(f"{client['running']} running")
        told = ", ".join([f"process {client.get('pid')}", *parts])
        print(
            visible(
                f"client {client.get('name') or 'unknown'} ({told}) in {client.get('project') or client.get('cwd')}"
            )
        )
    idle, ends = daemon.get("idle_s"), daemon.get("idle_exit_s")
    if idle is not None:
        after = f", ends after {show_seconds(float(ends))}" if ends else ""
        print(f"no client for {show_seconds(round(float(idle)))}{after}")
    if daemon.get("http_error"):
        print(visible(f"HTTP is not served: {daemon['http_error']}"))
    if daemon.get("log"):
        print(visible(f"log: {daemon['log']}"))


def _is_troubled(server: State) -> bool:
    return bool(server.get("reason"))


def _row(server: State) -> list[str]:
    cells = [str(server.get(key) or "-") for key in ("transport", "protocol", "pid")]
    cells += [str(server.get("restarts", 0)), _calls(server)]
    return [str(server["name"]), describe(server) + _instances(server), *cells, offers(server)]


def _instances(server: State) -> str:
    count = int(server.get("instances") or 0)
    return f", {count} instances" if count > 1 else ""


def _calls(server: State) -> str:
    calls, errors = server.get("calls"), server.get("errors")
    if calls is None:
        return "-"
    return f"{calls}, {errors} failed" if errors else str(calls)
