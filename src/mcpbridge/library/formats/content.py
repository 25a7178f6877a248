"""The content of a result, as pieces that messages to a model can carry: text, and data that the format takes. Pure.

Nothing is left out without a word: what a format cannot carry is told in text, with its type, size and address.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from mcpbridge.toolcalls import CallResult

__all__ = ["Media", "id_of", "pieces_of", "said", "text_alone"]

NOTHING = "(no content)"
FAILED = "Error: "


class Media(Struct, frozen=True):
    """Data that is no text."""

    data: str
    """Base64."""
    type: str
    """MIME type, in lower case, without parameters."""
    name: str
    """How to speak of it: its address, or what it is."""

    @property
    def is_image(self) -> bool:
        """Whether it is a picture."""
        return self.type.startswith("image/")

    @property
    def url(self) -> str:
        """It, as a `data:` address."""
        return f"data:{self.type};base64,{self.data}"


def pieces_of(result: CallResult[Any], takes: Callable[[str], bool]) -> list[str | Media]:
    """The content in order. `takes`: whether the format carries data of a MIME type."""
    pieces = [piece for block in result.content for piece in _pieces(block, takes)]
    return pieces or [NOTHING if result.structured is None else _json(result.structured)]


def text_alone(pieces: Sequence[str | Media], *, is_error: bool = False) -> str:
    """The texts among the pieces, a line break between two; an error that does not say so is made to."""
    text = "\n".join(piece for piece in pieces if isinstance(piece, str))
    return said(text, is_error=is_error)


def said(text: str, *, is_error: bool) -> str:
    """The text; where the format has no mark for errors, it begins with one."""
    return f"{FAILED}{text}" if is_error and not text.lstrip().lower().startswith("error") else text


def id_of(result: CallResult[Any]) -> str:
    """The model's id of the call that a result is of; empty for one that is of none."""
    return result.call.id if result.call is not None else ""


def _pieces(block: Mapping[str, Any], takes: Callable[[str], bool]) -> Iterator[str | Media]:
    match block.get("type"):
        case "text":
            text = str(block.get("text") or "")
            if text.strip():
                yield text
        case "image" | "audio":
            yield from _data(block, str(block.get("data") or ""), str(block["type"]), takes)
        case "resource_link":
            yield _link(block)
        case "resource":
            yield from _resource(block.get("resource") or {}, takes)
        case _:
            yield _json(block)


def _resource(resource: Mapping[str, Any], takes: Callable[[str], bool]) -> Iterator[str | Media]:
    address = str(resource.get("uri") or "resource")
    if "blob" in resource:
        yield from _data(resource, str(resource.get("blob") or ""), address, takes)
    else:
        yield f"[{address}]\n{resource.get('text') or ''}"


def _data(block: Mapping[str, Any], data: str, name: str, takes: Callable[[str], bool]) -> Iterator[str | Media]:
    kind = str(block.get("mimeType") or "application/octet-stream").split(";")[0].strip().lower()
    if not takes(kind):
        yield f"[{name}: {kind}, {_size(data)}; it cannot be shown to this model]"
        return
    if ":" in name:
        yield f"[{name}]"
    yield Media(data, kind, name)


def _link(block: Mapping[str, Any]) -> str:
    told = [str(block.get("title") or block.get("name") or ""), str(block.get("mimeType") or "")]
    about = ", ".join(part for part in told if part)
    text = f"[resource {block.get('uri')}{f': {about}' if about else ''}]"
    return f"{text} {block['description']}" if block.get("description") else text


def _size(data: str) -> str:
    size = len(data.rstrip("=")) * 3 // 4
    return f"{size:,} bytes" if size < 10_000 else f"{size // 1000:,} kB"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
