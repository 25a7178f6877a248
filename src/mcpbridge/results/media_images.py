"""Smaller images in place of large ones, where the extra `images` (Pillow) is installed.

The images are a server's, so only formats are opened whose size is told beforehand, and none of more pixels than fit
into memory well. All of this takes a while: call it in a thread.
"""

import base64
import io
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from mcpbridge.logs import get_logger
from mcpbridge.results.media_headers import LARGEST_HEADER, image_pixels

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["IMAGE", "downscaled"]

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
        image = whole.point(lambda grey: grey * (1 / 256)).convert("L")  # pyright: ignore[reportUnknownMemberType]
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
