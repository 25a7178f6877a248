"""`mcpbridge logs`: what the daemon logs."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import click

from mcpbridge.app.cli.config.config_path import config_path
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import config_option
from mcpbridge.app.cli.output import print_json_line, print_text, visible
from mcpbridge.app.cli.running_bridges import daemons, log_of
from mcpbridge.app.exit_codes import INTERRUPTED, OK, UNREACHABLE

_LINES = 50
_BLOCK = 1 << 16
_LOOK = 0.2
"""Seconds between two looks for new lines."""
_SHOWN_FIRST = ("timestamp", "level", "event")
_LONG = ("exception", "stderr")
"""Fields that are shown below the line, as they are."""


@click.command("logs")
@config_option
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines.")
@click.option("-n", "--lines", type=click.IntRange(0), default=_LINES, help=f"Lines to begin with (default: {_LINES}).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each line.")
def logs_command(*, config: str | None, follow: bool, lines: int, as_json: bool) -> int:
    """Show the log of the daemon of this configuration, also of one that has ended. Exit code 4: there is none.

    \u0008
    Examples:
      mcpbridge logs
      mcpbridge logs -n 200 --follow
    """
    path = config_path(config)
    running = daemons(path)
    told = str((running[-1].daemon or {}).get("log") or "") if running else ""
    try:
        if told == "journal":
            found = _journal(running[-1].pid, lines, follow=follow)
        else:
            log = Path(told) if told else log_of(path)
            if not log.is_file():
                fail(UNREACHABLE, f"there is no log at {log}", "The daemon of this configuration has never run.")
            found = _from_file(log, lines, follow=follow)
        for line in found:
            if as_json:
                print_json_line("logs/1", as_fields(line))
            else:
                print_text(readable(line))
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED if not follow else OK
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what Python would still write at its end
    return OK


def as_fields(line: str) -> dict[str, Any]:
    """A line of the log as its fields. One that is no JSON object, such as one of a traceback, is all `event`."""
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {"event": line}


def readable(line: str) -> str:
    """A line of the log as people read it; one that is no JSON object as it is."""
    told = as_fields(line)
    if told.keys() == {"event"}:
        return line
    when = str(told.get("timestamp", ""))
    with suppress(ValueError):
        when = datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    values = [
        f"{key}={value if isinstance(value, str) and value and not set(value) & set(' =') else json.dumps(value)}"
        for key, value in told.items()
        if key not in _SHOWN_FIRST and key not in _LONG
    ]
    head = " ".join([when, f"{told.get('level', ''):<8}", visible(str(told.get("event", ""))), *values]).strip()
    below = ["\n".join(f"    {one}" for one in str(told[key]).splitlines()) for key in _LONG if told.get(key)]
    return "\n".join([head, *below])


def _from_file(path: Path, lines: int, *, follow: bool) -> Iterator[str]:
    file = path.open("rb")
    try:
        yield from _last_lines(file, lines)
        rest, is_put_aside = b"", False
        while follow:
            piece = file.read(_BLOCK)
            if piece:
                *whole, rest = (rest + piece).split(b"\n")
                yield from (line.decode(errors="replace") for line in whole)
            elif is_put_aside:  # and since that was seen all of the old one is read
                file.close()
                file, is_put_aside = path.open("rb"), False
            elif not (is_put_aside := _is_another(path, file)):
                time.sleep(_LOOK)
    finally:
        file.close()


def _is_another(path: Path, file: BinaryIO) -> bool:
    try:
        return not os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False  # between the two steps


def _last_lines(file: BinaryIO, count: int) -> list[str]:
    """The last lines of a file, which is then at its end; a line that is being written is left for later."""
    end = file.seek(0, os.SEEK_END)
    held = b""
    start = end
    while start and held.count(b"\n") <= count:
        step = min(_BLOCK, start)
        start -= step
        file.seek(start)
        held = file.read(step) + held
    held = held[: held.rfind(b"\n") + 1]
    file.seek(start + len(held))
    return [line.decode(errors="replace") for line in held.split(b"\n")[:-1][-count:]] if count else []


def _journal(pid: int, lines: int, *, follow: bool) -> Iterator[str]:
    """The same from systemd's journal, where that has the daemon's standard error."""
    words = ["journalctl", "--user", f"_PID={pid}", "-o", "cat", "-n", str(lines), "--no-pager", *(["-f"] * follow)]
    try:
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, errors="replace") as shown:
            assert shown.stdout is not None
            try:
                for line in shown.stdout:
                    yield line.rstrip("\n")
            finally:
                shown.terminate()
    except FileNotFoundError:
        fail(UNREACHABLE, "its log is in the journal, and there is no journalctl")
