"""Previews: what a large result says, in so many characters."""

from mcpbridge.results.document import Document

__all__ = ["headline", "preview"]


def headline(document: Document) -> str:
    """What it is, in a few words: `JSON array of 33 objects`, `CSV, 449 rows x 6 columns`, `log, 1,204 lines`."""
    return f"{document.kind}, {len(document.text):,} characters"


def preview(document: Document, room: int, items: int = 3) -> str:
    """Statistics of a document, never longer than `room` characters. `items`: rows that are shown whole, at most."""
    return document.text[:room]
