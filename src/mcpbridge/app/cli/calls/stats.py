"""`mcpbridge stats`: what running bridges have counted of calls, and the tokens that results cost and saved."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from mcpbridge.app.admin.control_client import LONGEST_WAIT, SILENT, Document
from mcpbridge.app.admin.stats import BY, accounts_of, savings_of
from mcpbridge.app.cli.bridge_session import run
from mcpbridge.app.cli.calls.store import absence, result_stores
from mcpbridge.app.cli.config.config_path import load_or_default
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import note, print_json, print_table, size_text
from mcpbridge.app.cli.running_bridges import survey
from mcpbridge.app.exit_codes import OK, UNREACHABLE
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import OWN
from mcpbridge.results.token_ledger import By
from mcpbridge.storage.store import MAX_DAYS
from mcpbridge.tools.settings import pack_name

_TITLES = ["Calls", "Rewritten", "Came", "Shown", "Recalled", "Stored", "Saved", "%"]
_COUNTS = ("calls", "rewritten", "came", "shown", "recalled", "stored", "saved")


def print_tokens(document: Mapping[str, Any]) -> None:
    """What `accounts_of` returned: a line for each row, and one for their sum."""
    by: list[str] = document["by"]
    print(f"tokens of results, {_span(document['days'])} (estimates)")
    rows = [[*(row[part] or "-" for part in by), *_numbers(row)] for row in document["rows"]]
    total = ["total", *[""] * (len(by) - 1), *_numbers(document["total"])]
    print_table([*(part.capitalize() for part in by), *_TITLES], [*rows, total], wraps=by[0].capitalize())


def _span(days: int) -> str:
    return "today" if days == 1 else f"last {days} days"


def _numbers(row: Mapping[str, Any]) -> list[str]:
    return [*(f"{row[name]:,}" for name in _COUNTS), f"{row['saved_share']:.0%}" if row["came"] else "-"]


_LIST_TITLES = ["Client", "Lists", "Full", "Slimmed", "Listed", "By slimming", "By routing", ""]


def print_lists(document: Mapping[str, Any]) -> None:
    """What `savings_of` says of lists of tools: a line for each client."""
    print(f"tokens of lists of tools, {_span(document['days'])}; what slimming and routing saved of them")
    rows = [
        [
            row["client"] or "-",
            *(f"{row[name]:,}" for name in ("lists", "sent", "slim", "listed", "slimming", "routing")),
            "counted" if row["counted"] else "estimated",
        ]
        for row in document["lists"]["rows"]
    ]
    print_table(_LIST_TITLES, rows, wraps="Client")
    searches = document["searches"]
    if searches["calls"]:
        print(f"{searches['calls']:,} searches for tools cost {searches['shown']:,} tokens (estimated) of that")


_STATS_TITLES = ["Tool", "Calls", "Errors", "Refused", "p50", "p95", "In", "Out", "Out, estimated"]
_DAYS = 7
_HOW = (
    "Results above `threshold` are rewritten to `budget` characters, as `[results]` of the configuration says; "
    'with `strategy` "off" they pass as they came.'
)


@click.command("stats")
@click.option("--days", type=click.IntRange(1, MAX_DAYS), metavar="N", help=f"Tokens of N days (default: {_DAYS}).")
@click.option("--by", type=click.Choice(BY), multiple=True, help="Tokens by this (default: tool); can be repeated.")
@click.option("--all", "shows_all", is_flag=True, help="Of all configurations, not only of the one in use here.")
@config_option
@as_json_option
@header_option
def stats_command(*, days: int | None, by: Sequence[By], shows_all: bool, config: str | None, as_json: bool) -> int:
    """Show calls of running bridges since they started, and the tokens of results of the last days.

    Where a configuration is in use (./servers.toml of a project, say), it is about its bridges and servers alone.
    With --days or --by, the tokens alone; they are in the store, so no bridge has to run. Latencies are estimated from
    a histogram, tokens from texts. Exit code 4: no bridge runs, and nothing was counted.

    \u0008
    Examples:
      mcpbridge stats
      mcpbridge stats --days 30 --by client
    """
    is_about_tokens = days is not None or bool(by)

    async def show(loaded: Loaded, redact: Redactor) -> int:
        settings = loaded.settings
        source = None if shows_all else settings.source
        bridges = _bridges_of(source)
        async with result_stores(settings, redact) as stores:
            servers = None if source is None else _servers_of(settings)
            tokens = await accounts_of(stores.ledger, days=days or _DAYS, by=by or ("tool",), servers=servers)
            saved = await savings_of(stores.ledger, stores.lists, days=days or _DAYS, config=source, servers=servers)
        if as_json:
            told = {} if is_about_tokens else {"bridges": bridges}
            print_json("stats/1", {**told, "tokens": tokens, "savings": saved})
            return OK if bridges or tokens["rows"] else UNREACHABLE
        if not bridges and not tokens["rows"]:
            fail(UNREACHABLE, f"no bridge is running, and {_nothing(loaded, tokens['days'])}", _HOW)
        if not is_about_tokens:
            _show_bridges(bridges)
        if saved["lists"]["rows"]:
            print_lists(saved)
            print()
        if tokens["rows"]:
            print_tokens(tokens)
        elif is_about_tokens:
            note(f"{_nothing(loaded, tokens['days'])}\n  {_HOW}")
        return OK

    return run(show, config, as_json=as_json, load=_loaded)


def _bridges_of(config: str | None) -> list[Document]:
    """What the running bridges with this configuration, or with any, have counted; they write it down, too."""
    around = survey(None if config is None else Path(config).resolve())
    silent: list[Document] = [{"pid": pid, "code": SILENT, "error": "it does not answer"} for pid in around.silent]
    return [*around.ask("stats", patience=LONGEST_WAIT), *silent]


def _servers_of(settings: Settings) -> set[str]:
    """All that tools of this configuration can be of."""
    return {*settings.servers, *settings.tools, *map(pack_name, settings.packs), *OWN}


def _loaded(config: str | None) -> Loaded:
    """A configuration that is wrong, and was not asked for, does not hide what running bridges have to tell."""
    try:
        return load_or_default(config)
    except ConfigError as error:
        if config:
            raise
        note(f"{error}; tokens are looked for in the default store")
        return Loaded(Settings())


def _nothing(loaded: Loaded, days: int) -> str:
    why = absence(loaded.settings)
    return f"no result was counted in {days} days" + (f": {why}" if why else "")


def _show_bridges(bridges: Sequence[Document]) -> None:
    for bridge in bridges:
        if "error" in bridge:
            print(f"process {bridge.get('pid')}: {bridge['error']}")
        else:
            _show(bridge)
        print()


def _show(bridge: Document) -> None:
    tools = cast("list[Mapping[str, Any]]", bridge.get("tools", []))
    if not tools:
        print(f"process {bridge.get('pid')}: no calls yet")
        return
    print(f"process {bridge.get('pid')}")
    print_table(_STATS_TITLES, [_row(tool) for tool in tools], wraps="Tool")


def _row(tool: Mapping[str, Any]) -> list[str]:
    latency: Mapping[str, float] = tool["latency"]
    name = tool["tool"] or f"{tool['server']} ({tool['method']})"
    counts = [str(number) for number in (tool["calls"], tool["errors"], sum(tool["refused"].values()))]
    times = [_seconds(latency.get(share)) for share in ("p50", "p95")]
    sizes = [size_text(tool[key]) for key in ("bytes_in", "bytes_out")]
    return [name, *counts, *times, *sizes, f"~{tool['tokens_out_estimated']} tokens (est.)"]


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
