"""Which tools share words with a query: BM25 over weighted fields, as an inverted index.

A word in a name says more of a tool than one in a parameter's description; `_FIELDS` has the weights. What a field's
usual length is, is fixed, so that a posting depends on its own tool alone: the postings of a server are made once and
serve in every catalog that has the server. How rare a word is, is looked at when a query has it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import log
from typing import Any, NamedTuple

from mcpbridge.routing.fields import ServerFields, ToolFields
from mcpbridge.routing.words import stems_of

__all__ = ["Postings", "WordIndex", "postings_of"]

Postings = Mapping[str, tuple[Any, ...]]
"""Of each stem the tools that have it: number of the tool within its server, how much the word is there, and so on."""


class _Field(NamedTuple):
    weight: float
    damping: float
    """How much longer fields count less: 0 not at all, 1 in proportion."""
    usual: float
    """Stems that such a field has as a rule."""

    def share(self, length: int) -> float:
        """What one occurrence counts in a field of so many stems."""
        return self.weight / (1 - self.damping + self.damping * length / self.usual)


_SERVER = _Field(2.5, 0.3, 3)
_NAME = _Field(3, 0.3, 3)
_TITLE = _Field(1.5, 0.3, 3)
_DESCRIPTION = _Field(1, 0.4, 18)
_PARAMETERS = _Field(0.6, 0.7, 6)
_DETAILS = _Field(0.35, 0.7, 25)
_ABOUT_SERVER = _Field(0.35, 0.7, 14)

_SATURATION = 1.3
"""`k1` of BM25: how soon a word that comes again adds nothing."""

_STEPS = 1024
_LEVELS = tuple(step / _STEPS for step in range(_STEPS + 1))
"""How much a word can be in a tool. Postings share these numbers, which takes a fifth of the memory."""


def postings_of(server: ServerFields, tools: Sequence[ToolFields]) -> Postings:
    """The postings of a server's tools."""
    found: dict[str, list[float]] = {}
    common: dict[str, float] = {}
    _count(common, server.name, _SERVER)
    _count(common, server.description, _ABOUT_SERVER)
    for number, tool in enumerate(tools):
        amounts = common.copy()
        _count(amounts, tool.name, _NAME)
        _count(amounts, tool.title, _TITLE)
        _count(amounts, tool.description, _DESCRIPTION)
        _count(amounts, tool.parameters, _PARAMETERS)
        _count(amounts, tool.details, _DETAILS)
        for stem, amount in amounts.items():
            level = _LEVELS[int(amount / (amount + _SATURATION) * _STEPS)]
            if (posting := found.get(stem)) is None:
                found[stem] = [number, level]
            else:
                posting += (number, level)
    return {stem: tuple(posting) for stem, posting in found.items()}


def _count(amounts: dict[str, float], text: str, field: _Field) -> None:
    if not text:
        return
    stems = stems_of(text)
    share = field.share(len(stems))
    get = amounts.get
    for stem in stems:
        amounts[stem] = get(stem, 0.0) + share


class WordIndex:
    """The postings of all servers together."""

    def __init__(self, parts: Iterable[tuple[int, Postings]]) -> None:
        """`parts`: how many tools a server has, and their postings."""
        self._parts: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
        self._merged: dict[str, tuple[Sequence[int], Sequence[float]]] = {}
        first = 0
        get = self._parts.get
        for size, postings in parts:
            for stem, posting in postings.items():
                if (known := get(stem)) is None:
                    self._parts[stem] = [(first, posting)]
                else:
                    known.append((first, posting))
            first += size
        self._count = first
        self._rarities: dict[str, float] = {}
        self.rarest: float = log(1 + self._count / 1.5)
        """The rarity of a word that one tool has."""

    def rarity(self, stem: str) -> float:
        """How much a word tells: 0 for one that no tool has, less for one that many have."""
        known = self._rarities.get(stem)
        if known is None:
            having = len(self._posting(stem)[0])
            known = log(1 + (self._count - having + 0.5) / (having + 0.5)) if having else 0.0
            if having:  # what else queries say must not fill the memory
                self._rarities[stem] = known
        return known

    def scores(self, words: Mapping[str, float]) -> list[float]:
        """How much of the stems is in each tool, in order; each stem has a weight."""
        found = [0.0] * self._count
        for stem, weight in words.items():
            factor = weight * self.rarity(stem)
            if factor:
                for tool, level in zip(*self._posting(stem), strict=True):
                    found[tool] += factor * level
        return found

    def shares(self, words: Mapping[str, float], tools: Collection[int]) -> dict[int, float]:
        """The sum of the weights of the stems that each of the tools has, anywhere in its texts."""
        found = dict.fromkeys(tools, 0.0)
        for stem, weight in words.items():
            for tool in found.keys() & self._posting(stem)[0]:
                found[tool] += weight
        return found

    def _posting(self, stem: str) -> tuple[Sequence[int], Sequence[float]]:
        """Tools and levels of a stem; put together when it is asked for first."""
        if (known := self._merged.get(stem)) is not None:
            return known
        parts = self._parts.get(stem, ())
        tools: list[int] = [first + number for first, posting in parts for number in posting[::2]]
        levels: list[float] = [level for _, posting in parts for level in posting[1::2]]
        merged = tools, levels
        if parts:
            self._merged[stem] = merged
        return merged
