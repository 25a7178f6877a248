"""The head of a request that was read and let in, to recognise the next one with the same head. Pure.

A client sends the same head with nearly every call on its connection; only the length of the body differs. What the
parser and the rules said of the one holds for the other, byte for byte, so neither is asked again. Whatever is not
exactly that (another header, a body that comes in parts, two requests in one read) is no match, and is parsed.
"""

import re

_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]*)", re.IGNORECASE)
_LONGEST = 9
"""Digits of a length."""


class RepeatedHead:
    """One head, without the digits of its length."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: bytes, after: bytes) -> None:
        """`before`: all up to the digits; `after`: all behind them, with the empty line."""
        self._before, self._after = before, after

    @classmethod
    def of(cls, data: bytes, size: int) -> "RepeatedHead | None":
        """The head of a request that came whole in this one read, and has a body of so many bytes.

        None: its length is not there once, as a plain number.
        """
        head = data[: len(data) - size]
        found = _LENGTH.findall(head)
        match = _LENGTH.search(head)
        if match is None or len(found) != 1 or match[1] != b"%d" % size or not head.endswith(b"\r\n\r\n"):
            return None
        return cls(head[: match.start(1)], head[match.end(1) :])

    def body_in(self, data: bytes) -> bytes | None:
        """The body of a request that has this head and is whole; None: it has another, or there is more or less."""
        before, after = self._before, self._after
        if not data.startswith(before):
            return None
        begin = len(before)
        end = data.find(b"\r", begin, begin + _LONGEST + 1)
        digits = data[begin:end]
        if end < 0 or not digits.isdigit() or not data.startswith(after, end):
            return None
        body = data[end + len(after) :]
        return body if len(body) == int(digits) else None
