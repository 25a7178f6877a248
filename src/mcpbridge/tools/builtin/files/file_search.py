"""`file-search`: finds files by name, and lines of files by a text or a regular expression.

A search of bytes takes linear time (RE2), and shows the lines around each match.
"""

import stat
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused, PathRefused
from mcpbridge.base.units import show_bytes
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.tools.builtin.files.access import (
    READS,
    Files,
    FileTool,
    FileToolError,
    OutOfTime,
    Stop,
    count,
    given,
    texts,
)
from mcpbridge.tools.builtin.files.file_list import globs_of
from mcpbridge.tools.builtin.files.text import LOOKED_AT, encoding_of, unified

if TYPE_CHECKING:
    from mcpbridge.sandbox.files.names import Parts
    from mcpbridge.sandbox.files.paths import Entry, Opened, Root


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
        places = self._files.places(self._path)
        try:
            for root, parts in places:
                self._within(root, parts, stop)
        except OutOfTime:
            self._ended = f"ended after {self._settings.timeout:g} s, so there may be more: narrow path or glob"
        except _Full:
            self._ended = "ended as the answer is full, so there may be more: narrow the search, or raise limit"
        return texts("\n".join(self._lines), self._note())

    def _within(self, root: "Root", parts: "Parts", stop: Stop) -> None:
        from mcpbridge.sandbox.files.paths import entries

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
            raise FileToolError("That is a file, not a directory to find files in.")
        with root.opened(parts) as opened:
            self._look_into(root.path_of(opened.parts), opened, stop)

    def _take(self, root: "Root", entry: "Entry", stop: Stop) -> None:
        if self._matcher is None:
            from mcpbridge.sandbox.files.names import display_name

            self._add([f"{display_name(root.path_of(entry.parts))}{'/' if entry.is_directory else ''}"], 1)
            return
        if not stat.S_ISREG(entry.status.st_mode):
            return
        if entry.status.st_size > self._settings.max_file:
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
            self._look_into(root.path_of(entry.parts), opened, stop)
        finally:
            os.close(opened.descriptor)

    def _look_into(self, path: str, opened: "Opened", stop: Stop) -> None:
        from mcpbridge.sandbox.files.names import display_name

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
        found: list[MatchingLine] = []
        try:
            for one in matching_lines(data, self._matcher, stop.look):
                found.append(one)
                if len(found) >= self._left:
                    break
        finally:  # also of a file in which the time was up
            if found:
                self._files_matched += 1
                self._add([display_name(path), *excerpts(data, found, self._context)], len(found))

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


LONGEST, MEMORY = 1000, 8 * 1024**2
"""Characters of a pattern; bytes that it and its automaton may take."""

LONGEST_LINE = 300
"""Characters of a line that are shown, those around what was found."""


class WrongPattern(ValueError):
    """No pattern that can be looked for; the message says why, for a model."""


class Matcher:
    """Where something is in bytes that are UTF-8."""

    def __init__(self, pattern: str, *, is_regex: bool = False, ignores_case: bool = False) -> None:
        """A piece of text, or a regular expression of RE2 with `^` and `$` at every line.

        Raises:
            WrongPattern: it is none, too long, or there is no engine for it.
        """
        if len(pattern) > LONGEST:
            raise WrongPattern(f"longer than {LONGEST} characters")
        try:
            self._plain = pattern.encode()
        except UnicodeEncodeError:
            raise WrongPattern("half of a character (a lone surrogate)") from None
        self._compiled: Any = _compiled(self._plain, is_regex, ignores_case) if is_regex or ignores_case else None

    def first(self, data: bytes, start: int) -> tuple[int, int] | None:
        """Where it first occurs at or after `start`; None if it does not."""
        if self._compiled is None:
            at = data.find(self._plain, start)
            return None if at < 0 else (at, at + len(self._plain))
        found = self._compiled.search(data, start)
        return None if found is None else found.span()


def _compiled(pattern: bytes, is_regex: bool, ignores_case: bool) -> Any:
    try:
        import re2
    except ImportError:
        raise WrongPattern("`google-re2` is not installed here: only exact text can be looked for") from None
    engine = cast("Any", re2)
    options = engine.Options()
    options.max_mem, options.log_errors = MEMORY, False
    options.case_sensitive = not ignores_case
    try:
        return engine.compile(b"(?m)" + pattern if is_regex else engine.escape(pattern), options)
    except engine.error as error:
        said: object = error.args[0] if error.args else ""
        told = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise WrongPattern(f"{told} (RE2: no look-around, no back references)") from None


class MatchingLine(Struct, frozen=True):
    """One line that contains a match."""

    number: int
    """Of the line, from 1."""
    begin: int
    """Where the line begins in the data."""
    end: int
    """And ends, without its line end."""
    at: int
    """Where in the data it was found."""


def matching_lines(data: bytes, matcher: Matcher, look: Callable[[], None] = lambda: None) -> Generator[MatchingLine]:
    """The lines in which it begins, each once, in order. `look` is called for each, and raises to end it."""
    at, number, counted = 0, 1, 0
    while at <= len(data):
        look()
        span = matcher.first(data, at)
        if span is None or span[0] >= len(data) > 0:
            return
        begin = data.rfind(b"\n", 0, span[0]) + 1
        end = data.find(b"\n", span[0])
        end = len(data) if end < 0 else end
        number += data.count(b"\n", counted, begin)
        counted = begin
        yield MatchingLine(number, begin, end, span[0])
        at = end + 1


def excerpts(data: bytes, matches: Sequence[MatchingLine], context: int) -> list[str]:
    """The lines that were found as `12: text`, with up to `context` around each as `13- text`; `--` where some lack."""
    lines: list[str] = []
    last = 0
    for one, following in zip_longest(matches, matches[1:]):
        before = _before(data, one, min(context, one.number - last - 1))
        first = one.number - len(before)
        if context and last and first > last + 1:
            lines.append("--")
        lines += [f"{number}- {_clipped(line)}" for number, line in enumerate(before, first)]
        lines.append(f"{one.number}: {_clipped(data[one.begin : one.end], one.at - one.begin)}")
        most = context if following is None else min(context, following.number - one.number - 1)
        after = _after(data, one, most)
        lines += [f"{number}- {_clipped(line)}" for number, line in enumerate(after, one.number + 1)]
        last = one.number + len(after)
    return lines


def _after(data: bytes, match: MatchingLine, context: int) -> list[bytes]:
    lines: list[bytes] = []
    at = match.end + 1
    while len(lines) < context and at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        lines.append(data[at:end])
        at = end + 1
    return lines


def _before(data: bytes, match: MatchingLine, context: int) -> list[bytes]:
    lines: list[bytes] = []
    end = match.begin - 1
    while len(lines) < context and end >= 0:
        begin = data.rfind(b"\n", 0, end) + 1
        lines.append(data[begin:end])
        end = begin - 1
    return lines[::-1]


def _clipped(line: bytes, at: int = 0) -> str:
    """The line, or the piece of it around `at`."""
    if len(line) <= LONGEST_LINE:
        return line.decode(errors="replace").rstrip("\r")
    begin = max(0, min(at - LONGEST_LINE // 3, len(line) - LONGEST_LINE))
    text = line[begin : begin + LONGEST_LINE].decode(errors="replace").strip("�")
    return f"{'…' if begin else ''}{text}{'…' if begin + LONGEST_LINE < len(line) else ''}"
