"""What tools cost a model's context, as servers send them and in shorter forms: for `mcpbridge tokens`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcpbridge.catalog.signatures.signature import call_line
from mcpbridge.catalog.slim.levels import LEVELS, Level
from mcpbridge.catalog.slim.slim import slimmed, visible
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.catalog.tool_info import as_sent
from mcpbridge.core.model import BRIDGE
from mcpbridge.results.token_count import Counter, Tokenizer, counter


def costs_document(snapshot: Snapshot, how: Tokenizer, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """The costs of each server, of all and of each tool, the highest first; tools of `leave_out` do not count.

    `search`: the tools that take the place of all others where clients search, and their tokens.
    """
    count = counter(how)
    costs = {
        ref.id: cost_of([ref], count)
        for ref in snapshot.tools.values()
        if ref.server != BRIDGE and ref.server not in leave_out
    }
    tools, tokens = _search_surface(snapshot, count)
    listed = sorted(costs.items(), key=lambda entry: -entry[1].tokens["off"])
    return {
        "tokenizer": how,
        "servers": [{"server": server, **cost.as_json()} for server, cost in _by_server(costs).items()],
        "total": _sum(costs.values()).as_json(),
        "search": {"tools": tools, "tokens": tokens},
        "tools": [{"tool": tool, **cost.as_json()} for tool, cost in listed],
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of some tools."""

    tools: int
    tokens: Mapping[Level, int]
    """By how much of each definition is listed; `off` is what the servers send."""

    def as_json(self) -> dict[str, int]:
        """The numbers by their names."""
        return {"tools": self.tools, "sent": self.tokens["off"], **{level: self.tokens[level] for level in LEVELS[1:]}}


def cost_of(tools: Iterable[ToolRef], count: Counter) -> Cost:
    """What these tools cost under the names that clients see, in each form."""
    sent = [as_sent(ref) for ref in tools]
    return Cost(
        len(sent),
        {level: sum(count(visible(slimmed(one, level, call_line))) for one in sent) for level in LEVELS},
    )


def _search_surface(snapshot: Snapshot, count: Counter) -> tuple[int, int]:
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
