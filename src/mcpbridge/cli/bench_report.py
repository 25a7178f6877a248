"""What `mcpbridge bench routing` tells of what was measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcpbridge.cli.bench_measuring import Measured
from mcpbridge.cli.output import first_line, print_table, visible
from mcpbridge.routing.bench import AT, DEPTH, Confusion, First, Outcome, confusions, firsts, recall

__all__ = ["document", "show"]

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
    "Queries are generated from the tools' own descriptions, so they are easier than real ones: this tells how"
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
    source = "generated" if queries.is_generated else f"of {visible(queries.source)}"
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
        print(visible(f"    wanted {names} (place {places}); first came {first}"))
    if len(missed) > _MISSES:
        print(f"  … and {len(missed) - _MISSES:,} more; --json tells all")


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
