"""`mcpbridge tokens`: what the servers' tools cost a model's context, as they are sent and in shorter forms."""

from collections.abc import Mapping
from typing import Any

import click

from mcpbridge.app.cli.options import as_json_option, config_option, header_option, standalone_option
from mcpbridge.app.cli.output import print_json, print_table
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session
from mcpbridge.app.exit_codes import OK

_Cost = Mapping[str, Any]


@click.command("tokens")
@config_option
@as_json_option
@click.option("--server", metavar="NAME", help="Only what this server offers.")
@click.option("--tools", "most", type=click.IntRange(1), metavar="N", help="Show the N tools that cost most, too.")
@click.option(
    "--tokenizer",
    type=click.Choice(["estimate", "o200k"]),
    help="How tokens are counted (default: as `results.tokenizer` of the configuration says).",
)
@standalone_option
@header_option
def tokens_command(
    *,
    config: str | None,
    as_json: bool,
    server: str | None,
    most: int | None,
    tokenizer: str | None,
    standalone: bool,
) -> int:
    """Show what the tools of each server cost a model's context, before it does anything.

    Counted is what models see: names, descriptions and input schemas, as the servers send them and in shorter forms.
    `expose.slim` chooses the form that clients get.

    \u0008
    Examples:
      mcpbridge tokens
      mcpbridge tokens --server github --tools 5
    """

    async def counting(session: Session) -> int:
        costs = await session.ask("tokens", server=server or "", tokenizer=tokenizer or "")
        tools = costs["tools"][: most or 0]
        if as_json:
            document = {key: costs[key] for key in ("tokenizer", "servers", "total", "search")}
            print_json("tokens/1", document if most is None else {**document, "tools": tools})
        else:
            _show(costs, tools, is_most=most is not None)
        return OK

    return run(counting, config, standalone=standalone, as_json=as_json, servers=[server] if server else None)


def _row(cost: _Cost, *, is_tool: bool = False) -> list[str]:
    """The numbers as a person reads them, with what each form leaves."""
    count, sent, shorter = _parts(cost)
    shares = (f"{tokens:,} ({tokens / sent:.0%})" if sent else "0" for tokens in shorter.values())
    return [*([] if is_tool else [f"{count:,}"]), f"{sent:,}", *shares]


def _parts(cost: _Cost) -> tuple[int, int, dict[str, int]]:
    """How many tools, the tokens that are sent, and those of each shorter form."""
    rest = {key: value for key, value in cost.items() if key not in ("server", "tool", "tools", "sent")}
    return cost["tools"], cost["sent"], rest


def _show(costs: Mapping[str, Any], most: list[_Cost], *, is_most: bool) -> None:
    total: _Cost = costs["total"]
    if not costs["tools"]:
        print("no tools")
        return
    how = costs["tokenizer"]
    titles = ["Sent", *(name.capitalize() for name in _parts(total)[2])]
    print(f"tokens of tools in a model's context ({'estimates' if how == 'estimate' else how})")
    rows = [[str(cost["server"]), *_row(cost)] for cost in costs["servers"]]
    print_table(["Server", "Tools", *titles], [*rows, ["total", *_row(total)]], wraps="Server")
    if is_most:
        print(f"\ntools that cost most ({len(most)} of {len(costs['tools'])})")
        print_table(["Tool", *titles], [[str(cost["tool"]), *_row(cost, is_tool=True)] for cost in most], wraps="Tool")
    tools, tokens = costs["search"]["tools"], costs["search"]["tokens"]
    if tokens and total["sent"]:
        share = tokens / total["sent"]
        print(f'\nWith `expose.mode = "search"`, {tools} tools of the bridge stand for all: {tokens:,} ({share:.1%}).')
