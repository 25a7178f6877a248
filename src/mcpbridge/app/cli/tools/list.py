"""`mcpbridge list`: what the servers offer, merged, under the names that clients see."""

from collections.abc import Mapping
from typing import Any

import click

from mcpbridge.app.cli.options import as_json_option, config_option, header_option, standalone_option
from mcpbridge.app.cli.output import first_line, print_json, print_table
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session
from mcpbridge.app.exit_codes import OK


@click.command("list")
@config_option
@as_json_option
@click.option("--server", metavar="NAME", help="Only what this server offers.")
@click.option("--resources", is_flag=True, help="List resources and their templates instead of tools.")
@click.option("--prompts", is_flag=True, help="List prompts instead of tools.")
@click.option("--query", metavar="QUERY", help="Only tools for which this holds: `tag:nlp OR server:github`.")
@click.option("--all", "everything", is_flag=True, help="List tools, resources, templates and prompts.")
@standalone_option
@header_option
def list_command(
    *,
    config: str | None,
    as_json: bool,
    server: str | None,
    resources: bool,
    prompts: bool,
    query: str | None,
    everything: bool,
    standalone: bool,
) -> int:
    """List what the servers offer, under the names that clients see.

    --query lists the tools that match it, those that clients have to search for included: words, "phrases",
    FIELD:VALUE, AND, OR, NOT, ( ). Fields are id, name, server, description, tag, kind (mcp, http, builtin, …), runtime
    (local, remote), protocol, schema and example; * and ? are wildcards.

    \u0008
    Examples:
      mcpbridge list --server github
      mcpbridge list --query 'remote AND tag:billing NOT server:test*'
    """
    kinds = ["resources", "resourceTemplates"] * resources + ["prompts"] * prompts
    if everything:
        kinds = ["tools", "resources", "resourceTemplates", "prompts"]

    if query is not None and kinds:
        raise click.UsageError("--query is about tools: it does not go with --resources, --prompts and --all")

    async def listing(session: Session) -> int:
        if query is not None:
            found = await session.ask("query", query=query, server=server or "")
            _print_found(found["tools"], as_json=as_json)
            return OK
        shown = {"kinds": kinds or ["tools"], "server": server or "", "whole": as_json}
        lists = (await session.ask("list", project=session.project, **shown))["lists"]
        if as_json:
            print_json("list/1", lists)
        else:
            _print(lists)
        return OK

    return run(listing, config, standalone=standalone, as_json=as_json, servers=[server] if server else None)


def _print_found(tools: list[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json("list-query/1", {"tools": tools})
    elif tools:
        rows = [
            [one["name"], one["sub_type"], ", ".join(one["tags"]), first_line(one["description"], _WIDTH)]
            for one in tools
        ]
        print_table(["Tool", "Kind", "Tags", "Description"], rows)
    else:
        print("no tools")


def _print(lists: Mapping[str, list[Mapping[str, str]]]) -> None:
    for number, (kind, entries) in enumerate(lists.items()):
        if len(lists) > 1:
            print(f"{'' if number == 0 else chr(10)}{_spaced(kind)} ({len(entries)})")
        if entries:
            rows = [[entry["name"], first_line(entry["description"], _WIDTH)] for entry in entries]
            print_table([_spaced(kind).capitalize(), "Description"], rows)
        elif len(lists) == 1:
            print(f"no {_spaced(kind)}")


_WIDTH = 100
"""Characters of a description."""


def _spaced(key: str) -> str:
    return "resource templates" if key == "resourceTemplates" else key
