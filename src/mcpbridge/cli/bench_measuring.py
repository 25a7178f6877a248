"""Asks a bridge queries whose right tools are known, and counts what lists and answers cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from mcpbridge.bridge import Bridge
from mcpbridge.catalog.slim import visible
from mcpbridge.cli.found_text import found_text
from mcpbridge.cli.output import progress
from mcpbridge.downstream.channel import Client
from mcpbridge.results.tokens import Tokenizer, counter
from mcpbridge.routing.bench import DEPTH, Outcome, Spread
from mcpbridge.routing.bench_generated import query_for
from mcpbridge.routing.bench_queries import Asked, Flaw, with_ids
from mcpbridge.routing.exposure import Shown
from mcpbridge.routing.finding import find
from mcpbridge.routing.settings import Mode
from mcpbridge.routing.sight import Findable
from mcpbridge.routing.told import Told, told
from mcpbridge.routing.tool_text import ToolText
from mcpbridge.wire.revisions import LATEST_LEGACY

__all__ = ["Bench", "Measured", "Queries", "Tokens"]

_ANSWERS = 200
"""Queries whose answers are counted in tokens, from all over."""
_NAME = "mcpbridge-bench"
"""Of a client that nothing is known of."""


@dataclass(frozen=True, slots=True)
class Queries:
    """What is asked, and where it is from."""

    source: str
    """The file; empty: they were made of descriptions."""
    asked: Sequence[Asked]
    """Those that can be asked, with ids."""
    tools: int
    """Tools that can be found."""
    left_out: int = 0
    """Queries of the file that cannot be asked; or tools of whose descriptions none could be made."""
    flaws: Sequence[Flaw] = ()

    @property
    def is_generated(self) -> bool:
        """They were made of descriptions."""
        return not self.source


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a model's context is charged."""

    how: Tokenizer
    all: int
    """The list of all tools."""
    search: int
    """The list with which the others are found."""
    now: Shown
    """Which of them a client gets that nothing is known of."""
    answer: Spread
    """An answer of `find_tools`."""

    @property
    def saved(self) -> float:
        """The share of the list of all tools that the other list and an answer spare; negative: they cost more."""
        return 1 - (self.search + self.answer.mean) / (self.all or 1)


@dataclass(frozen=True, slots=True)
class Measured:
    """All that was found out."""

    queries: Queries
    limit: int
    outcomes: Sequence[Outcome]
    tools: Mapping[str, ToolText]
    """All that can be found, by id."""
    names: Mapping[str, str]
    """Their wire names, by id."""
    tokens: Tokens


class Bench:
    """Measures one bridge, as the local user meets it."""

    def __init__(self, bridge: Bridge, limit: int) -> None:
        """`limit`: tools of an answer."""
        self._bridge, self._limit = bridge, limit
        self._client = Client(version=LATEST_LEGACY, info={"name": _NAME})
        self._sight = bridge.routing.sight(self._client)
        self._read = {id_: told(tool) for id_, tool in self._sight.by_id.items()}

    def generated(self) -> Queries:
        """A query for each tool, made of its description."""
        made = [Asked(query_for(one.text), ((id_,),)) for id_, one in self._read.items()]
        asked = [one for one in made if one.text]
        return Queries("", asked, len(made), len(made) - len(asked))

    def looked_up(self, source: str, asked: Sequence[Asked], flaws: Sequence[Flaw]) -> Queries:
        """The queries of a file, by what there is to be found. `flaws`: lines of it that cannot be read."""
        known, unknown = with_ids(asked, lambda name: self._sight.find(name).id)
        left_out = len(flaws) + len(asked) - len(known)
        return Queries(source, known, len(self._read), left_out, sorted([*flaws, *unknown]))

    def is_about(self, asked: Asked, server: str) -> bool:
        """Whether a tool of this server is right for the query."""
        return any(self._read[id_].tool.server == server for need in asked.needs for id_ in need)

    async def measure(self, queries: Queries) -> Measured:
        """Ask all of them. Takes some milliseconds a query."""
        with progress(f"asking {len(queries.asked)} queries …"):
            outcomes = await self._outcomes(queries.asked)
            tokens = await self._tokens(queries.asked)
        texts = {id_: one.text for id_, one in self._read.items()}
        names = {id_: one.tool.wire for id_, one in self._read.items()}
        return Measured(queries, self._limit, outcomes, texts, names, tokens)

    async def _outcomes(self, queries: Sequence[Asked]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for asked in queries:
            ranker = await self._sight.ranker(asked.text)
            found = find(asked.text, DEPTH, self._sight, ranker, self._told)
            outcomes.append(Outcome.of(asked, found.named, is_doubtful=not found.fits))
            await checkpoint()  # the bridge has other things to do, and may be told to stop
        return outcomes

    async def _tokens(self, queries: Sequence[Asked]) -> Tokens:
        how: Tokenizer = self._bridge.settings.results.tokenizer
        count = counter(how)
        every = -(-len(queries) // _ANSWERS) or 1
        answers: list[int] = []
        for asked in queries[::every]:
            answers.append(
                count(await found_text(self._bridge, self._client, {"query": asked.text, "limit": self._limit}))
            )
            await checkpoint()
        exposing, audience = self._bridge.routing.exposing, self._bridge.policy.audience(_NAME, "")
        exposure = exposing.of(_NAME)

        def listed(mode: Mode) -> int:
            exposed = exposing.look("", audience, replace(exposure, mode=mode))
            return sum(count(visible(entry.legacy)) for entry in exposed.tools.entries)

        now = exposing.look("", audience, exposure).mode
        return Tokens(how, listed("all"), listed("search"), now, Spread.of(answers))

    def _told(self, tool: Findable) -> Told:
        return self._read[tool.id]
