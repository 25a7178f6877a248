"""`file-list`: what is in a directory, with kinds, sizes and times."""

import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.tools.builtin.files.access import READS, FileTool, FileToolError, OutOfTime, Stop, count, given, texts

if TYPE_CHECKING:  # loaded with the first call
    from mcpbridge.sandbox.files.names import Parts
    from mcpbridge.sandbox.files.paths import Entry, Root
    from mcpbridge.sandbox.files.rules import Globs


NAME = "file-list"

_LIMIT = 200
"""Entries where the call says nothing."""

_DEFINITION: dict[str, Any] = {
    "name": NAME,
    "title": "List files",
    "description": "List a directory: names, sizes in bytes, times of change (UTC). Directories end with `/`.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "default": ".", "description": "left out: where files may be reached"},
            "depth": {"type": "integer", "minimum": 1, "maximum": 20, "default": 1, "description": "levels"},
            "glob": {"type": "string", "description": "only files with such names: *.py or src/**/*.{ts,tsx}"},
            "limit": {"type": "integer", "minimum": 1, "default": _LIMIT},
            "hidden": {"type": "boolean", "description": "names that begin with a dot too"},
        },
        "additionalProperties": False,
    },
    "annotations": {
        "title": "List files",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    },
}


class _Wanted(Struct):
    path: str = "."
    depth: int = 1
    glob: str = ""
    limit: int = _LIMIT
    hidden: bool | None = None


class FileList(FileTool):
    """The tool."""

    definition, treatment = _DEFINITION, READS

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        wanted = given(call, _Wanted)
        globs = globs_of("glob", wanted.glob)
        return await self._files.answer(NAME, wanted.path, lambda stop: self._list(wanted, globs, stop))

    def _list(self, wanted: _Wanted, globs: "Globs", stop: Stop) -> Body:
        settings = self._files.settings
        listed = _Listed(globs, max(1, min(wanted.limit, settings.max_entries)), settings.max_read)
        hidden = settings.show_hidden if wanted.hidden is None else wanted.hidden
        if wanted.depth <= 1 and self._files.find(wanted.path) is None:
            return texts("\n".join(f"{root.path_of(())}/" for root in self._files.roots.values()))
        try:
            for root, parts in self._files.places(wanted.path):
                listed.take(root, parts, max(1, min(wanted.depth, 20)), hidden, stop)
        except OutOfTime:
            listed.is_unfinished = True
        except NotADirectoryError:
            raise FileToolError("That is not a directory; file-read reads files.") from None
        return texts("\n".join(listed.lines), listed.note(settings.timeout))


class _Listed:
    """Lines of a list, as long as they fit; beyond that entries are only counted."""

    def __init__(self, globs: "Globs", limit: int, room: int) -> None:
        self._globs, self._limit, self._room = globs, limit, room
        self.lines: list[str] = []
        self._more = 0
        self.is_unfinished = False

    def take(self, root: "Root", parts: "Parts", depth: int, hidden: bool, stop: Stop) -> None:
        """All that is beneath a directory, which patterns are compared from."""
        from mcpbridge.sandbox.files.paths import entries

        for entry in entries(root, parts, depth=depth, hidden=hidden, enters=self._enters, look_up=stop.look):
            if self._globs and not entry.cut and not self._globs.matches(entry.beneath):
                continue
            line = _line(root, entry)
            if len(self.lines) < self._limit and not self._more and self._room >= len(line):
                self.lines.append(line)
                self._room -= len(line) + 1
            else:
                self._more += 1

    def _enters(self, beneath: "Parts") -> bool:
        return not self._globs or self._globs.leads(beneath)

    def note(self, seconds: float) -> str:
        """What stands below the list: how much there is, and what is missing."""
        said = [count(len(self.lines) + self._more, "entry", "entries")]
        if self._more:
            said.append(f"{self._more:,} of them not shown: raise limit, or give a glob or a deeper path")
        if self.is_unfinished:
            said.append(f"there are more: it was ended after {seconds:g} s; give a deeper path or less depth")
        return f"[{'; '.join(said)}]"


def _line(root: "Root", entry: "Entry") -> str:
    from mcpbridge.sandbox.files.names import display_name
    from mcpbridge.sandbox.files.paths import kind_of

    path = display_name(root.path_of(entry.parts))
    if entry.is_directory:
        return f"{path}/" + (f"  ({entry.cut})" if entry.cut else "")
    if stat.S_ISLNK(entry.status.st_mode):
        return f"{path} -> {display_name(entry.target())}"
    if kind := kind_of(entry.status):
        return f"{path}  ({kind})"
    if entry.status.st_nlink > 1 and root.refuses_hard_links(entry.directory):
        return f"{path}  (several names: not read)"
    try:
        changed = datetime.fromtimestamp(entry.status.st_mtime, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        changed = "?"
    return f"{path}  {entry.status.st_size}  {changed}"


def globs_of(key: str, *patterns: str) -> "Globs":
    """The patterns that an argument has.

    Raises:
        ArgumentsRefused: one of them is none.
    """
    from mcpbridge.sandbox.files.rules import Globs, WrongGlob

    try:
        return Globs(pattern for pattern in patterns if pattern)
    except WrongGlob as error:
        raise ArgumentsRefused(f"{key}: {error}") from None
