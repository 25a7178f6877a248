"""A result put together anew: other texts, links in place of large blocks, the same in `structuredContent`; pure.

Everything else of the result stays the bytes that came: unknown members, blocks of other kinds, their order.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.results.contents import Block, Contents
from mcpbridge.results.frame import RESULT, defused
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
    *,
    keeps_structure: bool = False,
) -> Body:
    """The result with these texts where its first text stood, and these blocks at their places.

    `texts` None: its own stay. `structured`: in place of `structuredContent`; None: that stays. Where that repeats the
    blocks it repeats the new ones, whatever `structured` is. `keeps_structure`: it stays in any case, for an app.
    `facts`: what programs are told in `_meta`.
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
    blocks = Raw(b"[%b]" % b",".join([*parts, *left]))
    result.put("content", blocks)
    if keeps_structure:
        pass
    elif contents.repeated_as is not None and (media or texts is not None):
        result.put("structuredContent", {contents.repeated_as: blocks})
    elif structured is not None:
        result.put("structuredContent", structured)
    if facts:
        meta = result.inner("_meta") or Body()
        meta.put(RESULT, facts)
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

    Words are for clients that know no links. `uri`: where the original can be read. `side`: pixels of the longer side
    of smaller images; 0: none are made. Takes a while for images: call it in a thread.
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


def _read(read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
