"""What was said of servers and tools while bridges run, over the API or by a program, as commands tell of it.

It lies over the configuration file (`overlay.py`), so what a command writes there may have no effect.

`mcpbridge status`: the bridges of this user that are running, and how their servers are.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

import anyio
import click
import msgspec

from mcpbridge.app.admin.control_socket import Document
from mcpbridge.app.cli.daemon.find import survey
from mcpbridge.app.cli.exit_codes import State, describe, offers
from mcpbridge.app.cli.options import as_json_option
from mcpbridge.app.cli.output import print_table, visible
from mcpbridge.app.cli.running_bridges import show_all
from mcpbridge.base.errors import BridgeError
from mcpbridge.base.units import show_seconds
from mcpbridge.config.load import read
from mcpbridge.engine.registry.overlay import Entry, KeptEntries, standing
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import store_path
from mcpbridge.storage.sqlite.database import may_exist

Wish = Literal["there", "gone", "on", "off"]
"""What a command wants to come to."""


def told(said: State) -> str:
    """What was said of one server or tool, and by whom."""
    kind, by = "server" if said["section"] == "servers" else "tool", str(said["by"])
    who = f"over the API by {by.removeprefix('api:')}" if by.startswith("api:") else f"by the {by}"
    switched = [f"switched {'off' if said['disabled'] else 'on'}"] if "disabled" in said else []
    switched += [f"{tool} switched {'off' if is_off else 'on'}" for tool, is_off in said.get("tools", {}).items()]
    done = ", ".join([*([str(said["said"])] if said["said"] != "switched" else []), *switched])
    until = "" if said["kept"] else ", until it ends"
    hidden = "; not in effect, since the configuration file has this name" if said.get("hidden") else ""
    return f"{kind} {said['name']}: {done} {who} at {said['at']}{until}{hidden}"


def said_over(path: Path) -> Sequence[State]:
    """All that lies over this configuration: what the bridges say that run with it, else what is kept in its store."""
    bridges = survey(path).bridges
    if not bridges:
        with suppress(BridgeError):  # a store that cannot be read: no bridge can either, and it says so
            return _kept(path)
        return []
    found: dict[str, State] = {}
    for bridge in bridges:
        added: object = bridge.status.get("added")
        for said in added if isinstance(added, list) else []:  # pyright: ignore[reportUnknownVariableType] - JSON
            found[told(said)] = said  # pyright: ignore[reportUnknownArgumentType]
    return list(found.values())


def _kept(path: Path) -> Sequence[State]:
    settings = read(path, os.environ).settings
    if settings.store.kind == "memory" or not may_exist(store_path(settings.store)):
        return []  # looking makes no file

    async def looking() -> list[bytes]:
        store = LazyStore(settings.store)
        try:
            return await KeptEntries(store, lambda: f"config:{settings.source or ''}").all()
        finally:
            await store.close()

    entries: list[Entry] = []
    for kept in anyio.run(looking):
        with suppress(msgspec.DecodeError):
            entries.append(msgspec.json.decode(kept, type=Entry))
    return [standing(entry, settings) for entry in entries]


def holds_against(said: State, tool: str, wish: Wish) -> bool:
    """Whether what was said of a server or tool is in the way of what is wished of it, or of this tool of it."""
    if said.get("hidden"):
        return False
    if said["said"] in ("added", "replaced"):
        return True
    if said["said"] == "removed":
        return wish in ("there", "on")
    is_off = said.get("tools", {}).get(tool) if tool else said.get("disabled")
    return is_off is not None and wish != "gone" and is_off == (wish != "off")


def how_to_undo(said: State, tool: str, wish: Wish) -> str:
    """The request that has a running bridge come to what is wished."""
    at = f"/api/tools/{said['name']}/{tool}" if tool else f"/api/{said['section']}/{said['name']}"
    if said["said"] in ("added", "replaced"):
        return f"`DELETE {at}` takes that out."
    return f'`PATCH {at} {{"enabled": {"false" if wish == "off" else "true"}}}` changes it.'


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
    since = f"up {up}, {clients} {'client' if clients == 1 else 'clients'}"
    print(visible(f"mcpbridge {bridge.get('version')}, process {bridge.get('pid')}, {bridge.get('front')}, {since}"))
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
    sandbox = cast("State", bridge.get("sandbox") or {})
    if sandbox.get("mode") == "off":
        print("the sandbox is switched off: what runs for models has all rights of this user")
    if outside := cast("list[str]", sandbox.get("off") or []):
        print(visible(f"outside of any sandbox: {', '.join(outside)}"))
    for one in cast("list[State]", bridge.get("backends", [])):
        if one["state"] == "failed":
            print(visible(f"tool {one['name']} ({one['kind']}) does not work: {one['reason']}"))
    for one in cast("list[State]", bridge.get("inactive", [])):
        print(visible(f"tool {one['name']} is inactive: {one['reason']}"))
    for one in cast("list[State]", bridge.get("health", [])):
        if not one["ok"]:
            print(visible(f"{one['kind']} {one['name']} did not work at {one['at']}: {one['detail']}"))
    for one in cast("list[State]", bridge.get("added", [])):
        print(visible(told(one)))


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
