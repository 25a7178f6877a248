"""Kept results, read and asked: the part of `recall` that takes time, and runs in a thread for large ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec

from mcpbridge.builtin.recall_arguments import Wanted
from mcpbridge.results.document import Document
from mcpbridge.results.document import read as read_text
from mcpbridge.results.frame import uri_of
from mcpbridge.results.pointers import NotThere, pointed_at
from mcpbridge.results.query import QueryRefused, answer, selected
from mcpbridge.results.query_refused import clipped
from mcpbridge.results.query_values import without_halves, written

__all__ = ["Bound", "Reading"]


class _Block(msgspec.Struct):
    type: object = ""
    mime: object = msgspec.field(default="", name="mimeType")
    data: msgspec.Raw = msgspec.Raw()
    resource: Any = None


class _Blocks(msgspec.Struct):
    content: list[_Block] = msgspec.field(default_factory=list[_Block])


@dataclass(frozen=True, slots=True)
class Bound:
    """What an expression works on; see `JavaScript.evaluate`."""

    text: str
    binding: Literal["json", "ndjson", "text"]
    rows: str = ""


class Reading:
    """One call's results."""

    def __init__(self, wanted: Wanted, kept: Mapping[str, bytes], read: Callable[[bytes], Document], room: int) -> None:
        self._wanted, self._kept, self._read, self._room = wanted, kept, read, room

    def answer(self) -> str:
        """What the query says of them, in the room.

        Raises:
            QueryRefused: it cannot be answered.
        """
        media = self._media()
        documents = self._documents()
        if media and not any(document.text for document in documents.values()):
            return clipped(media, self._room)
        if not media:
            return answer(self._wanted.query, documents, self._room).text
        media = clipped(media, self._room // 3)
        return f"{answer(self._wanted.query, documents, self._room - len(media) - 1).text}\n{media}"

    def bound(self) -> Bound:
        """What `_transform` works on: what the query leaves, all of it, or the whole result where nothing is asked.

        Raises:
            QueryRefused: see `answer`.
        """
        documents = self._documents()
        query = self._wanted.query
        if query.lines is not None:
            raise QueryRefused("lines and _transform: give one of them")
        if not query.is_empty:
            return Bound(_sayable(selected(query, documents)), "json")
        if len(documents) > 1:
            values = [document.value if document.is_structured else document.text for document in documents.values()]
            return Bound(_sayable(values), "json")
        (document,) = documents.values()
        match document.kind:
            case "json":
                return Bound(document.text, "json")
            case "ndjson":
                return Bound(document.text, "ndjson")
            case "repr":
                return Bound(_sayable(document.value), "json")
            case _:
                rows = _sayable(document.value) if document.is_structured else ""
                return Bound(without_halves(document.text), "text", rows)

    def fitted(self, output: str) -> str:
        """The output of an expression, cut where it is larger than the room."""
        if len(output) <= self._room:
            return output
        last = f"\n[cut, of {len(output):,} characters: let the expression say less, such as .slice(0, 20)]"
        return output[: max(0, self._room - len(last))] + last

    def _documents(self) -> dict[str, Document]:
        read = {handle: self._read(data) for handle, data in self._kept.items()}
        return {
            f"{handle}#{pointer}" if pointer else handle: _part(read[handle], pointer)
            for handle, pointer in self._wanted.handles
        }

    def _media(self) -> str:
        """What the results hold that is no text, and where it can be had."""
        told: list[str] = []
        for handle, data in self._kept.items():
            parts = [part for block in _blocks(data) if (part := _described(block))]
            if parts:
                told.append(f"{clipped(', '.join(parts), 200)}: read the resource {uri_of(handle)}")
        return f"[also holds {'; '.join(told)}]" if told else ""


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
    return read_text(value) if isinstance(value, str) else Document(_sayable(value), "json", value)


def _sayable(value: Any) -> str:
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
        return f"{block.type} {clipped(str(block.mime), 40)}, {len(block.data):,} bytes of base64"
    resource: Any = block.resource
    if block.type == "resource" and isinstance(resource, dict) and "blob" in resource:
        members = cast("dict[str, Any]", resource)
        mime = clipped(str(members.get("mimeType") or "blob"), 40)
        return f"{mime}, {len(str(members['blob'])):,} bytes of base64"
    return ""
