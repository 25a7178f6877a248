"""`mcpbridge tokens`: what the servers' tools cost a model's context, as they are sent and in shorter forms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import print_json, print_table
from mcpbridge.app.exit_codes import OK
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.catalog.signatures.signature import call_line
from mcpbridge.catalog.slim.levels import LEVELS, Level
from mcpbridge.catalog.slim.slim import slimmed, visible
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.catalog.tool_info import as_sent
from mcpbridge.config.load import Loaded
from mcpbridge.core.model import BRIDGE
from mcpbridge.results.token_count import Counter, Tokenizer, counter

_TITLES = ["Tools", "Sent", *(level.capitalize() for level in LEVELS[1:])]


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of some tools."""

    tools: int
    tokens: Mapping[Level, int]
    """By how much of each definition is listed; `off` is what the servers send."""

    def as_json(self) -> dict[str, int]:
        """The numbers by their names."""
        return {"tools": self.tools, "sent": self.tokens["off"], **{level: self.tokens[level] for level in LEVELS[1:]}}

    def row(self) -> list[str]:
        """The numbers as a person reads them, with what each form leaves."""
        sent = self.tokens["off"]
        shares = (f"{self.tokens[level]:,} ({self.tokens[level] / sent:.0%})" if sent else "0" for level in LEVELS[1:])
        return [f"{self.tools:,}", f"{sent:,}", *shares]


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
def tokens_command(
    *, config: str | None, as_json: bool, server: str | None, most: int | None, tokenizer: Tokenizer | None
) -> int:
    """Show what the tools of each server cost a model's context, before it has done anything.

    Counted is what clients show models: names, descriptions and input schemas. `expose.slim` chooses the form that is
    listed.
    """

    async def counting(loaded: Loaded, redact: Redactor) -> int:
        how = tokenizer or loaded.settings.results.tokenizer
        count = counter(how)
        async with bridge_session.settle(loaded, redact, [server] if server else None) as bridge:
            bridge_session.warn_of_absent(bridge, only_servers=server is not None)
            snapshot = bridge.catalog.snapshot
        costs = {ref.id: cost_of([ref], count) for ref in snapshot.tools.values() if ref.server != BRIDGE}
        surface = search_surface(snapshot, count)
        if as_json:
            print_json({"tokenizer": how, **_document(costs, surface, most)})
        else:
            _show(costs, surface, how, most)
        return OK

    return bridge_session.run(counting, config, as_json=as_json)


def cost_of(tools: Iterable[ToolRef], count: Counter) -> Cost:
    """What these tools cost under the names that clients see, in each form."""
    sent = [as_sent(ref) for ref in tools]
    return Cost(
        len(sent),
        {level: sum(count(visible(slimmed(one, level, call_line))) for one in sent) for level in LEVELS},
    )


def search_surface(snapshot: Snapshot, count: Counter) -> tuple[int, int]:
    """The tools that stand in place of all others where clients search, and their tokens."""
    own = [ref for ref in snapshot.tools.values() if ref.server == BRIDGE] + [*snapshot.unlisted.values()]
    return len(own), sum(count(visible(ref.published)) for ref in own)


def _sum(costs: Iterable[Cost]) -> Cost:
    found = list(costs)
    return Cost(
        sum(cost.tools for cost in found), {level: sum(cost.tokens[level] for cost in found) for level in LEVELS}
    )


def _by_server(costs: Mapping[str, Cost]) -> dict[str, Cost]:
    servers: dict[str, list[Cost]] = {}
    for tool, cost in costs.items():
        servers.setdefault(tool.partition("/")[0], []).append(cost)
    found = {server: _sum(of_server) for server, of_server in servers.items()}
    return dict(sorted(found.items(), key=lambda entry: -entry[1].tokens["off"]))


def _most(costs: Mapping[str, Cost], most: int | None) -> list[tuple[str, Cost]]:
    return sorted(costs.items(), key=lambda entry: -entry[1].tokens["off"])[: most or 0]


def _document(costs: Mapping[str, Cost], surface: tuple[int, int], most: int | None) -> dict[str, object]:
    tools, tokens = surface
    listed = [{"tool": tool, **cost.as_json()} for tool, cost in _most(costs, most)]
    return {
        "servers": [{"server": server, **cost.as_json()} for server, cost in _by_server(costs).items()],
        "total": _sum(costs.values()).as_json(),
        "search": {"tools": tools, "tokens": tokens},
        **({} if most is None else {"tools": listed}),
    }


def _show(costs: Mapping[str, Cost], surface: tuple[int, int], how: Tokenizer, most: int | None) -> None:
    if not costs:
        print("no tools")
        return
    total = _sum(costs.values())
    print(f"tokens of tools in a model's context ({'estimates' if how == 'estimate' else how})")
    rows: list[Sequence[str]] = [[server, *cost.row()] for server, cost in _by_server(costs).items()]
    print_table(["Server", *_TITLES], [*rows, ["total", *total.row()]], wraps="Server")
    if most:
        print(f"\ntools that cost most ({min(most, len(costs))} of {len(costs)})")
        print_table(
            ["Tool", *_TITLES[1:]], [[tool, *cost.row()[1:]] for tool, cost in _most(costs, most)], wraps="Tool"
        )
    tools, tokens = surface
    if tokens and total.tokens["off"]:
        share = tokens / total.tokens["off"]
        print(f'\nWith `expose.mode = "search"`, {tools} tools of the bridge stand for all: {tokens:,} ({share:.1%}).')
