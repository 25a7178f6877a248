"""`mcpbridge stats`: what the running bridges have counted of calls since they started, per tool."""

from collections.abc import Mapping
from typing import Any, cast

import click

from mcpbridge.admin.control_socket import Document
from mcpbridge.cli.bridges import show_all
from mcpbridge.cli.options import as_json_option
from mcpbridge.cli.output import print_table

__all__ = ["command"]

_TITLES = ["Tool", "Calls", "Errors", "Refused", "p50", "p95", "In", "Out", "Out, estimated"]


@click.command("stats")
@as_json_option
def command(*, as_json: bool) -> int:
    """Show how often each tool was called, how long it took, and how much it returned. Exit code 4: no bridge runs.

    Latencies are estimated from a histogram, tokens from bytes.
    """
    return show_all(_show, {"do": "stats"}, as_json=as_json)


def _show(bridge: Document) -> None:
    tools = cast("list[Mapping[str, Any]]", bridge.get("tools", []))
    if not tools:
        print(f"process {bridge.get('pid')}: no calls yet")
        return
    print(f"process {bridge.get('pid')}")
    print_table(_TITLES, [_row(tool) for tool in tools], wraps="Tool")


def _row(tool: Mapping[str, Any]) -> list[str]:
    latency: Mapping[str, float] = tool["latency"]
    name = tool["tool"] or f"{tool['server']} ({tool['method']})"
    counts = [str(number) for number in (tool["calls"], tool["errors"], sum(tool["refused"].values()))]
    times = [_seconds(latency.get(share)) for share in ("p50", "p95")]
    sizes = [_size(tool["bytes_in"]), _size(tool["bytes_out"]), f"~{tool['tokens_out_estimated']} tokens (est.)"]
    return [name, *counts, *times, *sizes]


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _size(size: int) -> str:
    for unit, bytes_of in (("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_of:
            return f"{size / bytes_of:.1f} {unit}"
    return f"{size} B"
