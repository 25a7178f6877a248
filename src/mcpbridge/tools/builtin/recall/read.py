"""Reads and queries kept results: the part of `recall` that takes time, and runs in a thread for large ones."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from mcpbridge.results.content import document_of
from mcpbridge.results.document import Document
from mcpbridge.results.document import read as read_text
from mcpbridge.results.errors import QueryRefused, clipped
from mcpbridge.results.exact_json import NotThere, pointed_at
from mcpbridge.results.header_line import uri_of
from mcpbridge.results.query.query import answer, selected
from mcpbridge.results.query.script_input import Source, script_input
from mcpbridge.results.query.terms import written
from mcpbridge.tools.builtin.recall.arguments import Wanted

MEDIA_NAMED = 5
"""Pictures and the like that an answer mentions."""


class _Block(msgspec.Struct):
    type: object = ""
    mime: object = msgspec.field(default="", name="mimeType")
    data: msgspec.Raw = msgspec.Raw()
    resource: Any = None


class _Blocks(msgspec.Struct):
    content: list[_Block] = msgspec.field(default_factory=list[_Block])


class Reading:
    """One call's results."""

    def __init__(
        self,
        wanted: Wanted,
        results: Mapping[str, bytes],
        room: int,
        read: Callable[[bytes], Document] | None = None,
    ) -> None:
        """`results`: the results by handle. `read`: the document of one; None: `document_of`."""
        self._wanted, self._read = wanted, read or document_of
        self.results, self.room = results, room

    @property
    def size(self) -> int:
        """Bytes of all results."""
        return sum(map(len, self.results.values()))

    def answer(self) -> str:
        """What the query says of them, in the room.

        Raises:
            QueryRefused: it cannot be answered.
        """
        media = self._media()
        documents = self._documents()
        if media and not any(document.text for document in documents.values()):
            return clipped(media, self.room)
        if not media:
            return answer(self._wanted.query, documents, self.room).text
        media = clipped(media, self.room // 3)
        return f"{answer(self._wanted.query, documents, self.room - len(media) - 1).text}\n{media}"

    def bound(self) -> Source:
        """What `_transform` works on: what the query leaves, all of it, or the whole result where nothing is asked.

        Raises:
            QueryRefused: see `answer`.
        """
        documents = self._documents()
        query = self._wanted.query
        if query.lines is not None:
            raise QueryRefused("lines and _transform: give one of them")
        if not query.is_empty:
            return Source(_as_text(selected(query, documents)), "json")
        if len(documents) > 1:
            values = [document.value if document.is_structured else document.text for document in documents.values()]
            return Source(_as_text(values), "json")
        (document,) = documents.values()
        return script_input(document)

    def fitted(self, output: str) -> str:
        """The output of an expression, cut where it is larger than the room."""
        if len(output) <= self.room:
            return output
        last = f"\n[cut, of {len(output):,} characters: let the expression say less, such as .slice(0, 20)]"
        return output[: max(0, self.room - len(last))] + last

    def _documents(self) -> dict[str, Document]:
        read = {handle: self._read(data) for handle, data in self.results.items()}
        return {
            f"{handle}#{pointer}" if pointer else handle: _part(read[handle], pointer)
            for handle, pointer in self._wanted.handles
        }

    def _media(self) -> str:
        """What the results hold that is no text, and where each can be had."""
        parts = [
            f"{lines}: {uri_of(handle)}/content/{place}"
            for handle, data in self.results.items()
            for place, block in enumerate(_blocks(data))
            if (lines := _described(block))
        ]
        if not parts:
            return ""
        more = f"; {len(parts) - MEDIA_NAMED} more" if len(parts) > MEDIA_NAMED else ""
        return f"[also holds {'; '.join(parts[:MEDIA_NAMED])}{more}; read these resources]"


def _part(document: Document, pointer: str) -> Document:
    """What a pointer finds in a document: a text of its own, if it is one."""
    if not pointer:
        return document
    if not document.is_structured:
        raise QueryRefused(f"#{clipped(pointer)}: this is {document.kind}, which has no fields; use find or lines")
    try:
        value = pointed_at(document.value, pointer)
    except NotThere as error:
        raise QueryRefused(str(error)) from None
    return read_text(value) if isinstance(value, str) else Document(_as_text(value), "json", value)


def _as_text(value: Any) -> str:
    try:
        return written(value)
    except RecursionError:
        raise QueryRefused("nested too deep: give a path into it") from None


def _blocks(data: bytes) -> list[_Block]:
    try:
        return msgspec.json.decode(data, type=_Blocks).content
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _described(block: _Block) -> str:
    if block.type in ("image", "audio"):
        return f"{block.type} {clipped(str(block.mime), 40)}, {max(0, len(block.data) - 2):,} bytes of base64"
    resource: Any = block.resource
    if block.type == "resource" and isinstance(resource, dict) and "blob" in resource:
        members = cast("dict[str, Any]", resource)
        mime = clipped(str(members.get("mimeType") or "blob"), 40)
        return f"{mime}, {len(str(members['blob'])):,} bytes of base64"
    return ""
