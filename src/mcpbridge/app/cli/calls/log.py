"""`mcpbridge log`: what was called, from the call log of this user's bridges, whether or not any of them runs."""

import json
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Protocol, get_args

import anyio
import anyio.to_thread
import click
from msgspec.structs import replace

from mcpbridge.app.cli.bridge_session import run
from mcpbridge.app.cli.config.config_path import load_only_to_look
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import config_option, header_option
from mcpbridge.app.cli.output import first_line, note, print_json_line, print_table, print_text, size_text, visible
from mcpbridge.app.exit_codes import OK, TOOL_ERROR, UNREACHABLE
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.units import parse_moment, show_seconds
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings
from mcpbridge.storage.call_log.format import Outcome
from mcpbridge.storage.call_log.query import LogQuery, answer_query
from mcpbridge.storage.call_log.reader import INTERRUPTED, RUNNING, Filter, Row, read_call
from mcpbridge.storage.settings import call_log_path, recorded
from mcpbridge.storage.sqlite.database import may_exist

if TYPE_CHECKING:
    from mcpbridge.app.cli.calls.fleet_log import FleetLog

_MOST = 10_000
"""Records that one look shows."""


class _Log(Protocol):
    """Where calls are recorded."""

    look_every: float
    """Seconds between two looks at it with `--follow`."""

    def read(self, query: LogQuery, *, is_next: bool = False) -> Sequence[Row]:
        """The newest rows, oldest first. `is_next`: only those since the last look at the same."""
        ...


@click.command("log")
@click.argument("uid", metavar="[CALL]", required=False)
@config_option
@click.option("--tool", metavar="GLOB", help="Only calls of these: `server/tool`, or the tool's own name.")
@click.option("--server", metavar="GLOB", help="Only calls to these servers.")
@click.option("--client", metavar="GLOB", help="Only calls of these clients.")
@click.option("--principal", metavar="GLOB", help="Only calls of these users; '' is the local one.")
@click.option("--outcome", type=click.Choice([*get_args(Outcome), RUNNING]), help="Only calls that went like this.")
@click.option("--since", metavar="TIME", help='Only what began since then: "1h", 2026-07-28T12:00.')
@click.option("--bridge", metavar="NAME", help="Only what this bridge of the fleet has recorded.")
@click.option("--here", is_flag=True, help="Only what the file of this machine has, without the others of the fleet.")
@click.option("-n", "--limit", type=click.IntRange(0), metavar="N", default=50, help="The N newest (default: 50).")
@click.option("-f", "--follow", is_flag=True, help="Continue with new calls, until interrupted.")
@click.option("--events", is_flag=True, help="What happened beside calls: approvals, sessions, servers.")
@click.option("--content", is_flag=True, help="Show arguments and results, where they were kept (`log_content`).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@header_option
def log_command(
    *,
    uid: str | None,
    config: str | None,
    tool: str | None,
    server: str | None,
    client: str | None,
    principal: str | None,
    outcome: str | None,
    since: str | None,
    bridge: str | None,
    here: bool,
    limit: int,
    follow: bool,
    events: bool,
    content: bool,
    as_json: bool,
) -> int:
    """Show what was called, newest last; or one CALL whole, by what its line says under "Call".

    Where the configuration has a `[fleet]` and one of its bridges runs here, all of them are asked, and Bridge says
    where a call was made. What a bridge has recorded that does not run now is missing.

    Exit code 4 if there is no call log, 5 if it has no such call.

    \u0008
    Examples:
      mcpbridge log --tool 'delete_*' --since 1h
      mcpbridge log --follow --json
      mcpbridge log --bridge bridge-2 --since 1h
    """
    which = Filter(tool, server, client, principal, outcome, None if since is None else _moment(since))
    if events and outcome:
        raise click.UsageError("--outcome means nothing with --events.")
    if bridge and here:
        raise click.UsageError("--bridge asks others, and --here nobody: give one of them.")

    async def show(loaded: Loaded, _: Redactor) -> int:
        settings = loaded.settings
        everywhere = None if here else await anyio.to_thread.run_sync(_find_fleet, settings, config, bridge or "")
        asked = LogQuery("events" if events else "calls", which, max(limit, 1), content=content)
        if everywhere is not None:
            if uid is not None:
                return await _show_one_of_fleet(everywhere, uid, as_json=as_json)
            await _show(everywhere, asked, limit, follow=follow, as_json=as_json)
            return OK
        path = call_log_path(settings.call_log, settings.store)
        is_logged = recorded(settings.call_log, settings.store, "own").grade != "off"
        if not may_exist(path) and not (follow and is_logged):
            _tell_of_absence(path, is_logged=is_logged)
            return OK
        if not is_logged and not events:
            note(f"calls are not logged now; these are older ones. {_HOW_TO}")

        if uid is not None:
            return _show_one(path, uid, as_json=as_json)

        await _show(_FileLog(path), asked, limit, follow=follow, as_json=as_json)
        return OK

    return run(show, config, as_json=as_json, load=load_only_to_look)


def _find_fleet(settings: Settings, config: str | None, only: str) -> "FleetLog | None":
    """Whom to ask for what all bridges have recorded; None: this machine's file is all there is."""
    if settings.fleet.listen is None and not only:
        return None
    from mcpbridge.app.cli.calls.fleet_log import FleetLog  # few configurations have one
    from mcpbridge.app.cli.calls.fleet_member import member_to_ask

    found = member_to_ask(settings, config, only)
    return None if found is None else FleetLog(found, only)


async def _show_one_of_fleet(log: "FleetLog", uid: str, *, as_json: bool) -> int:
    found = await anyio.to_thread.run_sync(log.read, LogQuery("call", uid=uid, limit=1))
    if not found:
        fail(TOOL_ERROR, f"no bridge has a call {uid[:100]}", "`mcpbridge log` shows those that there are.")
    return _show_row(found[0], as_json=as_json)


_HOW_TO = "To log them, set in the configuration:\n\n    [call_log]\n    enabled = true\n"


def _moment(text: str) -> float:
    """Seconds since 1970, from a span before now or a point in time."""
    try:
        return parse_moment(text, time())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from None


def _tell_of_absence(path: Path, *, is_logged: bool) -> None:
    if not is_logged:
        fail(UNREACHABLE, f"there is no call log: {path}", _HOW_TO)
    note(f"nothing was logged yet: {path}")


def _show_one(path: Path, uid: str, *, as_json: bool) -> int:
    row = read_call(path, uid) if may_exist(path) else None
    if row is None:
        fail(TOOL_ERROR, f"there is no call {uid[:100]} in {path}", "`mcpbridge log` shows those that there are.")
    return _show_row(row, as_json=as_json)


def _show_row(row: Row, *, as_json: bool) -> int:
    if as_json:
        _print_json("log/1", [row])
        return OK
    print(visible("  ".join(filter(None, _cells(row)))))
    for name in ("bridge", "session", "run", "revision", "parent"):
        if row.get(name):
            print(visible(f"    {name}: {row[name]}"))
    _print_content(row)
    _print_original(row)
    for name, began, ended in row.get("stages", []):
        print(visible(f"    {began:>10.2f} ms  {_duration((ended - began) / 1000):>8}  {name}"))
    for child in row.get("children", []):
        _print_child(child, "    ")
    return OK


def _print_original(row: Row) -> None:
    if original := row.get("original"):
        of = f"{size_text(original['size'])}, some {original['tokens']:,} tokens" if original.get("size") else ""
        handle = f"`mcpbridge results show {original['handle']}`" if original.get("handle") else ""
        print(visible(f"    original: {', '.join(filter(None, [of, handle]))}"))


def _print_child(row: Row, indent: str) -> None:
    print(visible(indent + "  ".join(filter(None, _cells(row)))))
    for child in row.get("children", []):
        _print_child(child, indent + "    ")


class _FileLog:
    """What the file of this machine has."""

    look_every = 0.25
    """See `_Log`."""

    def __init__(self, path: Path) -> None:
        self._path, self._after = path, 0

    def read(self, query: LogQuery, *, is_next: bool = False) -> Sequence[Row]:
        """See `_Log`."""
        rows = answer_query(self._path, replace(query, after=self._after) if is_next else query)
        if query.what == "running":
            return rows
        self._after = rows[-1]["id"] if rows else self._after
        # Events are numbered as they are written, and some are written a moment after others.
        return sorted(rows, key=itemgetter("at")) if query.what == "events" else rows


async def _show(log: _Log, asked: LogQuery, limit: int, *, follow: bool, as_json: bool) -> None:
    """The newest records, and, to follow, those that come. `asked`: at least one, which says where the next begin."""
    is_events = asked.what == "events"
    rows = await anyio.to_thread.run_sync(log.read, asked)
    if not is_events and not follow:  # what is followed are records: these will be some
        rows = [*rows, *await anyio.to_thread.run_sync(log.read, replace(asked, what="running"))]
    aligned, rows = not follow, rows[-limit:] if limit else []
    has_begun, following = bool(limit), replace(asked, limit=_MOST)
    while True:
        if as_json:
            _print_json("log-events/1" if is_events else "log/1", rows)
        elif has_begun:
            _print_rows(rows, events=is_events, content=asked.content, aligned=aligned)
        if not follow:
            return
        sys.stdout.flush()
        await anyio.sleep(log.look_every)
        has_begun, rows = True, await anyio.to_thread.run_sync(partial(log.read, following, is_next=True))


def _print_json(json_format: str, rows: Sequence[Row]) -> None:
    for row in rows:
        print_json_line(json_format, row)


def _print_rows(rows: Sequence[Row], *, events: bool, content: bool, aligned: bool) -> None:
    titles = _EVENT_TITLES if events else _TITLES
    cells = [(_event_cells if events else _cells)(row) for row in rows]
    if any("bridge" in row for row in rows):
        titles, cells = (
            ["Bridge", *titles],
            [[row.get("bridge", "-"), *line] for row, line in zip(rows, cells, strict=True)],
        )
    if not rows and aligned:
        note("no recorded event matches" if events else "no recorded call matches")
    elif rows and aligned and not content:
        print_table(titles, cells)
    else:
        for row, line in zip(rows, cells, strict=True):
            print("  ".join(map(visible, filter(None, line))))
            if content:
                _print_content(row)


def _print_content(row: Row) -> None:
    for side, name in (("asked", "as sent"), ("arguments", "arguments"), ("result", "result")):
        if (kept := row.get(side, {}).get("content")) is not None:
            print_text(f"    {name}: {kept}")


_LOST = "the bridge was killed meanwhile; it may have taken effect"
_TITLES = ["Time", "Tool", "Client", "Outcome", "Took", "Arguments", "Result", "Call", "Details"]


def _cells(row: Row) -> list[str]:
    told = [_LOST if row["outcome"] == INTERRUPTED else row.get("error", ""), _facts(row.get("facts", {}))]
    who = row["client"] or "-"
    if row.get("principal"):
        who += f" ({row['principal']})"
    return [
        _local(row["at"]),
        row["tool"] if row["method"] == "tools/call" else f"{row['method']} {row['tool']}",
        who,
        row["outcome"].replace("_", " "),
        _duration(row["seconds"]) if "seconds" in row else "-",
        _size(row["arguments"]),
        _size(row["result"]) if "result" in row else "-",
        str(row.get("uid") or row.get("id") or "-"),
        first_line("; ".join(filter(None, told)), 120),
    ]


_EVENT_TITLES = ["Time", "Event", "About", "Who", "For", "Arguments", "Details"]


def _event_cells(row: Row) -> list[str]:
    told = [row.get("detail", ""), _facts(row.get("facts", {}))]
    asked_for = row.get("client", "-")
    if row.get("principal"):
        asked_for += f" ({row['principal']})"
    return [
        _local(row["at"]),
        row["event"],
        row.get("tool") or row.get("server", "-"),
        row.get("who", "-"),
        asked_for,
        row.get("arguments", {}).get("sha256", "-")[:8],
        first_line("; ".join(filter(None, told)), 120),
    ]


def _local(at: str) -> str:
    return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M:%S}"


def _duration(seconds: float) -> str:
    if seconds < 0.01:
        return f"{seconds * 1000:.1f}ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 60 else show_seconds(round(seconds))


def _size(part: dict[str, Any]) -> str:
    """Size and the beginning of the digest, by which equal ones are recognised."""
    size: int = part["size"]
    if not size:
        return "-"
    return f"{size_text(size)} {part['sha256'][:8]}"


def _facts(facts: dict[str, Any]) -> str:
    return " ".join(f"{_spoken(name)}={_plain(value)}" for name, value in facts.items())


def _spoken(name: str) -> str:
    return re.sub(r"\s+", "_", name)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
