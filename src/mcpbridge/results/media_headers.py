"""How many pixels an image has, told from its first bytes: PNG, JPEG, GIF and WebP; pure.

Nothing is decoded, and what is odd is unknown: the bytes are a server's.
"""

import struct

__all__ = ["LARGEST_HEADER", "Pixels", "image_pixels"]

Pixels = tuple[int, int]
"""Width and height, as they are stored: a photo that says it lies on its side is not turned."""

LARGEST_HEADER = 768 * 1024
"""Bytes that are worth looking at: before its size, a JPEG may hold a profile and a preview."""

_MAX_SEGMENTS = 1000
_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that begin a frame, and so say its size; the three left out mean other things."""
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))
"""JPEG markers without a length."""


def image_pixels(head: bytes) -> Pixels | None:
    """Width and height of the image that begins so; None when that cannot be told."""
    try:
        pixels = _pixels(head)
    except (struct.error, IndexError):
        return None
    return pixels if pixels and min(pixels) > 0 else None


def _pixels(head: bytes) -> Pixels | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return struct.unpack_from(">II", head, 16)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return struct.unpack_from("<HH", head, 6)
    if head.startswith(b"\xff\xd8"):
        return _jpeg(head)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp(head)
    return None


def _jpeg(head: bytes) -> Pixels | None:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if head[at] != 0xFF:
            return None
        kind = head[at + 1]
        if kind == 0xFF:  # padding
            at += 1
        elif kind in _ALONE:
            at += 2
        elif kind in _SIZES:
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        elif kind in (0xD9, 0xDA):  # the picture itself, or its end
            return None
        else:
            (length,) = struct.unpack_from(">H", head, at + 2)
            at += 2 + max(2, length)
    return None


def _webp(head: bytes) -> Pixels | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + struct.unpack("<I", head[27:30] + b"\0")[0]
    if kind == b"VP8L" and head[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", head, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None
