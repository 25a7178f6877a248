"""Previews of values: what parts there are, and the facts worth most of them in so many characters."""

from typing import Any, cast

from mcpbridge.results.preview_choice import Choice
from mcpbridge.results.preview_facts import Line
from mcpbridge.results.preview_outline import Field
from mcpbridge.results.preview_table import Section, table_section
from mcpbridge.results.preview_tree import tree_section
from mcpbridge.results.preview_whole import whole_rows
from mcpbridge.results.preview_words import cut, ends_said, plural, said, type_said
from mcpbridge.results.sections import Part, parts_of

__all__ = ["scalar_text", "sections_of", "shape", "structured_text"]

_MOST_SECTIONS = 24
_NOUNS = {"object": "object", "list": "list", "str": "string", "bool": "boolean", "int": "number", "number": "number"}
_ROOM_TO_SPARE = 120
_MOST_FIELDS = 400
_MOST_PLAIN = 400
_LONGEST_PLAIN = 120


def shape(value: Any) -> str:
    """`array of 33 objects`, `object, 5 members, items: 250, users: 7`, `string of 9 chars`, `number`, `null`.

    Of an object, the two largest tables are named.
    """
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
    tables = [part for part in parts_of(value) if part.sort != "plain" and part.size > 1]
    tables.sort(key=lambda part: -part.size)
    return text + "".join(f", {cut(part.path, 40) or 'entries'}: {part.size}" for part in tables[:2])


def scalar_text(value: Any, room: int) -> str:
    """What is neither object nor list: itself."""
    noun = _NOUNS.get(type_said(value), "value")
    told = ends_said(value, room - len(noun) - 2) if isinstance(value, str) else said(value, room)
    return cut(f"{noun}: {told}", room)


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
    chosen = Choice(sections, room, head, items)
    chosen.choose()
    text = chosen.text()
    if items > 0 and not chosen.has_rows and room - len(text) > _ROOM_TO_SPARE:
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
        worth = 6.0
        if isinstance(value, str) and len(value) > _LONGEST_PLAIN:
            line.whole, worth = value, 15.0
        line.add(_plain_said(value), worth / (1 + 0.2 * path.count(".")))
        section.lines.append(line)
        section.fields.append(Field(path, type_said(value)))
    return section


def _plain_said(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(said(member, 40) for member in cast('list[Any]', value))}]"
    return said(value, _LONGEST_PLAIN)
