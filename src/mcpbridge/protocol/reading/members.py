"""Finds the members of a message, and those of its result, in JSON that comes in parts. Sans-I/O.

The JSON is checked elsewhere. Of broken JSON any members may come out.
"""

import re

from msgspec import Struct

DEEPER = 3
"""So many brackets are open around what is no member of the message or of one of its members."""
_TOKEN = re.compile(rb'"[^"]*"|[\[\]{}:,]')
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"[^"]*+")*+[\[\]{}]')
"""What is before a bracket, and the bracket."""
_QUOTE, _COLON, _COMMA = b'":,'
_OPENING = b"[{"


class Span(Struct, frozen=True, gc=False):
    """Where the value of a member is, with the blanks around it."""

    key: bytes
    """The name as it is written, with its quotes."""
    start: int
    end: int


class MemberReader:
    """Reads the parts that lie less than `DEEPER`; others need not be shown to it."""

    def __init__(self) -> None:
        self.outer: list[Span] = []
        """Members of the message."""
        self.inner: dict[int, list[Span]] = {}
        """Members of those that are objects, by their place among `outer`."""
        self._lists: list[list[Span] | None] = [None, self.outer, None]
        """Where the members of each level go; None: it has none."""
        self._keys = [b""] * DEEPER
        self._starts = [-1] * DEEPER
        """Where the value of a member begins, on each level; -1: its name is waited for."""

    def read(self, data: bytes, clean: bytes, base: int, depth: int) -> None:
        """Read a part, which begins where `depth` brackets are open and is at `base` in the message.

        It holds no part of a string. `clean`: the same without escaped quotes.
        """
        at = 0
        while at >= 0:
            at, depth = (
                self._skip(clean, at, depth) if depth >= DEEPER else self._read_members(data, clean, at, base, depth)
            )

    def _skip(self, clean: bytes, at: int, depth: int) -> tuple[int, int]:
        """Pass over what lies deeper. The place and depth where that ends; -1: not in this part."""
        # Not searched for: where there is no bracket, a search would begin anew at each byte.
        while (found := _TO_BRACKET.match(clean, at)) is not None:
            at = found.end()
            depth += 1 if clean[at - 1] in _OPENING else -1
            if depth < DEEPER:
                return at, depth
        return -1, depth

    def _read_members(self, data: bytes, clean: bytes, at: int, base: int, depth: int) -> tuple[int, int]:
        """Read on until it gets deeper; the same answer."""
        for found in _TOKEN.finditer(clean, at):
            at = found.start()
            token = clean[at]
            if token in _OPENING:
                depth += 1
                if depth == 2:
                    is_object = token == 0x7B and self._starts[1] >= 0
                    self._lists[2] = self.inner.setdefault(len(self.outer), []) if is_object else None
                    self._starts[2] = -1
                elif depth >= DEEPER:
                    return found.end(), depth
            elif token == _QUOTE:
                if self._starts[depth] < 0:
                    self._keys[depth] = data[at : found.end()]
            elif token == _COLON:
                self._starts[depth] = base + at + 1
            else:
                self._end_value(depth, base + at)
                if token != _COMMA:
                    depth = max(0, depth - 1)
        return -1, depth

    def waits_for_name(self, depth: int) -> bool:
        """Whether a string that begins at this depth is the name of a member."""
        return depth in (1, 2) and self._starts[depth] < 0

    def name(self, depth: int, key: bytes) -> None:
        """Take the name of the next member at this depth, which was too long to be read in one part."""
        self._keys[depth] = key

    def _end_value(self, depth: int, at: int) -> None:
        if depth and self._starts[depth] >= 0:
            members = self._lists[depth]
            if members is not None:
                members.append(Span(self._keys[depth], self._starts[depth], at))
            self._starts[depth] = -1
