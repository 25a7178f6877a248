"""Reads an HTML page and finds its facts: title, headings, tables, lists, links, forms, and the visible text.

Read by a small scanner of our own in one pass: the parser of the standard library takes quadratic time on text that
opens tags and never closes them. Nothing is fetched, no entity but characters is resolved, scripts and styles are
skipped.
"""

import re
from collections import Counter
from html import unescape

from msgspec import Struct, field

from mcpbridge.results.text.lines import Fact, cut, many, tally
from mcpbridge.results.text.markdown import table_facts

LOOKED_AT = 2_000_000
"""Characters of a page that are looked at."""

TEXT = 6_000
"""Characters of running text that are kept."""

LONGEST = 20_000
"""Characters of one piece of text that are looked at."""

ROWS = 20_000
"""Rows of a table that are kept."""

LINKS = 2_000
"""Links that are kept."""

PARAGRAPHS = 400
"""Paragraphs that are kept."""

DEPTH = 100
"""How deep tables and lists are kept apart; what is nested deeper belongs to the last of these."""

_TAGS = re.compile(r"<(?:(/?)([a-zA-Z][\w:-]{0,30}+)|[!?])([^<>]{0,20000}+)>")
_ATTRIBUTE = re.compile(r"([\w:-]{1,40})\s{0,5}=\s{0,5}(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")

SKIPPED = frozenset(("script", "style", "noscript", "template", "svg"))
BLOCKS = frozenset(
    (
        *("p", "div", "br", "hr", "pre", "blockquote", "figure", "form", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("section", "article", "main", "header", "footer", "nav", "aside"),
        *("ul", "ol", "li", "dt", "dd", "table", "tr", "td", "th"),
    )
)
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
KNOWN = HEADINGS | {
    *("title", "a", "caption", "table", "tr", "td", "th", "ul", "ol", "li", "input", "select", "textarea", "meta"),
}
"""Elements of which more is shown than how many there are."""


class Page(Struct):
    """What was found of a page."""

    title: str = ""
    description: str = ""
    headings: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Tag and text."""
    tables: list[list[list[str]]] = field(default_factory=list[list[list[str]]])
    lists: list[list[str]] = field(default_factory=list[list[str]])
    """Items of each list."""
    links: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Text and address of the first of them."""
    link_count: int = 0
    tags: Counter[str] = field(default_factory=Counter[str])
    inputs: list[str] = field(default_factory=list[str])
    """Names of form fields."""
    paragraphs: list[str] = field(default_factory=list[str])
    """The first of them."""
    last: str = ""
    """The last of all paragraphs."""
    text_chars: int = 0


def page_of(text: str) -> Page:
    """Read a page, of a longer one the first 2,000,000 characters. Never raises, whatever the text is."""
    scanner = _Scanner()
    skipped = ""
    parts = _TAGS.split(_without_comments(text[:LOOKED_AT]))
    for said, slash, name, body in zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=False):
        tag = name.lower() if name else ""
        if skipped:
            if slash and tag == skipped:
                skipped = ""
            continue
        if said:
            scanner.text(said)
        if slash:
            scanner.close(tag)
        else:
            scanner.open(tag, body)
            if tag in SKIPPED and not body.endswith("/"):
                skipped = tag
    if not skipped and parts[-1]:
        scanner.text(parts[-1])
    scanner.close_all()
    return scanner.page


def _without_comments(text: str) -> str:
    """The text without comments; one that is never closed hides the rest."""
    if "<!--" not in text:
        return text
    kept: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0:
        kept.append(text[at:start])
        end = text.find("-->", start + 4)
        if end < 0:
            return "".join(kept)
        at = end + 3
    return "".join([*kept, text[at:]])


class _Scanner:
    """Puts together what tags and texts say."""

    def __init__(self) -> None:
        self.page = Page()
        self._piece: list[str] = []
        """Running text since the last block began."""
        self._catches: list[tuple[str, list[str]]] = []
        """Open elements whose text is wanted, and what was said in them; cells and items with their depth."""
        self._caught = Counter[str]()
        """Their tags."""
        self._tables: list[list[list[str]]] = []
        self._lists: list[list[str]] = []
        self._last = ""
        """The last paragraph, as it stands in the source."""
        self._href = ""
        """The inside of the last tag of a link."""

    def text(self, raw: str) -> None:
        said = unescape(raw) if "&" in raw else raw
        if self._catches:
            for _, into in self._catches[-8:]:
                into.append(said)
        self.page.text_chars += len(said)
        self._piece.append(said)

    def open(self, tag: str, body: str) -> None:
        page = self.page
        page.tags[tag] += 1
        if self._piece and tag in BLOCKS:
            self._end_piece()
        if tag not in KNOWN:
            return
        if tag in HEADINGS or tag in ("title", "a", "caption"):
            self._catch(tag)
            self._href = body if tag == "a" else self._href
        elif tag == "table":
            if len(self._tables) < DEPTH:
                page.tables.append([])
            self._tables.append(page.tables[-1])
        elif tag == "tr" and self._tables:
            self._end_cell()
            if len(self._tables[-1]) < ROWS:
                self._tables[-1].append([])
        elif tag in ("td", "th"):
            self._end_cell()
            self._catch(f"td{len(self._tables)}")
        elif tag in ("ul", "ol"):
            if len(self._lists) < DEPTH:
                page.lists.append([])
            self._lists.append(page.lists[-1])
        elif tag == "li":
            self._end_of(f"li{len(self._lists)}")
            self._catch(f"li{len(self._lists)}")
        elif tag in ("input", "select", "textarea"):
            page.inputs.append(_attributes(body).get("name", ""))
        elif tag == "meta" and not page.description:
            said = _attributes(body)
            if said.get("name", said.get("property", "")).lower() in ("description", "og:description"):
                page.description = said.get("content", "")

    def close(self, tag: str) -> None:
        if tag not in KNOWN:
            pass
        elif tag in HEADINGS or tag in ("title", "a"):
            self._end_of(tag)
        elif tag == "li":
            self._end_of(f"li{len(self._lists)}")
        elif tag in ("td", "th", "tr"):
            self._end_cell()
        elif tag == "table" and self._tables:
            self._end_cell()
            self._tables.pop()
        elif tag in ("ul", "ol") and self._lists:
            self._end_of(f"li{len(self._lists)}")
            self._lists.pop()
        if self._piece and tag in BLOCKS:
            self._end_piece()

    def close_all(self) -> None:
        while self._catches:
            self._end_of(self._catches[-1][0])
        self._end_piece()
        self.page.last = _plain(self._last)[:TEXT]

    def _catch(self, tag: str) -> None:
        if len(self._catches) < 100:
            self._catches.append((tag, []))
            self._caught[tag] += 1

    def _end_cell(self) -> None:
        if self._tables:
            self._end_of(f"td{len(self._tables)}")

    def _end_of(self, tag: str) -> None:
        """The innermost open element of this tag ends, and those within it that nobody closed."""
        if not self._caught[tag]:
            return
        said: list[str] = []
        caught = ""
        while caught != tag:
            caught, said = self._catches.pop()
            self._caught[caught] -= 1
        if tag == "a" and self.page.link_count >= LINKS:
            self.page.link_count += 1
        else:
            self._keep(tag, _plain("".join(said)))

    def _keep(self, tag: str, text: str) -> None:
        """What was said in an element."""
        page = self.page
        if tag == "title":
            page.title = page.title or text
            self._piece.clear()
        elif tag in HEADINGS:
            page.headings.append((tag, text))
            self._piece.clear()
        elif tag == "a":
            page.link_count += 1
            if len(page.links) < LINKS:
                page.links.append((text, _attributes(self._href).get("href", "")))
        elif tag.startswith("td") and self._tables:
            if not self._tables[-1]:
                self._tables[-1].append([])
            self._tables[-1][-1].append(text)
            self._piece.clear()
        elif tag.startswith("li") and self._lists:
            self._lists[-1].append(text)
            self._piece.clear()

    def _end_piece(self) -> None:
        said = "".join(self._piece)[:LONGEST].strip()
        self._piece.clear()
        if len(said) > 1:
            self._last = said
            if len(self.page.paragraphs) < PARAGRAPHS:
                self.page.paragraphs.append(_plain(said)[:TEXT])


def _plain(text: str) -> str:
    return " ".join(text[:LONGEST].split())


def _attributes(body: str) -> dict[str, str]:
    found = _ATTRIBUTE.findall(body[:4000])
    return {name.lower(): unescape(double or single or bare) for name, double, single, bare in found}


MAX_HEADINGS = 2_000
"""Headings of a level that are shown at most."""

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
        named = [cut(said, 100) for said in found[:MAX_HEADINGS]]
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
