"""`mcpbridge doctor`: its options, and the report as people see it: its sections, colours and widths.

A finding has up to four lines: what, where, why, what to do. What is looked at is decided in `app/doctor/`.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from anyio import to_thread
from msgspec.structs import replace as replace_struct

from mcpbridge.app.admin.tool_documents import require_server
from mcpbridge.app.cli import bridge_session
from mcpbridge.app.cli.config.config_path import load_only_to_look, load_trusted
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import note, print_json, progress, visible
from mcpbridge.app.doctor.examination import Examiner
from mcpbridge.app.doctor.finding import About, Finding, Level, worst
from mcpbridge.app.doctor.fix import Outcome, Repair, repair_all
from mcpbridge.app.doctor.machine import Machine
from mcpbridge.app.doctor.report import Report, ServerReport, ToolReport
from mcpbridge.app.doctor.start_servers import Boot
from mcpbridge.app.exit_codes import OK, UNREACHABLE, USAGE
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.upstream.settings import ServerSettings

_Value = TypeVar("_Value", Finding, ServerReport, ToolReport, Outcome)

_MARKS: Mapping[Level, str] = {"ok": "ok  ", "note": "note", "warn": "warn", "fail": "FAIL"}
_COLOURS: Mapping[Level, str] = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "red"}
_SECTIONS: Mapping[About, str] = {"configuration": "Configuration", "clients": "Clients", "daemon": "Daemon"}


@contextmanager
def starts_shown(servers: int) -> Generator[Callable[[Boot], None]]:
    """Shows on a terminal which servers are done; is called with each."""
    done: list[str] = []
    with progress(_so_far(done, servers)) as line:

        def report_boot(boot: Boot) -> None:
            done.append(boot.server if boot.is_ready else f"{boot.server} (failed)")
            line.show(_so_far(done, servers))

        yield report_boot


def _so_far(done: Sequence[str], servers: int) -> str:
    if not servers:
        return "looking at the configuration, clients and machine …"
    last = f": {', '.join(done[-4:])}" if done else ""
    return f"starting servers, {len(done)} of {servers} done{last} …"


def as_text(report: Report, clean: Callable[[str], str]) -> str:
    """The whole report, for people. `clean` is put over every text in it, before colours are added."""
    servers = tuple(_cleaned(server, clean) for server in report.servers)
    tools, findings = (
        tuple(_cleaned(one, clean) for one in report.tools),
        [_cleaned(one, clean) for one in report.findings],
    )
    report = replace(report, servers=servers, tools=tools, findings=tuple(findings))
    lines = [f"{_bold('Configuration file')} {report.config or '(none)'}", *_servers(report), *_tools(report)]
    for about, title in _SECTIONS.items():
        found = [one for one in report.of("") if one.about == about]
        if found or about == "daemon":
            lines += ["", _bold(title), *(_daemon(report) if about == "daemon" else ()), *_lines_of(found)]
    lines += ["", _bold("Machine"), *_machine(report.machine)]
    lines += _lines_of(one for one in report.of("") if one.about == "machine")
    return "\n".join([*lines, "", _verdict(report)])


def outcome_as_text(outcome: Outcome, clean: Callable[[str], str]) -> str:
    """What became of a change; `clean` as above."""
    outcome = _cleaned(outcome, clean)
    if outcome.is_kept and outcome.report is not None:
        return f"{_mark('ok')}  {outcome.server} works now: {_how(outcome.report)}"
    return f"{_mark('fail')}  {outcome.server}: {'taken back, ' if outcome.edits else ''}{outcome.why}"


def _cleaned(value: _Value, clean: Callable[[str], str]) -> _Value:
    """The same with all its texts, and lists of texts, cleaned."""
    changes: dict[str, Any] = {}
    for one in fields(value):
        old: Any = getattr(value, one.name)
        if isinstance(old, str):
            changes[one.name] = clean(old)
        elif isinstance(old, tuple) and all(isinstance(item, str) for item in cast("tuple[object, ...]", old)):
            changes[one.name] = tuple(map(clean, cast("tuple[str, ...]", old)))
    return replace(value, **changes)


def _servers(report: Report) -> Iterator[str]:
    yield from ("", _bold("Servers"))
    if report.running and report.is_started:
        yield from _wrapped("      the daemon runs these servers too; what was started here are copies", "      ")
    width = max((len(server.name) for server in report.servers), default=0)
    for server in report.servers:
        found = sorted(report.of(server.name), key=lambda one: one.level != "fail")
        name = server.name.ljust(width)
        if server.is_ready or not server.is_known:
            yield from _wrapped(f"{_mark('ok' if server.is_ready else 'note')}  {name}  {_how(server)}", " " * 8)
        else:
            what = next((one.what for one in found if one.level == "fail"), server.state)
            yield from _wrapped(f"{_mark('fail')}  {name}  {what}", " " * 8)
        for one in found:
            yield from _details(one) if one.level == "fail" else _finding(one, indent="      ")
        yield from (f"        | {line}" for line in server.stderr)
    if not report.servers:
        yield "      none is enabled"


def _tools(report: Report) -> Iterator[str]:
    if report.tools or any(one.about == "tools" for one in report.of("")):
        yield from ("", _bold("Tools"))
    width = max((len(tool.name) for tool in report.tools), default=0)
    for tool in report.tools:
        found = list(report.of(tool.id))
        level: Level = "ok" if tool.is_ready else worst(found)
        told = "; ".join(filter(None, (tool.kind, tool.detail))) if tool.is_ready else tool.detail
        yield from _wrapped(f"{_mark(level)}  {tool.name.ljust(width)}  {told}", " " * 8)
        for one in found:
            yield from _details(one)
    yield from _lines_of(one for one in report.of("") if one.about == "tools")


def _how(server: ServerReport) -> str:
    if not server.is_known:
        earlier = f"; {server.tools} tools are known from earlier" if server.tools else ""
        return f"not started, so it is not known whether it works{earlier}"
    counts = [(getattr(server, kind), kind) for kind in ("tools", "prompts", "resources", "templates")]
    told = [f"{count} {kind if count != 1 else kind[:-1]}" for count, kind in counts if count or kind == "tools"]
    parts = [f"{server.transport} {server.revision} ({server.era})", ", ".join(told)]
    if server.tokens:
        parts.append(f"{server.tokens:,} tokens")
    if server.answered_ms is not None and server.listed_ms is not None:
        parts.append(f"answered after {_seconds(server.answered_ms)}, listed after {_seconds(server.listed_ms)}")
    if server.memory:
        parts.append(f"{server.memory / 2**20:.0f} MiB")
    return "; ".join(parts)


def _daemon(report: Report) -> Iterator[str]:
    if report.running:
        pid, version = report.running.get("pid"), report.running.get("version")
        yield f"{_mark('ok')}  process {pid} runs, version {version}"
    else:
        yield f"{_mark('note')}  none runs for this configuration; the next client starts it"


def _machine(machine: Machine) -> Iterator[str]:
    yield from _wrapped(
        f"{_mark('ok')}  mcpbridge {machine.mcpbridge}, Python {machine.python}, {machine.system}", " " * 6
    )
    there = [f"{name} {version}".removesuffix(" ?") for name, version in machine.launchers.items() if version]
    gone = [name for name, version in machine.launchers.items() if not version]
    yield from _wrapped(
        f"      programs: {', '.join(there) or 'none'}; not there: {', '.join(gone) or 'none'}", " " * 8
    )
    for name, how in machine.confined.items():
        yield from _wrapped(f"      {name}: {how or 'not installed'}", " " * 8)
    layers = [f"{name} {what or 'no'}" for name, what in machine.sandbox.items()]
    yield from _wrapped(f"      sandbox layers of the system: {', '.join(layers) or 'none'}", " " * 8)
    kept = ", ".join(f"{name} {path}" for name, path in machine.directories.items())
    yield from _wrapped(f"      directories: {kept}", " " * 8)


def _lines_of(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        yield from _finding(finding)


def _finding(finding: Finding, indent: str = "") -> Iterator[str]:
    yield from _wrapped(f"{indent}{_mark(finding.level)}  {finding.what}", f"{indent}        ")
    yield from _details(finding, indent=f"{indent}        ")


def _details(finding: Finding, indent: str = " " * 8) -> Iterator[str]:
    for title, text in (("where", finding.where), ("why", finding.why), ("do", finding.fix)):
        if text:
            yield from _wrapped(f"{indent}{title + ':':<7}{' '.join(text.split())}", f"{indent}       ")
    if finding.edit is not None:
        yield from _wrapped(f"{indent}fix:   `mcpbridge doctor --fix` can do that", f"{indent}       ")


def _verdict(report: Report) -> str:
    ready = sum(server.is_ready for server in report.servers)
    failures = sum(finding.level == "fail" for finding in report.of(""))  # of the machine, the configuration and so on
    warnings = sum(finding.level == "warn" for finding in report.findings)
    told = [f"{ready} of {len(report.servers)} servers {'work' if report.is_started else 'are running'}"]
    if report.tools:
        of_tools = f"{sum(tool.is_ready for tool in report.tools)} of {len(report.tools)} tools work"
        told = [*told, of_tools] if report.servers else [of_tools]
    counted = [_count(failures, "failure")] if failures else []
    return f"{', '.join(told)}; {', '.join([*counted, _count(warnings, 'warning')])}"


def _count(number: int, what: str) -> str:
    return f"{number} {what if number == 1 else f'{what}s'}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 100 else f"{milliseconds} ms"


def _mark(level: Level) -> str:
    return click.style(_MARKS[level], fg=_COLOURS[level]) if _is_coloured() else _MARKS[level]


def _bold(text: str) -> str:
    return click.style(text, bold=True) if _is_coloured() else text


def _is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _wrapped(line: str, indent: str) -> list[str]:
    """The line as it is, or on a terminal within its width."""
    if not sys.stdout.isatty():
        return [line]
    width = max(shutil.get_terminal_size().columns, 40)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [
        line
    ]


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
def doctor_command(*, config: str | None, **given: Any) -> int:
    """Find out what is wrong, and what to do about it.

    Each server is started once. Tools, the configuration, the files of your clients and this machine are checked too.
    Exit code 4: a server, or a tool of [tools], does not work. Warnings do not change the exit code.

    \u0008
    Examples:
      mcpbridge doctor
      mcpbridge doctor github --fix
      mcpbridge doctor --no-start
    """
    options = _Options(**given)
    if options.fix and options.no_start:
        fail(USAGE, "--fix tries what it mends, so it goes not with --no-start")
    if options.fix and not options.yes and (options.as_json or not (sys.stdin.isatty() and sys.stderr.isatty())):
        fail(USAGE, "--fix asks before each change, and there is nobody to ask here", "Say --yes to agree to all.")
    warned: list[str] = []

    def load_quietly(named: str | None) -> Loaded:
        loaded = load_only_to_look(named) if options.no_start else load_trusted(named)
        warned.extend(loaded.warnings)  # they are among the findings
        return replace_struct(loaded, warnings=())

    async def examining(loaded: Loaded, redact: Redactor) -> int:
        return await _examine(replace_struct(loaded, warnings=tuple(warned)), redact, options)

    return bridge_session.run(examining, config, as_json=options.as_json, load=load_quietly)


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
    with starts_shown(0 if options.no_start else len(wanted)) as report_boot:
        examiner = Examiner(
            os.environ,
            home=Path.home(),
            platform=sys.platform,
            project=_project(),
            redact=redact,
            seconds=options.timeout,
            report=report_boot,
        )
        if options.no_start:
            report = await examiner.ask(loaded, wanted, is_whole=not options.servers)
        else:
            report = await examiner.examine(loaded, wanted, is_whole=not options.servers)
    if options.no_start and not report.running:
        fail(UNREACHABLE, "no daemon runs for this configuration", "Leave out --no-start, or `mcpbridge up`.")
    if not options.as_json:
        print(as_text(report, lambda text: visible(redact(text))))
    outcomes: Sequence[Outcome] = await _mend(report, examiner, redact, options) if options.fix else []
    if options.as_json:
        fixes: dict[str, Any] = {"fixes": [outcome.as_json() for outcome in outcomes]} if options.fix else {}
        print_json("doctor/1", redact.values_of({**report.as_json(), **fixes}))
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

    def print_outcome(outcome: Outcome) -> None:
        if not options.as_json:
            print(outcome_as_text(outcome, lambda text: visible(redact(text))))

    repair = Repair(path, os.environ)
    outcomes = await repair_all(fixable, repair, path, examiner, os.environ, agree=agree, report=print_outcome)
    if repair.backup is not None and not options.as_json:
        print(f"\nthe file as it was: {repair.backup}")
    return outcomes


def _wanted(loaded: Loaded, names: Sequence[str]) -> Mapping[str, ServerSettings]:
    """The servers to look at: those named, else all that are not switched off.

    Raises:
        ConfigError: there is no server of such a name.
    """
    if names:
        return {name: require_server(loaded.settings, name) for name in dict.fromkeys(names)}
    return {name: server for name, server in loaded.settings.servers.items() if not server.disabled}


def _project() -> Path | None:
    """The directory whose project files count, and that servers are started for."""
    directory = bridge_session.project_here()
    return Path(directory) if directory else None
