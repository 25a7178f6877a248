"""Facts of pages."""

from mcpbridge.results.text_facts import Fact, cut, many, tally
from mcpbridge.results.text_page import LOOKED_AT, PARAGRAPHS, ROWS, page_of
from mcpbridge.results.text_tables import table_facts

__all__ = ["html_facts"]


HEADINGS = 2_000
"""Headings of a level that are told at most."""

COUNTED = {
    "a": "links (a)",
    "img": "images",
    "form": "forms",
    "table": "tables",
    "p": "paragraphs",
    "ul": "ul lists",
    "ol": "ol lists",
    "li": "li items",
    "pre": "pre blocks",
    "iframe": "frames",
}
"""Elements that are counted first."""


def html_facts(text: str, items: int) -> list[Fact]:
    """The facts of a page, in the order they are read in."""
    page = page_of(text)
    tags = page.tags
    facts = [Fact(0, f"title: {cut(page.title, 300)}")] if page.title else []
    if len(text) > LOOKED_AT:
        facts.insert(0, Fact(0, f"of the first {LOOKED_AT} of {len(text)} characters only:"))
    if page.description:
        facts.append(Fact(2, f"description: {cut(page.description, 300)}", share=0.2))
    counted = [f"{page.text_chars} chars of text"]
    for tag, name in COUNTED.items():
        if tags[tag]:
            counted.append(f"{name}: {tags[tag]}")
    facts.append(Fact(0, "; ".join(counted)))
    for level in sorted({tag for tag, _ in page.headings}):
        found = [said for tag, said in page.headings if tag == level]
        named = [cut(said, 100) for said in found[:HEADINGS]]
        head = f"{many(len(found), f'{level} heading')}: "
        facts.append(Fact(0 if level < "h3" else 3, head, named, " | ", share=0.3, of=len(found)))
    for at, rows in enumerate(page.tables[:20]):
        name = f"table {at + 1}" if len(page.tables) > 1 else "table"
        if len(rows) == ROWS:
            name += f" (its first {ROWS} rows only)"
        facts += table_facts(name, rows, items, rank=1 + at)
    for at, listed in enumerate(sorted(page.lists, key=len, reverse=True)[:6]):
        if listed:
            facts.append(Fact(5 + at, f"list of {len(listed)}: ", [cut(each, 80) for each in listed], " | ", share=0.1))
    if page.paragraphs:
        facts.append(
            Fact(
                4,
                "text: ",
                [cut(each, 400) for each in page.paragraphs],
                " / ",
                share=0.2,
                is_counted=len(page.paragraphs) < PARAGRAPHS,
            )
        )
        facts.append(Fact(6, f"last: {cut(page.last, 200)}", share=0.1))
    if page.links:
        named = [f"{cut(said, 60)} → {cut(href, 100)}" for said, href in page.links]
        facts.append(Fact(6, f"{many(page.link_count, 'link')}: ", named, " | ", share=0.15, of=page.link_count))
    if any(page.inputs):
        facts.append(Fact(4, "form fields: ", [each for each in page.inputs if each], share=0.1))
    named = [(tag, count) for tag, count in tags.most_common() if tag]
    facts.append(Fact(8, "tags: ", tally(named[:12]), of=len(named)))
    return facts
