"""Previews of other texts, by their outline, beginning and end: prose, manual pages, XML, YAML, TOML, INI files."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mcpbridge.results.text_ends import ends
from mcpbridge.results.text_facts import ENOUGH, Fact, cut, filled, tally
from mcpbridge.results.text_lines import Lines, words_in
from mcpbridge.results.text_sentences import FIGURE, KEPT, around

__all__ = ["prose_preview"]

WIDTH = 1000
"""Characters of a line that are looked at."""

NAMES = 2000
"""Names whose values are counted."""

_KEY = re.compile(r"\s*(?:- )?([\"']?[A-Za-z_][\w .\-/]{0,60}[\"']?)\s?(?::|=)\s*(\S.{0,200})?$")
_NUMBERED = re.compile(
    r"(?:\d{1,3}\.)+\d{0,3}\s+\S.{0,100}$|(?:Chapter|Section|Part|Article|Step|Appendix)\s+[\dIVXA-Z]+\b.{0,100}$"
)
_TAG = re.compile(r"<([A-Za-z_][\w:.-]{0,80})")
_XML_TEXT = re.compile(r"<([A-Za-z_][\w:.-]{0,80})(?:\s[^<>]{0,500})?>([^<>]{1,200})</")


def prose_preview(text: str, lines: Lines, room: int) -> str:
    """What a text says: counts and outline, and with the rest of the room its beginning and its end, by whole lines."""
    room = min(room, max(ENOUGH, room * 3 // 4))
    every = lines.first + lines.last
    is_xml = text[:2000].lstrip().startswith("<") and len(_TAG.findall(text[:20_000])) > 3
    facts = _xml(text) if is_xml else _outline(lines, every)
    told = filled(facts, max(room * 9 // 20, 60))
    left = room - len(told) - (1 if told else 0)
    shown = ends(text, left)
    return f"{told}\n{shown}" if told and shown else (told or shown)


@dataclass(slots=True)
class Outline:
    """What was found of a text."""

    headings: list[str] = field(default_factory=list[str])
    tops: list[str] = field(default_factory=list[str])
    """Keys that stand at the beginning of a line."""
    below: Counter[str] = field(default_factory=Counter[str])
    """How many keys stand right below each of these."""
    values: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    figures: list[str] = field(default_factory=list[str])
    keyed: int = 0
    words: int = 0


def _outline(lines: Lines, every: Sequence[str]) -> list[Fact]:
    found = _found(lines, every)
    facts = [Fact(0, lines.scope)] if lines.scope else []
    facts.append(Fact(0, f"{lines.count} lines, {found.words} words, {lines.chars} chars"))
    if found.headings:
        named = [cut(each, 80) for each in found.headings]
        facts.append(Fact(1, f"{len(named)} headings: ", named, " | ", share=0.5))
    if found.keyed >= 3 and found.keyed * 3 > lines.count:
        tops = dict.fromkeys(found.tops)
        named = [f"{name} ({found.below[name]})" if found.below[name] else name for name in tops]
        facts.append(Fact(1, f"{len(tops)} keys at the top (keys below): ", named, share=0.4))
    often = {name: counts for name, counts in found.values.items() if counts.total() > 1}
    once = [f"{name}: {cut(next(iter(counts)), 100)}" for name, counts in found.values.items() if counts.total() == 1]
    if once:
        facts.append(Fact(2, "said once: ", once, "; ", share=0.4))
    if often:
        facts.append(Fact(2, "values: ", [_values(name, counts) for name, counts in often.items()], "; ", share=0.5))
    if found.figures:
        facts.append(Fact(3, "numbers: ", found.figures, "\n  ", share=0.4))
    return facts


def _found(lines: Lines, every: Sequence[str]) -> Outline:
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
                _count(found.values, name, said)
        elif len(found.figures) < KEPT and (figure := FIGURE.search(line)):
            found.figures.append(around(line, figure.start(), figure.end()))
    return found


def _count(values: dict[str, Counter[str]], name: str, said: str) -> None:
    """Count what is said under a name, of as many names as are kept."""
    if name in values:
        values[name][said] += 1
    elif len(values) < NAMES:
        values[name] = Counter((said,))


def _is_heading(line: str) -> bool:
    """In capitals, or it begins with the number of a section, or is a name in brackets. For lines not indented."""
    if len(line) > 100:
        return False
    is_capital = line.isupper() and len(line) > 3
    return is_capital or (line[0] == "[" and line[-1] == "]") or _NUMBERED.match(line) is not None


def _values(name: str, counts: Counter[str]) -> str:
    """Counts of few values; of more how many, and one of them."""
    if len(counts) <= 8:
        return f"{cut(name, 60)}: " + " ".join(tally(counts.most_common(), 40))
    return f"{cut(name, 60)}: {len(counts)} values such as {cut(next(iter(counts)), 60)}"


def _xml(text: str) -> list[Fact]:
    """Tags and how often they stand, and what simple elements say. No entity is resolved, nothing is fetched."""
    looked_at = text[:4_000_000]
    tags = Counter(_TAG.findall(looked_at))
    values: dict[str, Counter[str]] = {}
    for name, said in _XML_TEXT.findall(looked_at):
        if not said.isspace():
            _count(values, name, said.strip())
    told = [_values(name, counts) for name, counts in values.items()]
    return [
        Fact(0, f"XML, {sum(tags.values())} elements"),
        Fact(0, "elements: ", tally(tags.most_common(100)), share=0.5, of=len(tags)),
        *([Fact(1, "values: ", told, "; ", share=0.6)] if told else []),
    ]
