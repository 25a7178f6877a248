"""Tools that are nearly the same: those of several servers come as one, those of one server are distinguished.

Two servers for one service (forks, an official one and somebody's) would fill an answer with the same ability over and
over. Within one server tools differ, if only by a word of their names; there a note says how. Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice, takewhile
from math import sqrt
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.catalog.search.ranker import ToolText
from mcpbridge.catalog.search.weights import CONFUSABLE
from mcpbridge.catalog.signatures.schema import as_schema
from mcpbridge.catalog.signatures.short_text import SECTION, cut, gist, sentences
from mcpbridge.catalog.words import KINDS, VERBS, object_of, stem, stems_of, words_of
from mcpbridge.results.token_count import Counter, estimated_tokens_of

_DESCRIPTION = 600
"""Characters of a description that are compared."""
_PARAMETERS = 40
_GENERIC = frozenset(("mcp", "tool", "api", "server"))

_NOTE = 64
"""Characters of one note."""
_TOGETHER = 4
"""Siblings that one line distinguishes."""
_CLAUSE = re.compile(r"; | - | – | — |, (?:but|while|whereas|unlike|which)\b|\. | \(")
_PROSE = re.compile(r"(?!e\.g|i\.e|default\b)\w(?!\w*:)[^{}\[\]<>=\"|\\)]{10,}")
"""A clause that reads as one; not code, nor what is said of one parameter."""
_SAYING = (
    "only instead unlike existing exist already new if deprecated prefer rather without not never either otherwise"
    " multiple several single one entire whole all partial both replace overwrite append"
)
_TELLING = frozenset(_SAYING.split())
"""Words that often say how a tool differs from another."""


class Ability(Struct, frozen=True):
    """A tool that fits, and others that are nearly the same."""

    id: str
    also: tuple[str, ...] = ()
    """Ids, best first."""


def abilities(ids: Iterable[str], tools: Mapping[str, ToolText]) -> list[Ability]:
    """The tools, best first, without those that are nearly the same as a better one of another server."""
    found: list[Ability] = []
    faces: list[_Face] = []
    by_name: dict[tuple[str, ...], list[int]] = {}
    for id_ in dict.fromkeys(ids):
        face = _Face(tools[id_])
        alike = by_name.setdefault(face.name, [])
        same = next((at for at in alike if _is_same(faces[at], face)), None)
        if same is None:
            alike.append(len(found))
            found.append(Ability(id_))
            faces.append(face)
        else:
            found[same] = replace(found[same], also=(*found[same].also, id_))
    return found


def apart(
    ids: Sequence[str],
    tools: Mapping[str, ToolText],
    visible_texts: Mapping[str, str],
    *,
    tokens: int = 60,
    count: Counter = estimated_tokens_of,
) -> str:
    """How siblings in a list differ, where what is shown of them does not say: `create_page: … · upsert_page: …`.

    Empty if there are none, or if there is nothing to be said of them.
    """
    notes: list[str] = []
    for group in _groups(ids, tools):
        texts = {id_: _clauses(tools[id_].description) for id_ in group}
        note_of = {id_: _note(id_, texts, visible_texts.get(id_, "")) for id_ in group}
        fresh = [f"{tools[id_].name}: {note}" for id_, note in note_of.items() if note]
        if fresh and count(" · ".join([*notes, *fresh])) <= tokens:
            notes += fresh
    return " · ".join(notes)


class _Face:
    """What of a tool is compared with others; the rest is seldom looked at, as few have the same name."""

    def __init__(self, tool: ToolText) -> None:
        self._tool = tool
        self.server = tool.server
        self.server_words = frozenset(stem(word) for word in words_of(tool.server))
        named = [stem(word) for word in words_of(tool.name)]
        bare = [word for word in named if word not in self.server_words and word not in _GENERIC] or named
        self.name = tuple(sorted(bare))

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(stems_of(self._tool.description[:_DESCRIPTION]))

    @cached_property
    def parameters(self) -> frozenset[str]:
        members = as_schema(self._tool.schema.get("properties")) if self._tool.schema else None
        return frozenset(str(name)[:100].lower() for name in islice(members or {}, _PARAMETERS))


def _is_same(one: _Face, other: _Face) -> bool:
    """Whether two tools of the same name do the same."""
    if one.server == other.server:
        return False
    services = one.server_words ^ other.server_words
    if (one.words ^ other.words) & services:
        return False  # "… in GitHub" is not "… in GitLab"
    parameters = _alike(one.parameters, other.parameters)
    told = one.words | other.words
    if told.issubset({*one.name, *one.server_words, *other.server_words}):  # the descriptions say nothing
        return parameters == 1 and not one.server_words.isdisjoint(other.server_words)
    words = _alike(one.words, other.words)
    return (words >= 0.8 and parameters >= 0.3) or (words >= 0.5 and parameters >= 0.5)


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


# -- siblings of one server


def _groups(ids: Sequence[str], tools: Mapping[str, ToolText]) -> list[list[str]]:
    """Tools of one server whose names are easily taken for one another; each in one group, at most."""
    left: dict[str, list[_Sibling]] = {}
    for id_ in dict.fromkeys(ids):
        left.setdefault(tools[id_].server, []).append(_sibling(tools[id_]))
    found: list[list[str]] = []
    for several in left.values():
        while len(several) > 1:
            first = several.pop(0)
            group = [one for one in several if _are_siblings(first, one)][: _TOGETHER - 1]
            several[:] = [one for one in several if one not in group]
            found += [[first.id, *(one.id for one in group)]] if group else []
    return found


class _Sibling(NamedTuple):
    """What of a tool is compared with others of its server."""

    id: str
    verbs: frozenset[str]
    object: frozenset[str]
    description: str


def _sibling(tool: ToolText) -> _Sibling:
    without = frozenset(stem(word) for word in words_of(tool.server))
    words = words_of(tool.name)
    verbs = frozenset(word for word in words if word in VERBS)
    objects = frozenset(stem(word) for word in object_of(words, without))
    return _Sibling(tool.id, verbs, objects, tool.description)


def _are_siblings(one: _Sibling, other: _Sibling) -> bool:
    is_same_verb = one.verbs == other.verbs or any(one.verbs & kind and other.verbs & kind for kind in KINDS)
    smaller, larger = sorted((one.object, other.object), key=len)
    if not is_same_verb or not smaller or not smaller <= larger or len(larger) - len(smaller) > 2:
        return False
    said = [frozenset(stems_of(gist(each.description, _DESCRIPTION, most=1)[0])) for each in (one, other)]
    return _alike(*said) >= CONFUSABLE


def _clauses(description: str) -> list[str]:
    prose = takewhile(lambda sentence: not SECTION.match(sentence), sentences(description)[:12])
    found = [clause.strip(" .,;:)'") for sentence in prose for clause in _CLAUSE.split(sentence)]
    return [clause for clause in found if _PROSE.fullmatch(clause)]


def _note(id_: str, texts: Mapping[str, Sequence[str]], visible_text: str) -> str:
    """The clause that says most of what is said of none of the others; empty if that is shown already."""
    others = frozenset(one for other, clauses in texts.items() if other != id_ for one in stems_of(" ".join(clauses)))
    best, most = "", 1.0
    for at, clause in enumerate(texts[id_]):
        stems = stems_of(clause)
        novel = {one for one in stems if one not in others}
        telling = len(_TELLING.intersection(clause.lower().split()))
        score = (len(novel) + telling) / sqrt(len(stems) + 2) - at * 0.05
        if novel and score > most:
            best, most = clause, score
    is_shown = bool(best) and best[:_NOTE] in visible_text
    return "" if is_shown else cut(best, _NOTE)
