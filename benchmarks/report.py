"""The book of a run as tables, and held against the targets. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.book import Book

__all__ = ["tables", "verdicts"]

_TITLES = {
    "stdio-stdio": "tools/call, stdio → stdio",
    "stdio-http": "tools/call, stdio → HTTP",
    "http-stdio": "tools/call, HTTP → stdio",
    "http-http": "tools/call, HTTP → HTTP",
    "big-result": "tools/call with a result of 1 MB, stdio → stdio",
    "listing": "tools/list of 3,000 tools",
    "start-1": "Start to the answer of tools/list, 1 upstream",
    "start-20": "Start to the answer of tools/list, and memory when idle: 20 upstreams with 3,000 tools",
    "neighbours": "What other upstreams cost a call to one, stdio → stdio",
    "way": "What the stages of a call cost, stdio → stdio",
}

Column = tuple[str, Callable[[Book, str, str], float | None], str]
"""Heading, the figure of a row's subject, format."""


_RATIO = "ratio"
"""Instead of a format: as many digits as tell something."""


def _value(heading: str, metric: str, shown: str = "{:,.0f}") -> Column:
    return heading, lambda book, row, subject: book.value(row, subject, metric), shown


def _times(heading: str, metric: str, base: str = "floor") -> Column:
    return heading, lambda book, row, subject: book.ratio(row, subject, metric, base), _RATIO


def _added(heading: str, metric: str, base: str = "direct") -> Column:
    return heading, lambda book, row, subject: book.added(row, subject, metric, base), "{:,.0f}"


def _call_columns(base: str) -> list[Column]:
    return [
        _value("p50 µs", "p50_us_1"),
        _value("p99 µs", "p99_us_1"),
        *([_added("added at p50, µs", "p50_us_1")] if base == "floor" else []),
        _value("CPU µs a call", "cpu_us_1"),
        _times(f"× {base}", "cpu_us_1", base),
        _value("calls/s, 16 in flight", "per_s_16"),
        _times(f"× {base}", "per_s_16", base),
        _value("CPU µs a call, 16 in flight", "cpu_us_16"),
        _times(f"× {base}", "cpu_us_16", base),
    ]


_TIMED = [
    _value("p50 ms", "p50_ms", "{:,.2f}"),
    _times("× floor", "p50_ms"),
    _value("p99 ms", "p99_ms", "{:,.2f}"),
    _value("CPU ms", "cpu_ms", "{:,.2f}"),
    _times("× floor", "cpu_ms"),
]

_START = [
    _value("first answer, ms", "first_ms"),
    _value("all tools, ms", "complete_ms"),
    _value("RSS MiB", "rss_mib"),
    _value("PSS MiB", "pss_mib"),
]

_COLUMNS: dict[str, list[Column]] = {
    "big-result": _TIMED,
    "listing": _TIMED,
    "start-1": _START,
    "start-20": _START,
    "neighbours": _call_columns("alone"),
    "way": [*_call_columns("bare"), _added("added at p50, µs", "p50_us_1", "bare")],
}


def tables(book: Book, order: Sequence[str]) -> str:
    """All rows that were measured, as Markdown. `order` is the order of the subjects."""
    parts: list[str] = []
    for row, title in _TITLES.items():
        known = book.subjects(row)
        if not known:
            continue
        columns = _COLUMNS.get(row) or _call_columns("floor")
        lines = [
            ["", *(heading for heading, _, _ in columns)],
            *(
                [subject, *(_shown(figure(book, row, subject), shown) for _, figure, shown in columns)]
                for subject in sorted(known, key=lambda name: order.index(name) if name in order else len(order))
            ),
        ]
        parts.append(f"**{title}**\n\n{_markdown(lines)}")
    return "\n\n".join(parts)


def _shown(figure: float | None, shown: str) -> str:
    if figure is None:
        return "–"
    if shown == _RATIO:
        shown = "{:,.0f}" if figure >= 100 else "{:.2f}" if figure >= 0.1 else "{:.3f}"
    return shown.format(figure)


def _markdown(lines: list[list[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]

    def row(cells: list[str]) -> str:
        first, *rest = [
            cell.ljust(w) if not i else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join([first, *rest])} |"

    rule = [":" + "-" * (widths[0] - 1 or 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([row(lines[0]), row(rule), *(row(line) for line in lines[1:])])


# ------------------------------------------------------------------ targets


@dataclass(frozen=True, slots=True)
class _Target:
    what: str
    figure: Callable[[Book], float | None]
    limit: float
    at_least: bool = False
    unit: str = "×"


def _against(row: str, metric: str, base: str) -> Callable[[Book], float | None]:
    return lambda book: book.ratio(row, "mcpbridge", metric, base)


def _of(row: str, metric: str) -> Callable[[Book], float | None]:
    return lambda book: book.value(row, "mcpbridge", metric)


def _known(metric: str) -> Callable[[Book], float | None]:
    return lambda book: book.value("start-20", "mcpbridge, servers known", metric)


def _over_direct(row: str) -> Callable[[Book], float | None]:
    return lambda book: book.added(row, "mcpbridge", "p50_us_1", "direct")


def _with_stages(label: str) -> Callable[[Book], float | None]:
    return lambda book: book.cheapest_ratio("way", label, "cpu_us_1", "bare")


def _beside(label: str) -> Callable[[Book], float | None]:
    return lambda book: book.cheapest_ratio("neighbours", label, "cpu_us_1", "alone")


_TARGETS = [
    _Target("stdio → stdio, CPU a call, of the floor's", _against("stdio-stdio", "cpu_us_1", "floor"), 2),
    _Target("stdio → stdio, CPU a call at 16 in flight", _against("stdio-stdio", "cpu_us_16", "floor"), 2),
    _Target(
        "stdio → stdio, calls/s, of mcp-compressor's",
        _against("stdio-stdio", "per_s_16", "mcp-compressor"),
        5,
        at_least=True,
    ),
    _Target("stdio → stdio, calls/s, of FastMCP's", _against("stdio-stdio", "per_s_16", "fastmcp"), 40, at_least=True),
    _Target("HTTP → stdio, added over direct at p50", _over_direct("http-stdio"), 300, unit="µs"),
    _Target("HTTP → stdio, calls/s, of FastMCP's", _against("http-stdio", "per_s_16", "fastmcp"), 20, at_least=True),
    _Target("HTTP → HTTP, added over direct at p50", _over_direct("http-http"), 300, unit="µs"),
    _Target("HTTP → HTTP, calls/s, of FastMCP's", _against("http-http", "per_s_16", "fastmcp"), 20, at_least=True),
    _Target("1 MB result, time, of the floor's", _against("big-result", "p50_ms", "floor"), 1.5),
    _Target("tools/list of 3,000 tools, CPU", _of("listing", "cpu_ms"), 1, unit="ms"),
    _Target("start to the answer of tools/list, 20 known upstreams", _known("first_ms"), 250, unit="ms"),
    _Target("memory idle, 20 upstreams, 3,000 tools", _of("start-20", "rss_mib"), 80, unit="MiB"),
    _Target("CPU a call beside one more upstream", _beside("1 more"), 1.05),
    _Target("CPU a call beside one that crashes", _beside("1 that crashes"), 1.05),
    _Target("CPU a call beside one that never answers", _beside("1 that never answers"), 1.05),
    _Target("CPU a call with nothing configured, of the bare way's", _with_stages("nothing configured"), 1.1),
    _Target(
        "CPU a call whose result is small, of that with no look at results",
        lambda book: book.cheapest_ratio("way", "nothing configured", "cpu_us_1", "results as they come"),
        1.03,
    ),
    _Target(
        "everything configured, added to the bare way at p50",
        lambda book: book.added("way", "everything configured", "p50_us_1", "bare"),
        150,
        unit="µs",
    ),
]
"""What the bridge must keep to. 1.05 stands for "none measurable": two that are alike differ by as much."""


def verdicts(book: Book) -> str:
    """Each target that this run can judge, as Markdown; empty when there is none."""
    lines = [["target", "limit", "measured", ""]]
    for target in _TARGETS:
        figure = target.figure(book)
        if figure is None:
            continue
        met = figure >= target.limit if target.at_least else figure <= target.limit
        sign = "≥" if target.at_least else "≤"
        shown = f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"
        lines.append(
            [
                target.what,
                f"{sign} {target.limit:g} {target.unit}",
                f"{shown} {target.unit}",
                "met" if met else "missed",
            ]
        )
    return f"**Targets**\n\n{_markdown(lines)}" if len(lines) > 1 else ""
