"""The same value in fewer characters: nothing is lost, and it can be turned back."""

from dataclasses import dataclass
from typing import Literal

from mcpbridge.results.document import Document
from mcpbridge.results.exact_json import NotReadable, write_json

__all__ = ["Form", "Lossless", "shortest"]

Form = Literal["as sent", "minified", "table"]


@dataclass(frozen=True, slots=True)
class Lossless:
    """A rewriting that loses nothing."""

    form: Form
    text: str


def shortest(document: Document) -> Lossless:
    """The shortest of: as it was sent, minified, as a table. Never longer than the original."""
    if document.kind == "json":
        try:
            text = write_json(document.value)
        except NotReadable:
            return Lossless("as sent", document.text)
        if len(text) < len(document.text):
            return Lossless("minified", text)
    return Lossless("as sent", document.text)
