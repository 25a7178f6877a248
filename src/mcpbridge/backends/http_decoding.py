"""The body of an answer, unpacked no further than it may be large: 200 kB of gzip can stand for 200 MB."""

import zlib
from typing import TYPE_CHECKING

from mcpbridge.errors import UpstreamGarbled

if TYPE_CHECKING:
    import httpx2

__all__ = ["CODINGS", "read_body"]

CODINGS = "gzip, deflate"
"""For `Accept-Encoding`: what is understood here."""
_MOST_STEPS = 100
"""Members of one gzip body that are unpacked."""


async def read_body(upstream: str, response: "httpx2.Response", most: int) -> tuple[bytes, bool]:
    """The unpacked body, and whether it was cut off after `most` bytes.

    Raises:
        UpstreamGarbled: it cannot be unpacked.
        httpx2.HTTPError: the connection broke.
    """
    unpack = _unpacker(upstream, response.headers.get("content-encoding", ""))
    body = bytearray()
    async for piece in response.aiter_raw():
        body += unpack.feed(piece, most + 1 - len(body)) if unpack is not None else piece
        if len(body) > most:
            return bytes(body[:most]), True
    if unpack is not None:
        unpack.end()
    return bytes(body), False


def _unpacker(upstream: str, coding: str) -> "_Unpacker | None":
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return _Unpacker(upstream)
    raise UpstreamGarbled(upstream, f"its answer is packed as {coding[:40]!r}, which was not asked for")


class _Unpacker:
    """Unpacks gzip and deflate, with and without a header."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._stream = zlib.decompressobj(wbits=47)  # finds out which of the two it is
        self._is_fresh = True
        self._members = 1

    def feed(self, data: bytes, most: int) -> bytes:
        """What these bytes stand for, up to `most` bytes of it; the rest is not asked for any more."""
        out = bytearray()
        while data and len(out) < most:
            if self._stream.eof:
                self._members += 1
                if self._members > _MOST_STEPS:
                    raise UpstreamGarbled(self._upstream, "its answer is packed in too many pieces")
                self._stream = zlib.decompressobj(wbits=47)
            try:
                out += self._stream.decompress(data, most - len(out))
            except zlib.error as error:
                if not self._is_fresh:
                    raise UpstreamGarbled(self._upstream, f"its answer cannot be unpacked: {error}") from error
                self._stream = zlib.decompressobj(wbits=-15)  # deflate without a header, as some servers have it
                self._is_fresh = False
                continue
            self._is_fresh = False
            data = self._stream.unused_data or self._stream.unconsumed_tail
        return bytes(out)

    def end(self) -> None:
        """Nothing comes any more."""
        if not self._is_fresh and not self._stream.eof:
            raise UpstreamGarbled(self._upstream, "its answer ends in the middle of what is packed")
