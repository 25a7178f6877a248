"""Reading the body of an answer that may be anything: too long, a bomb, in a coding that nobody asked for."""

import zlib
from collections.abc import AsyncIterable, Mapping

import httpx2

__all__ = ["AnswerTooLong", "read_body"]

_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Content codings that are read, and how zlib calls them."""
_RAW_DEFLATE = -15
"""What some servers send as `deflate`: without the header that belongs to it."""


_GZIP = b"\x1f\x8b"
"""What such a file begins with."""
_MOST_STREAMS = 100
"""Compressed files in one answer; each costs a copy of what follows it."""


class AnswerTooLong(Exception):
    """There is more than what is taken."""


async def read_body(pieces: AsyncIterable[bytes], headers: Mapping[str, str], most: int) -> bytes:
    """The whole body, decompressed. No more than `most` bytes of it are ever held, nor read compressed.

    Raises:
        AnswerTooLong: there is more.
        httpx2.DecodingError: its coding is unknown, or broken.
    """
    declared = headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > most):
        raise AnswerTooLong
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return await _plain(pieces, most)
    if coding not in _CODINGS:
        raise httpx2.DecodingError(f"it is in the coding {coding[:40]!r}, which was not asked for")
    inflater, received = _Inflater(_CODINGS[coding], most), 0
    async for piece in pieces:
        received += len(piece)
        if received > most:  # a stream that inflates to nothing has no end either
            raise AnswerTooLong
        inflater.feed(piece)
    return inflater.end()


async def _plain(pieces: AsyncIterable[bytes], most: int) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > most:
            raise AnswerTooLong
    return bytes(body)


class _Inflater:
    """Decompresses piece by piece, and stops at the limit instead of after it."""

    def __init__(self, wbits: int, most: int) -> None:
        self._wbits, self._most = wbits, most
        self._stream = zlib.decompressobj(wbits)
        self._body = bytearray()
        self._behind = b""
        """The first bytes behind a compressed file."""
        self._fed = self._streams = 0

    def feed(self, piece: bytes) -> None:
        """Take one piece."""
        try:
            self._inflate(piece)
        except zlib.error as error:
            if self._wbits != _CODINGS["deflate"] or self._fed:
                raise httpx2.DecodingError(str(error)) from error
            self._wbits = _RAW_DEFLATE
            self._stream = zlib.decompressobj(_RAW_DEFLATE)
            self._again(piece)
        self._fed += len(piece)

    def end(self) -> bytes:
        """All that came of it."""
        if self._fed and not self._stream.eof:
            raise httpx2.DecodingError("it was cut within its compression")
        return bytes(self._body)

    def _again(self, piece: bytes) -> None:
        try:
            self._inflate(piece)
        except zlib.error as error:
            raise httpx2.DecodingError(str(error)) from error

    def _inflate(self, data: bytes) -> None:
        while data:
            if self._stream.eof:
                data = self._behind + data
                self._behind = b"" if data.startswith(_GZIP) else data[: len(_GZIP) - 1]
                if not data.startswith(_GZIP):
                    return  # padding, or the first byte of another file
                self._next_stream()
            self._body += self._stream.decompress(data, self._most + 1 - len(self._body))
            if len(self._body) > self._most:
                raise AnswerTooLong
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail

    def _next_stream(self) -> None:
        """Several compressed files may follow one another (RFC 1952, 2.2)."""
        self._streams += 1
        if self._streams > _MOST_STREAMS:
            raise AnswerTooLong
        self._stream = zlib.decompressobj(self._wbits)
