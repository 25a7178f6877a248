"""Previews of other texts, by their outline, beginning and end: prose, manual pages, XML, YAML, TOML, INI files."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from msgspec import Struct, field

from mcpbridge.results.text.lines import (
    ENOUGH,
    FIGURE,
    KEPT,
    SCANNED,
    Fact,
    Lines,
    around,
    cut,
    ends,
    facts_text,
    many,
    tally,
    words_in,
)
from mcpbridge.results.text.records import record_facts, records_of
from mcpbridge.results.text.repeated_lines import Template, templates_of

WIDTH = 1000
"""Characters of a line that are looked at."""

ENDS = 500
"""Characters of the beginning and the end that are shown if most lines are alike."""

SHORT = 240
"""Characters of what lines have in common up to which that is shown."""

ALIKE = 3
"""Lines of one form from which on they are shown together."""

NAMES = 2000
"""Names whose values are counted."""

_KEY = re.compile(r"\s*(?:- )?([\"']?[A-Za-z_][\w .\-/]{0,60}[\"']?)\s?(?::|=)\s*(\S.{0,200})?$")
_PARTS = ("Chapter", "Section", "Part", "Article", "Step", "Appendix")
_NUMBERED = re.compile(rf"(?:\d{{1,3}}\.)+\d{{0,3}}\s+\S.{{0,100}}$|(?:{'|'.join(_PARTS)})\s+[\dIVXA-Z]+\b.{{0,100}}$")
_TAG = re.compile(r"<([A-Za-z_][\w:.-]{0,80})")
_XML_TEXT = re.compile(r"<([A-Za-z_][\w:.-]{0,80})(?:\s[^<>]{0,500})?>([^<>]{1,200})</")


def prose_preview(text: str, lines: Lines, room: int) -> str:
    """What a text says: counts and outline, and with the rest of the room its beginning and its end, by whole lines."""
    room = min(room, max(ENOUGH, room * 3 // 4))
    every = lines.first + lines.last
    is_xml = text[:2000].lstrip().startswith("<") and len(_TAG.findall(text[:20_000])) > 3
    if is_xml:
        facts, most = _xml(text), room
    elif records := records_of(every, WIDTH):
        facts = [*_scope(lines), *record_facts(records, lines), *_alike(templates_of(records.rest))[0]]
        return facts_text(facts, room)
    else:
        facts, is_alike = _outline(lines, every, room)
        most = min(room, ENDS) if is_alike else room
    told = facts_text(facts, max(room * 9 // 20, 60))
    left = min(room - len(told) - (1 if told else 0), most)
    shown = ends(text, left)
    return f"{told}\n{shown}" if told and shown else (told or shown)


class Outline(Struct):
    """What was found of a text."""

    headings: list[str] = field(default_factory=list[str])
    tops: list[str] = field(default_factory=list[str])
    """Keys that are at the beginning of a line."""
    below: Counter[str] = field(default_factory=Counter[str])
    """How many keys are right below each of these."""
    values: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    plain: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Other lines, and where they are."""
    is_cut: bool = False
    """There are more names than are kept."""
    keyed: int = 0
    words: int = 0


def _scope(lines: Lines) -> list[Fact]:
    return [Fact(0, lines.scope)] if lines.scope else []


def _outline(lines: Lines, every: Sequence[str], room: int) -> tuple[list[Fact], bool]:
    """The facts, and whether most of the lines are alike."""
    found = _outline_of(lines, every)
    facts = _scope(lines)
    facts.append(Fact(0, f"{many(lines.count, 'line')}, {many(found.words, 'word')}"))
    if found.headings:
        named = [cut(each, 80) for each in found.headings]
        facts.append(Fact(1, f"{many(len(named), 'heading')}: ", named, " | ", share=0.5))
    if found.keyed >= 3 and found.keyed * 3 > lines.count:
        tops = dict.fromkeys(found.tops)
        is_flat = not found.below.total() and all(found.values.get(name, Counter()).total() == 1 for name in tops)
        named = [f"{name} ({found.below[name]})" if found.below[name] else name for name in tops]
        head = f"{many(len(tops), 'key')} at the top"
        facts.append(Fact(1, head) if is_flat else Fact(1, f"{head} (keys below): ", named, share=0.4))
    often = {name: counts for name, counts in found.values.items() if counts.total() > 1}
    once = [f"{name}: {cut(next(iter(counts)), 100)}" for name, counts in found.values.items() if counts.total() == 1]
    if once:
        facts.append(Fact(2, "said once: ", once, "; ", share=0.4, is_counted=not found.is_cut))
    if often:
        told = [_values(name, counts) for name, counts in often.items()]
        facts.append(Fact(2, "values: ", told, "; ", share=0.5, is_counted=not found.is_cut))
    alike, places = _alike(templates_of(found.plain))
    facts += [*alike, *_figures(found.plain, places, lines, room)]
    return facts, len(places) * 3 > len(every) * 2


def _alike(templates: Sequence[Template]) -> tuple[list[Fact], set[int]]:
    """What lines say that differ in little, and which lines these are."""
    often = [each for each in templates if each.count >= ALIKE and len(each.text) <= SHORT and each.numbers]
    lines = [f"{each.count}× {cut(each.text, 160)}" for each in often[:12]]
    places = {at for each in often for at in each.numbers}
    return ([Fact(2, "lines alike: ", lines, "\n  ", share=0.3, of=len(often))] if lines else []), places


def _figures(plain: Sequence[tuple[int, str]], alike: Set[int], lines: Lines, room: int) -> list[Fact]:
    """Sentences with a number, of lines that stand neither among those alike nor where all is shown."""
    first, last = _middle_lines(lines, room)
    told: list[str] = []
    count = 0
    for at, line in plain:
        if at not in alike and first <= at < last and (figure := FIGURE.search(line)):
            count += 1
            if len(told) < KEPT:
                told.append(around(line, figure.start(), figure.end()))
    return [Fact(3, "other lines with numbers: ", told, "\n  ", share=0.4, of=count)] if told else []


def _middle_lines(lines: Lines, room: int) -> tuple[int, int]:
    """Which lines stand between those of the beginning and the end that are shown in any case."""
    every = lines.first + lines.last
    return _within(every, room * 3 // 10), len(every) - _within(every[::-1], room // 5)


def _within(every: Iterable[str], room: int) -> int:
    """How many lines begin within a number of characters."""
    count = 0
    for line in every:
        if room <= 0:
            break
        room -= len(line) + 1
        count += 1
    return count


def _outline_of(lines: Lines, every: Sequence[str]) -> Outline:
    found = Outline(words=words_in(every))
    step = 0
    for at, whole in enumerate(every):
        line = whole[:WIDTH].rstrip()
        if not line:
            continue
        first = line[0]
        if first not in " \t" and _is_heading(line):
            found.headings.append(f"L{lines.number(at)} {line}")
        elif (":" in line or "=" in line) and len(line) < 300 and (key := _KEY.match(line)):
            found.keyed += 1
            name, said = key.groups()
            name = name.strip("\"' ")
            indent = 0 if not first.isspace() else len(line) - len(line.lstrip())
            if not indent and first != "-":
                found.tops.append(name)
                step = 0
            elif found.tops and line[indent] != "-":
                step = step or indent
                found.below[found.tops[-1]] += indent == step
            if said:
                found.is_cut = not _count(found.values, name, said) or found.is_cut
        else:
            found.plain.append((at, line))
    return found


def _count(values: dict[str, Counter[str]], name: str, value: str) -> bool:
    """Count what is said under a name, of as many names as are kept. False: it is none of them."""
    if name in values:
        values[name][value] += 1
    elif len(values) < NAMES:
        values[name] = Counter((value,))
    else:
        return False
    return True


def _is_heading(line: str) -> bool:
    """In capitals, or it begins with the number of a section, or is a name in brackets. For lines not indented."""
    if len(line) > 100:
        return False
    if (line.isupper() and len(line) > 3) or (line[0] == "[" and line[-1] == "]"):
        return True
    return (line[0].isdecimal() or line.startswith(_PARTS)) and _NUMBERED.match(line) is not None


def _values(name: str, counts: Counter[str]) -> str:
    """Counts of few values; of more how many, and one of them."""
    if len(counts) <= 8:
        return f"{cut(name, 60)}: " + " ".join(tally(counts.most_common(), 40))
    return f"{cut(name, 60)}: {len(counts)} values such as {cut(next(iter(counts)), 60)}"


def _xml(text: str) -> list[Fact]:
    """Tags and how often they stand, and what simple elements say. No entity is resolved, nothing is fetched."""
    looked_at = text[:SCANNED]
    tags = Counter(_TAG.findall(looked_at))
    values: dict[str, Counter[str]] = {}
    is_cut = False
    for name, said in _XML_TEXT.findall(looked_at):
        if not said.isspace():
            is_cut = not _count(values, name, said.strip()) or is_cut
    told = [_values(name, counts) for name, counts in values.items()]
    return [
        *([Fact(0, f"of the first {SCANNED} of {len(text)} characters only:")] if len(text) > SCANNED else []),
        Fact(0, f"XML, {many(sum(tags.values()), 'element')}"),
        Fact(0, "elements: ", tally(tags.most_common(100)), share=0.5, of=len(tags)),
        *([Fact(1, "values: ", told, "; ", share=0.6, is_counted=not is_cut)] if told else []),
    ]
