"""`mcpbridge audit`: show the audit log, find what was done to it, hand it on, and show the key that signs it."""

import csv
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import time
from typing import Any, cast

import anyio
import click

from mcpbridge.app.cli.bridge_session import run
from mcpbridge.app.cli.config.config_path import load_or_default
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import (
    counted,
    first_line,
    note,
    print_json,
    print_json_line,
    print_table,
    print_text,
    visible,
)
from mcpbridge.app.exit_codes import DIFFERS, OK, UNREACHABLE, USAGE
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.units import parse_moment, show_seconds
from mcpbridge.config.load import Loaded
from mcpbridge.storage.audit.checkpoints import Anchor, key_id, parse_public_key
from mcpbridge.storage.audit.reader import Row, Wanted, after, end_position, every, newest
from mcpbridge.storage.audit.segments import segments_in
from mcpbridge.storage.audit.settings import AuditSettings, anchor_folder, audit_folder
from mcpbridge.storage.audit.verify import Finding, Report, verify

_LOOK = 0.25
"""Seconds between two looks at the log with `--follow`."""
_HOW_TO = "To have one, set in the configuration:\n\n    [audit]\n    enabled = true\n"

_path_option = click.option(
    "--path", metavar="DIR", help="The folder of the log, if it is not that of the configuration."
)
_FILTERS: Sequence[Callable[[Callable[..., int]], Callable[..., int]]] = (
    click.option("--tool", metavar="GLOB", help="Only lines about these: `server/tool`, or the tool's own name."),
    click.option("--server", metavar="GLOB", help="Only lines about these servers."),
    click.option("--client", metavar="GLOB", help="Only lines about these clients."),
    click.option("--principal", metavar="GLOB", help="Only lines about these users; '' is the local one."),
    click.option("--outcome", metavar="GLOB", help="Only calls that went like this, such as refused."),
    click.option("--kind", metavar="GLOB", help="Only lines of this kind: call, 'approval.*', 'config.*' and so on."),
    click.option("--since", metavar="TIME", help='Only what happened since then: "1h", 2026-07-28T12:00.'),
    click.option("--until", metavar="TIME", help="Only what happened before then."),
)


def _filters(command: Callable[..., int]) -> Callable[..., int]:
    """The options that say which lines are wanted."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group("audit")
def audit_command() -> None:
    """Show the audit log, and find what was done to it.

    It is written where `[audit] enabled = true` is set.

    \u0008
    Examples:
      mcpbridge audit show --outcome refused --since 1d
      mcpbridge audit verify
      mcpbridge audit export --csv
      mcpbridge audit key
    """


@audit_command.command("show")
@config_option
@_path_option
@_filters
@click.option("-n", "--limit", type=click.IntRange(0), metavar="N", default=50, help="The N newest (default: 50).")
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@header_option
def show(
    *, config: str | None, path: str | None, limit: int, follow: bool, as_json: bool, **filters: str | None
) -> int:
    """Show what the audit log says, newest last. Exit code 4: there is none.

    \u0008
    Examples:
      mcpbridge audit show --tool 'delete_*'
      mcpbridge audit show --kind 'approval.*' --follow
    """
    wanted = _wanted(filters)

    async def showing(loaded: Loaded, _: Redactor) -> int:
        folder = _log_of(loaded, path, waits=follow)
        rows = newest(folder, wanted, limit)
        position = end_position(folder)
        _print_rows(rows, as_json=as_json, aligned=not follow)
        while follow:
            sys.stdout.flush()
            await anyio.sleep(_LOOK)
            rows, position = after(folder, position)
            _print_rows([row for row in rows if wanted.covers(row)], as_json=as_json, aligned=False)
        return OK

    return run(showing, config, as_json=as_json, load=load_or_default)


@audit_command.command("export")
@config_option
@_path_option
@_filters
@click.option("--csv", "as_csv", is_flag=True, help="Print a table, as programs for tables read it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, which is the default.")
def export(*, config: str | None, path: str | None, as_csv: bool, as_json: bool, **filters: str | None) -> int:
    """Print the lines of the audit log for other programs, oldest first: as JSON, or as a table.

    To verify it elsewhere, copy its folder instead: `audit verify --path`.

    \u0008
    Examples:
      mcpbridge audit export --since 30d
      mcpbridge audit export --csv --kind call
    """
    if as_csv and as_json:
        raise click.UsageError("--csv goes without --json.")
    wanted = _wanted(filters)

    async def exporting(loaded: Loaded, _: Redactor) -> int:
        rows = every(_log_of(loaded, path), wanted)
        if as_csv:
            table = csv.writer(sys.stdout, lineterminator="\n")
            table.writerow(_COLUMNS)
            table.writerows([_for_a_sheet(cell) for cell in _columns(row)] for row in rows)
            return OK
        for row in rows:
            print_json_line("audit-export/1", row)
        return OK

    return run(exporting, config, as_json=as_json, load=load_or_default)


@audit_command.command("verify")
@config_option
@_path_option
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="A public key, or a file with one, instead of the one beside the checkpoints; may be repeated.",
)
@click.option(
    "--checkpoints",
    metavar="FILE",
    help="A file of checkpoints that another machine has kept, one a line; other lines are left out.",
)
@as_json_option
def verify_log(
    *, config: str | None, path: str | None, keys: tuple[str, ...], checkpoints: str | None, as_json: bool
) -> int:
    """Find lines of the audit log that were changed, cut, added, swapped or written anew.

    Exit code 0: there are none. 1: there are, and each is named. 4: there is no log.

    \u0008
    Examples:
      mcpbridge audit verify
      mcpbridge audit verify --key audit.pub --checkpoints from-the-other-machine.jsonl
    """

    async def verifying(loaded: Loaded, _: Redactor) -> int:
        settings = loaded.settings.audit
        folder = _folder(settings, path)
        anchor = Anchor(anchor_folder(settings), folder)
        if not segments_in(folder) and anchor.head() is None and checkpoints is None:
            _fail_without_log(settings, folder)
        trusted = [parse_public_key(_text_of_key(key)) for key in keys]
        if not trusted and (own := anchor.public_key()) is not None:
            trusted = [own]
        elsewhere = _checkpoints_in(checkpoints) if checkpoints is not None else []
        report = verify(folder, anchor, trusted, elsewhere)
        if as_json:
            print_json("audit-verify/1", _document(folder, report))
        else:
            _print_report(folder, report, of_another_machine=bool(elsewhere))
        return OK if report.is_intact else DIFFERS

    return run(verifying, config, as_json=as_json, load=load_or_default)


@audit_command.command("key")
@config_option
@as_json_option
def key(*, config: str | None, as_json: bool) -> int:
    """Show the public key that verifies the checkpoints. A key is made if there is none yet.

    Keep it on another machine: who can replace the log and the key here cannot replace that one.

    \u0008
    Examples:
      mcpbridge audit key
    """

    async def showing(loaded: Loaded, _: Redactor) -> int:
        settings = loaded.settings.audit
        anchor = Anchor(anchor_folder(settings), audit_folder(settings))
        public = anchor.private_key().public_key()
        pem = anchor.public_path.read_text(encoding="ascii")
        if as_json:
            print_json("audit-key/1", {"id": key_id(public), "public_key": pem, "file": str(anchor.public_path)})
        else:
            print_text(pem)
            note(f"this is key {key_id(public)}, from {anchor.public_path}")
        return OK

    return run(showing, config, as_json=as_json, load=load_or_default)


# -- which log, and which lines


def _log_of(loaded: Loaded, path: str | None, *, waits: bool = False) -> Path:
    settings = loaded.settings.audit
    folder = _folder(settings, path)
    if not segments_in(folder) and not (waits and settings.enabled):
        _fail_without_log(settings, folder)
    return folder


def _folder(settings: AuditSettings, path: str | None) -> Path:
    return Path(path).expanduser() if path else audit_folder(settings)


def _fail_without_log(settings: AuditSettings, folder: Path) -> None:
    fail(UNREACHABLE, f"there is no audit log in {folder}", "" if settings.enabled else _HOW_TO)


def _wanted(filters: dict[str, str | None]) -> Wanted:
    moments = {name: _moment(name, filters.pop(name)) for name in ("since", "until")}
    return Wanted(**filters, **moments)  # pyright: ignore[reportArgumentType] - the options have the names of the fields


def _moment(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_moment(text, time())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"--{name}") from None


def _text_of_key(text: str) -> str:
    path = Path(text).expanduser()
    try:
        return path.read_text(encoding="ascii") if len(text) < 1000 and path.is_file() else text
    except (OSError, ValueError) as error:
        fail(USAGE, f"{path} cannot be read: {error}")


def _checkpoints_in(name: str) -> list[bytes]:
    """Whatever looks like a checkpoint: a collector's file may have a head before each, and lines of the log."""
    found: list[bytes] = []
    path = Path(name).expanduser()
    try:
        data = path.read_bytes()
    except OSError as error:
        fail(USAGE, f"{path} cannot be read: {error.strerror}")
    for line in data.splitlines():
        begin = line.find(b'{"chain":"')
        if begin >= 0 and line.endswith(b'"}') and b',"sig":"' in line:
            found.append(line[begin:])
    if not found:
        fail(USAGE, f"{path} has no checkpoint in it", 'It should have lines that begin with {"chain":')
    return found


# -- what is printed

_TITLES = ["Line", "Time", "Kind", "About", "Client", "Outcome", "Took", "Decided by", "Details"]
_COLUMNS = [
    *("seq", "at", "kind", "principal", "user", "role", "client", "client_version", "oauth_client", "address"),
    *("session", "server", "tool", "method", "outcome", "error"),
    *("rule", "permission", "approval", "who", "detail", "arguments_bytes", "arguments_sha256", "arguments"),
    *("result_bytes", "result_tokens", "seconds", "call", "parent", "hash"),
]


def _print_rows(rows: Sequence[Row], *, as_json: bool, aligned: bool) -> None:
    if as_json:
        for row in rows:
            print_json_line("audit-show/1", row)
    elif rows and aligned:
        print_table(_TITLES, [_cells(row) for row in rows])
    elif aligned:
        note("no line of the audit log matches")
    else:
        for row in rows:
            print("  ".join(map(visible, filter(None, _cells(row)))))


def _cells(row: Row) -> list[str]:
    who = str(row.get("client", "")) + (f" ({row['principal']})" if row.get("principal") else "")
    details = [row.get("error"), row.get("approval"), row.get("who"), row.get("detail"), *_rest(row)]
    seconds = row.get("seconds")
    return [
        str(row.get("seq", "")),
        str(row.get("at", ""))[:19].replace("T", " "),
        str(row.get("kind", "")),
        str(row.get("tool") or row.get("server") or "-"),
        who or "-",
        str(row.get("outcome", "-")).replace("_", " "),
        show_seconds(round(seconds, 3)) if isinstance(seconds, int | float) else "-",
        str(row.get("rule", "-")),
        first_line("; ".join(str(one) for one in details if one), 120),
    ]


def _rest(row: Row) -> list[str]:
    value, facts = _inner(row, "arguments").get("value"), _inner(row, "facts")
    names = ("missing", "torn", "replaced", "removed", "count")
    found = [
        f"{name}={json.dumps(value)}" for name, value in {**{n: row[n] for n in names if n in row}, **facts}.items()
    ]
    return [*found, *([str(value)] if value else [])]


def _inner(row: Row, name: str) -> Row:
    """An object within a line; empty: there is none."""
    found: object = row.get(name)
    return cast("Row", found) if isinstance(found, dict) else {}


def _columns(row: Row) -> list[Any]:
    arguments, result = _inner(row, "arguments"), _inner(row, "result")
    flat = {
        **row,
        "arguments_bytes": arguments.get("bytes", ""),
        "arguments_sha256": arguments.get("sha256", ""),
        "arguments": arguments.get("value", ""),
        "result_bytes": result.get("bytes", ""),
        "result_tokens": result.get("tokens", ""),
    }
    return [flat.get(name, "") for name in _COLUMNS]


def _for_a_sheet(value: object) -> object:
    """A text that a program for tables would take for a formula is made none: clients and servers choose names."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _document(folder: Path, report: Report) -> dict[str, object]:
    return {
        "folder": str(folder),
        "intact": report.is_intact,
        "files": report.files,
        "lines": report.lines,
        "first": report.first,
        "last": report.last,
        "checkpoints": report.checkpoints,
        "signed_through": report.signed_through,
        "signed_at": report.signed_at,
        "findings": [
            {
                "what": one.what,
                "detail": one.detail,
                "first": one.seq,
                "last": one.through,
                "file": one.file,
                "line": one.line,
            }
            for one in report.findings
        ],
        "more_findings": report.more_findings,
        "notes": report.notes,
    }


def _print_report(folder: Path, report: Report, *, of_another_machine: bool) -> None:
    for text in report.notes:
        note(visible(text))
    if report.findings:
        print_table(["What", "Line", "File", "Details"], [_finding_cells(one) for one in report.findings])
        if report.more_findings:
            note(f"and {report.more_findings} more")
        return
    what = f"{counted(report.lines, 'line')} in {counted(report.files, 'file')} of {folder} are as they were written"
    print_text(what)
    if not report.lines:
        return
    print_text(f"signed up to line {report.signed_through} of {report.last}, at {report.signed_at}")
    if not of_another_machine:
        note("compared with checkpoints of this machine alone: --checkpoints takes those of another")


def _finding_cells(one: Finding) -> list[str]:
    lines = "-" if not one.seq else str(one.seq) if one.seq == one.through else f"{one.seq}-{one.through}"
    return [one.what.replace("_", " "), lines, f"{one.file}:{one.line}" if one.file else "-", visible(one.detail)]
