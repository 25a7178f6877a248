"""The text in the result of a tool call, and the result again with another text in its place. Pure.

A result has its text in `content` blocks, in `structuredContent`, or in both; servers repeat the one in the other, or
make a block of every item of a list. All of that is one `Document` here, since some clients show the model only the
one and some only the other: both must say the same.

Everything else of the result keeps its bytes: unknown members, blocks of other kinds, their order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import decode_array, decode_fields, encode
from mcpbridge.results.document import Document, read
from mcpbridge.results.exact_json import NotReadable, parse_json, write_json
from mcpbridge.results.header_line import RESULT, defused
from mcpbridge.results.media import downscaled, large_media, link_block

TEXT, STRUCTURED = "text", "structuredContent"
"""Members of the document of a result whose text and `structuredContent` say different things."""

_WRAPPING = 100
"""Bytes for each block by which the same blocks may be longer elsewhere: blanks, null members, the name."""


class _Resource(msgspec.Struct):
    text: object = None
    mime: object = msgspec.field(default=None, name="mimeType")


class _Block(msgspec.Struct):
    type: object = None
    text: object = None
    resource: object = None


_decode_block = msgspec.json.Decoder(_Block).decode


@dataclass(frozen=True, slots=True)
class Block:
    """One content block."""

    raw: Raw
    text: str | None = None
    """What it says, if it is a text or an embedded resource of text; None for all others."""
    mime: str = ""
    """The media type that it names, if any."""
    is_plain: bool = True
    """It is a `text` block, not an embedded resource."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The parts of a result."""

    result: Body = field(default_factory=Body, repr=False)
    """The whole of it; not to be changed."""
    blocks: tuple[Block, ...] = ()
    structured: Raw | None = field(default=None, repr=False)
    """`structuredContent`, if there is one."""
    is_error: bool = False
    repeated_as: str | None = None
    """The only member of `structuredContent`, if that is the blocks once more, images and all."""
    chars: int = 0
    """Characters that a client is shown: of the texts, or of `structuredContent` if that is longer."""

    @property
    def texts(self) -> list[Block]:
        """The blocks that say something."""
        return [block for block in self.blocks if block.text is not None]

    def document(self) -> Document:
        """All that it says, as one document."""
        texts = self.texts
        if self.structured is None or self.repeated_as is not None:
            return _joined(texts)
        structured = str(memoryview(self.structured), "utf-8", "replace")
        if not any((block.text or "").strip() for block in texts):
            return read(structured, "application/json")
        document = _joined(texts)
        try:
            value = parse_json(structured)
        except NotReadable:
            return document
        if _says_the_same(document, value):
            return document
        return _both(document, structured, value)


def contents_of(result: Body) -> Contents:
    """The parts of a result. Never raises: what is no list of blocks has no texts."""
    try:
        listed = result.get("content")
        raws: Sequence[Raw] = decode_array(listed) if listed is not None else ()
        structured = result.get("structuredContent")
        error = result.get("isError")
    except (msgspec.DecodeError, RecursionError):
        return Contents(result)
    if structured is not None and bytes(memoryview(structured)[:1]) == b"n":
        structured = None
    is_error = error is not None and bytes(error) == b"true"
    blocks = tuple(_block(raw) for raw in raws)
    repeated = None if structured is None else _repeated(structured, raws)
    chars = sum(len(block.text or "") for block in blocks)
    if structured is not None and repeated is None:
        chars = max(chars, len(structured))
    return Contents(result, blocks, structured, is_error, repeated, chars)


GivenResult = bytes | Contents
"""A result as a step of the work on it gets it: its bytes, or the parts that a step before has read of them."""


def contents_in(result: GivenResult) -> Contents:
    """The parts of a result; see `contents_of`."""
    return contents_of(Body(result)) if isinstance(result, bytes) else result


def document_of(data: bytes) -> Document:
    """The document of a kept result: the bytes of a whole `tools/call` result."""
    return contents_of(Body(data)).document()


def text_of(data: bytes) -> str:
    """The text of a kept result as the server sent it: its text blocks, or `structuredContent` where it has none."""
    contents = contents_of(Body(data))
    if texts := contents.texts:
        return "\n".join(block.text or "" for block in texts)
    if contents.structured is None or contents.repeated_as is not None:
        return ""
    return str(memoryview(contents.structured), "utf-8", "replace")


def _repeated(structured: Raw, raws: Sequence[Raw]) -> str | None:
    """The only member of `structuredContent`, if that is these blocks. Nothing is parsed where lengths differ much."""
    if not raws or abs(len(structured) - sum(map(len, raws))) > _WRAPPING * len(raws):
        return None
    try:
        ((name, member),) = decode_fields(structured).items()
        again = decode_array(member)
    except (ValueError, RecursionError):  # of which msgspec's errors are some
        return None
    is_same = len(again) == len(raws) and all(map(_is_same, raws, again))
    return name if is_same else None


def _is_same(block: Raw, again: Raw) -> bool:
    if block == again:
        return True
    try:
        return msgspec.json.decode(block) == msgspec.json.decode(again)
    except (ValueError, RecursionError):
        return False


def _block(raw: Raw) -> Block:
    try:
        block = _decode_block(raw)
        if block.type == "text" and isinstance(block.text, str):
            return Block(raw, block.text)
        if block.type == "resource":
            resource = msgspec.convert(block.resource, _Resource)
            if isinstance(resource.text, str):
                mime = resource.mime if isinstance(resource.mime, str) else ""
                return Block(raw, resource.text, mime, is_plain=False)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    return Block(raw)


def _joined(texts: Sequence[Block]) -> Document:
    """The texts as one document; several that are JSON each are the list of them, since servers send lists so."""
    if len(texts) == 1:
        return read(texts[0].text or "", texts[0].mime)
    written = [block.text or "" for block in texts]
    if len(written) > 1 and all(text.lstrip()[:1] in ("{", "[") for text in written):
        whole = f"[{','.join(written)}]"
        try:
            values = parse_json(whole)
        except NotReadable:
            values = None
        if isinstance(values, list) and len(cast("list[Any]", values)) == len(written):
            return Document(whole, "json", values)
    return read("\n".join(written), texts[0].mime if texts else "")


def _says_the_same(document: Document, value: Any) -> bool:
    """Whether `structuredContent` is the value of the text, or wraps it or the text itself as its only member."""
    inner: Any = value
    if isinstance(value, dict) and len(members := cast("dict[str, Any]", value)) == 1:
        (inner,) = members.values()
    if isinstance(inner, str):
        return inner.strip() == document.text.strip()
    return document.is_structured and document.value in (value, inner)


def _both(document: Document, structured: str, value: Any) -> Document:
    """A document of two members, where text and structure differ: nothing of either may be lost."""
    is_json = document.kind in ("json", "ndjson")
    said: Any = document.value if is_json else document.text
    try:
        return Document(write_json({TEXT: said, STRUCTURED: value}), "json", {TEXT: said, STRUCTURED: value})
    except NotReadable:
        return Document(f"{document.text}\n{structured}", "text")


_T = TypeVar("_T")


def text_of_block(text: str, like: Sequence[Block] = ()) -> bytes:
    """A text block, in place of those that are gone; what a single one said about itself is kept."""
    if len(like) == 1 and like[0].is_plain:
        body = Body(like[0].raw)
        body.put("text", text)
        return bytes(body.data)
    return encode({"type": "text", "text": text})


def with_blocks(
    contents: Contents,
    texts: Sequence[bytes | Raw] | None,
    media: Mapping[int, bytes],
    structured: object = None,
    facts: Mapping[str, object] | None = None,
    after: Sequence[bytes] = (),
    *,
    keeps_structure: bool = False,
) -> Body:
    """The result with these texts where its first text stood, and these blocks at their places.

    `texts` None: its own stay. `structured`: in place of `structuredContent`; None: that stays. Where that repeats the
    blocks it repeats the new ones, whatever `structured` is. `keeps_structure`: it stays in any case, for an app.
    `facts`: what programs get in `_meta`. `after`: blocks that come after all others.
    """
    result = Body(contents.result.data)
    result.fields = dict(contents.result.fields)  # split already
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
    blocks = Raw(b"[%b]" % b",".join([*parts, *left, *after]))
    result.put("content", blocks)
    if keeps_structure:
        pass
    elif contents.repeated_as is not None and (media or after or texts is not None):
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


def text_in(block: bytes | Raw) -> str:
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
