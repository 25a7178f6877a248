"""`mcpbridge status`: the bridges of this user that are running, and how their servers are."""

import os
from collections.abc import Sequence
from datetime import datetime
from typing import cast

import click

from mcpbridge.app.admin.control_client import SILENT, Document, ask_all
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, header_option
from mcpbridge.app.cli.output import print_json, print_table, visible
from mcpbridge.app.cli.server_states import State, describe, describe_change, offers
from mcpbridge.app.exit_codes import OK, TIMED_OUT, UNREACHABLE
from mcpbridge.base.directories import runtime_directory
from mcpbridge.base.units import show_seconds

_MOST_QUOTAS = 3
"""Quotas that are printed: those that are used up, or else that of which most is used."""
_MOST_CHANGES = 5
"""Changes of what a server shows that are printed."""


@click.command("status")
@as_json_option
@header_option
def status_command(*, as_json: bool) -> int:
    """Show the bridges that are running, and how their servers are.

    Exit code 4: none is running; 7: one does not answer.

    \u0008
    Examples:
      mcpbridge status
      mcpbridge status --json
    """
    return _show_all(as_json=as_json)


def _show(bridge: Document) -> None:
    up = show_seconds(round(float(str(bridge.get("uptime_s", 0)))))
    clients = bridge.get("clients", 0)
    since = f"up {up}, {clients} {'client' if clients == 1 else 'clients'}"
    print(visible(f"mcpbridge {bridge.get('version')}, process {bridge.get('pid')}, {bridge.get('front')}, {since}"))
    if token_file := bridge.get("token_file") or cast("State", bridge.get("daemon") or {}).get("token_file"):
        print(visible(f"HTTP clients send the token in {token_file}"))
    if bridge.get("config"):
        print(visible(f"configuration: {bridge['config']}"))
    servers = cast("list[State]", bridge.get("servers", []))
    if servers:
        titles = ["Server", "State", "Transport", "Protocol", "Process", "Restarts", "Calls", "Offers"]
        print_table(titles, list(map(_row, servers)), wraps="State" if any(map(_is_troubled, servers)) else "Offers")
    backends = cast("list[State]", bridge.get("backends") or [])
    _show_unapproved([*servers, *backends], cast("State", bridge.get("lock") or {}))
    for one in servers:
        if refused := cast("dict[str, int]", cast("State", one.get("egress") or {}).get("refused") or {}):
            print(visible(f"{one['name']} was refused connections to {', '.join(refused)}"))
    _show_tools(bridge)
    if daemon := cast("State", bridge.get("daemon") or {}):
        _show_daemon(daemon)
    if fleet := cast("State", bridge.get("fleet") or {}):
        print(visible(_fleet(fleet)))
    if (call_log := cast("State", bridge.get("call_log") or {})).get("file"):
        kept = "with arguments and results" if call_log.get("content") else "sizes and digests"
        print(visible(f"call log ({kept}): {call_log['file']}"))
    if audit := cast("State", bridge.get("audit") or {}):
        print(visible(f"audit log (up to line {audit['last']}): {audit['folder']}"))
        for one in audit["exports"]:
            lost = f", {one['lost']} lost" if one["lost"] else ""
            problem = f": {one['problem']}" if one["problem"] else ""
            print(visible(f"  sent to {one['to']}: {one['sent']}{lost}{problem}"))
    if quotas := cast("State", bridge.get("quotas") or {}):
        _show_quotas(quotas)
    for one in cast("list[State]", bridge.get("break_glass") or []):
        print(visible(_emergency(one)))
    for problem in cast("list[str]", bridge.get("storage_problems", [])):
        print(visible(f"problem: {problem}"))
    for warning in cast("list[str]", bridge.get("warnings", [])):
        print(visible(f"warning: {warning}"))
    if wrong := cast("State", bridge.get("config_error") or {}):
        print(visible(f"the configuration file as it is now is not in effect: {wrong.get('message')}"))
    if waiting := cast("list[str]", bridge.get("needs_restart") or []):
        print(visible(f"after a restart: {', '.join(waiting)}"))


def _show_quotas(quotas: State) -> None:
    used_up, most = int(quotas["used_up"]), cast("list[State]", quotas["most_used"])
    shown = most[: max(used_up, 1)][:_MOST_QUOTAS]
    print(f"quotas: {used_up or 'none'} used up; `mcpbridge usage --quotas` shows all")
    for one in shown:
        user = (one["user"] or "the local user") if "user" in one else "the whole team"
        at = datetime.fromisoformat(str(one["resets"])).astimezone()
        used = f"{one['used']:,} of {one['quota']}"
        print(visible(f"  {one['role']}, {user}: {used} ({one['share']:.0%}), all of it again at {at:%Y-%m-%d %H:%M}"))


def _show_unapproved(servers: Sequence[State], lock: State) -> None:
    """What servers show and nobody agreed to."""
    if lock.get("fault"):
        print(visible(f"servers.lock is not understood: {lock['fault']}"))
    for server in servers:
        found = cast("list[State]", server.get("unapproved") or [])
        for one in found[:_MOST_CHANGES]:
            print(visible(f"changed: {server['name']}: {one['text']}. `{one['approve']}` agrees to it"))
        if len(found) > _MOST_CHANGES:
            more = len(found) - _MOST_CHANGES
            print(visible(f"changed: {server['name']}: {more} more, see `mcpbridge lock diff {server['name']}`"))


def _show_tools(bridge: Document) -> None:
    """The tools that no server has, what does not work of them, and what is not as the file has it."""
    working = [one for one in cast("list[State]", bridge.get("backends", [])) if one["state"] != "failed"]
    if working:
        shown = (one["name"] if one["state"] == "ready" else f"{one['name']} (starting)" for one in working)
        print(visible(f"tools: {', '.join(map(str, shown))}"))
    lacking = {one["name"] for one in cast("list[State]", bridge.get("inactive", []))}
    if own := [name for name in cast("list[str]", bridge.get("builtin", [])) if name not in lacking]:
        print(visible(f"built-in: {', '.join(own)}"))
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
        print(visible(describe_change(one)))


def _show_daemon(daemon: State) -> None:
    for client in cast("list[State]", daemon.get("clients", [])):
        parts = [f"{kind} {client[kind]}" for kind in ("server", "profile") if client.get(kind)]
        if client.get("running"):
            parts.append(f"{client['running']} running")
        facts = ", ".join([f"process {client.get('pid')}", *parts])
        print(
            visible(
                f"client {client.get('name') or 'unknown'} ({facts}) in {client.get('project') or client.get('cwd')}"
            )
        )
    idle, ends = daemon.get("idle_s"), daemon.get("idle_exit_s")
    if idle is not None:
        after = f", ends after {show_seconds(float(ends))}" if ends else ""
        print(f"no client for {show_seconds(round(float(idle)))}{after}")
    if daemon.get("http_error"):
        print(visible(f"HTTP is not served: {daemon['http_error']}"))
    if snapshot := cast("State", daemon.get("snapshot") or {}):
        print(_snapshots(snapshot))
    if daemon.get("log"):
        print(visible(f"log: {daemon['log']}"))


def _fleet(fleet: State) -> str:
    count = fleet["members"]
    draining = ", takes nothing new" if fleet["draining"] else ""
    problem = f"; its shared records cannot be reached: {fleet['problem']}" if fleet["problem"] else ""
    return f"fleet: {fleet['name']}, one of {count} bridge{'s' * (count != 1)}{draining}{problem}"


def _emergency(grant: State) -> str:
    who = grant["user"] or "the local user"
    return f"emergency: {who} has the role {grant['role']} until {grant['until']}: {grant['reason']}"


def _snapshots(snapshot: State) -> str:
    kinds, used = snapshot["kinds"], snapshot["used_s"]
    about = f"snapshots for {kinds} kind{'s' * (kinds != 1)} of client"
    return about if used is None else f"{about}, used {show_seconds(round(float(used)))} ago"


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


def _show_all(*, as_json: bool) -> int:
    """Ask every running bridge for its status and show what it answers; returns the exit code."""
    found = ask_all(runtime_directory(os.environ))
    if as_json:
        print_json("status/1", {"bridges": found})
        return _code(found)
    if not found:
        advice = "`mcpbridge up` starts one in the background; a client that has it installed starts one by itself."
        fail(UNREACHABLE, "no bridge is running", advice)
    for number, bridge in enumerate(found):
        if number:
            print()
        if "error" in bridge:
            pid = bridge.get("pid")
            hint = f"; `kill -9 {pid}` ends it and its servers" if bridge.get("code") == SILENT else ""
            print(f"process {pid}: {bridge['error']}{hint}")
        else:
            _show(bridge)
    return _code(found)


def _code(documents: Sequence[Document]) -> int:
    if any(one.get("code") == SILENT for one in documents):
        return TIMED_OUT
    return OK if documents else UNREACHABLE
