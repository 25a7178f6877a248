"""What a tool answered, in pieces that a page can show. Pure.

Everything in a result is a server's: texts are shown as texts, images of kinds that hold no script as images, and all
else by what it is. Links are written out, not made to be clicked.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from mcpbridge.app.console.shown_text import pretty_json
from mcpbridge.app.console.tool_calls import Made
from mcpbridge.base.json_values import decoded

_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Kinds that can hold no script."""
_LARGEST_PICTURE = 4 * 1024**2
_BLOCKS = 50
TEXT = 50_000
"""Characters of one text that are shown."""


class Block(Struct, frozen=True):
    """One piece."""

    kind: str
    """`text`, `json`, `image`, or what the server calls it."""
    text: str = ""
    address: str = ""
    """Of an image: a `data:` address."""
    title: str = ""


def blocks_of(outcome: Made) -> Sequence[Block]:
    """The pieces of a result, or of an error."""
    try:
        value: object = decoded(outcome.result)
    except (msgspec.DecodeError, RecursionError):
        return (Block("text", outcome.result.decode("utf-8", "replace")),)
    if not isinstance(value, dict):
        return (Block("json", pretty_json(value)),)
    result = cast("Mapping[str, Any]", value)
    if "code" in result and "message" in result and "content" not in result:
        return (Block("text", str(result["message"]), title=f"Error {result['code']}"),)
    content = result.get("content")
    items = cast("list[object]", content) if isinstance(content, list) else []
    blocks = [block for item in items[:_BLOCKS] for block in _blocks(item)]
    if len(items) > _BLOCKS:
        blocks.append(Block("text", "", title=f"{len(items) - _BLOCKS:,} more pieces are not shown"))
    if result.get("structuredContent") is not None:
        blocks.append(Block("json", pretty_json(result["structuredContent"]), title="Structured content"))
    return tuple(blocks) or (Block("text", "", title="The result is empty"),)


def _blocks(item: object) -> Iterator[Block]:
    if not isinstance(item, dict):
        yield Block("json", pretty_json(item))
        return
    block = cast("Mapping[str, Any]", item)
    kind = str(block.get("type", ""))[:40]
    if kind == "text" and isinstance(block.get("text"), str):
        yield Block("text", block["text"])
    elif kind == "image":
        yield _picture(block)
    elif kind == "resource" and isinstance(inner := block.get("resource"), dict):
        resource = cast("Mapping[str, Any]", inner)
        title = f"Resource {resource.get('uri', '')}"
        text = resource.get("text")
        yield Block("text", text if isinstance(text, str) else f"{_size(resource.get('blob'))} bytes", title=title)
    elif kind == "resource_link":
        said = " – ".join(str(block[key]) for key in ("name", "description") if block.get(key))
        yield Block("text", f"{block.get('uri', '')}\n{said}".rstrip(), title="Link to a resource")
    elif kind == "audio":
        yield Block("text", f"{_size(block.get('data'))} bytes of {block.get('mimeType', 'audio')}", title="Audio")
    else:
        yield Block("json", pretty_json(block), title=kind)


def _picture(block: Mapping[str, Any]) -> Block:
    kind, data = str(block.get("mimeType", "")).lower(), block.get("data")
    size = _size(data)
    if kind in _PICTURES and isinstance(data, str) and 0 < len(data) <= _LARGEST_PICTURE:
        try:
            plain = base64.b64encode(base64.b64decode(data, validate=True)).decode()
            return Block("image", f"{size:,} bytes of {kind}", f"data:{kind};base64,{plain}", "Image")
        except (binascii.Error, ValueError):
            pass
    return Block("text", f"{size:,} bytes of {kind[:100]}, which is not shown", title="Image")


def _size(data: object) -> int:
    return len(data) * 3 // 4 if isinstance(data, str) else 0
