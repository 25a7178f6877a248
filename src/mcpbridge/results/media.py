"""What in a result is no text: images, sounds and other blobs, and the link that stands for one that is too large.

Pure, and nothing is decoded but the beginning of an image, to tell its size.
"""

import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import unquote

from msgspec import Struct

from mcpbridge.results.frame import defused
from mcpbridge.results.media_headers import LARGEST_HEADER, Pixels, image_pixels

__all__ = ["Media", "MediaKind", "decoded_size", "large_media", "link_block", "shown_size"]

MediaKind = Literal["image", "audio", "blob"]
"""`blob`: an embedded resource that is no text."""

_LONGEST_NAME, _LONGEST_URI, _LONGEST_TYPE = 80, 120, 100
"""Characters of what servers call things."""
_UNKNOWN = "application/octet-stream"
_TYPE = re.compile(r"[A-Za-z0-9][\w.+-]*/[A-Za-z0-9][\w.+-]*", re.ASCII)
_BREAK, _LINES = " \t\r\n", 200
_TIDY = str.maketrans("-_", "+/", _BREAK)
"""Line breaks have no place in the base64 of MCP, but are met; so is the alphabet that URLs have."""
_FIRST = 64
"""Characters of base64 that say the size of any image but a JPEG."""
_JPEG = "/9j"
"""How one begins in base64."""

_ENDINGS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "image/bmp": "bmp",
    "image/tiff": "tiff",
    "image/avif": "avif",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/mp4": "m4a",
    "audio/webm": "webm",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "application/gzip": "gz",
}
"""Not those of the `mimetypes` module: it reads files of the machine, and names must be the same on each."""

_TO_DO: Mapping[MediaKind, str] = {"image": "see", "audio": "hear", "blob": "get"}


class Media(Struct, frozen=True):
    """One content block that is no text."""

    index: int
    """Its place among the blocks."""
    kind: MediaKind
    mime: str
    """Its media type; `application/octet-stream` where the server says nothing that is one."""
    size: int
    """Bytes of what it holds."""
    chars: int
    """Characters of the base64, as sent."""
    pixels: Pixels | None = None
    """Of an image, as far as it can be told."""
    uri: str = ""
    """Of an embedded resource: what the server calls it."""
    annotations: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None
    """`_meta` of the block."""


def large_media(blocks: Sequence[Mapping[str, Any]], limit: int) -> list[Media]:
    """The images, sounds and embedded blobs whose base64, as sent, has more than `limit` characters (bytes)."""
    found: list[Media] = []
    for index, block in enumerate(blocks):
        kind = block.get("type")
        if kind in ("image", "audio"):
            holder, data = block, block.get("data")
        elif kind == "resource":
            kind, holder = "blob", _object(block.get("resource")) or {}
            data = holder.get("blob")
        else:
            continue
        if isinstance(data, str) and len(data) > limit:
            found.append(_media(index, kind, block, holder, data))
    return found


def link_block(media: Media, uri: str) -> dict[str, Any]:
    """The `resource_link` that stands for a block whose original can be read at `uri` (MCP 2025-06-18, tools)."""
    of = f", {_printable(media.uri, _LONGEST_URI)}" if media.uri else ""
    pixels = f", {media.pixels[0]} × {media.pixels[1]}" if media.pixels else ""
    link: dict[str, Any] = {
        "type": "resource_link",
        "uri": uri,
        "name": _name(media),
        "description": f"{media.mime}, {shown_size(media.size)}{pixels}{of}: kept; "
        f"read the resource to {_TO_DO[media.kind]} it",
        "mimeType": media.mime,
        "size": media.size,
    }
    if media.annotations is not None:
        link["annotations"] = media.annotations
    if media.meta is not None:
        link["_meta"] = media.meta
    return link


def decoded_size(data: str) -> int:
    """Bytes that this base64 stands for, without decoding it."""
    # Lines are at most 76 characters long (RFC 2045): where the first ones have no end, there is none.
    breaks = sum(map(data.count, _BREAK)) if any(map(data[:_LINES].__contains__, _BREAK)) else 0
    padding = data[-8:].count("=")
    return max(0, (len(data) - breaks - padding) * 3 // 4)


def shown_size(size: int) -> str:
    """About so many bytes, as people say it: `812 bytes`, `4.2 KB`, `1.2 MB` (1000 based)."""
    if size < 1000:
        return f"{size} bytes"
    value, unit = size / 1000, "KB"
    for larger in ("MB", "GB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"


def _media(index: int, kind: MediaKind, block: Mapping[str, Any], holder: Mapping[str, Any], data: str) -> Media:
    said, uri = holder.get("mimeType"), holder.get("uri")
    is_type = isinstance(said, str) and len(said) <= _LONGEST_TYPE and _TYPE.fullmatch(said)
    mime = cast("str", said) if is_type else _UNKNOWN
    return Media(
        index,
        kind,
        mime,
        decoded_size(data),
        len(data),
        pixels=_pixels_of(data) if kind == "image" or mime.startswith("image/") else None,
        uri=uri if kind == "blob" and isinstance(uri, str) else "",
        annotations=_object(block.get("annotations")),
        meta=_object(block.get("_meta")),
    )


def _pixels_of(data: str) -> Pixels | None:
    for chars in (_FIRST, LARGEST_HEADER // 3 * 4):
        head = data[:chars].translate(_TIDY)
        try:
            pixels = image_pixels(binascii.a2b_base64(head[: len(head) // 4 * 4]))
        except ValueError:  # of which binascii.Error is one
            return None
        if pixels is not None or not head.startswith(_JPEG):
            return pixels
    return None


def _name(media: Media) -> str:
    last = unquote(media.uri.split("?")[0].split("#")[0].rstrip("/").rsplit("/", 1)[-1]) if media.uri else ""
    if "/" not in last and "\\" not in last and (name := _printable(last, _LONGEST_NAME)):
        return name
    return f"{media.kind}-{media.index + 1}.{_ENDINGS.get(media.mime.lower(), 'bin')}"


def _printable(text: str, longest: int) -> str:
    """On one line, without what cannot be seen or looks like ours, and not longer than so many characters."""
    head = text[: 4 * longest]
    words = " ".join(_seen(head).split())
    return defused(words if len(words) <= longest and len(head) == len(text) else f"{words[: longest - 1]}…")


def _seen(text: Iterable[str]) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _object(value: object) -> Mapping[str, Any] | None:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None
