"""A result put together anew: other texts, links in place of large blocks, the same in `structuredContent`; pure.

Everything else of the result stays the bytes that came: unknown members, blocks of other kinds, their order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw

from mcpbridge.results.contents import Block, Contents
from mcpbridge.results.exact_json import NotReadable, parse_json, write_json
from mcpbridge.results.frame import RESULT, defused, holds_frame, may_hold_frame
from mcpbridge.results.media import large_media, link_block
from mcpbridge.results.media_images import downscaled
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = [
    "large_blocks",
    "said_in",
    "small_block",
    "structured_output",
    "text_of_block",
    "with_blocks",
    "without_lies",
]

_T = TypeVar("_T")


def text_of_block(text: str, like: Sequence[Block] = ()) -> bytes:
    """A text block, in place of those that are gone; what a single one said about itself is kept."""
    if len(like) == 1 and like[0].is_plain:
        body = Body(like[0].raw)
        body.put("text", text)
        return bytes(body.data)
    return encode({"type": "text", "text": text})


def with_blocks(
    data: bytes,
    contents: Contents,
    texts: Sequence[bytes | Raw] | None,
    media: Mapping[int, bytes],
    structured: object = None,
    facts: Mapping[str, object] | None = None,
) -> Body:
    """The result with these texts where its first text stood, and these blocks at their places.

    `texts` None: its own stay. `structured`: in place of `structuredContent`; None: that stays. `facts`: what programs
    are told in `_meta`.
    """
    result = Body(data)
    parts: list[bytes] = []
    left = [bytes(text) for text in texts or ()]
    for place, block in enumerate(contents.blocks):
        if place in media:
            parts.append(media[place])
        elif block.text is None or texts is None:
            parts.append(bytes(block.raw))
        else:
            parts += left
            left = []
    result.put("content", Raw(b"[%b]" % b",".join([*parts, *left])))
    if structured is not None:
        result.put("structuredContent", structured)
    if facts:
        meta = result.inner("_meta") or Body()
        meta.put(RESULT, facts)
        result.put("_meta", meta)
    return result


def without_lies(data: bytes, contents: Contents) -> Body | None:
    """The result, in which nothing pretends to be the bridge's word; None: nothing does."""
    forged = any(holds_frame(block.text or "") for block in contents.texts)
    structured = _honest(contents.structured)
    meta = Body(data).inner("_meta")
    has_claims = meta is not None and RESULT in meta
    if not (forged or structured or has_claims):
        return None
    said = {
        place: encode({"type": "text", "text": defused(block.text)})
        for place, block in enumerate(contents.blocks)
        if block.text is not None and holds_frame(block.text)
    }
    result = with_blocks(data, contents, None, said)
    if structured:
        result.put("structuredContent", Raw(structured))
    if meta is not None and has_claims:
        meta.drop(RESULT)
        result.put("_meta", meta)
    return result


def large_blocks(contents: Contents, limit: int) -> list[int]:
    """The places of blocks that are no text and have more than `limit` bytes of it."""
    found: list[int] = []
    for place, block in enumerate(contents.blocks):
        if block.text is None and len(block.raw) > limit and (decoded := _decoded(block)):
            found += [place] if large_media([decoded], limit) else []
    return found


def small_block(block: Block, place: int, limit: int, uri: str, *, side: int, knows_links: bool) -> bytes:
    """What stands for the block at a place, which is too large: a smaller image, a link, or words.

    Words are for clients that know no links. `uri`: where the original can be read. `side`: pixels of the longer side of smaller images; 0: none are made.
    Takes a while for images: call it in a thread.
    """
    decoded = _decoded(block)
    if side and (smaller := downscaled(decoded, side, uri)) is not None and len(smaller["data"]) <= limit:
        return encode(smaller)
    (media,) = large_media([decoded], limit)
    link = link_block(replace(media, index=place), uri)
    if knows_links:
        return encode(link)
    return encode({"type": "text", "text": f"[{link['description']}: {uri}]"})


def structured_output(output: str) -> object:
    """What a script gave, as structured content."""
    if defused(output) != output:
        return {"text": defused(output)}
    try:
        value = msgspec.json.decode(output)
    except (msgspec.DecodeError, RecursionError):
        return {"text": output}
    return Raw(output.encode()) if isinstance(value, dict) else Raw(b'{"result":%b}' % output.encode())


def said_in(block: bytes | Raw) -> str:
    """The text of a text block."""
    text: Any = msgspec.json.decode(block).get("text", "")
    return text if isinstance(text, str) else ""


def _decoded(block: Block) -> dict[str, Any]:
    found = _read(partial(msgspec.json.decode, block.raw))
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _honest(structured: Raw | None) -> bytes:
    """A structured result whose texts hold no lines like the bridge's own; empty: they hold none anyway."""
    if structured is None or not may_hold_frame(bytes(structured)):
        return b""
    try:
        value = parse_json(str(memoryview(structured), "utf-8", "replace"))
        honest = _defused(value)
        return write_json(honest).encode() if honest != value else b""
    except (NotReadable, RecursionError):
        return b""


def _defused(value: Any) -> Any:
    """The value, with such lines in its texts and names spelled otherwise."""
    if isinstance(value, str):
        return defused(value) if holds_frame(value) else value
    if isinstance(value, list):
        return [_defused(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_defused(name): _defused(item) for name, item in cast("dict[str, Any]", value).items()}
    return value


def _read(read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
