"""`file-search`: files by name, and lines of files by what stands in them."""

import stat
from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mcpbridge.builtin.file_access import READS, Files, FileTool, OutOfTime, Stop, Told, count, given, texts
from mcpbridge.builtin.file_list import globs_of
from mcpbridge.builtin.file_text import LOOKED_AT, encoding_of, unified
from mcpbridge.errors import ArgumentsRefused, PathRefused
from mcpbridge.model import Call
from mcpbridge.units import show_bytes
from mcpbridge.wire.body import Body

if TYPE_CHECKING:  # loaded with the first call
    from mcpbridge.sandbox.paths import Opened, Root
    from mcpbridge.sandbox.paths_names import Parts
    from mcpbridge.sandbox.paths_tree import Entry

__all__ = ["FileSearch"]

NAME = "file-search"

_LIMIT = 100
"""Matches where the call says nothing."""

_DEEPEST = 50
"""Levels of directories."""

_DEFINITION: dict[str, Any] = {
    "name": NAME,
    "title": "Search files",
    "description": (
        "Find lines by `pattern` in all text files beneath a directory, or files by `glob` alone. Answers as "
        "`path`, then `line: text`. Not looked into: .git, binary files."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "description": "text to find, exactly"},
            "regex": {"type": "boolean", "description": "pattern is a regular expression (RE2)"},
            "ignore_case": {"type": "boolean"},
            "glob": {"type": "string", "description": "only files so named, such as *.py or src/**/*.{ts,tsx}"},
            "exclude": {"type": "string", "description": "glob of files and directories to leave out"},
            "path": {"type": "string", "default": ".", "description": "directory or file"},
            "context": {"type": "integer", "minimum": 0, "maximum": 20, "description": "lines around each"},
            "limit": {"type": "integer", "minimum": 1, "default": _LIMIT},
            "hidden": {"type": "boolean", "description": "names that begin with a dot too"},
        },
        "additionalProperties": False,
    },
    "annotations": {
        "title": "Search files",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    },
}


class _Wanted(Struct):
    pattern: str = ""
    regex: bool = False
    ignore_case: bool = False
    glob: str = ""
    exclude: str = ""
    path: str = "."
    context: int = 0
    limit: int = _LIMIT
    hidden: bool | None = None


class FileSearch(FileTool):
    """The tool."""

    definition, treatment = _DEFINITION, READS

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        wanted = given(call, _Wanted)
        self._files.check(NAME)
        search = _Search(self._files, wanted)
        return await self._files.answer(NAME, wanted.path, search.run)


class _Search:
    """One search, in one thread."""

    def __init__(self, files: Files, wanted: _Wanted) -> None:
        from mcpbridge.builtin.file_matching import Matcher, WrongPattern

        if not wanted.pattern and not wanted.glob:
            raise ArgumentsRefused("Give `pattern`, to find lines, or `glob`, to find files by name.")
        self._globs, self._excluded = globs_of("glob", wanted.glob), globs_of("exclude", wanted.exclude)
        self._matcher: Matcher | None = None
        if wanted.pattern:
            try:
                self._matcher = Matcher(wanted.pattern, is_regex=wanted.regex, ignores_case=wanted.ignore_case)
            except WrongPattern as error:
                raise ArgumentsRefused(f"pattern: {error}") from None
        settings = files.settings
        self._files, self._settings, self._path = files, settings, wanted.path
        self._hidden = settings.show_hidden if wanted.hidden is None else wanted.hidden
        self._context = max(0, min(wanted.context, 20))
        self._left, self._room = max(1, min(wanted.limit, settings.max_entries)), settings.max_read
        self._lines: list[str] = []
        self._matches = self._files_matched = self._looked_at = 0
        self._skipped = Counter[str]()
        self._ended = ""

    def run(self, stop: Stop) -> Body:
        """The answer."""
        found = self._files.find(self._path)
        places = [found] if found is not None else [(root, ()) for root in self._files.roots.values()]
        try:
            for root, parts in places:
                self._within(root, parts, stop)
        except OutOfTime:
            self._ended = f"ended after {self._settings.timeout:g} s, so there may be more: narrow path or glob"
        except _Full:
            self._ended = "ended as the answer is full, so there may be more: narrow the search, or raise limit"
        return texts("\n".join(self._lines), self._note())

    def _within(self, root: "Root", parts: "Parts", stop: Stop) -> None:
        from mcpbridge.sandbox.paths_tree import entries

        looked = entries(root, parts, depth=_DEEPEST, hidden=self._hidden, enters=self._enters, look_up=stop.look)
        try:
            for entry in looked:
                if entry.cut:
                    self._skipped["not looked into"] += 1
                if self._excluded.touches(entry.beneath) or (self._globs and not self._globs.matches(entry.beneath)):
                    continue
                self._take(root, entry, stop)
        except NotADirectoryError:
            self._single(root, parts, stop)

    def _enters(self, beneath: "Parts") -> bool:
        return not self._excluded.touches(beneath) and (not self._globs or self._globs.leads(beneath))

    def _single(self, root: "Root", parts: "Parts", stop: Stop) -> None:
        """The path is a file."""
        if self._matcher is None:
            raise Told("That is a file, not a directory to find files in.")
        with root.opened(parts) as opened:
            self._look_into(root.shown(opened.parts), opened, stop)

    def _take(self, root: "Root", entry: "Entry", stop: Stop) -> None:
        if self._matcher is None:
            from mcpbridge.sandbox.paths_names import shown

            self._add([f"{shown(root.shown(entry.parts))}{'/' if entry.is_directory else ''}"], 1)
            return
        if not stat.S_ISREG(entry.found.st_mode):
            return
        if entry.found.st_size > self._settings.max_file:
            self._skipped[f"larger than {show_bytes(self._settings.max_file)}"] += 1
            return
        import os

        try:
            opened = root.open_at(entry.place)
        except PathRefused:
            self._skipped["not to be read"] += 1
            return
        except OSError:
            self._skipped["not readable"] += 1
            return
        try:
            self._look_into(root.shown(entry.parts), opened, stop)
        finally:
            os.close(opened.descriptor)

    def _look_into(self, path: str, opened: "Opened", stop: Stop) -> None:
        from mcpbridge.builtin.file_matching import Found, excerpts, found_in
        from mcpbridge.sandbox.paths_names import shown

        data = opened.read(LOOKED_AT)
        encoding = encoding_of(data)
        if not encoding:
            self._skipped["binary"] += 1
            return
        if len(data) == LOOKED_AT:
            data += opened.read(self._settings.max_file - LOOKED_AT, LOOKED_AT)
        if encoding not in ("utf-8", "utf-8-sig"):
            data = unified(data, encoding)[0]
        if b"\r\n" in data:  # else `$` would stand behind the `\r`
            data = data.replace(b"\r\n", b"\n")
        self._looked_at += 1
        assert self._matcher is not None
        found: list[Found] = []
        try:
            for one in found_in(data, self._matcher, stop.look):
                found.append(one)
                if len(found) >= self._left:
                    break
        finally:  # also of a file in which the time was up
            if found:
                self._files_matched += 1
                self._add([shown(path), *excerpts(data, found, self._context)], len(found))

    def _add(self, lines: list[str], matches: int) -> None:
        for line in lines:
            self._room -= len(line) + 1
            if self._room < 0:
                raise _Full
            self._lines.append(line)
        self._matches += matches
        self._left -= matches
        if self._left <= 0:
            raise _Full

    def _note(self) -> str:
        if self._matcher is None:
            said = [f"{count(self._matches, 'name')}"]
        else:
            said = [f"{count(self._matches, 'line')} in {count(self._files_matched, 'file')}"]
            said.append(f"{count(self._looked_at, 'file')} looked at")
        said += [f"{number:,} {why}" for why, number in self._skipped.items()]
        if self._ended:
            said.append(self._ended)
        return f"[{'; '.join(said)}]"


class _Full(Exception):
    """The answer has as much as it may have."""
