"""How well a catalog's tools are found: recall, and what comes first in place of the right tool. Pure.

A tool is found where the line of an answer stands that names it, be it as a near-duplicate of another. Where a search
answers that no tool seems to fit, it names the nearest as doubtful; these lines count too.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from mcpbridge.routing.bench_queries import Asked
from mcpbridge.routing.siblings import Ability
from mcpbridge.routing.tool_text import ToolText
from mcpbridge.routing.words import stems_of

__all__ = ["AT", "DEPTH", "Confusion", "First", "Outcome", "Spread", "are_close", "confusions", "firsts", "recall"]

AT = (1, 5, 8)
"""Lengths of answers for which recall is told."""
DEPTH = 50
"""Lines of an answer that are looked at; what is not among them is not found."""

First = Literal["right", "sibling", "same_server", "other_server", "doubtful"]
"""What comes first: a right tool; one of the same server with a close name; another of that server; one of another
server; or the answer begins with that no tool seems to fit."""

_CLOSE = 1 / 3
"""Share of the words of two names that they have in common, from which they are close."""
_NAME = 200


class Outcome(Struct, frozen=True):
    """What one query found."""

    asked: Asked
    """With ids."""
    lines: Sequence[tuple[str, ...]]
    """The answer, best first: ids of a tool and of its near-duplicates."""
    places: tuple[int | None, ...]
    """Of each need the line that meets it, from 1; None: no line does."""
    is_doubtful: bool = False
    """The answer says that no tool seems to fit."""

    @classmethod
    def of(cls, asked: Asked, found: Iterable[Ability], *, is_doubtful: bool = False) -> "Outcome":
        """`found`: the answer, best first, of which `DEPTH` lines count."""
        lines = [(one.id, *one.also) for one in found][:DEPTH]
        at: dict[str, int] = {}
        for number, ids in enumerate(lines, 1):
            for id_ in ids:
                at.setdefault(id_, number)
        places = tuple(min((at[id_] for id_ in need if id_ in at), default=None) for need in asked.needs)
        return cls(asked, lines, places, is_doubtful)

    def recall(self, most: int) -> float:
        """The share of its needs that the first `most` lines meet."""
        return sum(place is not None and place <= most for place in self.places) / len(self.places)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The ids of all tools that are right."""
        return tuple(id_ for need in self.asked.needs for id_ in need)


class Confusion(Struct, frozen=True):
    """Two tools of one server with close names, of which one came first where the other was right."""

    tools: tuple[str, str]
    """Ids, sorted."""
    times: int
    of: int
    """Queries for which one of the two was right."""


class Spread(Struct, frozen=True):
    """Some numbers together."""

    count: int
    mean: float
    p95: int

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Spread":
        """Zeros for no numbers."""
        ordered = sorted(numbers)
        if not ordered:
            return cls(0, 0.0, 0)
        return cls(len(ordered), sum(ordered) / len(ordered), ordered[(len(ordered) * 95 - 1) // 100])


def recall(outcomes: Sequence[Outcome], most: int) -> float:
    """The share of needs that the first `most` lines of answers meet, averaged over queries; 0 for no queries."""
    return sum(outcome.recall(most) for outcome in outcomes) / (len(outcomes) or 1)


def firsts(outcomes: Iterable[Outcome], tools: Mapping[str, ToolText]) -> dict[First, int]:
    """How many queries have what as their first line. `tools`: all that can be found, by id."""
    counts: dict[First, int] = {"right": 0, "sibling": 0, "same_server": 0, "other_server": 0, "doubtful": 0}
    for outcome in outcomes:
        counts[_first(outcome, tools)] += 1
    return counts


def confusions(outcomes: Sequence[Outcome], tools: Mapping[str, ToolText]) -> list[Confusion]:
    """The siblings that are taken for one another, the worst first."""
    times: Tally[tuple[str, str]] = Tally()
    for outcome in outcomes:
        if _first(outcome, tools) == "sibling":
            first = outcome.lines[0][0]
            wanted = next(id_ for id_ in outcome.wanted if are_close(tools[id_], tools[first]))
            times[min(wanted, first), max(wanted, first)] += 1
    asked = Tally(id_ for outcome in outcomes for id_ in dict.fromkeys(outcome.wanted))
    found = [Confusion(pair, count, asked[pair[0]] + asked[pair[1]]) for pair, count in times.items()]
    return sorted(found, key=lambda one: (-one.times, one.of, one.tools))


def are_close(one: ToolText, other: ToolText) -> bool:
    """Whether two tools of one server have names that are easily taken for one another."""
    if one.server != other.server or one.id == other.id:
        return False
    mine, its = (_stems(tool.server, tool.name[:_NAME]) for tool in (one, other))
    return len(mine & its) >= len(mine | its) * _CLOSE


def _first(outcome: Outcome, tools: Mapping[str, ToolText]) -> First:
    if outcome.is_doubtful or not outcome.lines:
        return "doubtful"
    if 1 in outcome.places:
        return "right"
    first = tools[outcome.lines[0][0]]
    wanted = [tools[id_] for id_ in outcome.wanted]
    if any(are_close(tool, first) for tool in wanted):
        return "sibling"
    return "same_server" if any(tool.server == first.server for tool in wanted) else "other_server"


@lru_cache(4096)
def _stems(server: str, name: str) -> frozenset[str]:
    """Of a tool's name, those that are not in its server's; all, if there are no others."""
    own = frozenset(stems_of(name))
    return own - frozenset(stems_of(server[:_NAME])) or own
