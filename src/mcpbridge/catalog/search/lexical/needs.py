"""The needs of a request, and how well the tools of a catalog fit one of them, by words and by vectors together.

"find a hotel in Rome, and book a table there" has two needs, each with words of its own.

Words and vectors are each measured against their best tool, so that 1 is "nothing fits better". Of the tools that are
best by both, two more things count: how much of the need the tool speaks of at all, and how much of the tool's name is
asked for. The weights are in `search/weights.py`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from heapq import nlargest

from msgspec import Struct

from mcpbridge.base.late_pattern import late
from mcpbridge.catalog.search.lexical.bitsets import Cells, Mask, Shape
from mcpbridge.catalog.search.lexical.bm25 import WordIndex
from mcpbridge.catalog.search.lexical.concepts import expansions
from mcpbridge.catalog.search.lexical.word_vectors import NORM, Near, Table, Vector
from mcpbridge.catalog.search.weights import (
    ASKED,
    BY_VECTORS,
    BY_WORDS,
    FAINT,
    IMPLIED,
    IMPLIED_PIECES,
    LESS_BY_WORDS,
    NAMED,
    NUMBER,
    OWN_PIECES,
    UNKNOWN,
)
from mcpbridge.catalog.words import runs_of, stems_of

_WORDS = 400
"""Words of a need that are looked at."""
_FOREMOST = 3
"""Tools of which one must fit."""
_MARKED = 4
"""The least that a dimension of a need's vector says: a fifth of them say less, and change a product by 0.005."""


class Need(Struct, frozen=True):
    """What a request, or a part of it, asks for."""

    own: Mapping[str, float]
    """The stems that it has."""
    words: Mapping[str, float]
    """These, and those that it implies, with how much each counts."""
    vector: Vector


def need_of(text: str, table: Table | None) -> Need:
    """What a text asks for."""
    runs = runs_of(text)[:_WORDS]
    implied = expansions(text)
    own = {stem: NUMBER if stem.isdigit() else 1.0 for run in runs for stem in run.stems}
    words = {stem: weight * IMPLIED for word, weight in implied.items() for stem in _stems(word)}
    vector: Vector = ()
    if table is not None:
        pieces = [(word, OWN_PIECES) for run in runs for word in run.plain]
        pieces += [(word, round(IMPLIED_PIECES * weight)) for word, weight in implied.items()]
        vector = table.vector(pieces)
    return Need(own, words | own, vector)


@lru_cache(8192)
def _stems(word: str) -> Sequence[str]:
    return tuple(stems_of(word))


class Fit(Struct, frozen=True, gc=False):
    """How well one tool fits a need."""

    tool: int
    score: float
    """From 0 to about 1, against the best."""
    sure: float
    """From 0 to 1, by itself: how much of what is asked it has."""


class FitParts(Struct, frozen=True):
    """What the score of a `Fit` is the sum of."""

    words: Mapping[str, float]
    """By stem."""
    vectors: float
    asked: float
    name: float
    near: float
    """How near the vectors are, 0 to 1."""


class Best(Struct, frozen=True):
    """The best tools for a need."""

    fits: Sequence[Fit]
    telling: float
    """How significant the words of the need are: the rarer its words are in the catalog, the more."""

    @property
    def sure(self) -> float:
        """From 0 to 1: how well the best of them fits by itself, which scores do not say, being relative."""
        return max((fit.sure for fit in self.fits[:_FOREMOST]), default=0.0)


class Fits:
    """Finds the tools for needs, in one catalog."""

    def __init__(self, shape: Shape, words: WordIndex, near: Near | None, names: Sequence[str]) -> None:
        """`names`: the stems of each tool's name that are not its server's as well, with blanks between."""
        self._shape, self._words, self._near, self._names = shape, words, near, names
        self._sayings: dict[int, float] = {}
        """Of names that were looked at: how much they say altogether."""

    def best(self, need: Need, depth: int, allowed: Mask | None) -> Best:
        """The best tools, best first, at most `depth`; only those that are allowed, unless None."""
        shape = self._shape
        worded = self._words.amounts(self._distinctive_words(need))
        near = self._near.products(need.vector, _MARKED) if self._near is not None else 0
        if allowed is not None:
            worded, near = worded & allowed.lanes, near & allowed.lanes
        words, vectors = shape.cells(worded), shape.cells(near)
        most_worded, nearest = words.largest() or 1, vectors.largest() or 1
        mixed = shape.cells(shape.share(worded, most_worded, BY_WORDS) + shape.share(near, nearest, BY_VECTORS)).first(
            depth
        )
        by_words, by_vectors = BY_WORDS / most_worded, BY_VECTORS / nearest
        found = [(words[tool] * by_words + vectors[tool] * by_vectors, -tool) for tool in mixed]
        if len(found) > depth:
            found = nlargest(depth, found)
        less = LESS_BY_WORDS / most_worded
        scores = {-tool: score - less * words[-tool] for score, tool in found}
        return self._looked_at(scores, need, vectors if near else None)

    def parts(self, need: Need, tools: Sequence[int], allowed: Mask | None) -> dict[int, FitParts]:
        """What the scores of some of the best tools for a need are made of. Slow; `best` does not need it."""
        shape = self._shape
        distinctive = self._distinctive_words(need)
        worded = self._words.amounts(distinctive)
        near = self._near.products(need.vector, _MARKED) if self._near is not None else 0
        if allowed is not None:
            worded, near = worded & allowed.lanes, near & allowed.lanes
        words, vectors = shape.cells(worded), shape.cells(near)
        by_words, by_vectors = (
            (BY_WORDS - LESS_BY_WORDS) / (words.largest() or 1),
            BY_VECTORS / (vectors.largest() or 1),
        )
        rarities = {stem: weight * self._words.rarity(stem) for stem, weight in need.own.items()}
        asked = sum(rarities.values()) or 1.0
        shares = self._words.shares(rarities, tools)
        found: dict[int, FitParts] = {}
        for tool in tools:
            points = self._words.points(distinctive, tool)
            unit = words[tool] * by_words / (sum(points.values()) or 1.0)
            found[tool] = FitParts(
                {stem: amount * unit for stem, amount in points.items()},
                vectors[tool] * by_vectors,
                ASKED * shares[tool] / asked,
                NAMED * self._named(tool, need.own.keys()),
                vectors[tool] / (NORM * NORM),
            )
        return found

    def near(self, vector: Vector, tools: Sequence[int]) -> dict[int, float]:
        """How near some tools are to a vector, 0 to 1; 0 for all where there are no vectors."""
        if self._near is None:
            return dict.fromkeys(tools, 0.0)
        cells = self._shape.cells(self._near.products(vector))
        return {tool: cells[tool] / (NORM * NORM) for tool in tools}

    def _distinctive_words(self, need: Need) -> Mapping[str, float]:
        """The words of a need, without implied ones that so many tools have that they decide nothing."""
        rarity = self._words.rarity
        least = FAINT * max((weight * rarity(stem) for stem, weight in need.own.items()), default=0.0)
        return {
            stem: weight for stem, weight in need.words.items() if stem in need.own or weight * rarity(stem) >= least
        }

    def _looked_at(self, scores: Mapping[int, float], need: Need, vectors: Cells | None) -> Best:
        rarities = {stem: weight * self._words.rarity(stem) for stem, weight in need.own.items()}
        said = sum(rarities.values())
        asked = said or 1.0
        unknown = sum([weight for stem, weight in need.own.items() if not rarities[stem]])
        known = asked / (asked + UNKNOWN * unknown * self._words.rarest)
        own = need.own.keys()
        fits: list[tuple[float, int, float]] = []
        for tool, had in self._words.shares(rarities, scores).items():
            share = had / asked
            near = vectors[tool] / (NORM * NORM) if vectors else share
            names = self._names[tool].split()
            named = 0.0 if names and own.isdisjoint(names) else self._named(tool, own)
            score = scores[tool] + ASKED * share + NAMED * named
            fits.append((-score, tool, (share * known + near) / 2))
        fits.sort()
        return Best([Fit(tool, -score, sure) for score, tool, sure in fits], said)

    def _named(self, tool: int, asked: Set[str]) -> float:
        """How much of the tool's own name is asked for."""
        names, rarity = self._names[tool].split(), self._words.rarity
        if not names:
            return 0.5
        said = self._sayings.get(tool)
        if said is None:
            said = self._sayings[tool] = sum([rarity(stem) for stem in names])
        return sum([rarity(stem) for stem in names if stem in asked]) / said


_BREAK = late(
    r"[.!?;]+(?=\s|$)|:(?=\s)|[\n\r]+|[。！？；]"
    r"|,?\s(?:and\s+then|after\s+that|after\s+which|as\s+well\s+as|in\s+addition\s+to|in\s+addition|along\s+with)\s"
    r"|\b(?:then|also|additionally|furthermore|moreover|finally|lastly|next|meanwhile|afterwards|besides|plus)\b",
    re.IGNORECASE,
)
"""Where one need ends and another begins."""
_JOINT = late(r",?\sand\s+|,\s+(?:but|or|so)\s+", re.IGNORECASE)
"""Where that may be, if enough is said on both sides: "and" also joins the things of one need."""
_TASK = late(
    r"(?:find|get|show|list|tell|give|search|look|check|calculate|compute|create|make|send|book|write|save|add|update"
    r"|delete|remove|convert|translate|compare|fetch|retrieve|provide|recommend|suggest|generate|open|run|play|set|plan"
    r"|summari[sz]e|schedule|download|upload|how|what|which|where|who|when)\b",
    re.IGNORECASE,
)
_ENOUGH, _ENOUGH_OF_TASK = 3, 2
"""Words, other than stop words, that a need has at least, and one that begins as tasks do."""
_LONGEST = 4000
"""Characters of a request in which needs are looked for."""
_MOST = 8
_LETTERS = 6
"""Letters that a need has at least."""


def clauses(text: str) -> list[str]:
    """The parts of a request, in order, each once; none where it has one need only."""
    seen: dict[str, None] = {}
    for sentence in _BREAK.split(text[:_LONGEST]):
        for part in _parts(sentence) if sentence.strip() else ():
            trimmed = part.strip(" ,\"'()\t")
            if sum(map(str.isalpha, trimmed[:64])) >= _LETTERS:
                seen.setdefault(trimmed)
                if len(seen) == _MOST:
                    return list(seen)
    return list(seen) if len(seen) > 1 else []


def _parts(sentence: str) -> Iterator[str]:
    """A sentence, taken apart where both sides say enough."""
    begun, *rest = _JOINT.split(sentence)
    count = len(stems_of(begun))
    for piece in rest:
        size = len(stems_of(piece))
        if min(count, size) >= (_ENOUGH_OF_TASK if _TASK.match(piece) else _ENOUGH):
            yield begun
            begun, count = piece, size
        else:
            begun, count = f"{begun} and {piece}", count + size
    yield begun
