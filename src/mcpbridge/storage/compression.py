"""How the bytes of a value are written: plain or compressed. The method is kept beside each value.

The fastest level of zlib takes tool results to a sixth at some 180 MB a second; its slower levels gain a tenth of
that and take twice the time. Where Python brings zstd (3.14) it does better; an older Python that shares the file
cannot read such values.
"""

import importlib
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from mcpbridge.storage.store import BytesLike

PLAIN, _ZLIB, _ZSTD = 0, 1, 2
"""The forms; numbers that are in files."""

_WORTHWHILE = 1024
"""Bytes from which a value is compressed."""
_LEVEL = 1
_CHUNK = 1024**2
"""Bytes that are compressed in one go: the output grows with what comes of it, and the input is not copied."""
_SAMPLE = 256 * 1024
"""Bytes after which it shows whether to continue."""
_GAIN = 0.95
"""What is not smaller than this part of itself stays as it is: a picture, say."""
_LARGEST_RATIO = 1100
"""Deflate makes at most 1032 bytes of one: a size beyond that is a lie, not a reason to allocate it."""
_LARGE = 1024**2
"""Bytes of a value from which it has to wait for others like it, and small ones do not wait for it."""
_LARGE_AT_ONCE, _SMALL_AT_ONCE = 2, 8
"""Values that are compressed or opened at the same time."""

_T = TypeVar("_T")


class Unreadable(Exception):
    """Bytes that are not what they should be. The message says why, and nothing of what they are."""


class Workers:
    """Threads for what takes long with a value, beside the event loop and beside the thread of the file."""

    def __init__(self) -> None:
        self._limiters: tuple[anyio.CapacityLimiter, anyio.CapacityLimiter] | None = None

    async def run(self, function: Callable[..., _T], *args: Any, size: int) -> _T:
        """Call a pure function of a value of so many bytes. Who is cancelled meanwhile does not wait for its end."""
        if self._limiters is None:  # they belong to an event loop, and there may be none yet when a store is made
            self._limiters = anyio.CapacityLimiter(_SMALL_AT_ONCE), anyio.CapacityLimiter(_LARGE_AT_ONCE)
        limiter = self._limiters[size > _LARGE]
        return await anyio.to_thread.run_sync(partial(function, *args), limiter=limiter, abandon_on_cancel=True)


def pack(body: BytesLike) -> tuple[int, BytesLike]:
    """The form and the bytes to write. Takes long for large values: for a worker thread."""
    if not is_worth_packing(body):
        return PLAIN, body
    zstd = _zstd()
    form, compressor = (_ZSTD, zstd.ZstdCompressor()) if zstd else (_ZLIB, zlib.compressobj(_LEVEL))
    parts: list[bytes] = []
    read = written = 0
    for chunk in _chunks(body):
        part = compressor.compress(chunk)
        parts.append(part)
        read, written = read + len(chunk), written + len(part)
        if written > read * _GAIN:
            return PLAIN, body
    parts.append(compressor.flush())
    data = b"".join(parts)
    return (form, data) if len(data) < len(body) * _GAIN else (PLAIN, body)


def is_worth_packing(body: BytesLike) -> bool:
    """Whether it is long enough to be compressed."""
    return len(body) >= _WORTHWHILE


def unpack(form: int, data: bytes, size: int) -> bytes:
    """The value of `size` bytes again.

    Raises:
        Unreadable: it is damaged, or was written in a way that this Python cannot read.
    """
    if form == PLAIN:
        body = data
    elif form == _ZLIB:
        body = _inflated(data, size)
    elif form == _ZSTD:
        body = _unpacked_zstd(data, size)
    else:
        raise Unreadable(f"it is written in an unknown form, {form}")
    if len(body) != size:
        raise Unreadable("it is damaged: its size is not what it was")
    return body


def _chunks(body: BytesLike) -> Iterator[memoryview]:
    view, at, step = memoryview(body), 0, _SAMPLE
    while at < len(view):
        yield view[at : at + step]
        at, step = at + step, _CHUNK


def _inflated(data: bytes, size: int) -> bytes:
    if not 0 <= size <= len(data) * _LARGEST_RATIO:
        raise Unreadable("it is damaged: no such size can come of it")
    try:
        return zlib.decompress(data, bufsize=max(1, size))  # one buffer, of the right size
    except zlib.error as error:
        raise Unreadable(f"it is damaged: {error}") from error


@cache
def _zstd() -> Any:
    """Python's own zstd, if it has it."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        return None


def _unpacked_zstd(data: bytes, size: int) -> bytes:
    zstd = _zstd()
    if zstd is None:
        raise Unreadable("it was compressed with zstd, which Python has from 3.14 on")
    try:
        return zstd.ZstdDecompressor().decompress(data, size + 1)
    except (zstd.ZstdError, EOFError, OverflowError, MemoryError) as error:
        raise Unreadable(f"it is damaged: {error}") from error
