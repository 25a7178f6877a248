"""From the result of a tool call to the text that is in it, and back: the result with another text in its place.

A result says what it says in `content` blocks, in `structuredContent`, or in both; servers repeat the one in the other,
or make a block of every item of a list. All of that is one `Document` here, since some clients show the model only the
one and some only the other: both must tell the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.results.document import Document, read
from mcpbridge.results.exact_json import NotReadable, parse_json, write_json
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import decode_batch, decode_fields

__all__ = ["Block", "Contents", "contents_of", "document_of", "text_of"]

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
        raws: Sequence[Raw] = decode_batch(listed) if listed is not None else ()
        structured = result.get("structuredContent")
        error = result.get("isError")
    except (msgspec.DecodeError, RecursionError):
        return Contents()
    if structured is not None and bytes(memoryview(structured)[:1]) == b"n":
        structured = None
    is_error = error is not None and bytes(error) == b"true"
    blocks = tuple(_block(raw) for raw in raws)
    repeated = None if structured is None else _repeated(structured, raws)
    chars = sum(len(block.text or "") for block in blocks)
    if structured is not None and repeated is None:
        chars = max(chars, len(structured))
    return Contents(blocks, structured, is_error, repeated, chars)


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
        again = decode_batch(member)
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
