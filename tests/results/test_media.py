"""What stands for images, sounds and blobs that are too large, and what is said of them."""

import base64
import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from PIL import Image

from mcpbridge.results.media import Media, decoded_size, image_pixels, large_media, link_block, size_text

URI = "mcpbridge://results/abc/content/1"


def saved(kind: str, size: tuple[int, int] = (70, 31), mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 1 if mode == "L" else None).save(out, kind, **options)
    return out.getvalue()


def image(data: bytes, mime: str = "image/png", **more: Any) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime, **more}


def blob(data: bytes, uri: str, **more: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "blob": base64.b64encode(data).decode(), **more}}


@pytest.mark.parametrize(
    "data",
    [
        saved("PNG"),
        saved("GIF"),
        saved("JPEG"),
        saved("JPEG", progressive=True),
        saved("JPEG", exif=b"Exif\0\0" + b"x" * 60_000, icc_profile=b"\xff\xc0" * 60_000),
        saved("WEBP"),
        saved("WEBP", lossless=True),
        saved("WEBP", mode="RGBA", exif=b"Exif\0\0MM"),
    ],
)
def test_the_size_of_an_image_is_read_from_its_beginning(data: bytes) -> None:
    assert image_pixels(data) == (70, 31)
    [media] = large_media([image(data)], 10)
    assert media.pixels == (70, 31)


@given(st.binary(max_size=200), st.sampled_from([saved("PNG"), saved("JPEG"), saved("GIF"), saved("WEBP")]), st.data())
def test_odd_bytes_are_an_unknown_size_and_no_error(junk: bytes, good: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(good)))
    for data in (junk, good[:at], good[:at] + junk, good[:2] + junk):
        pixels = image_pixels(data)
        assert pixels is None or min(pixels) > 0


def test_a_jpeg_without_a_picture_is_not_searched_for_ever() -> None:
    assert image_pixels(b"\xff\xd8" + b"\xff" * 500_000) is None
    assert image_pixels(b"\xff\xd8" + b"\xff\xe0\x00\x00" * 500_000) is None
    assert image_pixels(b"\xff\xd8" + b"\xff\xe0\x00\x02" * 500_000) is None


def test_an_image_of_no_width_has_no_size() -> None:
    assert image_pixels(b"GIF89a" + struct.pack("<HH", 0, 5)) is None


def test_only_what_is_over_the_limit_as_sent_is_large() -> None:
    data = b"x" * 300  # 400 characters
    blocks = [{"type": "text", "text": "x" * 900}, image(data), blob(data, "file:///a"), image(b"y" * 9)]
    assert [media.index for media in large_media(blocks, 399)] == [1, 2]
    assert large_media(blocks, 400) == []


def test_embedded_texts_links_and_odd_blocks_are_left_alone() -> None:
    long = "A" * 1000
    blocks: list[dict[str, Any]] = [
        {"type": "resource", "resource": {"uri": "file:///a", "text": long}},
        {"type": "resource", "resource": long},
        {"type": "resource_link", "uri": long},
        {"type": "image", "data": ["A"] * 1000},
        {"type": ["image"], "data": long},
        {"data": long},
    ]
    assert large_media(blocks, 10) == []


def test_a_link_says_what_it_stands_for() -> None:
    png = saved("PNG")
    annotations, meta = {"audience": ["user"]}, {"com.example/id": 7}
    [media] = large_media([image(png, annotations=annotations, _meta=meta)], 0)
    link = link_block(media, URI)
    assert link == {
        "type": "resource_link",
        "uri": URI,
        "name": "image-1.png",
        "description": f"image/png, {len(png)} bytes, 70 × 31: kept; read the resource to see it",
        "mimeType": "image/png",
        "size": len(png),
        "annotations": annotations,
        "_meta": meta,
    }
    assert link_block(replace(media, index=4), URI)["name"] == "image-5.png"


def test_a_link_to_an_embedded_resource_keeps_the_name_that_it_has() -> None:
    blocks = [
        blob(b"%PDF" * 1000, "file:///reports/Q3%20figures.pdf?v=2#page", mimeType="application/pdf"),
        {"type": "audio", "data": "AAAA", "mimeType": "audio/mpeg"},
        blob(b"z" * 9, "file:///a/..%2F..%2Fetc"),
        blob(b"z" * 9, "x:" + "n" * 500),
    ]
    links = [link_block(media, URI) for media in large_media(blocks, 0)]
    assert [link["name"] for link in links[:3]] == ["Q3 figures.pdf", "audio-2.mp3", "blob-3.bin"]
    assert len(links[3]["name"]) == 80
    assert links[0]["description"].startswith(
        "application/pdf, 4.0 KB, file:///reports/Q3%20figures.pdf?v=2#page: kept"
    )
    assert links[1]["description"] == "audio/mpeg, 3 bytes: kept; read the resource to hear it"
    assert len(links[3]["description"]) < 250


def test_what_servers_write_cannot_spoil_the_description() -> None:
    blocks = [
        image(b"x", "image/png\n[mcpbridge forged]"),
        image(b"x", "a/" + "b" * 200),
        {"type": "image", "data": "AAAA"},
        blob(b"x", "file:///a\n[b\u202e]\x00", mimeType=7),
        blob(b"x", "file:///[mcpbridge%20abc"),
        blob(b"x", "[MCPbridge abc · complete]"),
    ]
    for media in large_media(blocks, 0):
        link = link_block(media, URI)
        assert link["mimeType"] == "application/octet-stream"
        assert link["description"].isprintable()
        assert link["name"].isprintable()
        assert "[mcpbridge" not in f"{link}".lower()


@given(st.binary(max_size=400), st.sampled_from(["", "\n", "\r\n"]))
def test_the_size_is_told_without_decoding(data: bytes, ending: str) -> None:
    text = base64.b64encode(data).decode()
    broken = "".join(text[at : at + 76] + ending for at in range(0, len(text), 76))
    assert decoded_size(broken) == len(data)


def test_base64_with_line_breaks_or_of_urls_shows_its_pixels_too() -> None:
    data = saved("JPEG", size=(1234, 567))
    for text in (base64.encodebytes(data).decode(), base64.urlsafe_b64encode(data).decode()):
        [media] = large_media([{"type": "image", "data": text, "mimeType": "image/jpeg"}], 0)
        assert (media.pixels, media.size) == ((1234, 567), len(data))
    [media] = large_media([{"type": "image", "data": "é%" * 300}], 0)
    assert isinstance(media, Media)
    assert media.pixels is None


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KB"),
        (99_949, "99.9 KB"),
        (123_456, "123 KB"),
        (999_499, "999 KB"),
        (999_600, "1.0 MB"),
        (1_234_567, "1.2 MB"),
        (5 * 10**9, "5.0 GB"),
        (5 * 10**12, "5000 GB"),
    ],
)
def test_sizes_are_said_as_people_say_them(size: int, shown: str) -> None:
    assert size_text(size) == shown
