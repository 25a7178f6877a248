"""The head of a message that was read and judged, to recognise the next one with the same head. Pure.

A client sends the same head with nearly every call on its connection, and a server with nearly every answer; only the
length of the body differs. What the parser and the rules said of the one holds for the other, byte for byte, so neither
is asked again. Whatever is not exactly that (another header, a body in several chunks, two messages in one read) is no
match, and is parsed.
"""

import re

_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]*)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding[ \t]*:[ \t]*chunked\r\n", re.IGNORECASE)
_FRAMING = re.compile(rb"\r\n(?:content-length|transfer-encoding)[ \t]*:", re.IGNORECASE)
_HEXADECIMAL = re.compile(rb"[1-9a-fA-F][0-9a-fA-F]*")
_LONGEST = 9
"""Digits of a length."""
_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class RepeatedHead:
    """One head, without the digits of its length."""

    __slots__ = ("_after", "_before", "_is_chunked")

    def __init__(self, before: bytes, after: bytes, *, is_chunked: bool = False) -> None:
        """`before`: all up to the digits; `after`: all between them and the body."""
        self._before, self._after, self._is_chunked = before, after, is_chunked

    @classmethod
    def of(cls, data: bytes, size: int) -> "RepeatedHead | None":
        """The head of a message that came whole in this one read, and has a body of so many bytes.

        None: its length is not there once, as a plain number, nor is its body one chunk.
        """
        end = data.find(_END) + len(_END)
        head = data[:end]
        if len(_FRAMING.findall(head)) != 1:
            return None
        if len(data) == end + size:
            match = _LENGTH.search(head)
            if match is None or match[1] != b"%d" % size:
                return None
            return cls(head[: match.start(1)], head[match.end(1) :])
        is_one_chunk = len(data) - end == len(b"%x\r\n" % size) + size + len(_LAST_CHUNK)
        if size and is_one_chunk and _CHUNKED.search(head) is not None:
            known = cls(head, b"\r\n", is_chunked=True)
            return known if known.body_in(data) is not None else None
        return None

    def body_in(self, data: bytes) -> bytes | None:
        """The body of a message that has this head and is whole; None: it has another, or there is more or less."""
        before, after = self._before, self._after
        if not data.startswith(before):
            return None
        begin = len(before)
        end = data.find(b"\r", begin, begin + _LONGEST + 1)
        digits = data[begin:end]
        if end < 0 or not data.startswith(after, end):
            return None
        if self._is_chunked:
            if _HEXADECIMAL.fullmatch(digits) is None or not data.endswith(_LAST_CHUNK):
                return None
            body = data[end + len(after) : -len(_LAST_CHUNK)]
            return body if len(body) == int(digits, 16) else None
        if not digits.isdigit():
            return None
        body = data[end + len(after) :]
        return body if len(body) == int(digits) else None
