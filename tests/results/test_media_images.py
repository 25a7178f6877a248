"""Images that are scaled down (the extra `images`)."""

import base64
import io
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from mcpbridge.results.media import IMAGE, downscaled

URI = "mcpbridge://results/abc/content/0"


def noise(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    """A picture that does not pack well."""
    return Image.effect_noise(size, 80).convert(mode)


def block_of(picture: Image.Image, kind: str, **options: Any) -> dict[str, Any]:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return {"type": "image", "data": base64.b64encode(out.getvalue()).decode(), "mimeType": Image.MIME[kind]}


def opened(block: dict[str, Any] | None) -> Image.Image:
    assert block is not None
    return Image.open(io.BytesIO(base64.b64decode(block["data"], validate=True)))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("PNG", "RGB"),
        ("PNG", "RGBA"),
        ("PNG", "L"),
        ("PNG", "LA"),
        ("PNG", "P"),
        ("PNG", "I;16"),
        ("PNG", "1"),
        ("JPEG", "RGB"),
        ("JPEG", "L"),
        ("JPEG", "CMYK"),
        ("WEBP", "RGB"),
        ("WEBP", "RGBA"),
    ],
)
def test_the_longer_side_is_scaled_down_and_the_format_stays(kind: str, mode: str) -> None:
    picture = noise((640, 480), "L").convert("I").convert("I;16") if mode == "I;16" else noise((640, 480), mode)
    block = block_of(picture, kind)
    side = 80 if mode == "1" else 200  # bits pack better than the greys that they become
    smaller = downscaled(block, side, URI)
    picture = opened(smaller)
    assert picture.format == kind
    assert picture.size == (side, side * 3 // 4)
    assert smaller is not None
    assert smaller["mimeType"] == block["mimeType"]
    size = len(base64.b64decode(block["data"]))
    told = {"uri": URI, "width": 640, "height": 480, "size": size, "mimeType": block["mimeType"]}
    assert smaller["_meta"][IMAGE] == told


def test_what_the_block_says_beside_stays() -> None:
    block = block_of(noise((300, 900)), "PNG") | {"annotations": {"priority": 1}, "_meta": {"a": 1}}
    smaller = downscaled(block, 100, URI)
    assert smaller is not None
    assert opened(smaller).size == (33, 100)
    assert smaller["annotations"] == {"priority": 1}
    assert smaller["_meta"]["a"] == 1
    assert block["_meta"] == {"a": 1}


def test_the_same_image_gives_the_same_bytes() -> None:
    block = block_of(noise((500, 500)), "JPEG")
    assert downscaled(block, 100, URI) == downscaled(block, 100, URI)


def test_a_photo_is_turned_as_its_exif_data_says_and_says_no_more() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a secret camera"
    picture = noise((600, 300))
    picture.paste((255, 0, 0), (0, 0, 300, 300))
    smaller = opened(downscaled(block_of(picture, "JPEG", exif=exif), 100, URI))
    assert smaller.size == (50, 100)
    assert not smaller.getexif()
    red = smaller.convert("RGB").getpixel((25, 10))
    assert isinstance(red, tuple)
    assert red[0] > 200
    assert red[1] < 60


def test_an_animation_becomes_its_first_frame_and_says_so() -> None:
    frames = [noise((300, 200), "L") for _ in range(3)]
    block = block_of(frames[0], "GIF", save_all=True, append_images=frames[1:])
    smaller = downscaled(block, 90, URI)
    assert smaller is not None
    assert smaller["mimeType"] == "image/png"
    assert opened(smaller).size == (90, 60)
    assert not getattr(opened(smaller), "is_animated", False)
    assert smaller["_meta"][IMAGE]["note"] == "the first frame of an animation"
    assert smaller["_meta"][IMAGE]["mimeType"] == "image/gif"


def bomb() -> dict[str, Any]:
    """Ten thousand million pixels, told in a few bytes."""
    return block_of(Image.new("1", (10, 10)), "PNG") | {
        "data": base64.b64encode(
            base64.b64decode(block_of(Image.new("1", (10, 10)), "PNG")["data"]).replace(
                (10).to_bytes(4) + (10).to_bytes(4), (100_000).to_bytes(4) + (100_000).to_bytes(4)
            )
        ).decode()
    }


def truncated() -> dict[str, Any]:
    block = block_of(noise((400, 400)), "PNG")
    return block | {"data": block["data"][:4000]}


def spoiled() -> dict[str, Any]:
    block = block_of(noise((400, 400)), "PNG")
    data = bytearray(base64.b64decode(block["data"]))
    data[60:] = random.Random(1).randbytes(len(data) - 60)
    return block | {"data": base64.b64encode(data).decode()}


@pytest.mark.parametrize(
    "make",
    [
        bomb,
        truncated,
        spoiled,
        lambda: {"type": "image", "data": "no base64 at all", "mimeType": "image/png"},
        lambda: {"type": "image", "data": 7},
        lambda: {"type": "audio", "data": block_of(noise((400, 400)), "PNG")["data"]},
        lambda: block_of(noise((400, 400)), "TIFF"),
        lambda: block_of(noise((50, 90)), "PNG"),
        lambda: block_of(Image.new("RGB", (101, 101)), "PNG"),
    ],
    ids=["bomb", "truncated", "spoiled", "junk", "no text", "no image", "other format", "small", "nothing to gain"],
)
def test_what_cannot_or_need_not_be_scaled_is_left_to_the_caller(make: Callable[[], dict[str, Any]]) -> None:
    assert downscaled(make(), 100, URI) is None


def test_without_pillow_nothing_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    block = block_of(noise((400, 400)), "PNG")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert downscaled(block, 100, URI) is None
