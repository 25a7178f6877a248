"""What `find_tools` and `describe_tools` answer: the texts that models read. Pure.

`find_tools` answers with one line a tool. Lines are shortened step by step until all fit, the lower ones first: the
first tool is the right one more often than all others together. Texts of servers take one line each, and nothing
in them can look like a line of the bridge's own.

`describe_tools` gives all that is needed to call some tools. A signature in full takes fewer tokens than a schema;
where it cannot say all, the exact schema is below it. What does not fit is left out, the exact schemas first, and
is named.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct, field

from mcpbridge.catalog.search.duplicates import Ability, apart
from mcpbridge.catalog.search.find import FURTHER, Finding, ReadDefinition
from mcpbridge.catalog.signatures.signature import MARK, Signature, signature
from mcpbridge.catalog.signatures.types import FORMS, Form
from mcpbridge.core.call_options import Hints
from mcpbridge.results.header_line import defused
from mcpbridge.results.token_count import Counter, estimated_tokens_of

Detail = Literal["names", "signatures", "schemas"]
"""What a search shows of each tool: its name and first sentence; how to call it; its definition as JSON."""

MOST = 50
"""Tools of one answer."""

SCHEMA_TOKENS = 4000
"""Tokens of an answer with schemas, unless more are asked for."""

_APART = 60
"""Tokens for how siblings differ."""
_SPARED = 16
"""Of so many tokens one is left over, since they are estimated."""
_ALSO = 2
"""Near-duplicates that are named."""
_NAMES = Form(100, sentences=1)
_FORMS: Mapping[Detail, tuple[Form, ...]] = {
    "names": (_NAMES, *FORMS[-3:]),
    "signatures": FORMS,
    "schemas": (_NAMES, *FORMS[-2:]),
}
_LEGEND = f"{MARK} = left out; describe_tools shows all."
_DOUBTFUL = 3
_DROPPED_TOKENS = 20
"""Tokens for saying that there was no room for all."""
_FITS = 0.6
"""Share of the best score from which tools beyond the limit count as fitting too."""
_EVEN = 16
"""How evenly lines are shortened: the larger, the less it counts that one is further down."""


class Found(Struct, frozen=True):
    """What a search found."""

    abilities: Sequence[Ability]
    """Those to show, best first."""
    tools: Mapping[str, ReadDefinition]
    """All tools of these, by id."""
    more: int = 0
    """Others that fit too."""
    is_open: bool = False
    """There may be still more that fit."""


def answer(
    matches: Found, detail: Detail = "signatures", *, tokens: int = 500, count: Counter = estimated_tokens_of
) -> str:
    """The answer, in about so many tokens; with schemas in `SCHEMA_TOKENS`, if that is more."""
    listed = list(matches.abilities)
    notes = [_more(matches, len(listed))] if matches.more else []
    lines = [_Line(ability, matches.tools, _FORMS[detail], count) for ability in listed]
    tokens = max(tokens, SCHEMA_TOKENS) if detail == "schemas" else tokens
    tokens -= tokens // _SPARED
    if detail == "schemas":
        _give_schemas(lines, tokens - count(f"{_LEGEND}\n{' '.join(notes)}"))
    room = tokens - count(f"{_LEGEND} {' '.join(notes)}")
    if sum(line.least for line in lines if not line.schema) > room:
        room -= _DROPPED_TOKENS
    siblings = "" if detail == "schemas" else _apart(lines, matches)
    dropped = _fit(lines, room - (count(siblings) + 3 if siblings else 0))
    if dropped:
        notes = [f"{dropped} more have no room here: ask with narrower words, or for fewer."]
    siblings = siblings and _apart(lines, matches)
    texts = [line.text for line in lines]
    if any(MARK in text for text in texts):
        notes.append(_LEGEND)
    paragraphs = [*texts, *([f"Apart: {siblings}"] if siblings else []), *([" ".join(notes)] if notes else [])]
    return defused("\n".join(paragraphs))


def answer_to_search(
    finding: Finding, limit: int, map_: str, detail: Detail = "signatures", *, tokens: int = 500
) -> str:
    """What `find_tools` answers with what was found, of which it names at most `limit`. `map_`: what there is."""
    if not finding.fits:
        return nothing_fits(list(finding.tools.values()), map_, tokens=tokens)
    hits, scores = finding.hits, finding.scores
    further = finding.abilities[limit:]
    more = sum(scores[ability.id].score >= _FITS * hits[0].score for ability in further)
    is_open = more > 0 and more == len(further) and len(hits) == limit + FURTHER
    return answer(Found(finding.abilities[:limit], finding.tools, more, is_open), detail, tokens=tokens)


def nothing_fits(
    nearest: Sequence[ReadDefinition], map_: str, *, tokens: int = 500, count: Counter = estimated_tokens_of
) -> str:
    """What is said when no tool seems to do it: what there is instead, and the nearest, as doubtful."""
    lines = ["No tool seems to do that."]
    if map_:
        lines.append(f"There are {map_}" if map_.endswith(".") else f"There are {map_}.")
    if nearest:
        lines.append("Nearest, and doubtful:")
        lines += [_named(one) for one in nearest[:_DOUBTFUL]]
    lines.append("Try other words for what the tool should do, or server:NAME for all tools of a server.")
    while len(lines) > 2 and count("\n".join(lines)) > tokens:
        del lines[-2]
    return defused("\n".join(lines))


def _named(one: ReadDefinition) -> str:
    return signature(one.tool.wire, one.description, one.text.schema, _NAMES).text


def _more(matches: Found, listed: int) -> str:
    """How to see the others."""
    limit = min(MOST, listed + matches.more)
    how = f"ask again with limit={limit}, or narrower words" if listed < limit else "ask with narrower words"
    return f"{matches.more}{'+' if matches.is_open else ''} more fit: {how}."


def _apart(lines: Sequence["_Line"], matches: Found) -> str:
    texts = {id_: tool.text for id_, tool in matches.tools.items()}
    return apart(
        [line.ability.id for line in lines],
        texts,
        {line.ability.id: line.text for line in lines},
        tokens=_APART,
    )


class _Line(Struct):
    """One tool of an answer, as long as it is for now."""

    ability: Ability
    tools: Mapping[str, ReadDefinition]
    forms: Sequence[Form]
    count: Counter
    step: int = 0
    schema: str = ""
    """Its definition as JSON; empty: it is told on one line."""
    _texts: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])

    @property
    def text(self) -> str:
        return self.schema or self._text_at(self.step)[0]

    @property
    def tokens(self) -> int:
        """Those of the text and the line break."""
        return self._text_at(self.step)[1]

    @property
    def least(self) -> int:
        """Tokens of the shortest text."""
        return self._text_at(len(self.forms) - 1)[1]

    @property
    def can_shrink(self) -> bool:
        return self.step + 1 < len(self.forms)

    def _text_at(self, step: int) -> tuple[str, int]:
        known = self._texts.get(step)
        if known is None:
            one = self.tools[self.ability.id]
            text = signature(one.tool.wire, one.description, one.text.schema, self.forms[step]).text
            text += self._also()
            known = self._texts[step] = text, self.count(text) + 1
        return known

    def _also(self) -> str:
        also = [self.tools[id_].tool.wire for id_ in self.ability.also]
        if not also:
            return ""
        more = f" +{len(also) - _ALSO}" if len(also) > _ALSO else ""
        return f" (also: {', '.join(also[:_ALSO])}{more})"


def _fit(lines: list[_Line], room: int) -> int:
    """Shorten lines until all fit; returns how many had to be dropped, the last ones."""
    total = sum(line.tokens for line in lines if not line.schema)
    while total > room:
        shrinkable = [at for at, line in enumerate(lines) if line.can_shrink and not line.schema]
        if not shrinkable:
            break
        at = max(shrinkable, key=lambda at: (lines[at].tokens * (_EVEN + at), at))
        total -= lines[at].tokens
        lines[at].step += 1
        total += lines[at].tokens
    whole = len(lines)
    while total > room and len(lines) > 1:
        total -= lines.pop().tokens
    return whole - len(lines)


def _give_schemas(lines: Sequence[_Line], room: int) -> None:
    """Definitions for as many of the first tools as there is room for; the others keep a short line."""
    room -= sum(line.least for line in lines)
    for line in lines:
        told = line.tools[line.ability.id]
        members = {"name": told.tool.wire, "description": told.description, "inputSchema": told.text.schema or {}}
        text = msgspec.json.encode(members).decode()
        spent = line.count(text) + 1 - line.least
        if spent <= room:
            room -= spent
            line.schema = text


DESCRIBED_TOKENS = 4000
"""Tokens of a description of tools, about."""

_LONGEST_NAME = 100
_NAMED = 8
"""Unknown names that are listed one by one."""


def described(
    tools: Sequence[ReadDefinition],
    unknown: Mapping[str, Sequence[str]],
    *,
    tokens: int = DESCRIBED_TOKENS,
    count: Counter = estimated_tokens_of,
    stub_of: Callable[[ReadDefinition], str] | None = None,
) -> str:
    """All of these tools, and of names that are unknown those that may have been meant.

    `stub_of`: how programs call a tool, in place of its signature; None: there are no programs.
    """
    lines = [_unknown(name, guesses) for name, guesses in list(unknown.items())[:_NAMED]]
    if len(unknown) > _NAMED:
        lines.append(f"{len(unknown) - _NAMED} more names are unknown.")
    parts = [_Part(tool, stub_of=stub_of) for tool in tools]
    room = tokens - count("\n".join(lines))
    missing = _parts_that_fit(parts, room, count)
    return defused("\n\n".join([*(part.text for part in parts if part.text), *lines, *missing]))


class _Part(Struct):
    """One tool."""

    tool: ReadDefinition
    text: str = ""
    stub_of: Callable[[ReadDefinition], str] | None = None
    _known: Signature | None = None

    def with_schema(self) -> str:
        """All of it."""
        text, schema = self.plain(), self.tool.text.schema
        if self._signature().is_whole or schema is None:
            return text
        return f"{text}\n  exact inputSchema: {msgspec.json.encode(schema).decode()}"

    def plain(self) -> str:
        """Without the exact schema."""
        notes = _notes(self.tool.tool.hints, self.tool.tool.task_support)
        text = self.stub_of(self.tool) if self.stub_of is not None else self._signature().text
        return f"{text}\n  [{notes}]" if notes else text

    def _signature(self) -> Signature:
        if self._known is None:
            one = self.tool
            self._known = signature(one.tool.wire, one.description, one.text.schema, "full", output=one.output)
        return self._known

    def brief(self) -> str:
        one = self.tool
        return signature(one.tool.wire, one.description, one.text.schema).text


def _parts_that_fit(parts: Sequence[_Part], room: int, count: Counter) -> list[str]:
    """Choose how much of each is told. Returns what is said of what is left out."""
    for part in parts:
        part.text = part.with_schema()
    sizes = [count(part.text) + 1 for part in parts]
    without, shortened = list[str](), list[str]()
    steps: list[tuple[Callable[[_Part], str], list[str]]] = [(_Part.plain, without), (_Part.brief, shortened)]
    for shorter, gone in steps:
        for at in sorted(range(len(parts)), key=lambda at: -sizes[at]):
            if sum(sizes) <= room:
                break
            text = shorter(parts[at])
            if text != parts[at].text:
                parts[at].text, sizes[at] = text, count(text) + 1
                gone.append(parts[at].tool.tool.wire)
    dropped: list[str] = []
    for at in reversed(range(len(parts))):
        if sum(sizes) > room and len(dropped) + 1 < len(parts):
            parts[at].text, sizes[at] = "", 0
            dropped.insert(0, parts[at].tool.tool.wire)
    shortened = [name for name in shortened if name not in dropped]
    without = [name for name in without if name not in shortened and name not in dropped]
    said = (("no room for the exact schema of", without), ("shortened", shortened), ("left out", dropped))
    told = [f"{what}: {', '.join(sorted(names))}" for what, names in said if names]
    return [f"{'; '.join(told)}. Ask for fewer at a time."] if told else []


def _notes(hints: Hints, task_support: str) -> str:
    said = {
        "read-only": hints.read_only is True,
        "not read-only": hints.read_only is False,
        "may destroy": hints.destructive is True and hints.read_only is not True,
        "destroys nothing": hints.destructive is False and hints.read_only is not True,
        "same effect if repeated": hints.idempotent is True and hints.read_only is not True,
        "runs long, as a task": task_support == "required",
    }
    return ", ".join(note for note, is_said in said.items() if is_said)


def _unknown(name: str, guesses: Sequence[str]) -> str:
    shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    shown = " ".join("".join(char if char.isprintable() else " " for char in shown).split())
    meant = f"; did you mean {', '.join(guesses)}?" if guesses else ". find_tools finds tools by what they do."
    return f"Unknown tool: {shown}{meant}"
