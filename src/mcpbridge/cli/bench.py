"""`mcpbridge bench routing`: how well the tools of the user's own catalog are found, and what that costs a model."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from mcpbridge.cli import engine
from mcpbridge.cli.bench_measuring import Bench, Queries
from mcpbridge.cli.bench_report import document, show
from mcpbridge.cli.exits import OK, TOOL_ERROR, USAGE, fail
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import note, print_json, visible
from mcpbridge.config.load import Loaded
from mcpbridge.errors import ConfigError, nearest
from mcpbridge.redaction import Redactor
from mcpbridge.routing.bench import DEPTH
from mcpbridge.routing.bench_queries import Flaw, read_queries

__all__ = ["command"]

_FLAWS = 10
"""Lines of a file that are named on standard error."""


@click.group("bench")
def command() -> None:
    """Measure how the bridge does on the servers that are configured."""


@command.command("routing")
@click.option("--queries", metavar="FILE", help="JSON lines, or a table of query,tool; - reads standard input.")
@click.option(
    "--limit", type=click.IntRange(1, DEPTH), metavar="N", help="Tools of an answer (default: `search.limit`)."
)
@click.option("--server", metavar="NAME", help="Only queries for tools of this server; all tools can be found.")
@click.option("--misses", is_flag=True, help="Show the queries whose tools were not among those of an answer.")
@config_option
@as_json_option
def routing(
    *, queries: str | None, limit: int | None, server: str | None, misses: bool, config: str | None, as_json: bool
) -> int:
    """Measure how well tools are found: recall, tools that are taken for one another, and tokens.

    A line of FILE is {"query": "open an issue", "tool": "github/create_issue"} or: open an issue,github/create_issue

    Without a file, a query is made of each tool's description. These are easier than what people and models ask: they
    tell how distinct the tools are, not how well they are found in use.
    """
    given = None if queries is None else read_queries(_text_of(queries))  # before there is a loop, and servers

    async def measuring(loaded: Loaded, redact: Redactor) -> int:
        _check_server(loaded, server)
        async with engine.settle(loaded, redact) as bridge:
            engine.warn_of_absent(bridge)
            bench = Bench(bridge, limit or bridge.settings.search.limit)
            found = bench.generated() if given is None else bench.looked_up(queries or "", *given)
            _note_flaws(found.flaws)
            if server is not None:
                found = replace(found, asked=[one for one in found.asked if bench.is_about(one, server)])
            if not found.asked:
                _fail_without(found, server)
            measured = await bench.measure(found)
        if as_json:
            print_json(document(measured, with_misses=misses))
        else:
            show(measured, with_misses=misses)
        return OK

    return engine.run(measuring, config, as_json=as_json)


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


def _check_server(loaded: Loaded, name: str | None) -> None:
    known = loaded.settings.servers
    if name is not None and name not in known:
        close = nearest(name, known, limit=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(known) or 'none'}."
        raise ConfigError(f"no server is called {name!r}", file=loaded.settings.source, hint=hint)


def _note_flaws(flaws: Sequence[Flaw]) -> None:
    for line, what in flaws[:_FLAWS]:
        note(visible(f"line {line}: {what}"))
    if len(flaws) > _FLAWS:
        note(f"… and {len(flaws) - _FLAWS} more; --json tells all")


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
    fail(TOOL_ERROR, "there are no tools", "`mcpbridge check` tells more.")
