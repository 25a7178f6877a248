"""Facts of Markdown: its headings, code, tables, lists and links, and what it sets in bold.

`table_facts` is for any table whose cells are strings, those of pages included.
"""

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from msgspec import Struct, field

from mcpbridge.results.text.lines import FIGURE, KEPT, Fact, Lines, around, cut, many, tally

COLUMNS = 20
"""Columns of which anything is shown."""

FEW = 12
"""Distinct values of a column up to which each is counted."""


def table_facts(name: str, rows: Sequence[Sequence[str]], items: int, rank: int) -> list[Fact]:
    """The facts of a table whose first row names its columns: how many rows, columns, rows from both ends."""
    if not rows or not any(rows):
        return []
    header, body = rows[0], [row for row in rows[1:] if row]
    width = len(header)
    facts = [
        Fact(rank - 1, f"{name}: {many(len(body), 'row')} × {many(width, 'column')}: {cut(' | '.join(header), 300)}")
    ]
    if body:
        columns = [[row[at] if at < len(row) else "" for row in body] for at in range(min(width, COLUMNS))]
        told = [text for title, column in zip(header, columns, strict=False) if (text := _column(title or "?", column))]
        if told:
            facts.append(Fact(rank, "  ", told, "; ", share=0.2, is_counted=width <= COLUMNS))
        lines = [cut("|".join(row), 300) for row in body]
        facts.append(Fact(rank + 2, "  rows:\n", lines, "\n", share=max(0.1, 0.08 * items)))
        facts.append(Fact(rank + 1, f"  last row: {lines[-1]}", share=0.15))
    return [fact for fact in facts if fact.items or fact.head.strip()]


def _column(title: str, column: Sequence[str]) -> str:
    """Counts of few values, the range and the sum of numbers, else how many values there are if some are equal."""
    counts = Counter(column)
    numbers = _numbers(column)
    if numbers and len(counts) > 3:
        low, high, total = min(numbers), max(numbers), sum(numbers)
        return f"{cut(title, 40)} {low}–{high}, sum {total}"
    if len(counts) <= FEW and len(counts) < len(column):
        return f"{cut(title, 40)} " + " ".join(tally(sorted(counts.items(), key=lambda each: (-each[1], each[0])), 40))
    return f"{cut(title, 40)} {len(counts)} values" if len(counts) < len(column) else ""


def _numbers(column: Sequence[str]) -> list[Decimal]:
    """The numbers of a column, exactly; none if any cell is none."""
    try:
        found = [Decimal(cell.replace(",", "")[:40]) for cell in column]
    except InvalidOperation:
        return []
    return found if all(each.is_finite() and each.adjusted() < 30 for each in found) else []


WIDTH = 2000
"""Characters of a line that are looked at."""

BEGINS = 12
"""Lines of running text that are shown from the first."""

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[([ xX])\]\s)?")
_LINK = re.compile(r"(!?)\[([^\]\[]{0,200})\]\(([^)\s]{1,500})")
_BOLD = re.compile(r"\*\*[^\s*][^*]{0,98}\*\*|__[^\s_][^_]{0,98}__")
_KEY = re.compile(r"\s{0,3}(?:[-*+] )?(?:\*\*|`)?([A-Za-z][\w ./-]{0,40}?)(?:\*\*|`)?:(?:\*\*)?\s+(\S.{0,200})")
_RULE = re.compile(r"\|?[\s:|-]*-[\s:|-]*$")


class Outline(Struct):
    """What was found of a document."""

    headings: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
    """Level, text and place of its line."""
    code: Counter[str] = field(default_factory=Counter[str])
    """Fenced blocks by language."""
    blocks: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Where each begins, and its first line."""
    tables: list[list[list[str]]] = field(default_factory=list[list[list[str]]])
    links: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    images: int = 0
    items: int = 0
    done: int = 0
    tasks: list[str] = field(default_factory=list[str])
    """Tasks that are not done."""
    marked: list[str] = field(default_factory=list[str])
    """Sentences with something in bold, and `key: value` lines: the first of them."""
    figures: list[str] = field(default_factory=list[str])
    """Sentences with a number: the first of them."""
    words: int = 0


def markdown_facts(lines: Lines, items: int) -> list[Fact]:
    """The facts of a document, in the order they are read in."""
    every = lines.first + lines.last
    found = _outline(every)
    facts = [Fact(0, _counts(found, lines))]
    if found.headings:
        facts += _headings(found, lines, every)
    if found.marked:
        facts.append(Fact(2, "marked: ", found.marked, "\n  ", share=0.25, is_counted=len(found.marked) < KEPT))
    if found.figures:
        named = [each for each in found.figures if each not in found.marked]
        is_counted = len(found.figures) < KEPT
        facts.append(Fact(5, "lines with numbers: ", named, "\n  ", share=0.2, is_counted=is_counted))
    if found.tasks:
        facts.append(Fact(3, "open tasks: ", found.tasks, "; ", share=0.15))
    for at, table in enumerate(found.tables[:10]):
        facts += table_facts(f"table {at + 1}", table, items, rank=3 + at)
    if found.links:
        named = [f"{cut(said, 50)} → {cut(href, 100)}" for said, href in found.links]
        facts.append(Fact(6, "links: ", named, " | ", share=0.12))
    if found.blocks:
        named = [f"L{lines.number(at)} {cut(text.strip(), 80)}" for at, text in found.blocks]
        facts.append(Fact(6, "code begins: ", named, " | ", share=0.15))
    prose = _prose(every[:400])
    if prose:
        facts.append(
            Fact(
                4,
                "begins: ",
                [cut(line, 300) for line in prose[:BEGINS]],
                " / ",
                share=0.2,
                is_counted=len(prose) <= BEGINS and len(every) <= 400,
            )
        )
    last = next((line for line in reversed(every) if line.strip()), "")
    facts.append(Fact(2, f"last line: {cut(last.strip(), 200)}", share=0.12))
    return facts


def _prose(every: Sequence[str]) -> list[str]:
    """Lines of running text: neither headings nor code."""
    found: list[str] = []
    is_code = False
    for line in every:
        if line[:3] in ("```", "~~~"):
            is_code = not is_code
        elif not is_code and line.strip() and not _HEADING.match(line):
            found.append(line.strip())
    return found


def _counts(outline: Outline, lines: Lines) -> str:
    """How much there is of what."""
    counted = [f"{many(lines.count, 'line')}, {many(outline.words, 'word')}"]
    levels = Counter(level for level, _, _ in outline.headings)
    counted += [f"{'#' * level} headings: {levels[level]}" for level in sorted(levels)]
    if outline.code:
        counted.append(
            f"code blocks: {sum(outline.code.values())} ({', '.join(tally(outline.code.most_common(8), 20))})"
        )
    if outline.tables:
        counted.append(f"tables: {len(outline.tables)}")
    if outline.items:
        counted.append(f"list items: {outline.items}")
    if outline.done or outline.tasks:
        counted.append(f"tasks: {outline.done} done, {len(outline.tasks)} open")
    if outline.links:
        counted.append(f"links: {len(outline.links)}")
    if outline.images:
        counted.append(f"images: {outline.images}")
    return "; ".join(counted)


def _headings(outline: Outline, lines: Lines, every: list[str]) -> list[Fact]:
    """The title, the headings of the main level, all of them in order, and where each begins and how long it is."""
    least = min(level for level, _, _ in outline.headings)
    own = [cut(text, 200) for level, text, _ in outline.headings if level == least]
    main = least + 1 if len(own) == 1 and len(outline.headings) > 1 else least
    facts = [Fact(0, f"title: {own[0]}")] if main > least else []
    named = [cut(text, 100) for level, text, _ in outline.headings if level == main]
    facts.append(Fact(0, f"{many(len(named), '#' * main + ' heading')}: ", named, " | ", share=0.6))
    deeper = [cut("#" * level + " " + text, 80) for level, text, _ in outline.headings if level >= main]
    if len(deeper) > len(named):
        facts.append(Fact(3, "outline: ", deeper, " | ", share=0.25))
    starts = [at for _, _, at in outline.headings] + [len(every)]
    sizes = [
        f"{cut(text, 40)} L{lines.number(at)} {sum(map(len, every[at : starts[order + 1]]))}"
        for order, (_, text, at) in enumerate(outline.headings)
    ]
    facts.append(Fact(7, "sections (line, chars): ", sizes, " | ", share=0.15))
    return facts


def _outline(every: list[str]) -> Outline:
    found = Outline()
    fence = ""
    fence_at = -1
    table: list[list[str]] | None = None
    for at, whole in enumerate(every):
        line = whole[:WIDTH]
        start = line.lstrip()[:3]
        if start in ("```", "~~~"):
            table = None
            if fence:
                fence = fence if start != fence else ""
            else:
                fence, fence_at = start, at
                found.code[line.strip()[3:].strip("`~ ").partition(" ")[0] or "plain"] += 1
            continue
        if fence:
            if at == fence_at + 1:
                found.blocks.append((at, line))
            if "**" in line and len(found.marked) < KEPT and (bold := _BOLD.search(line)):
                found.marked.append(around(line, bold.start(), bold.end()))
            continue
        if not line:
            table = None
            continue
        found.words += len(line.split()) if len(whole) <= WIDTH else len(whole.split())
        if line.count("|") >= 2 and line.lstrip().startswith("|"):
            table = _row(found, table, line)
            continue
        table = None
        if line.startswith("#") and (heading := _HEADING.match(line)):
            found.headings.append((len(heading[1]), heading[2], at))
        elif (
            at
            and line[:3] in ("===", "---")
            and not line.strip("=-")
            and every[at - 1].strip()
            and not every[at - 1].startswith(("#", "-", "|"))
        ):
            found.headings.append((1 if line[0] == "=" else 2, cut(every[at - 1].strip(), 200), at - 1))
        else:
            _take(found, whole, line)
    return found


def _row(outline: Outline, table: list[list[str]] | None, line: str) -> list[list[str]]:
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if table is None:
        outline.tables.append([cells])
        return outline.tables[-1]
    if not _RULE.match(line.strip()):
        table.append(cells)
    return table


def _take(outline: Outline, whole: str, line: str) -> None:
    item = _ITEM.match(line) if line.lstrip()[:1] in "-*+0123456789" and line.strip() else None
    if item:
        outline.items += 1
        if item[1] == " ":
            outline.tasks.append(cut(line[item.end() :].strip(), 120))
        elif item[1]:
            outline.done += 1
    if "](" in line:
        for image, said, href in _LINK.findall(line):
            if image:
                outline.images += 1
            else:
                outline.links.append((said, href))
    if len(outline.marked) < KEPT:
        bold = _BOLD.search(whole[:20_000]) if "**" in whole or "__" in whole else None
        if bold:
            outline.marked.append(around(whole, bold.start(), bold.end()))
        elif ": " in line[:60] and (key := _KEY.match(line)):
            outline.marked.append(cut(f"{key[1]}: {key[2]}", 160))
    if len(outline.figures) < KEPT and not item and (figure := FIGURE.search(line)):
        outline.figures.append(around(line, figure.start(), figure.end()))
