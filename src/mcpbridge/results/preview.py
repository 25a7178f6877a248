"""Previews: what a large result says, in so many characters."""

from typing import Any

from mcpbridge.results.document import Document

__all__ = ["headline", "preview"]


def headline(document: Document) -> str:
    """What it is, in a few words: `JSON array of 33 objects`, `CSV, 449 rows × 6 columns`, `log, 1204 lines`."""
    from mcpbridge.results.preview_structured import shape
    from mcpbridge.results.preview_words import plural

    value = document.value
    match document.kind:
        case "json":
            return f"JSON {shape(value)}"
        case "repr":
            return f"Python {shape(value)}"
        case "ndjson":
            return f"JSON lines, {len(value)}"
        case "csv" | "table":
            name = "CSV" if document.kind == "csv" else "Markdown table"
            width = len(value[0]) if value else 0
            return f"{name}, {plural(len(value), 'row')} × {plural(width, 'column')}"
        case _:
            return _text_headline(document)


def preview(document: Document, room: int, items: int = 3) -> str:
    """What a document says: counts, fields, statistics, some rows; what is worth most first.

    Never longer than `room` characters. `items`: rows that are shown whole, at most. The same document gives the same
    text.
    """
    if document.is_structured:
        # Loaded with the first large result, as is the other kind.
        from mcpbridge.results.preview_structured import scalar_text, sections_of, structured_text

        value: Any = document.value
        if isinstance(value, (dict, list)):
            noun = {"ndjson": "lines", "csv": "rows", "table": "rows"}.get(document.kind, "")
            text = structured_text(sections_of(document.value, noun), room, _around(document, room), items)
        else:
            text = scalar_text(value, room)
    else:
        from mcpbridge.results.preview_text import preview_text

        text = preview_text(document, room, items)
    return text.encode("utf-8", "replace").decode()[:room]


def _around(document: Document, room: int) -> str:
    """What stands around a value, on one line."""
    text = " … ".join(" ".join(part.split()) for part in document.around if part.strip())
    limit = room // 5
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text_headline(document: Document) -> str:
    from mcpbridge.results.preview_text import headline_text

    return headline_text(document)
