"""`mcpbridge bench routing`: how well the tools of the user's own catalog are found, and what that costs a model.

A bridge is asked queries whose right tools are known; recall, mix-ups and tokens are counted and shown.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_dataclass
from pathlib import Path
from typing import Any

import click
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from mcpbridge.app.admin.tool_documents import answer_of_find_tools, require_server
from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import first_line, note, print_json, print_table, progress
from mcpbridge.app.cli.output import visible as printable
from mcpbridge.app.exit_codes import OK, TOOL_ERROR, USAGE
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.catalog.listing.exposure import Shown
from mcpbridge.catalog.search.evaluation import (
    AT,
    DEPTH,
    Asked,
    Confusion,
    First,
    Flaw,
    Outcome,
    Spread,
    confusions,
    firsts,
    query_for,
    read_queries,
    recall,
    with_ids,
)
from mcpbridge.catalog.search.find import ReadDefinition, find, read_definition
from mcpbridge.catalog.search.ranker import ToolText
from mcpbridge.catalog.search.visible_tools import Findable
from mcpbridge.catalog.settings import Mode
from mcpbridge.catalog.slim.slim import visible
from mcpbridge.config.load import Loaded
from mcpbridge.downstream.client import Client
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.revisions import LATEST_LEGACY
from mcpbridge.results.token_count import Tokenizer, counter

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
        self._visible = bridge.tool_search.visible_to(self._client)
        self._read = {id_: read_definition(tool) for id_, tool in self._visible.by_id.items()}

    def generated(self) -> Queries:
        """A query for each tool, made of its description."""
        made = [Asked(query_for(one.text), ((id_,),)) for id_, one in self._read.items()]
        asked = [one for one in made if one.text]
        return Queries("", asked, len(made), len(made) - len(asked))

    def looked_up(self, source: str, asked: Sequence[Asked], flaws: Sequence[Flaw]) -> Queries:
        """The queries of a file, by what there is to be found. `flaws`: lines of it that cannot be read."""
        known, unknown = with_ids(asked, lambda name: self._visible.find(name).id)
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
            ranker = await self._visible.ranker(asked.text)
            found = find(asked.text, DEPTH, self._visible, ranker, self._definition)
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
                count(
                    await answer_of_find_tools(self._bridge, self._client, {"query": asked.text, "limit": self._limit})
                )
            )
            await checkpoint()
        exposing, audience = self._bridge.tool_search.exposing, self._bridge.policy.audience(_NAME, "")
        exposure = exposing.of(_NAME)

        def listed(mode: Mode) -> int:
            exposed = exposing.look("", audience, replace(exposure, mode=mode))
            return sum(count(visible(entry.legacy)) for entry in exposed.tools.entries)

        now = exposing.look("", audience, exposure).mode
        return Tokens(how, listed("all"), listed("search"), now, Spread.of(answers))

    def _definition(self, tool: Findable) -> ReadDefinition:
        return self._read[tool.id]


_PAIRS = 10
"""Pairs of siblings that a person is shown."""
_MISSES = 50
"""Missed queries that a person is shown."""
_WORDS: Mapping[First, str] = {
    "right": "the right tool",
    "sibling": "a sibling with a close name",
    "same_server": "another tool of the same server",
    "other_server": "another server's tool",
    "doubtful": 'doubt: "no tool seems to do that"',
}
_GENERATED = (
    "Queries are generated from the tools' own descriptions, so they are easier than real ones: this shows how"
    " distinct the tools are, not how well they are found in use. Give real queries with --queries FILE."
)


def document(measured: Measured, *, with_misses: bool) -> dict[str, Any]:
    """All of it as JSON values; shares from 0 to 1."""
    queries, tokens = measured.queries, measured.tokens
    told: dict[str, Any] = {
        "tools": len(measured.tools),
        "servers": _servers(measured),
        "queries": {
            "count": len(queries.asked),
            "generated": queries.is_generated,
            "source": queries.source or None,
            "left_out": queries.left_out,
            "flaws": [flaw._asdict() for flaw in queries.flaws],
        },
        "note": _GENERATED if queries.is_generated else None,
        "limit": measured.limit,
        "recall": {str(most): _share(recall(measured.outcomes, most)) for most in _lengths(measured)},
        "not_found": _share(1 - recall(measured.outcomes, DEPTH)),
        "first": firsts(measured.outcomes, measured.tools),
        "confused": [
            {"tools": list(one.tools), "times": one.times, "of": one.of}
            for one in confusions(measured.outcomes, measured.tools)
        ],
        "tokens": {
            "counted": tokens.how,
            "listed": tokens.now,
            "list_all": tokens.all,
            "list_search": tokens.search,
            "saved_share": _share(tokens.saved),
            "answer": {"mean": round(tokens.answer.mean, 1), "p95": tokens.answer.p95, "count": tokens.answer.count},
        },
    }
    if with_misses:
        told["misses"] = [_miss(one) for one in _missed(measured)]
    return told


def show(measured: Measured, *, with_misses: bool) -> None:
    """Print it for a person."""
    queries = measured.queries
    of = f"{_many(len(measured.tools), 'tool')} of {_many(_servers(measured), 'server')}"
    source = "generated" if queries.is_generated else f"of {printable(queries.source)}"
    print(f"{of}; queries {source}: {len(queries.asked):,}")
    if queries.left_out:
        what = "tools that say too little for one" if queries.is_generated else "lines that could not be asked"
        print(f"{what}: {queries.left_out:,}")
    if queries.is_generated:
        print(_GENERATED)
    print()
    _show_recall(measured)
    pairs = confusions(measured.outcomes, measured.tools)
    if pairs:
        print(f"\ntaken for one another ({len(pairs):,} {'pair' if len(pairs) == 1 else 'pairs'}, the worst first)")
        print_table(["Tool", "Tool", "Times", "Of queries"], [_pair(one, measured.names) for one in pairs[:_PAIRS]])
    print()
    _show_tokens(measured)
    if with_misses:
        _show_misses(measured)


def _show_recall(measured: Measured) -> None:
    rows = [[f"found among the first {most}" if most > 1 else "found first", _percent(recall(measured.outcomes, most))]
            for most in _lengths(measured)]  # fmt: skip
    rows.append([f"not found at all (in {DEPTH})", _percent(1 - recall(measured.outcomes, DEPTH))])
    print_table(["Right tool", "Share"], rows)
    print("\nwhat came first")
    total = len(measured.outcomes)
    counts = firsts(measured.outcomes, measured.tools)
    print_table(
        ["First", "Queries", "Share"],
        [[_WORDS[kind], f"{count:,}", _percent(count / total)] for kind, count in counts.items()],
    )


def _show_tokens(measured: Measured) -> None:
    tokens = measured.tokens
    print(f"tokens ({'estimated' if tokens.how == 'estimate' else tokens.how})")
    mark = {tokens.now: "what a client is listed now"}
    answer = f"mean; 95 % have at most {tokens.answer.p95:,}"
    print_table(
        ["What", "Tokens", "Note"],
        [
            ["list of all tools", f"{tokens.all:,}", mark.get("all", "")],
            ["list with search", f"{tokens.search:,}", mark.get("search", "")],
            [f"an answer of {measured.limit}", f"{tokens.answer.mean:,.0f}", answer],
            ["search and an answer", f"{tokens.search + tokens.answer.mean:,.0f}", _less(tokens.saved)],
        ],
    )


def _show_misses(measured: Measured) -> None:
    missed = _missed(measured)
    print(f"\nqueries with a tool that is not among the first {measured.limit}: {len(missed):,}")
    for one in missed[:_MISSES]:
        names = ", ".join(measured.names[id_] for id_ in one.wanted[:3])
        first = measured.names[one.lines[0][0]] if one.lines else "nothing"
        line = f"line {one.asked.line}: " if one.asked.line else ""
        places = ", ".join(str(place or "-") for place in one.places)
        print(f"  {line}{first_line(one.asked.text, 100)}")
        print(printable(f"    wanted {names} (place {places}); first came {first}"))
    if len(missed) > _MISSES:
        print(f"  … and {len(missed) - _MISSES:,} more; --json shows all")


def _missed(measured: Measured) -> list[Outcome]:
    return [one for one in measured.outcomes if one.recall(measured.limit) < 1]


def _miss(outcome: Outcome) -> dict[str, Any]:
    return {
        "line": outcome.asked.line or None,
        "query": outcome.asked.text,
        "wanted": [list(need) for need in outcome.asked.needs],
        "places": list(outcome.places),
        "first": [ids[0] for ids in outcome.lines[:3]],
        "doubtful": outcome.is_doubtful,
    }


def _pair(one: Confusion, names: Mapping[str, str]) -> list[str]:
    return [names[one.tools[0]], names[one.tools[1]], str(one.times), f"of {one.of}"]


def _lengths(measured: Measured) -> Sequence[int]:
    return sorted({*AT, measured.limit})


def _servers(measured: Measured) -> int:
    return len({tool.server for tool in measured.tools.values()})


def _many(count: int, what: str) -> str:
    return f"{count:,} {what if count == 1 else f'{what}s'}"


def _share(value: float) -> float:
    return round(value, 4)


def _less(share: float) -> str:
    return f"{_percent(abs(share))} {'less' if share >= 0 else 'more'} than the list of all"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


_FLAWS = 10
"""Lines of a file that are named on standard error."""


@click.group("bench")
def bench_command() -> None:
    """Measure how well the bridge does on your servers.

    \u0008
    Examples:
      mcpbridge bench routing
    """


@bench_command.command("routing")
@click.option("--queries", metavar="FILE", help="JSON lines, or a table of query,tool; - reads standard input.")
@click.option(
    "--limit", type=click.IntRange(1, DEPTH), metavar="N", help="Tools of an answer (default: `search.limit`)."
)
@click.option("--server", metavar="NAME", help="Only queries for tools of this server; all tools can be found.")
@click.option("--misses", is_flag=True, help="Show the queries whose tools were not among those of an answer.")
@config_option
@as_json_option
@header_option
def routing(
    *, queries: str | None, limit: int | None, server: str | None, misses: bool, config: str | None, as_json: bool
) -> int:
    """Measure how well tools are found: recall, tools that are taken for one another, and tokens.

    A line of FILE is {"query": "open an issue", "tool": "github/create_issue"} or: open an issue,github/create_issue

    Without a file, a query is made of each tool's description. Such queries are easier than those of people and models:
    they show how distinct the tools are, not how well they are found in use.

    \u0008
    Examples:
      mcpbridge bench routing
      mcpbridge bench routing --queries queries.jsonl --misses
    """
    given = None if queries is None else read_queries(_text_of(queries))  # before there is a loop, and servers

    async def measuring(loaded: Loaded, redact: Redactor) -> int:
        if server is not None:
            require_server(loaded.settings, server)
        async with bridge_session.settle(loaded, redact) as bridge:
            bridge_session.warn_of_absent(bridge)
            bench = Bench(bridge, limit or bridge.settings.search.limit)
            found = bench.generated() if given is None else bench.looked_up(queries or "", *given)
            _note_flaws(found.flaws)
            if server is not None:
                found = replace_dataclass(found, asked=[one for one in found.asked if bench.is_about(one, server)])
            if not found.asked:
                _fail_without(found, server)
            measured = await bench.measure(found)
        if as_json:
            print_json("bench-routing/1", document(measured, with_misses=misses))
        else:
            show(measured, with_misses=misses)
        return OK

    return bridge_session.run(measuring, config, as_json=as_json)


def _text_of(file: str) -> str:
    """What the file has.

    Raises:
        click.BadParameter: it cannot be read.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{file}: {error.strerror or error}", param_hint="'--queries'") from error
    return data.decode(errors="replace")


def _note_flaws(flaws: Sequence[Flaw]) -> None:
    for line, what in flaws[:_FLAWS]:
        note(printable(f"line {line}: {what}"))
    if len(flaws) > _FLAWS:
        note(f"… and {len(flaws) - _FLAWS} more; --json shows all")


def _fail_without(queries: Queries, server: str | None) -> None:
    """End the command, since there is nothing to ask."""
    about = f" for tools of {server}" if server is not None else ""
    if not queries.is_generated:
        hint = (
            'A line is {"query": "open an issue", "tool": "github/create_issue"}, or: open an issue,github/create_issue'
        )
        fail(USAGE, f"{queries.source} has no query{about} that can be asked", hint)
    if queries.tools:
        fail(TOOL_ERROR, f"no query can be made{about}: descriptions are missing", "Give queries with --queries FILE.")
    fail(TOOL_ERROR, "there are no tools", "`mcpbridge check` shows more.")
