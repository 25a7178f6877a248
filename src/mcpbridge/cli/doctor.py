"""`mcpbridge doctor`: find out what is wrong with servers, configuration, clients and machine, and what to do."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from anyio import to_thread
from msgspec.structs import replace

from mcpbridge.cli import doctor_showing as showing
from mcpbridge.cli import engine
from mcpbridge.cli.exits import OK, UNREACHABLE, USAGE, fail
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import note, print_json, visible
from mcpbridge.config.load import Loaded, load
from mcpbridge.doctor.examination import Examiner
from mcpbridge.doctor.finding import Finding
from mcpbridge.doctor.repairing import Repair
from mcpbridge.doctor.repairs import Outcome, repair_all
from mcpbridge.doctor.report import Report
from mcpbridge.errors import ConfigError, nearest
from mcpbridge.redaction import Redactor
from mcpbridge.upstream.settings import ServerSettings

__all__ = ["command"]


@click.command("doctor")
@click.argument("servers", metavar="[SERVER]…", nargs=-1)
@config_option
@as_json_option
@click.option(
    "--fix", is_flag=True, help="Mend in servers.toml what is certain, try the server again, keep what helps."
)
@click.option("--yes", is_flag=True, help="Do not ask before a change.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Seconds for each to start.")
@click.option("--no-start", "--offline", is_flag=True, help="Start nothing: take what the running daemon says.")
def command(*, config: str | None, **given: Any) -> int:
    """Start every server once and look at it, at tools, the configuration, the files of clients and this machine.

    Exit code 4 if a server, or a tool of [tools], does not work. What is only a warning changes nothing.
    """
    options = _Options(**given)
    if options.fix and options.no_start:
        fail(USAGE, "--fix tries what it mends, so it goes not with --no-start")
    if options.fix and not options.yes and (options.as_json or not (sys.stdin.isatty() and sys.stderr.isatty())):
        fail(USAGE, "--fix asks before each change, and there is nobody to ask here", "Say --yes to agree to all.")
    warned: list[str] = []

    def load_quietly(named: str | None) -> Loaded:
        loaded = load(named)
        warned.extend(loaded.warnings)  # they are among the findings
        return replace(loaded, warnings=())

    async def examining(loaded: Loaded, redact: Redactor) -> int:
        return await _examine(replace(loaded, warnings=tuple(warned)), redact, options)

    return engine.run(examining, config, as_json=options.as_json, load=load_quietly)


@dataclass(frozen=True, slots=True)
class _Options:
    servers: tuple[str, ...]
    as_json: bool
    fix: bool
    yes: bool
    timeout: float | None
    no_start: bool


async def _examine(loaded: Loaded, redact: Redactor, options: _Options) -> int:
    wanted = _wanted(loaded, options.servers)
    with showing.progress(0 if options.no_start else len(wanted)) as told:
        examiner = Examiner(
            os.environ,
            home=Path.home(),
            platform=sys.platform,
            project=_project(),
            redact=redact,
            seconds=options.timeout,
            told=told,
        )
        if options.no_start:
            report = await examiner.ask(loaded, wanted, is_whole=not options.servers)
        else:
            report = await examiner.examine(loaded, wanted, is_whole=not options.servers)
    if options.no_start and not report.running:
        fail(UNREACHABLE, "no daemon runs for this configuration", "Leave out --no-start, or `mcpbridge up`.")
    if not options.as_json:
        print(showing.as_text(report, lambda text: visible(redact(text))))
    outcomes: Sequence[Outcome] = await _mend(report, examiner, redact, options) if options.fix else []
    if options.as_json:
        fixes: dict[str, Any] = {"fixes": [outcome.as_json() for outcome in outcomes]} if options.fix else {}
        print_json(redact.values_of({**report.as_json(), **fixes}))
    mended = {outcome.server for outcome in outcomes if outcome.is_kept}
    failing = [one.name for one in report.servers if one.is_known and not one.is_ready and one.name not in mended]
    return UNREACHABLE if failing or not report.are_tools_ready else OK


async def _mend(report: Report, examiner: Examiner, redact: Redactor, options: _Options) -> Sequence[Outcome]:
    path = Path(report.config)
    fixable = [finding for finding in report.findings if finding.edit is not None]
    if fixable and path.suffix.lower() != ".toml":
        note(f"{path} is another program's: --fix changes servers.toml only (`mcpbridge import` makes one)")
        return []
    if not fixable and not options.as_json:
        print("\nthere is nothing that --fix could mend")

    async def agree(finding: Finding, lines: str) -> bool:
        if not options.as_json:
            print(redact(visible(f"\n{finding.server}: {finding.what}\n{lines}")))
        if options.yes:
            return True
        ask = partial(click.confirm, "Change it?", default=True, err=True)
        return await to_thread.run_sync(ask, abandon_on_cancel=True)  # who interrupts it need not answer first

    def told(outcome: Outcome) -> None:
        if not options.as_json:
            print(showing.outcome_as_text(outcome, lambda text: visible(redact(text))))

    repair = Repair(path, os.environ)
    outcomes = await repair_all(fixable, repair, path, examiner, os.environ, agree=agree, told=told)
    if repair.backup is not None and not options.as_json:
        print(f"\nthe file as it was: {repair.backup}")
    return outcomes


def _wanted(loaded: Loaded, names: Sequence[str]) -> Mapping[str, ServerSettings]:
    """The servers to look at: those named, else all that are not switched off.

    Raises:
        ConfigError: there is no server of such a name.
    """
    known = loaded.settings.servers
    for name in names:
        if name not in known:
            close = nearest(name, known, limit=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(known) or 'none'}."
            raise ConfigError(f"no server is called {name!r}", file=loaded.settings.source, hint=hint)
    if names:
        return {name: known[name] for name in dict.fromkeys(names)}
    return {name: server for name, server in known.items() if not server.disabled}


def _project() -> Path | None:
    """The directory whose project files count, and that servers are started for."""
    directory = engine.project_here()
    return Path(directory) if directory else None
