"""Finds a text or a regular expression in the bytes of files, in linear time, and shows the lines around. Pure."""

from collections.abc import Callable, Generator, Sequence
from itertools import zip_longest
from typing import Any, cast

from msgspec import Struct

__all__ = ["Found", "Matcher", "WrongPattern", "excerpts", "found_in"]

LONGEST, MEMORY = 1000, 8 * 1024**2
"""Characters of a pattern; bytes that it and its automaton may take."""

LONGEST_LINE = 300
"""Characters of a line that are shown, those around what was found."""


class WrongPattern(ValueError):
    """No pattern that can be looked for; the message says why, for a model."""


class Matcher:
    """Where something stands in bytes that are UTF-8."""

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
        """Where it first stands at or after `start`; None if it does not."""
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


class Found(Struct, frozen=True):
    """One line that something stands in."""

    number: int
    """Of the line, from 1."""
    begin: int
    """Where the line begins in the data."""
    end: int
    """And ends, without its line end."""
    at: int
    """Where in the data it was found."""


def found_in(data: bytes, matcher: Matcher, look: Callable[[], None] = lambda: None) -> Generator[Found]:
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
        yield Found(number, begin, end, span[0])
        at = end + 1


def excerpts(data: bytes, found: Sequence[Found], context: int) -> list[str]:
    """The lines that were found as `12: text`, with up to `context` around each as `13- text`; `--` where some lack."""
    lines: list[str] = []
    last = 0
    for one, following in zip_longest(found, found[1:]):
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


def _after(data: bytes, found: Found, context: int) -> list[bytes]:
    lines: list[bytes] = []
    at = found.end + 1
    while len(lines) < context and at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        lines.append(data[at:end])
        at = end + 1
    return lines


def _before(data: bytes, found: Found, context: int) -> list[bytes]:
    lines: list[bytes] = []
    end = found.begin - 1
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
