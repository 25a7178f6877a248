"""Reads the audit log for people: the newest lines that match, or new ones as they come. Verifies nothing."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct

from mcpbridge.storage.audit.lines import fields_of, iso_time
from mcpbridge.storage.audit.segments import Segment, lines_in, segments_in

Row = dict[str, Any]
"""All that a line says."""


class Wanted(Struct, frozen=True):
    """Which lines are shown; None: all. Names may be globs."""

    server: str | None = None
    tool: str | None = None
    client: str | None = None
    principal: str | None = None
    outcome: str | None = None
    kind: str | None = None
    since: float | None = None
    """Seconds since 1970."""
    until: float | None = None

    def covers(self, row: Row) -> bool:
        """Whether a line is one of these."""
        at = row.get("at", "")
        if self.since is not None and at < iso_time(self.since):
            return False
        if self.until is not None and at >= iso_time(self.until):
            return False
        tool = str(row.get("tool", ""))
        server = row.get("server") or tool.partition("/")[0]
        return (
            _fits(self.server, server)
            and (_fits(self.tool, tool) or _fits(self.tool, tool.partition("/")[2]))
            and _fits(self.client, row.get("client", ""))
            and _fits(self.principal, row.get("principal", ""))
            and _fits(self.outcome, row.get("outcome", ""))
            and _fits(self.kind, row.get("kind", ""))
        )


def _fits(wanted: str | None, name: object) -> bool:
    return wanted is None or fnmatchcase(str(name), wanted)


class Position(Struct, frozen=True):
    """How far a log was read."""

    first: int = 0
    """The number of the first line of the file; 0: no file was read."""
    offset: int = 0


def newest(folder: Path, wanted: Wanted, limit: int) -> list[Row]:
    """The newest lines that match, oldest first.

    Raises:
        OSError: the log cannot be read.
    """
    found: list[Row] = []
    since = None if wanted.since is None else iso_time(wanted.since)
    segments = segments_in(folder)
    for place, segment in reversed(list(enumerate(segments))):
        if len(found) >= limit:
            break
        is_over = since is not None and place + 1 < len(segments) and segments[place + 1].began() < since
        if is_over:
            break
        here = [row for row in _rows(segment) if wanted.covers(row)]
        found = here[max(0, len(here) + len(found) - limit) :] + found
    return found


def every(folder: Path, wanted: Wanted) -> Iterator[Row]:
    """All lines that match, oldest first.

    Raises:
        OSError: the log cannot be read.
    """
    for segment in segments_in(folder):
        for row in _rows(segment):
            if wanted.covers(row):
                yield row


def end_position(folder: Path) -> Position:
    """Where the log ends now."""
    segments = segments_in(folder)
    return Position(segments[-1].first, segments[-1].size) if segments else Position()


def after(folder: Path, position: Position) -> tuple[list[Row], Position]:
    """The lines since a position, and the next one. A line that is half written comes with the next look.

    Raises:
        OSError: the log cannot be read.
    """
    rows: list[Row] = []
    for segment in segments_in(folder):
        if segment.first < position.first:
            continue
        offset = position.offset if segment.first == position.first else 0
        for raw in lines_in(segment.path, None, offset):
            if not raw.endswith(b"\n"):
                break
            offset += len(raw)
            if row := fields_of(raw):
                rows.append(row)
        position = Position(segment.first, offset)
    return rows, position


def _rows(segment: Segment) -> Iterator[Row]:
    return (row for raw in lines_in(segment.path) if (row := fields_of(raw)))
