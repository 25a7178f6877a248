"""Reads the text of a result: what kind of text it is, and its value if it has one.

Everything that looks into results (previews, recall, transforms, references) works on a `Document`. The parsers of
the single formats are in `parsers.py`.
"""

from typing import Any, Literal

from msgspec import Struct

from mcpbridge.results.exact_json import NotReadable, parse_json

Kind = Literal["json", "ndjson", "csv", "repr", "table", "log", "html", "listing", "diff", "markdown", "text"]
"""`ndjson`: JSON lines; `repr`: a Python value as Python writes it; `table`: a Markdown table and little else;
`listing`: paths, one a line; the rest says itself."""

STRUCTURED: frozenset[Kind] = frozenset(("json", "ndjson", "csv", "repr", "table"))
"""Kinds that have a value."""


class Document(Struct, frozen=True):
    """One text, read."""

    text: str
    """As it was sent."""
    kind: Kind
    value: Any = None
    """JSON, NDJSON (a list) and repr: the value, numbers being int or Decimal; CSV and tables: a list of objects whose
    values are strings, ints or Decimals; other kinds: None."""
    around: tuple[str, str] = ("", "")
    """What is before and after the value in the text, such as a heading: `Found 33 results:`. JSON, repr and
    tables only. If both are empty, the text is the value and nothing else."""

    @property
    def is_structured(self) -> bool:
        """It has a value."""
        return self.kind in STRUCTURED


def read(text: str, mime: str = "") -> Document:
    """Read a text. Never raises: what cannot be parsed is `text`. `mime`: what the server says it is, if anything."""
    mime = mime.partition(";")[0].strip().lower()
    head = text[:200].lstrip("\ufeff \t\r\n")[:1] or text.lstrip()[:1]
    if head and head in '{[("':
        document = _read_value(text, head)
        if document is not None:
            return document
    from mcpbridge.results.parsers import read_csv, read_embedded, read_markdown_table

    found = read_embedded(text)
    if found is not None:
        return Document(text, "json", found.value, found.around)
    rows = read_csv(text, mime)
    if rows is not None:
        return Document(text, "csv", rows)
    table = read_markdown_table(text)
    if table is not None:
        return Document(text, "table", table.value, table.around)
    return Document(text, _kind_of(text, mime))


def _read_value(text: str, head: str) -> Document | None:
    """JSON, JSON lines, or what Python prints."""
    if head in "{[":
        try:
            value = parse_json(text.lstrip("\ufeff"))
        except (NotReadable, ArithmeticError):
            pass
        else:
            return Document(text, "json", value)
        from mcpbridge.results.parsers import read_lines

        lines = read_lines(text)
        if lines is not None:
            return Document(text, "ndjson", lines)
    if head in "{[(":
        from mcpbridge.results.parsers import read_python

        value = read_python(text)
        if value is not None:
            return Document(text, "repr", value)
    return None


def _kind_of(text: str, mime: str) -> Kind:
    from mcpbridge.results.text.detect import kind_of

    return kind_of(text, mime)
