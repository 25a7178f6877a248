"""`mcpbridge stats`: what running bridges have counted of calls, and the tokens that results cost and saved."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
import click

from mcpbridge.app.admin.control_client import LONGEST_WAIT, SILENT, Document
from mcpbridge.app.admin.stats import BY, accounts_of, savings_of
from mcpbridge.app.cli.bridge_session import run
from mcpbridge.app.cli.calls.store import absence, result_stores
from mcpbridge.app.cli.config.config_path import load_or_default
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import note, print_json, print_table, size_text, visible
from mcpbridge.app.cli.running_bridges import Survey, survey
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
@click.option("--bridge", metavar="NAME", help="Only what this bridge of the fleet has counted.")
@click.option("--here", is_flag=True, help="Only the bridges of this machine, without the others of the fleet.")
@config_option
@as_json_option
@header_option
def stats_command(
    *,
    days: int | None,
    by: Sequence[By],
    shows_all: bool,
    bridge: str | None,
    here: bool,
    config: str | None,
    as_json: bool,
) -> int:
    """Show calls of running bridges since they started, and the tokens of results of the last days.

    Where a configuration is in use (./servers.toml of a project, say), it is about its bridges and servers alone.
    With --days or --by, the tokens alone; they are in the store, so no bridge has to run. Latencies are estimated from
    a histogram, tokens from texts. Exit code 4: no bridge runs, and nothing was counted.

    Where the configuration has a `[fleet]` and one of its bridges runs here, all of them are asked: first comes what
    they have counted together, then what each has. One that does not answer is named. Tokens are those of all bridges
    that have the same store.

    \u0008
    Examples:
      mcpbridge stats
      mcpbridge stats --days 30 --by client
    """
    is_about_tokens = days is not None or bool(by)
    if bridge and (here or is_about_tokens):
        raise click.UsageError("--bridge is about the counts of one: leave --here, --days and --by out.")

    async def show(loaded: Loaded, redact: Redactor) -> int:
        settings = loaded.settings
        source = None if shows_all else settings.source
        counted = await anyio.to_thread.run_sync(_of_fleet, settings, config, bridge or "") if not here else {}
        bridges: list[Document] = counted.get("bridges", []) + (
            [] if bridge else _bridges_of(source, of_fleet=not counted)
        )
        async with result_stores(settings, redact) as stores:
            servers = None if source is None else _servers_of(settings)
            tokens = await accounts_of(stores.ledger, days=days or _DAYS, by=by or ("tool",), servers=servers)
            saved = await savings_of(stores.ledger, stores.lists, days=days or _DAYS, config=source, servers=servers)
        if as_json:
            told = {} if is_about_tokens else {**counted, "bridges": bridges}
            print_json("stats/1", {**told, "tokens": tokens, "savings": saved})
            return OK if bridges or tokens["rows"] else UNREACHABLE
        if not bridges and not tokens["rows"]:
            fail(UNREACHABLE, f"no bridge is running, and {_nothing(loaded, tokens['days'])}", _HOW)
        if not is_about_tokens:
            _show_together(counted)
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


def _bridges_of(config: str | None, *, of_fleet: bool = True) -> list[Document]:
    """What the running bridges with this configuration, or with any, have counted; they write it down, too.

    `of_fleet`: those of a fleet as well.
    """
    around = survey(None if config is None else Path(config).resolve())
    asked = Survey([one for one in around.bridges if of_fleet or not one.status.get("fleet")], around.silent)
    silent: list[Document] = [{"pid": pid, "code": SILENT, "error": "it does not answer"} for pid in around.silent]
    return [*asked.ask("stats", patience=LONGEST_WAIT), *silent]


def _of_fleet(settings: Settings, config: str | None, bridge: str) -> dict[str, Any]:
    """What the bridges of the fleet have counted: `bridges`, `together` and `missing`; empty: there is none to ask."""
    if settings.fleet.listen is None and not bridge:
        return {}
    from mcpbridge.app.cli.calls.fleet_member import ask_fleet, member_to_ask, name_missing

    found = member_to_ask(settings, config, bridge)
    if found is None:
        return {}
    answer = ask_fleet(found, "fleet.stats", bridge=bridge)
    name_missing(answer)
    return {name: value for name, value in answer.items() if name != "pid"}


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


def _show_together(counted: Mapping[str, Any]) -> None:
    known = [one for one in counted.get("bridges", ()) if "error" not in one]
    if len(known) > 1 and counted["together"]:
        print(f"{len(known)} bridges together")
        print_table(_STATS_TITLES, [_row(tool) for tool in counted["together"]], wraps="Tool")
        print()


def _show_bridges(bridges: Sequence[Document]) -> None:
    for bridge in bridges:
        if "error" in bridge:
            print(f"{_name(bridge)}: {visible(str(bridge['error']))}")
        else:
            _show(bridge)
        print()


def _show(bridge: Document) -> None:
    tools = cast("list[Mapping[str, Any]]", bridge.get("tools", []))
    if not tools:
        print(f"{_name(bridge)}: no calls yet")
        return
    print(_name(bridge))
    print_table(_STATS_TITLES, [_row(tool) for tool in tools], wraps="Tool")


def _name(bridge: Document) -> str:
    return f"bridge {visible(str(bridge['bridge']))}" if "bridge" in bridge else f"process {bridge.get('pid')}"


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
