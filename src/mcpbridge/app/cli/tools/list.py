"""`mcpbridge list`: what the servers offer, merged, under the names that clients see."""

import json
from collections.abc import Mapping
from typing import Any

import click

from mcpbridge.app.cli.options import as_json_option, config_option, header_option, standalone_option
from mcpbridge.app.cli.output import first_line, json_text, print_json, print_table
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session
from mcpbridge.app.console.shown_text import escape_unseen, inert_text
from mcpbridge.app.exit_codes import OK


@click.command("list")
@config_option
@as_json_option
@click.option("--server", metavar="NAME", help="Only what this server offers.")
@click.option("--resources", is_flag=True, help="List resources and their templates instead of tools.")
@click.option("--prompts", is_flag=True, help="List prompts instead of tools.")
@click.option("--query", metavar="QUERY", help="Only tools for which this holds: `tag:nlp OR server:github`.")
@click.option("--all", "everything", is_flag=True, help="List tools, resources, templates and prompts.")
@click.option("--original", is_flag=True, help="Show what servers sent beside what clients are given of it.")
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
    original: bool,
    standalone: bool,
) -> int:
    """List what the servers offer, under the names that clients see.

    --query lists the tools that match it, those that clients have to search for included: words, "phrases",
    FIELD:VALUE, AND, OR, NOT, ( ). Fields are id, name, server, description, tag, kind (mcp, http, builtin, …), runtime
    (local, remote), protocol, schema and example; * and ? are wildcards.

    --original shows each definition that was changed or left out: as its server sent it, and as clients are given it.
    Characters that cannot be seen are shown by their numbers. With --json, all definitions are there in both forms.

    \u0008
    Examples:
      mcpbridge list --server github
      mcpbridge list --original --server github
      mcpbridge list --query 'remote AND tag:billing NOT server:test*'
    """
    kinds = ["resources", "resourceTemplates"] * resources + ["prompts"] * prompts
    if everything:
        kinds = ["tools", "resources", "resourceTemplates", "prompts"]

    if query is not None and kinds:
        raise click.UsageError("--query is about tools: it does not go with --resources, --prompts and --all")
    if query is not None and original:
        raise click.UsageError("--query is about tools as clients get them: it does not go with --original")

    async def listing(session: Session) -> int:
        if query is not None:
            found = await session.ask("query", query=query, server=server or "")
            _print_found(found["tools"], as_json=as_json)
            return OK
        if original:
            found = await session.ask("originals", kinds=kinds or ["tools"], server=server or "")
            _print_originals(found["definitions"], as_json=as_json)
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


def _print_originals(definitions: list[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(escape_unseen(json_text({"format": "list-original/1", "definitions": definitions})))
        return
    different = [one for one in definitions if one["given"] is None or one["changed"] or one["reasons"]]
    for number, one in enumerate(different):
        print(f"{chr(10) * (number > 0)}{_SINGULAR[one['kind']]} {_inert(one['server'])}/{_inert(one['name'])}")
        for reason in one["reasons"]:
            print(f"  {_inert(reason)}")
        if one["given"] is None:
            if not one["reasons"]:
                print("  not given to clients: the configuration hides it")
            print(f"  as sent: {_inert(one['sent'])}")
            continue
        for member in one["changed"]:
            print(f"  {_inert(member)}")
            print(f"    as sent: {_inert(one['sent'].get(member, _NOTHING))}")
            print(f"    given:   {_inert(one['given'].get(member, _NOTHING))}")
    rest = len(definitions) - len(different)
    if rest:
        print(f"{chr(10) * bool(different)}{rest} given as sent")
    elif not different:
        print("nothing is listed")


_SINGULAR = {"tools": "tool", "prompts": "prompt", "resources": "resource", "templates": "resource template"}
_NOTHING = "nothing"
_LONGEST = 4000
"""Characters of a text of which more are cut off; `--json` has them all."""


def _inert(value: object) -> str:
    """A value of a server, on one line, with all that cannot be seen by its number."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return inert_text(text, _LONGEST).replace("\n", "⏎").replace("\t", " ")


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
