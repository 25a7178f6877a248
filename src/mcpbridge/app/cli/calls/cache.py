"""`mcpbridge cache`: the results that running bridges keep of tools with `cache`, and forgetting them."""

import os
from collections.abc import Mapping
from typing import Any, cast

import click

from mcpbridge.app.admin.control_client import ask_all
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, header_option
from mcpbridge.app.cli.output import first_line, note, print_json, print_table, size_text
from mcpbridge.app.exit_codes import OK, UNREACHABLE, USAGE
from mcpbridge.base.directories import runtime_directory


@click.group("cache", invoke_without_command=True)
@as_json_option
@click.pass_context
@header_option
def cache_command(context: click.Context, *, as_json: bool) -> int:
    """Show the results that running bridges keep of tools with `cache`. Exit code 4: no bridge is running.

    \u0008
    Examples:
      mcpbridge cache
      mcpbridge cache clear --server docs
    """
    if context.invoked_subcommand is not None:
        return OK
    found = _answers_of_bridges({"do": "cache"})
    if as_json:
        print_json("cache/1", {"bridges": found})
        return OK
    for number, bridge in enumerate(found):
        if number:
            print()
        _show(bridge)
    return OK


@cache_command.command("clear")
@click.option("--server", metavar="NAME", default="", help="Only what is kept of this server.")
@click.option("--tool", metavar="GLOB", default="", help="Only of these: `server/tool`, or the tool's own name.")
@as_json_option
def clear(*, server: str, tool: str, as_json: bool) -> int:
    """Forget cached results, in all running bridges. Exit code 4: none is running.

    \u0008
    Examples:
      mcpbridge cache clear --tool 'search_*'
    """
    found = _answers_of_bridges({"do": "clear_cache", "server": server, "tool": tool})
    cleared = sum(int(bridge["cleared"]) for bridge in found)
    if as_json:
        print_json("cache-clear/1", {"cleared": cleared})
    else:
        note(f"{cleared} {'result' if cleared == 1 else 'results'} forgotten")
    return OK


def _answers_of_bridges(request: Mapping[str, object]) -> list[dict[str, Any]]:
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
    share = f"{size_text(bridge['bytes'])} of {size_text(bridge['max_bytes'])}"
    told = f"{bridge['entries']} results, {share}; {bridge['hits']} hits, {bridge['shared']} shared"
    print(f"process {bridge['pid']}: {told}, {bridge['misses']} misses")
    tools = cast("list[dict[str, Any]]", bridge["tools"])
    if tools:
        print_table(["Tool", "Results", "Size", "Hits", "Shared", "Misses"], [_cache_row(tool) for tool in tools])


def _cache_row(tool: Mapping[str, Any]) -> list[str]:
    counts = [str(tool[key]) for key in ("hits", "shared", "misses")]
    return [first_line(tool["tool"], 60), str(tool["entries"]), size_text(tool["bytes"]), *counts]
