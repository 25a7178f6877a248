"""Previews of values: what parts there are, and the facts worth most of them in so many characters."""

from typing import Any, cast

from mcpbridge.results.preview_facts import Line, by_worth
from mcpbridge.results.preview_outline import Field, outline
from mcpbridge.results.preview_table import Section, table_section
from mcpbridge.results.preview_tree import tree_section
from mcpbridge.results.preview_whole import whole_rows
from mcpbridge.results.preview_words import cut, plural, said, type_said
from mcpbridge.results.sections import Part, parts_of

__all__ = ["scalar_text", "sections_of", "shape", "structured_text"]

_MOST_SECTIONS = 24
_NOUNS = {"object": "object", "list": "list", "str": "string", "bool": "boolean", "int": "number", "number": "number"}
_WORTH_MORE_THAN_ROWS = 0.03
"""Facts of so much worth for each character go before rows."""
_WORTH_THEIR_ROOM = 0.06
"""Facts of so much worth may take most of what is kept for rows, too."""
_WORTH_SAYING = 0.03
"""Facts of less worth for each character are not said, even where there is room: a model pays for each word."""
_LONG = 700
"""Characters, from which on a preview is long: a fact must be worth the more, the longer it is."""
_RISE = 1.5
"""By how much more with each `_LONG` characters."""
_ROWS_SHARE = 0.28
"""Of the room, kept for rows until the best facts are chosen."""
_ROOM_TO_SPARE = 120
_MOST_FIELDS = 400
_MOST_PLAIN = 400
_FIELDS_SHARE = 0.45
"""Of the room, at most, for the list of fields that no line tells of."""


def shape(value: Any) -> str:
    """`array of 33 objects`, `object, 5 members, items: 250`, `string of 120 chars`, `number`, `null`."""
    if isinstance(value, str):
        return f"string of {plural(len(value), 'char')}"
    if not isinstance(value, (dict, list)):
        return _NOUNS.get(type_said(value), "null")
    if isinstance(value, list):
        rows = cast("list[Any]", value)
        nouns = {_NOUNS.get(type_said(row), "value") for row in rows[:1000]}
        noun = nouns.pop() if len(nouns) == 1 else "value"
        return f"array of {plural(len(rows), noun)}" if rows else "empty array"
    members = cast("dict[str, Any]", value)
    text = f"object, {plural(len(members), 'member')}"
    longest = max(parts_of(value), key=lambda part: part.size if part.sort != "plain" else 0, default=None)
    if longest is not None and longest.sort != "plain" and longest.size > 1:
        text += f", {cut(longest.path, 40) or 'entries'}: {longest.size}"
    return text


def scalar_text(value: Any, room: int) -> str:
    """What is neither object nor list: itself."""
    return cut(f"{_NOUNS.get(type_said(value), 'value')}: {said(value, room)}", room)


def sections_of(value: Any, noun: str = "") -> list[Section]:
    """The parts of an object or list, with all that can be said of each."""
    parts = parts_of(value)
    if len(parts) > _MOST_SECTIONS:
        rest = sorted(parts[1:], key=lambda part: -part.size)[: _MOST_SECTIONS - 1]
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
    chosen = _Choice(sections, room, head)
    has_rows = any(section.rows for section in sections)
    chosen.take(
        reserve=int(room * _ROWS_SHARE) if has_rows else 0,
        at_least=_WORTH_MORE_THAN_ROWS if has_rows else _WORTH_SAYING,
    )
    chosen.fill_rows(0.6)
    chosen.take(reserve=0, at_least=_WORTH_SAYING)
    chosen.fill_rows(1.0)
    text = chosen.text()
    if items > 0 and not any(chosen.rows) and room - len(text) > _ROOM_TO_SPARE:
        largest = max(sections, key=lambda section: section.weight if section.values else 0.0)
        whole = whole_rows(largest.values, items, room - len(text) - 1)
        return f"{text}\n{whole}" if whole else text
    return text if len(text) <= room else cut(text, room)


class _Choice:
    """What is said in the end: lines and rows of each section, the fields that remain."""

    def __init__(self, sections: list[Section], room: int, head: str) -> None:
        self._sections, self._room, self._head = sections, room, head
        self.rows = [""] * len(sections)
        self._order: list[tuple[Line, int]] = []
        self._ranked = by_worth(line for section in sections for line in section.lines)

    def take(self, reserve: int, at_least: float) -> None:
        """Take facts of so much worth as long as there is room, but for `reserve` characters."""
        used = len(self.text())
        for worth, line, place in self._ranked:
            if worth < at_least * (1 + max(0, used - _LONG) / _LONG * _RISE):
                continue
            if place in line.taken:
                continue
            cost = len(line.facts[place].text) + (2 if line.taken else len(line.title) + 3)
            name = line.facts[place].names
            refund = len(name.rpartition(".")[2]) + 1 if name and name not in line.told else 0
            kept = reserve if worth < _WORTH_THEIR_ROOM else reserve // 3
            if used + cost - refund > self._room - kept:
                continue
            line.taken.add(place)
            self._order.append((line, place))
            used += cost - refund
        self._shrink(self._room)

    def fill_rows(self, share_of_room: float) -> None:
        """Give rows so much of what is left, to the sections by their weight."""
        self.rows = [""] * len(self._sections)
        with_rows = [place for place, section in enumerate(self._sections) if section.rows is not None]
        with_rows.sort(key=lambda place: -self._sections[place].weight)
        total = sum(self._sections[place].weight for place in with_rows)
        for place in with_rows:
            section = self._sections[place]
            left = self._room - len(self.text()) - 1
            share = int(left * share_of_room * section.weight / total)
            total -= section.weight
            if section.rows is not None:
                used = self._room - left
                self.rows[place] = section.rows.text(share, used) or section.rows.text(left, used)

    def _shrink(self, room: int) -> None:
        """Drop what was taken last until it fits."""
        while self._order and len(self.text()) > room:
            line, place = self._order.pop()
            line.taken.discard(place)

    def text(self) -> str:
        """As it stands."""
        parts = [self._head] if self._head else []
        room = max(40, int(self._room * _FIELDS_SHARE) - 40)
        for section, rows in zip(self._sections, self.rows, strict=True):
            lines = [line for line in section.lines if line.taken]
            told = set[str]().union(*(line.told for line in lines))
            fields = [field for field in section.fields if field.path not in told]
            listed = outline(fields, room)
            room -= len(listed)
            title = section.title
            if listed:
                title = f"{title}; {'other ' if lines else ''}fields: {listed}" if title else f"fields: {listed}"
            if title:
                parts.append(title)
            parts.extend(line.text for line in lines)
            if rows:
                parts.append(rows)
        return "\n".join(parts)


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
    if len(section.fields) > _MOST_FIELDS:
        section.fields = sorted(section.fields, key=lambda field: -field.matter)[:_MOST_FIELDS]
    section.weight = float(len(part.value) * max(1, len(section.fields)))
    return section


def _plain(pairs: list[tuple[str, Any]]) -> Section:
    """The fields of an object that stand once."""
    section = Section("")
    if len(pairs) > _MOST_PLAIN:
        section.title = f"{len(pairs)} fields, of which {_MOST_PLAIN} are looked at"
    for path, value in pairs[:_MOST_PLAIN]:
        line = Line(path, names=path)
        line.add(_plain_said(value), 6.0 / (1 + 0.2 * path.count(".")))
        section.lines.append(line)
        section.fields.append(Field(path, type_said(value)))
    return section


def _plain_said(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(said(member, 40) for member in cast('list[Any]', value))}]"
    return said(value, 120)
