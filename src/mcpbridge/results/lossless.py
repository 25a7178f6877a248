"""The same value in fewer characters: nothing is lost, and it can be turned back."""

import zlib
from typing import Any, Literal

from msgspec import Struct

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import NotReadable, write_json

__all__ = ["Form", "Lossless", "shortest"]

Form = Literal["as sent", "minified", "table"]


class Lossless(Struct, frozen=True):
    """A rewriting that loses nothing."""

    form: Form
    text: str


_LARGEST = 4 * 1024**2
"""Characters of a text above which no table is tried."""
_LARGER = 300
"""How many times the room a text may be at most to be tried: nothing but the plainest counting is shortened more."""
_SAMPLE = 64 * 1024
"""Characters that tell whether a text can fit at all, from its beginning, its middle and its end."""


def shortest(document: Document, room: int | None = None) -> Lossless:
    """The shortest of: as it was sent, minified, as a table or an outline. Never longer than the original.

    `room`: what fits, in characters. If nothing does, this is the text as sent, and where that is plain from the first
    it costs next to nothing. A table is only given if it was turned back and was the same value, to the last digit; of
    texts without a value, the same text.
    """
    text = document.text
    if room is not None and _hopeless(text, room):
        return Lossless("as sent", text)
    if document.kind == "listing":
        return _listing(text, room)
    if not document.is_structured:
        return Lossless("as sent", text)
    try:
        plain = write_json(document.value)
    except NotReadable:
        return Lossless("as sent", text)
    best = Lossless("as sent", text)
    if document.kind in ("json", "ndjson", "repr") and len(plain) < len(text):
        best = Lossless("minified", plain)
    most = len(best.text) if room is None else min(room, len(best.text))
    table = _table(document.value, plain, most) if len(text) <= _LARGEST else None
    if table is not None:
        best = Lossless("table", table)
    return best


def _table(value: Any, plain: str, most: int) -> str | None:
    """The table form, if it is no longer than `most` and the way back from it leads to the same value.

    The way back takes as long as the way there, so it is only gone if the table is of use.
    """
    from mcpbridge.results.table_form import table_form  # loaded with the first large result
    from mcpbridge.results.table_restore import restore

    try:
        text = table_form(value, len(plain))
        if len(text) <= most and len(text) < len(plain) and write_json(restore(text, "table")) == plain:
            return text
    except (NotReadable, RecursionError):
        return None
    return None


def _listing(text: str, room: int | None) -> Lossless:
    from mcpbridge.results.table_paths import paths_form, paths_restored

    most = len(text) - 1 if room is None else min(room, len(text) - 1)
    if len(text) <= _LARGEST and text.count("\n") <= most:  # every path keeps a line
        found = paths_form(text)
        if len(found) <= most and paths_restored(found) == text:
            return Lossless("table", found)
    return Lossless("as sent", text)


def _hopeless(text: str, room: int) -> bool:
    """Whether a text says too much to be told in so much room.

    A measure of what it says is what it can be compressed to: a table holds every word once in full, which takes more
    characters than the bytes of the compressed text. It is wrong for what can be counted on (1, 2, 3, …) and little
    else; such a text gets a preview although a table would do.
    """
    if len(text) > _LARGER * room:
        return True
    part = _SAMPLE // 3
    middle = len(text) // 2
    sample = text if len(text) <= _SAMPLE else text[:part] + text[middle : middle + part] + text[-part:]
    return len(zlib.compress(sample.encode(errors="replace"), 1)) > 1.5 * room
