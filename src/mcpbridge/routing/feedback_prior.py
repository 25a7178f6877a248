"""One principal's prior: which tools served for which words, how that fades, and how far it moves a search's answer.

Pure, bounded in size, and without a clock.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from mcpbridge.routing.filters import parse_filters
from mcpbridge.routing.ranker import Hit
from mcpbridge.routing.words import stems_of

__all__ = ["MOST_MOVED", "Prior"]

MOST_MOVED: Final = 0.08
"""How much a score can rise, as a part of the best one."""
_FADES = 0.99
"""What is left of a note after each further one; half after 69."""
_HALF = 2.0
"""Notes that move a tool half as far as it can move."""
_ANY = 0.05
"""What a note counts for queries with other words."""
_MOST_TOOLS = 400
_MOST_WORDS = 24
"""Of one tool."""
_QUERY = 1000
_LONGEST_ID = 300
"""Characters that are looked at."""


class _Served(msgspec.Struct, array_like=True):
    """What is noted of one tool; each number as it was when the tool was noted last."""

    at: int
    """The number of that note."""
    count: float
    words: dict[str, float]


class _Kept(msgspec.Struct, array_like=True):
    version: int
    notes: int
    tools: dict[str, _Served]


_decode = msgspec.msgpack.Decoder(_Kept).decode


class Prior:
    """Counts notes, and moves hits by them."""

    def __init__(self, notes: int = 0, tools: dict[str, _Served] | None = None) -> None:
        """`notes`: how many there were so far; `tools`: what they told, least recently noted first."""
        self._notes, self._tools = notes, tools or {}

    def observe(self, query: str, tool: str) -> None:
        """A tool has served for a query."""
        if len(tool) > _LONGEST_ID:
            return
        self._notes += 1
        served = self._tools.pop(tool, None) or _Served(self._notes, 0.0, {})
        left = self._left(served)
        words = {word: count * left for word, count in served.words.items()}
        for word in _words(query):
            words[word] = words.pop(word, 0.0) + 1
        if len(words) > _MOST_WORDS:
            most = sorted(words, key=words.__getitem__)[-_MOST_WORDS:]
            words = {word: words[word] for word in words if word in set(most)}
        self._tools[tool] = _Served(self._notes, served.count * left + 1, words)
        while len(self._tools) > _MOST_TOOLS:
            del self._tools[next(iter(self._tools))]

    def adjust(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits, best first again. Named ones stay first and as they are."""
        named = [hit for hit in hits if hit.is_named]
        others = [hit for hit in hits if not hit.is_named]
        top = max((hit.score for hit in others), default=0.0)
        if top <= 0 or not self._tools:
            return list(hits)
        words = _words(query)
        most = top * MOST_MOVED
        moved = [replace(hit, score=hit.score + most * self._weight(words, hit.id)) for hit in others]
        moved.sort(key=lambda hit: hit.score, reverse=True)
        ceiling = named[-1].score if named else top
        return named + [hit if hit.score <= ceiling else replace(hit, score=ceiling) for hit in moved]

    def to_bytes(self) -> bytes:
        """All of it, for `from_bytes`."""
        return msgspec.msgpack.encode(_Kept(1, self._notes, self._tools))

    @classmethod
    def from_bytes(cls, body: bytes) -> "Prior":
        """What was written; an empty one for anything else."""
        try:
            kept = _decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return cls()
        is_good = kept.version == 1 and _is_sound(kept.tools, kept.notes)
        return cls(kept.notes, kept.tools) if is_good else cls()

    def _weight(self, words: Sequence[str], tool: str) -> float:
        """From 0 to 1: how far this tool is moved."""
        served = self._tools.get(tool)
        if served is None:
            return 0.0
        shared = sum(served.words.get(word, 0.0) for word in words) / len(words) if words else 0.0
        told = (shared + _ANY * served.count) * self._left(served)
        return told / (told + _HALF)

    def _left(self, served: _Served) -> float:
        return _FADES ** (self._notes - served.at)


def _words(query: str) -> list[str]:
    """What a query is remembered by: its stems, each once, without filters."""
    return list(dict.fromkeys(stems_of(parse_filters(query[:_QUERY])[1])))[:_MOST_WORDS]


def _is_sound(tools: Mapping[str, _Served], notes: int) -> bool:
    if notes < 0 or len(tools) > _MOST_TOOLS:
        return False
    return all(
        0 <= served.at <= notes
        and len(served.words) <= _MOST_WORDS
        and all(0 <= count < 1000 for count in (served.count, *served.words.values()))
        for served in tools.values()
    )
