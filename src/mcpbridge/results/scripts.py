"""A document as a script gets it; pure."""

from dataclasses import dataclass
from typing import Literal

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import NotReadable, write_json

__all__ = ["Source", "script_input"]


@dataclass(frozen=True, slots=True)
class Source:
    """What `JavaScript.evaluate` is given; see there."""

    text: str
    binding: Literal["json", "ndjson", "text"]
    rows: str = ""


def script_input(document: Document) -> Source:
    """`result` is the value of JSON, JSON lines and Python values, and the text of everything else.

    CSV and tables bring their rows as well, as a list of objects.
    """
    try:
        if document.kind == "json" and document.text.lstrip()[:1] in ("{", "[", '"'):
            return Source(document.text, "json")
        if document.kind in ("json", "repr"):
            return Source(write_json(document.value), "json")
        if document.kind == "ndjson":
            return Source(document.text, "ndjson")
        if document.is_structured:
            return Source(document.text, "text", write_json(document.value))
    except NotReadable:
        pass
    return Source(document.text, "text")
