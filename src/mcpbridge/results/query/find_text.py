"""Finds a text, in any case of letters, or a regular expression in a text, and says where it is.

Expressions take linear time, whatever the pattern and the text (RE2): Python's own engine can be kept busy for hours
by thirty characters.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol, cast

from mcpbridge.results.errors import QueryRefused, clipped
from mcpbridge.results.query.limits import PATTERN_GROUPS, PATTERN_LENGTH, PATTERN_MEMORY, SEARCH_SECONDS
from mcpbridge.results.query.terms import without_halves


class Patience:
    """How long may be looked for something."""

    __slots__ = ("_clock", "_end")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._end = clock, 0.0

    def look(self) -> None:
        """Once for each text; time runs from the first on.

        Raises:
            QueryRefused: there is none left.
        """
        if not self._end:
            self._end = self._clock() + SEARCH_SECONDS
        elif self._clock() > self._end:
            raise QueryRefused(
                f"this takes longer than {SEARCH_SECONDS:g} s: give a path or where that leaves less to look through, "
                "a simpler pattern, or find in place of regex"
            )


class Finder(Protocol):
    """Looks for something in texts."""

    def first(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Where it first occurs at or after `start`; None if it does not."""
        ...


class Plain:
    """A piece of text, in upper or lower case."""

    def __init__(self, wanted: str, patience: Patience | None = None) -> None:
        self._wanted, self._patience = wanted.lower(), patience or Patience()

    def first(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """See `Finder`."""
        self._patience.look()
        at = text.lower().find(self._wanted, start)
        return None if at < 0 else (at, at + len(self._wanted))


class Regex:
    """A regular expression (RE2's syntax: no look-around, no back references)."""

    def __init__(self, pattern: str, patience: Patience | None = None) -> None:
        """Compile it.

        Raises:
            QueryRefused: it is wrong, too large, or there is no engine.
        """
        if len(pattern) > PATTERN_LENGTH:
            raise QueryRefused(f"regex: longer than {PATTERN_LENGTH} characters")
        try:
            import re2
        except ImportError:
            raise QueryRefused("no regular expressions here: `google-re2` is not installed; use find=TEXT") from None
        engine = cast("Any", re2)
        options = engine.Options()
        options.max_mem, options.log_errors = PATTERN_MEMORY, False
        try:
            self._compiled: Any = engine.compile(without_halves(pattern), options)
        except engine.error as error:
            raise QueryRefused(f"regex {clipped(pattern)!r}: {_reason(error)}") from None
        if self._compiled.groups > PATTERN_GROUPS:
            raise QueryRefused(f"regex: at most {PATTERN_GROUPS} groups (…); (?:…) groups without catching")
        self._patience = patience or Patience()
        named = {number: name for name, number in self._compiled.groupindex.items()}
        self._names: list[str] = [named.get(number, str(number)) for number in range(1, self._compiled.groups + 1)]

    def first(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """See `Finder`."""
        self._patience.look()
        found = self._compiled.search(without_halves(text), start)
        return None if found is None else found.span()

    def groups(self, text: str, start: int = 0) -> dict[str, str | None]:
        """What its groups caught at the first match at or after `start`, by name or number; nothing without a match."""
        self._patience.look()
        found = self._compiled.search(without_halves(text), start)
        return {} if found is None else dict(zip(self._names, found.groups(), strict=True))


def _reason(error: Exception) -> str:
    said: object = error.args[0] if error.args else ""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    if "(?" in text or "escape sequence: \\" in text:
        text += " (no look-around and no back references: the engine is RE2)"
    return text
