"""How `mcpbridge doctor` shows what it found: sections with a line for each server, and findings in four lines."""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import click

from mcpbridge.doctor.boot import Boot
from mcpbridge.doctor.finding import About, Finding, Level, worst
from mcpbridge.doctor.machine import Machine
from mcpbridge.doctor.repairs import Outcome
from mcpbridge.doctor.report import Report, ServerReport, ToolReport

__all__ = ["as_text", "outcome_as_text", "progress"]

_Value = TypeVar("_Value", Finding, ServerReport, ToolReport, Outcome)

_MARKS: Mapping[Level, str] = {"ok": "ok  ", "note": "note", "warn": "warn", "fail": "FAIL"}
_COLOURS: Mapping[Level, str] = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "red"}
_SECTIONS: Mapping[About, str] = {"configuration": "Configuration", "clients": "Clients", "daemon": "Daemon"}


@contextmanager
def progress(servers: int) -> Generator[Callable[[Boot], None]]:
    """Shows on a terminal which servers are done; hears of each."""
    done: list[str] = []
    if not sys.stderr.isatty():
        yield lambda boot: done.append(boot.server)
        return
    from rich.console import Console

    with Console(stderr=True).status(_so_far(done, servers)) as status:

        def told(boot: Boot) -> None:
            done.append(boot.server if boot.is_ready else f"{boot.server} (failed)")
            status.update(_so_far(done, servers))

        yield told


def _so_far(done: Sequence[str], servers: int) -> str:
    if not servers:
        return "looking …"
    return f"starting servers, {len(done)} of {servers} done: {', '.join(done[-4:])} …"


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
    warnings = sum(finding.level == "warn" for finding in report.findings)
    told = [f"{ready} of {len(report.servers)} servers {'work' if report.is_started else 'are running'}"]
    if report.tools:
        of_tools = f"{sum(tool.is_ready for tool in report.tools)} of {len(report.tools)} tools work"
        told = [*told, of_tools] if report.servers else [of_tools]
    return f"{', '.join(told)}; {warnings} {'warning' if warnings == 1 else 'warnings'}"


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
