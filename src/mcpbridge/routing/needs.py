"""How well the tools of a catalog fit one need, said in a few words: what words say and what vectors say, together.

Each of the two is measured against its best tool, so that 1 is "nothing fits better". Of the best by both, two more
things are looked at: how much of what is asked the tool speaks of at all, and how much of the tool's name is asked for.
The weights were fitted on requests to 4,700 tools, by cross-validation; none matters much by itself.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from mcpbridge.routing.concepts import expansions
from mcpbridge.routing.dense import ZERO, Lanes, Products
from mcpbridge.routing.lexical import WordIndex
from mcpbridge.routing.vectors import NORM, Table, Vector
from mcpbridge.routing.words import runs_of, stems_of

__all__ = ["Best", "Fit", "Fits", "Need", "need_of"]

_WORDS = 400
"""Words of a need that are looked at."""
_BY_WORDS, _BY_VECTORS = 0.6, 0.4
"""What being the best by words, and by vectors, counts when the tools are chosen that are looked at."""
_LESS_BY_WORDS, _ASKED, _NAMED = 0.2, 0.2, 0.1
"""Then words count less, and instead the share of what is asked that a tool has, and of its name that is asked for."""
_DIGITS = 0.3
"""How much a number counts in a query: rarely it is part of a name."""
_IMPLIED = 0.8
"""How much words count that the query implies, of what they are said to."""
_OWN_PIECES = 8
_IMPLIED_PIECES = 2.4
"""How much they and the query's own count in its vector."""
_FAINT = 0.05
"""Of the most telling word: what a word that is only implied must tell to be looked for."""
_SLACK = 0.05
"""How much a tool may lack by its vector alone, for its few words may add that."""
_UNKNOWN = 0.5
"""How much less words that no tool has count than the rarest: most are names of people, places and things."""
_FOREMOST = 3
"""Tools of which one must fit."""
_MARKED = 4
"""The least that a dimension of a need's vector says: a fifth of them say less, and change a product by 0.005."""
_LEAST = 0.25
"""Of the best by words: tools with less are looked at only if their vectors are near."""


@dataclass(frozen=True, slots=True)
class Need:
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
    own = {stem: _DIGITS if stem.isdigit() else 1.0 for run in runs for stem in run.stems}
    words = {stem: weight * _IMPLIED for word, weight in implied.items() for stem in stems_of(word)}
    vector: Vector = ()
    if table is not None:
        pieces = [(word, _OWN_PIECES) for run in runs for word in run.plain]
        pieces += [(word, round(_IMPLIED_PIECES * weight)) for word, weight in implied.items()]
        vector = [value if abs(value) >= _MARKED else 0 for value in table.vector(pieces)]
    return Need(own, words | own, vector)


@dataclass(frozen=True, slots=True)
class Fit:
    """How well one tool fits a need."""

    tool: int
    score: float
    """From 0 to about 1, against the best."""
    sure: float
    """From 0 to 1, by itself: how much of what is asked it has."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best tools for a need."""

    fits: Sequence[Fit]
    said: float
    """How much the need says: the rarer its words are in the catalog, the more."""

    @property
    def sure(self) -> float:
        """From 0 to 1: how well the best of them fits by itself, which scores do not say, being relative."""
        return max((fit.sure for fit in self.fits[:_FOREMOST]), default=0.0)


class Fits:
    """Finds the tools for needs, in one catalog."""

    def __init__(self, words: WordIndex, lanes: Lanes | None, names: Sequence[tuple[str, ...]]) -> None:
        """`names`: the stems of each tool's name that are not its server's as well."""
        self._words, self._lanes, self._names = words, lanes, names

    def best(self, need: Need, depth: int, allowed: Collection[int] | None) -> Best:
        """The best tools, best first, at most `depth`; only those that are allowed, unless None."""
        scores = self._words.scores(self._telling(need))
        products: Products | None = None
        if self._lanes is not None and any(need.vector):
            products = self._lanes.products(need.vector)
        if allowed is not None:
            scores = [score if tool in allowed else 0.0 for tool, score in enumerate(scores)]
            products = products and products.only(allowed)
        by_words = _BY_WORDS / (max(scores, default=0.0) or 1.0)
        found = _mixed(scores, by_words, products, depth)
        return self._looked_at(found, need, scores, by_words, products)

    def _telling(self, need: Need) -> Mapping[str, float]:
        """The words of a need, without implied ones that so many tools have that they decide nothing."""
        rarity = self._words.rarity
        least = _FAINT * max((weight * rarity(stem) for stem, weight in need.own.items()), default=0.0)
        return {
            stem: weight for stem, weight in need.words.items() if stem in need.own or weight * rarity(stem) >= least
        }

    def _looked_at(
        self,
        found: Sequence[tuple[int, float]],
        need: Need,
        scores: Sequence[float],
        by_words: float,
        products: Products | None,
    ) -> Best:
        rarities = {stem: weight * self._words.rarity(stem) for stem, weight in need.own.items()}
        said = sum(rarities.values())
        asked = said or 1.0
        unknown = sum([weight for stem, weight in need.own.items() if not rarities[stem]])
        known = asked / (asked + _UNKNOWN * unknown * self._words.rarest)
        shares = self._words.shares(rarities, [tool for tool, _ in found])
        less = by_words * _LESS_BY_WORDS / _BY_WORDS
        fits: list[Fit] = []
        for tool, mixed in found:
            share = shares[tool] / asked
            near = max(0, products[tool] - ZERO) / (NORM * NORM) if products else share
            score = mixed - less * scores[tool] + _ASKED * share + _NAMED * self._named(tool, need)
            fits.append(Fit(tool, score, (share * known + near) / 2))
        fits.sort(key=_best_first)
        return Best(fits, said)

    def _named(self, tool: int, need: Need) -> float:
        """How much of the tool's own name is asked for."""
        names, rarity = self._names[tool], self._words.rarity
        if not names:
            return 0.5
        return sum([rarity(stem) for stem in names if stem in need.own]) / sum([rarity(stem) for stem in names])


def _mixed(scores: Sequence[float], by_words: float, products: Products | None, depth: int) -> list[tuple[int, float]]:
    """The best tools by words and vectors, in any order. Those with few of the words must have a near vector."""
    cut = _LEAST * _BY_WORDS / by_words
    if not products:
        mixed = {tool: score * by_words for tool, score in enumerate(scores) if score > 0}
    else:
        by_vectors = _BY_VECTORS / max(1, products.nearest() - ZERO)
        mixed = {
            tool: score * by_words + max(0, products[tool] - ZERO) * by_vectors
            for tool, score in enumerate(scores)
            if score > cut
        }
        least = ZERO + int(max(0.0, _floor(mixed, depth) - _SLACK) / by_vectors)
        for tool in products.above(least):
            if tool not in mixed:
                mixed[tool] = scores[tool] * by_words + (products[tool] - ZERO) * by_vectors
    floor = _floor(mixed, depth)
    return [one for one in mixed.items() if one[1] >= floor]


def _floor(mixed: Mapping[int, float], depth: int) -> float:
    """The score of the last of the best."""
    return sorted(mixed.values(), reverse=True)[depth - 1] if len(mixed) >= depth else 0.0


def _best_first(one: Fit) -> tuple[float, int]:
    return -one.score, one.tool
