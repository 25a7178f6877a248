"""Lines of a log of ours that were written at some time: for a call's page, beside what its server wrote.

The file is looked through from its end, a bounded piece of it: the log is put aside before it is large, and the older
part is looked at as well.
"""

import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from mcpbridge.app.daemon.log_rotation import OLD_ENDING, file_of

_BLOCK = 1 << 16
_LONGEST = 4 << 20
"""Bytes of each file that are looked through."""


class LogLine(Struct, frozen=True):
    """One line."""

    at: str
    """As the line has it, in UTC."""
    level: str
    event: str
    fields: dict[str, Any]
    """What else the line says."""


class LogLines(Struct, frozen=True):
    """Some lines."""

    lines: Sequence[LogLine]
    """In the order in which they were written."""
    more: int = 0
    """How many there are beyond these."""


def own_log() -> Path | None:
    """The file that standard error of this process leads to; None: it leads to none, or to a terminal."""
    return file_of(2)


def lines_between(path: Path, since: float, until: float, *, most: int) -> LogLines:
    """The lines that were written from `since` to `until`, in seconds since 1970; the newest `most` of them.

    Lines that are no JSON object, such as what a crash leaves, are left out. A file that cannot be read has none.
    """
    first, last = _stamp(since), _stamp(until)
    found: list[LogLine] = []
    for file in (path, path.with_name(path.name + OLD_ENDING)):
        is_reached = False
        for line in _backwards(file):
            read = _read(line)
            if read is None or read.at > last:
                continue
            if read.at < first:
                is_reached = True
                break
            found.append(read)
        if is_reached:
            break
    return LogLines(found[:most][::-1], max(0, len(found) - most))


def _stamp(at: float) -> str:
    """A moment as the log writes it; such texts are in the order of time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _read(line: bytes) -> LogLine | None:
    if not line.startswith(b"{"):
        return None
    try:
        fields: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    known = cast("dict[str, Any]", fields)
    at, level, event = (str(known.pop(name, "")) for name in ("timestamp", "level", "event"))
    return LogLine(at, level, event, known) if at else None


def _backwards(path: Path) -> Iterator[bytes]:
    """The whole lines of a file, the last first."""
    try:
        with path.open("rb") as file:
            start = file.seek(0, os.SEEK_END)
            end, rest = max(0, start - _LONGEST), b""
            while start > end:
                step = min(_BLOCK, start - end)
                start -= step
                file.seek(start)
                rest, *lines = (file.read(step) + rest).split(b"\n")
                yield from reversed(lines)
            if not end:
                yield rest
    except OSError:
        return
