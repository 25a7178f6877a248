"""Ways to make a large result smaller, as functions: what each gives in place of a text."""

from collections.abc import Callable

from benchmarks.result_rules import Answer

__all__ = ["FRAME", "Method", "by_library", "cut", "lossless", "raw", "truncated"]

Method = Callable[[str, str, int], Answer]
"""Of a text, its media type and the budget in characters."""

FRAME = 140
"""Characters of the line with which the bridge announces what it rewrote; part of the budget."""
_THRESHOLD = 4000
"""Characters up to which the bridge rewrites nothing."""


def raw(text: str, mime: str, budget: int) -> Answer:
    """All of it."""
    return Answer(text, whole=True)


def cut(text: str, mime: str, budget: int) -> Answer:
    """The first so many characters."""
    return Answer(text[:budget], whole=len(text) <= budget)


def lossless(text: str, mime: str, budget: int) -> Answer:
    """The shortest form that says everything, however long it is."""
    from mcpbridge.results.document import read
    from mcpbridge.results.lossless.encode import shortest

    return Answer(shortest(read(text, mime)).text, whole=True)


def truncated(text: str, mime: str, budget: int) -> Answer:
    """The bridge's strategy `truncate`."""
    from mcpbridge.results.document import read
    from mcpbridge.results.truncate import truncate

    if len(text) <= max(_THRESHOLD, budget):
        return Answer(text, whole=True)
    document = read(text, mime)
    return Answer(f"{_frame(document)}\n{truncate(document, budget - FRAME - 1)}")


def by_library(text: str, mime: str, budget: int) -> Answer:
    """The bridge's strategy `preview`, from its parts."""
    from mcpbridge.results.document import read
    from mcpbridge.results.lossless.encode import shortest
    from mcpbridge.results.preview.preview import preview

    if len(text) <= max(_THRESHOLD, budget):
        return Answer(text, whole=True)
    document, room = read(text, mime), budget - FRAME - 1
    frame = _frame(document)
    whole = shortest(document, room)
    if len(whole.text) <= room:
        return Answer(f"{frame}\n{whole.text}", whole=True)
    return Answer(f"{frame}\n{preview(document, room)}")


def _frame(document: object) -> str:
    from mcpbridge.results.document import Document
    from mcpbridge.results.preview.preview import headline

    assert isinstance(document, Document)
    says = f"[mcpbridge abcdefghijklmnopqrstuvwxyz: {headline(document)} · {len(document.text):,} chars · "
    return f"{says}preview; whole: recall(handle, path/where/select/find …) or _transform]"[:FRAME].ljust(FRAME, "]")
