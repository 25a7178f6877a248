"""Previews of texts that have no value: logs, pages, listings, diffs and prose."""

from mcpbridge.results.document import Document
from mcpbridge.results.text_facts import Fact, filled, many
from mcpbridge.results.text_lines import Lines, lines_of

__all__ = ["headline_text", "preview_text"]

NAMES = {"html": "HTML page", "listing": "list of paths", "diff": "diff", "markdown": "Markdown", "log": "log"}


def headline_text(document: Document) -> str:
    """What it is, in a few words of ours (nothing of the text itself): `log, 1359 lines`."""
    text = document.text
    count = text.count("\n") + (0 if text.endswith("\n") or not text else 1)
    return f"{NAMES.get(document.kind, 'text')}, {many(count, 'line')}"


def preview_text(document: Document, room: int, items: int = 3) -> str:
    """What a text says, never longer than `room` characters. `items`: rows of a table that are shown, at most."""
    from mcpbridge.results import text_prose  # loaded with the first large text, as the others

    lines = lines_of(document.text)
    facts = _facts(document, lines, items)
    if not facts:
        return text_prose.prose_preview(document.text, lines, room)[: max(room, 0)]
    if document.kind != "html" and lines.scope:
        facts.insert(0, Fact(0, lines.scope))
    return filled(facts, max(room, 0))


def _facts(document: Document, lines: Lines, items: int) -> list[Fact]:
    """The facts of a text of which there are any; `text` has none, and is shown by its ends."""
    match document.kind:
        case "log":
            from mcpbridge.results.text_log import log_facts

            return [Fact(0, many(lines.count, "line")), *log_facts(lines, items)]
        case "html":
            from mcpbridge.results.text_html import html_facts

            return html_facts(document.text, items)
        case "listing":
            from mcpbridge.results.text_listing import listing_facts

            return listing_facts(lines, items)
        case "diff":
            from mcpbridge.results.text_diff import diff_facts

            return diff_facts(lines, items)
        case "markdown":
            from mcpbridge.results.text_markdown import markdown_facts

            return markdown_facts(lines, items)
        case _:
            return []
