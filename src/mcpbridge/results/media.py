"""Images, sounds and other blobs in a result: their size, the link that replaces a large one, and smaller images.

The bytes are a server's. Sizes are read from the first bytes alone (PNG, JPEG, GIF, WebP), nothing is decoded for
them, and what is odd is unknown. Only `downscaled` decodes images, if the extra `images` (Pillow) is installed: formats
whose size is known beforehand, and no image of more pixels than fit well into memory. That takes a while: call it in a
thread.
"""

import base64
import binascii
import io
import re
import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote

from msgspec import Struct

from mcpbridge.base.log import get_logger
from mcpbridge.results.header_line import defused

if TYPE_CHECKING:
    from PIL.Image import Image


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
    """Width and height of the image that begins so; None if that is not known."""
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
    """Of an image, as far as it is known."""
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
        "description": f"{media.mime}, {size_text(media.size)}{pixels}{of}: kept; "
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


def size_text(size: int) -> str:
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


log = get_logger("mcpbridge.results")

IMAGE = "mcpbridge/image"
"""In `_meta` of a smaller image: `width`, `height`, `mimeType` and `size` (bytes) of the original, and its `uri`."""

_MOST_PIXELS = 64_000_000
_MOST_CHARS = 128 << 20
"""Characters of base64; nothing larger is opened."""
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
_QUALITY = 85
_one_at_a_time = threading.Lock()
"""One of the largest takes some 300 MB while it is scaled."""


def downscaled(block: Mapping[str, Any], side: int, uri: str) -> dict[str, Any] | None:
    """The image block with its longer side scaled down to `side` pixels; `uri`: where the original can be read.

    It stays the format that it is, but of a GIF it is the first frame, as PNG. Turned as its EXIF data says, without
    that data. None: Pillow is not installed, it cannot be read, it is that small already, or it would not get smaller.
    """
    data = block.get("data")
    if block.get("type") != "image" or not isinstance(data, str) or side < 1 or len(data) > _MOST_CHARS:
        return None
    try:
        with _one_at_a_time:
            return _downscaled(block, data, side, uri)
    except ImportError:
        return None
    except Exception as error:  # noqa: BLE001 - decoders raise whatever comes to them; then the image is not scaled
        log.info("an image cannot be scaled", error=type(error).__name__)
        return None


def _downscaled(block: Mapping[str, Any], data: str, side: int, uri: str) -> dict[str, Any] | None:
    from PIL import Image, ImageOps

    original = base64.b64decode(data)
    told = image_pixels(original[:LARGEST_HEADER])
    if told is None or told[0] * told[1] > _MOST_PIXELS or max(told) <= side:
        return None
    with Image.open(io.BytesIO(original), formats=_FORMATS) as image:
        if image.width * image.height > _MOST_PIXELS or max(image.size) <= side:
            return None
        source = "JPEG" if image.format == "MPO" else image.format or "PNG"  # MPO: a JPEG of two pictures
        is_animated = bool(getattr(image, "is_animated", False)) and image.format != "MPO"
        width, height = image.size
        target = source if source in _TYPES else "PNG"
        if target == "JPEG":
            image.draft(None, (2 * side, 2 * side))  # decodes no more than is needed
        smaller = _painted(ImageOps.exif_transpose(image), target)
    smaller.thumbnail((side, side), Image.Resampling.LANCZOS)
    written = _written(smaller, target)
    if len(written) >= len(original):
        return None
    facts: dict[str, Any] = {"uri": uri, "width": width, "height": height, "size": len(original)}
    facts |= {"mimeType": Image.MIME.get(source, block.get("mimeType"))}
    if is_animated:
        facts["note"] = "the first frame of an animation"
    meta = block.get("_meta")
    kept: Mapping[str, Any] = cast("Mapping[str, Any]", meta) if isinstance(meta, dict) else {}
    return {
        **block,
        "data": base64.b64encode(written).decode(),
        "mimeType": _TYPES[target],
        "_meta": {**kept, IMAGE: facts},
    }


def _painted(image: "Image", target: str) -> "Image":
    """In colours that can be scaled, and that the format can write."""
    if image.mode.startswith("I"):  # 16 bits of grey
        whole = image.convert("I")
        image = whole.point(lambda grey: grey * (1 / 256)).convert("L")  # pyright: ignore[reportUnknownMemberType] - the stub lacks the types of `point`
    if target == "JPEG":
        return image if image.mode in ("L", "RGB") else image.convert("RGB")
    if image.mode in ("L", "LA", "RGB", "RGBA"):
        return image
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _written(image: "Image", target: str) -> bytes:
    out = io.BytesIO()
    image.info.clear()  # no profile, no EXIF data, no comments
    if target == "PNG":
        image.save(out, target, optimize=True)
    else:
        image.save(out, target, quality=_QUALITY)
    return out.getvalue()
