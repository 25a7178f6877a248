"""The text of a result, read: what kind of text it is, and its value where it has one.

Everything that looks into results (previews, recall, transforms, references) looks at a `Document`.
"""

from dataclasses import dataclass
from typing import Any, Literal

from mcpbridge.results.exact_json import NotReadable, parse_json

__all__ = ["STRUCTURED", "Document", "Kind", "read"]

Kind = Literal["json", "ndjson", "csv", "repr", "table", "log", "html", "listing", "diff", "markdown", "text"]
"""`ndjson`: JSON lines; `repr`: a Python value as Python writes it; `table`: a Markdown table and little else;
`listing`: paths, one a line; the rest says itself."""

STRUCTURED: frozenset[Kind] = frozenset(("json", "ndjson", "csv", "repr", "table"))
"""Kinds that have a value."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text, read."""

    text: str
    """As it was sent."""
    kind: Kind
    value: Any = None
    """JSON, NDJSON (a list) and repr: the value, numbers being int or Decimal; CSV and tables: a list of objects whose
    values are strings, ints or Decimals; other kinds: None."""

    @property
    def is_structured(self) -> bool:
        """It has a value."""
        return self.kind in STRUCTURED


def read(text: str, mime: str = "") -> Document:
    """Read a text. Never raises: what cannot be parsed is `text`. `mime`: what the server says it is, if anything."""
    head = text.lstrip()[:1]
    if head and head in '{["':
        try:
            return Document(text, "json", parse_json(text))
        except NotReadable:
            pass
    return Document(text, "text", None)
