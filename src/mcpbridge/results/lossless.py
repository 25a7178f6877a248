"""The same value in fewer characters: nothing is lost, and it can be turned back."""

import zlib
from dataclasses import dataclass
from typing import Any, Literal

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import NotReadable, write_json

__all__ = ["Form", "Lossless", "shortest"]

Form = Literal["as sent", "minified", "table"]


@dataclass(frozen=True, slots=True)
class Lossless:
    """A rewriting that loses nothing."""

    form: Form
    text: str


_LARGEST = 4 * 1024**2
"""Characters of a text above which no table is tried."""
_SAMPLE = 64 * 1024
"""Characters that tell whether a text can fit at all."""


def shortest(document: Document, room: int | None = None) -> Lossless:
    """The shortest of: as it was sent, minified, as a table. Never longer than the original.

    `room`: what fits, in characters. If it is plain that nothing does, this is the text as sent, and costs next to
    nothing. A table is only given if it was turned back and was the same value, to the last digit.
    """
    text = document.text
    if not document.is_structured or (room is not None and (len(text) <= room or _hopeless(text, room))):
        return Lossless("as sent", text)
    try:
        plain = write_json(document.value)
    except NotReadable:
        return Lossless("as sent", text)
    table = _table(document.value, plain) if len(text) <= _LARGEST else None
    best = Lossless("as sent", text)
    if document.kind in ("json", "ndjson", "repr") and len(plain) < len(text):
        best = Lossless("minified", plain)
    if table is not None and len(table) < len(best.text):
        best = Lossless("table", table)
    return best


def _table(value: Any, plain: str) -> str | None:
    """The table form, if the way back from it leads to the same value."""
    from mcpbridge.results.table_form import table_form  # loaded with the first large result
    from mcpbridge.results.table_restore import restore

    try:
        text = table_form(value)
        if len(text) < len(plain) and write_json(restore(text, "table")) == plain:
            return text
    except (NotReadable, RecursionError):
        return None
    return None


def _hopeless(text: str, room: int) -> bool:
    """Whether the beginning says too much to be told in so much room.

    A measure of what it says is what it can be compressed to: a table holds every word once in full, which takes more
    characters than the bytes of the compressed text. It is wrong for what can be counted on (1, 2, 3, …) and little
    else; such a text gets a preview although a table would do.
    """
    return len(zlib.compress(text[:_SAMPLE].encode(errors="replace"), 1)) > 1.5 * room
