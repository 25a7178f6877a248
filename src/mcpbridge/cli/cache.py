"""`mcpbridge cache`: the results that running bridges of this user keep, and `mcpbridge cache clear` to forget them."""

import os
from collections.abc import Mapping
from typing import Any, cast

import click

from mcpbridge.admin.control_socket import ask_all
from mcpbridge.cli.exits import OK, UNREACHABLE, USAGE, CommandFailed, fail, report
from mcpbridge.cli.options import as_json_option
from mcpbridge.cli.output import first_line, note, print_json, print_table
from mcpbridge.errors import ConfigError
from mcpbridge.places import runtime_directory

__all__ = ["command"]


@click.group("cache", invoke_without_command=True)
@as_json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> int:
    """Show what running bridges keep of results of tools with `cache`. Exit code 4 if no bridge is running."""
    if context.invoked_subcommand is not None:
        return OK
    try:
        found = _said({"do": "cache"})
    except (ConfigError, CommandFailed) as error:
        return report(error, as_json=as_json) or OK
    if as_json:
        print_json({"bridges": found})
        return OK
    for number, bridge in enumerate(found):
        if number:
            print()
        _show(bridge)
    return OK


@command.command("clear")
@click.option("--server", metavar="NAME", default="", help="Only what is kept of this server.")
@click.option("--tool", metavar="GLOB", default="", help="Only of these: `server/tool`, or the tool's own name.")
@as_json_option
def clear(*, server: str, tool: str, as_json: bool) -> int:
    """Forget kept results, in all running bridges. Exit code 4 if none is running."""
    try:
        found = _said({"do": "clear_cache", "server": server, "tool": tool})
    except (ConfigError, CommandFailed) as error:
        return report(error, as_json=as_json) or OK
    cleared = sum(int(bridge["cleared"]) for bridge in found)
    if as_json:
        print_json({"cleared": cleared})
    else:
        note(f"{cleared} {'result' if cleared == 1 else 'results'} forgotten")
    return OK


def _said(request: Mapping[str, object]) -> list[dict[str, Any]]:
    """What the running bridges say. Ends the command if none says something useful."""
    answers = [dict(answer) for answer in ask_all(runtime_directory(os.environ), request)]
    useful = [answer for answer in answers if "error" not in answer]
    if not useful and answers:
        code = USAGE if answers[0].get("code") == "unknown" else UNREACHABLE
        fail(code, str(answers[0]["error"]), "`mcpbridge status` shows the bridges and their servers.")
    if not useful:
        fail(UNREACHABLE, "no bridge is running", "Start one with `mcpbridge serve`.")
    return useful


def _show(bridge: Mapping[str, Any]) -> None:
    share = f"{_size(bridge['bytes'])} of {_size(bridge['max_bytes'])}"
    told = f"{bridge['entries']} results, {share}; {bridge['hits']} hits, {bridge['shared']} shared"
    print(f"process {bridge['pid']}: {told}, {bridge['misses']} misses")
    tools = cast("list[dict[str, Any]]", bridge["tools"])
    if tools:
        print_table(["Tool", "Results", "Size", "Hits", "Shared", "Misses"], [_row(tool) for tool in tools])


def _row(tool: Mapping[str, Any]) -> list[str]:
    counts = [str(tool[key]) for key in ("hits", "shared", "misses")]
    return [first_line(tool["tool"], 60), str(tool["entries"]), _size(tool["bytes"]), *counts]


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"
