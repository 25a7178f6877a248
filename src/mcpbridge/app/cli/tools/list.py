"""`mcpbridge list`: what the servers offer, merged, under the names that clients see."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import first_line, print_json, print_table
from mcpbridge.app.exit_codes import USAGE
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.catalog.search.query_filters import QueryProblem
from mcpbridge.config.load import Loaded
from mcpbridge.library.bridge import Bridge


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the lists that MCP has."""

    key: str
    """The member of the answer that holds the list; also its title."""
    method: str
    name: str
    """The member of an entry that a person identifies it by."""


_TOOLS = _Kind("tools", "tools/list", "name")
_RESOURCES = _Kind("resources", "resources/list", "uri")
_TEMPLATES = _Kind("resourceTemplates", "resources/templates/list", "uriTemplate")
_PROMPTS = _Kind("prompts", "prompts/list", "name")


@click.command("list")
@config_option
@as_json_option
@click.option("--server", metavar="NAME", help="Only what this server offers.")
@click.option("--resources", is_flag=True, help="List resources and their templates instead of tools.")
@click.option("--prompts", is_flag=True, help="List prompts instead of tools.")
@click.option("--query", metavar="QUERY", help="Only tools for which this holds: `tag:nlp OR server:github`.")
@click.option("--all", "everything", is_flag=True, help="List tools, resources, templates and prompts.")
def list_command(
    *,
    config: str | None,
    as_json: bool,
    server: str | None,
    resources: bool,
    prompts: bool,
    query: str | None,
    everything: bool,
) -> int:
    """List what the servers offer, under the names that clients see.

    With --query tools are listed that it holds for, those too that clients have to search for: words, "phrases",
    FIELD:VALUE, AND, OR, NOT, ( ). Fields are id, name, server, description, tag, kind (mcp, http, builtin, …),
    runtime (local, remote), protocol, schema and example; * and ? stand for others. With --json the whole of what is
    known of each is printed.

    \u0008
    mcpbridge list --query 'remote AND tag:billing NOT server:test*'
    """
    kinds = [_RESOURCES, _TEMPLATES] * resources + [_PROMPTS] * prompts
    if everything:
        kinds = [_TOOLS, _RESOURCES, _TEMPLATES, _PROMPTS]

    if query is not None and kinds:
        raise click.UsageError("--query is about tools: it does not go with --resources, --prompts and --all")

    async def listing(loaded: Loaded, redact: Redactor) -> int:
        async with bridge_session.settle(loaded, redact, [server] if server else None) as bridge:
            lists_tools = not kinds or everything
            bridge_session.warn_of_absent(bridge, only_servers=server is not None or not lists_tools)
            if query is not None:
                await bridge.startup.settled()
                _print_found(bridge, query, as_json=as_json)
                return 0
            await _print(bridge, kinds or [_TOOLS], as_json=as_json)
        return 0

    return bridge_session.run(listing, config, as_json=as_json)


def _print_found(bridge: Bridge, query: str, *, as_json: bool) -> None:
    try:
        found = bridge.representations(query)
    except QueryProblem as problem:
        fail(USAGE, str(problem))
    if as_json:
        print_json({"tools": [one.as_json() for one in found]})
    elif found:
        rows = [[one.name, one.sub_type, ", ".join(one.tags), first_line(one.description, 100)] for one in found]
        print_table(["Tool", "Kind", "Tags", "Description"], rows)
    else:
        print("no tools")


async def _print(bridge: Bridge, kinds: Sequence[_Kind], *, as_json: bool) -> None:
    found = {kind: await bridge_session.all_pages(bridge, kind.key, kind.method) for kind in kinds}
    if as_json:
        print_json({kind.key: entries for kind, entries in found.items()})
        return
    for number, (kind, entries) in enumerate(found.items()):
        if len(found) > 1:
            print(f"{'' if number == 0 else chr(10)}{_spaced(kind.key)} ({len(entries)})")
        if entries:
            print_table([_spaced(kind.key).capitalize(), "Description"], [_row(kind, entry) for entry in entries])
        elif len(found) == 1:
            print(f"no {_spaced(kind.key)}")


def _row(kind: _Kind, entry: dict[str, Any]) -> list[str]:
    told = entry.get("description") or entry.get("title") or (entry.get("name") if kind.name != "name" else "") or ""
    return [str(entry.get(kind.name, "")), first_line(str(told), 100)]


def _spaced(key: str) -> str:
    return "resource templates" if key == "resourceTemplates" else key
