"""Previews of large results: what is said of a document in so many characters.

A value is described by the parts it has, the facts that are worth most, rows, fields and long texts; how the room is
shared among them is decided here. Texts that have no value (logs, pages, listings, diffs, prose) are described by
`results/text`.
"""

from typing import Any, cast

from mcpbridge.results.document import Document
from mcpbridge.results.preview.facts import Line, by_worth
from mcpbridge.results.preview.flatten import Part, parts_of
from mcpbridge.results.preview.limits import (
    ENDS_SHARE,
    FIELDS,
    FIELDS_SHARE,
    LONG_PREVIEW,
    PLAIN_FIELDS,
    PLAIN_VALUE_LENGTH,
    RISE,
    ROOM_FOR_ENDS,
    ROOM_FOR_JSON_ROWS,
    ROWS_SHARE,
    SECTIONS,
    WORTH_MORE_THAN_ROWS,
    WORTH_SAYING,
    WORTH_THEIR_ROOM,
)
from mcpbridge.results.preview.rows import whole_rows
from mcpbridge.results.preview.table import Section, table_section, tree_section
from mcpbridge.results.preview.wording import (
    PLAINEST,
    Field,
    cut,
    ends_text,
    outline,
    plural,
    type_name,
    type_names,
    value_text,
)
from mcpbridge.results.text.lines import Fact, Lines, facts_text, lines_of, many


def headline(document: Document) -> str:
    """What it is, in a few words: `JSON array of 33 objects`, `CSV, 449 rows × 6 columns`, `log, 1204 lines`."""
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
        value: Any = document.value
        if isinstance(value, (dict, list)):
            noun = {"ndjson": "lines", "csv": "rows", "table": "rows"}.get(document.kind, "")
            text = structured_text(sections_of(document.value, noun), room, _around(document, room), items)
        else:
            text = scalar_text(value, room)
    else:
        text = preview_text(document, room, items)
    return text.encode("utf-8", "replace").decode()[:room]


def _around(document: Document, room: int) -> str:
    """What stands around a value, on one line."""
    text = " … ".join(" ".join(part.split()) for part in document.around if part.strip())
    limit = room // 5
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text_headline(document: Document) -> str:

    return headline_text(document)


class Choice:
    """What is said in the end: lines and rows of each section, the fields that remain."""

    def __init__(self, sections: list[Section], room: int, head: str, items: int) -> None:
        self._sections, self._room, self._head, self._items = sections, room, head, items
        self._ends = [""] * len(sections)
        self._rows = [""] * len(sections)
        self._plainness = 0
        self._order: list[tuple[Line, int]] = []
        self._ranked = by_worth(line for section in sections for line in section.lines)
        with_rows = [place for place, section in enumerate(sections) if section.rows is not None]
        with_rows.sort(key=lambda place: -sections[place].weight)
        self._with_rows = with_rows

    @property
    def has_rows(self) -> bool:
        """Some rows are shown."""
        return any(self._rows) or any(self._ends)

    def choose(self) -> None:
        """Take what is worth most."""
        if self._room >= ROOM_FOR_ENDS:
            self._take_ends(int(self._room * ENDS_SHARE))
        kept = max(0, int(self._room * ROWS_SHARE) - sum(map(len, self._ends))) if self._with_rows else 0
        self._take(reserve=kept, at_least=WORTH_MORE_THAN_ROWS if self._with_rows else WORTH_SAYING)
        self._fill_rows(0.6)
        self._take(reserve=0, at_least=WORTH_SAYING)
        self._fill_rows(1.0)
        if self._room < ROOM_FOR_ENDS:
            self._take_ends(self._room - len(self.text()) - 1)
        for self._plainness in range(PLAINEST + 1):
            if len(self.text()) <= self._room:
                break
        self._lengthen()

    def _take_ends(self, room: int) -> None:
        """The first and the last rows of tables, the largest first, where no rows are told yet."""
        for place in self._with_rows:
            rows = self._sections[place].rows
            if rows is not None and not self._rows[place]:
                self._ends[place] = rows.ends(room, self._items)
                room -= len(self._ends[place]) + 1

    def _take(self, reserve: int, at_least: float) -> None:
        """Take facts of so much worth as long as there is room, but for `reserve` characters."""
        used = len(self.text())
        ends = sum(map(len, self._ends))
        for worth, line, place in self._ranked:
            if worth < at_least * (1 + max(0, used - ends - LONG_PREVIEW) / LONG_PREVIEW * RISE):
                continue
            if not line.may_choose(place):
                continue
            cost = len(line.facts[place].text) + (2 if line.chosen else len(line.title) + 3)
            name = line.facts[place].names
            refund = len(name.rpartition(".")[2]) + 1 if name and name not in line.named_fields else 0
            kept = reserve if worth < WORTH_THEIR_ROOM else reserve // 3
            if used + cost - refund > self._room - kept:
                continue
            line.chosen.add(place)
            self._order.append((line, place))
            used += cost - refund
        while self._order and len(self.text()) > self._room:
            if self._plainness < PLAINEST:
                self._plainness += 1
                continue
            line, place = self._order.pop()
            line.chosen.discard(place)

    def _fill_rows(self, share_of_room: float) -> None:
        """Give rows so much of what is left, to the sections by their weight."""
        self._rows = [""] * len(self._sections)
        total = sum(self._sections[place].weight for place in self._with_rows)
        for place in self._with_rows:
            section, ends = self._sections[place], self._ends[place]
            left = self._room - len(self.text()) - 1
            share = int(left * share_of_room * section.weight / total)
            total -= section.weight
            if section.rows is not None:
                used = self._room - left
                rows, replaces = section.rows.text(share, used, ends)
                if not rows:
                    rows, replaces = section.rows.text(left, used, ends)
                self._rows[place] = rows if replaces or not (rows and ends) else f"{ends}\n{rows}"

    def _lengthen(self) -> None:
        """Share what is left among the long texts of which the beginning is told."""
        lines = [line for section in self._sections for line in section.lines if line.whole and line.chosen]
        lines.sort(key=lambda line: len(line.whole))
        spare = self._room - len(self.text())
        for place, line in enumerate(lines):
            fact = line.facts[0]
            before = len(fact.text)
            told = ends_text(line.whole, before + spare // (len(lines) - place))
            if len(told) > before:
                fact.text = told
                spare -= len(told) - before

    def text(self) -> str:
        """Unchanged."""
        parts = [self._head] if self._head else []
        room = max(40, int(self._room * FIELDS_SHARE) - 40)
        for section, rows, ends in zip(self._sections, self._rows, self._ends, strict=True):
            lines = [line for line in section.lines if line.chosen]
            told = set[str]().union(*(line.named_fields for line in lines))
            fields = [field for field in section.fields if field.path not in told]
            listed = outline(fields, room, self._plainness)
            room -= len(listed)
            title = section.title
            if listed:
                legend = " (= always)" if "=" in listed and any(field.always for field in fields) else ""
                listed = f"{'other ' if lines and title else ''}fields{legend}: {listed}"
                title = f"{title}; {listed}" if title else listed
            if title:
                parts.append(title)
            parts.extend(line.text for line in lines)
            if rows or ends:
                parts.append(rows or ends)
        return "\n".join(parts)


_NOUNS = {"object": "object", "list": "list", "str": "string", "bool": "boolean", "int": "number", "number": "number"}


def shape(value: Any) -> str:
    """`array of 33 objects`, `object, 5 members, items: 250, users: 7`, `string of 9 chars`, `number`, `null`.

    Of an object, the two largest tables are named.
    """
    if isinstance(value, str):
        return f"string of {plural(len(value), 'char')}"
    if not isinstance(value, (dict, list)):
        return _NOUNS.get(type_name(value), "null")
    if isinstance(value, list):
        rows = cast("list[Any]", value)
        nouns = {_NOUNS.get(kind, "value") for kind in type_names(rows[:1000])}
        noun = nouns.pop() if len(nouns) == 1 else "value"
        return f"array of {plural(len(rows), noun)}" if rows else "empty array"
    members = cast("dict[str, Any]", value)
    text = f"object, {plural(len(members), 'member')}"
    tables = [part for part in parts_of(value) if part.sort != "plain" and part.size > 1]
    tables.sort(key=lambda part: -part.size)
    return text + "".join(f", {cut(part.path, 40) or 'entries'}: {part.size}" for part in tables[:2])


def scalar_text(value: Any, room: int) -> str:
    """What is neither object nor list: itself."""
    noun = _NOUNS.get(type_name(value), "value")
    told = ends_text(value, room - len(noun) - 2) if isinstance(value, str) else value_text(value, room)
    return cut(f"{noun}: {told}", room)


def sections_of(value: Any, noun: str = "") -> list[Section]:
    """The parts of an object or list, with all that can be said of each."""
    parts = parts_of(value)
    if len(parts) > SECTIONS:
        rest = sorted(parts[1:], key=lambda part: -part.size)[: SECTIONS - 1]
        kept = {id(part) for part in (parts[0], *rest)}
        hidden = [Field(f"{part.path}[]", "list", 0.5) for part in parts if id(part) not in kept]
        parts = [part for part in parts if id(part) in kept]
    else:
        hidden = []
    sections = [_section(part, noun) for part in parts]
    if hidden and sections:
        sections[0].fields.extend(hidden)
    return sections


def structured_text(sections: list[Section], room: int, head: str = "", items: int = 0) -> str:
    """The facts worth most, in at most `room` characters.

    `items`: rows of the largest table that are shown as JSON, at most, where no other rows are.
    """
    if not sections:
        return cut(f"{head}\nempty object" if head else "empty object", room)
    chosen = Choice(sections, room, head, items)
    chosen.choose()
    text = chosen.text()
    if items > 0 and not chosen.has_rows and room - len(text) > ROOM_FOR_JSON_ROWS:
        largest = max(sections, key=lambda section: section.weight if section.values else 0.0)
        whole = whole_rows(largest.values, items, room - len(text) - 1)
        return f"{text}\n{whole}" if whole else text
    return text if len(text) <= room else cut(text, room)


def _section(part: Part, noun: str) -> Section:
    where = part.path or noun
    if part.sort == "plain":
        return _plain(part.value)
    if part.sort == "tree":
        section = tree_section(f"{where}: tree" if where else "tree", part.value, part.branch)
    elif part.sort == "map":
        members = list(part.value.values())
        title = f"{where or 'object'}: map of {plural(len(members), 'entry').replace('entrys', 'entries')}"
        section = table_section(title, members, list(part.value))
    else:
        said_shape = shape(part.value)
        section = table_section(f"{where}: {said_shape}" if where else said_shape, part.value)
    if len(section.fields) > FIELDS:
        section.fields = sorted(section.fields, key=lambda field: -field.matter)[:FIELDS]
    section.weight = float(len(part.value) * max(1, len(section.fields)))
    return section


def _plain(pairs: list[tuple[str, Any]]) -> Section:
    """The fields of an object that stand once."""
    section = Section("")
    if len(pairs) > PLAIN_FIELDS:
        section.title = f"{len(pairs)} fields, of which {PLAIN_FIELDS} are looked at"
    for path, value in pairs[:PLAIN_FIELDS]:
        line = Line(path, names=path)
        worth = 6.0
        if isinstance(value, str) and len(value) > PLAIN_VALUE_LENGTH:
            line.whole, worth = value, 15.0
        line.add(_plain_text(value), worth / (1 + 0.2 * path.count(".")))
        section.lines.append(line)
        section.fields.append(Field(path, type_name(value)))
    return section


def _plain_text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(value_text(member, 40) for member in cast('list[Any]', value))}]"
    return value_text(value, PLAIN_VALUE_LENGTH)


NAMES = {"html": "HTML page", "listing": "list of paths", "diff": "diff", "markdown": "Markdown", "log": "log"}


def headline_text(document: Document) -> str:
    """What it is, in a few words of ours (nothing of the text itself): `log, 1359 lines`."""
    text = document.text
    count = text.count("\n") + (0 if text.endswith("\n") or not text else 1)
    return f"{NAMES.get(document.kind, 'text')}, {many(count, 'line')}"


def preview_text(document: Document, room: int, items: int = 3) -> str:
    """What a text says, never longer than `room` characters. `items`: rows of a table that are shown, at most."""
    from mcpbridge.results.text import prose as text_prose  # loaded with the first large text, as the others

    lines = lines_of(document.text)
    facts = _facts(document, lines, items)
    if not facts:
        return text_prose.prose_preview(document.text, lines, room)[: max(room, 0)]
    if document.kind != "html" and lines.scope:
        facts.insert(0, Fact(0, lines.scope))
    return facts_text(facts, max(room, 0))


def _facts(document: Document, lines: Lines, items: int) -> list[Fact]:
    """The facts of a text of which there are any; `text` has none, and is shown by its ends."""
    match document.kind:
        case "log":
            from mcpbridge.results.text.logs import log_facts

            return [Fact(0, many(lines.count, "line")), *log_facts(lines, items)]
        case "html":
            from mcpbridge.results.text.html import html_facts

            return html_facts(document.text, items)
        case "listing":
            from mcpbridge.results.text.listings import listing_facts

            return listing_facts(lines, items)
        case "diff":
            from mcpbridge.results.text.diff import diff_facts

            return diff_facts(lines, items)
        case "markdown":
            from mcpbridge.results.text.markdown import markdown_facts

            return markdown_facts(lines, items)
        case _:
            return []
