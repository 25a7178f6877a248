"""The Ranker protocol: which tools fit a request, best first, and why; and the texts of tools that rankers read.

A ranker is a value: made of the texts of one catalog, never changed, shared by all threads. Another catalog gets
another one, in which the parts of servers that did not change are the same objects (`Rankers.of`).
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct


class ServerText(Struct, frozen=True):
    """One server, as its tools are found by it."""

    name: str
    title: str = ""
    """What it calls itself, or what the configuration says."""
    description: str = ""
    tags: tuple[str, ...] = ()


class ToolText(Struct, frozen=True):
    """One tool. Whatever it says may be malformed: a schema is any JSON value, a text may be megabytes."""

    id: str
    """What a ranker answers with; unique in an index."""
    server: str
    name: str
    """The server's own name for it."""
    title: str = ""
    description: str = ""
    schema: Mapping[str, Any] | None = None
    """Its `inputSchema`, parsed; None where there is none that is an object."""
    tags: tuple[str, ...] = ()


class Hit(Struct, frozen=True):
    """One tool that fits."""

    id: str
    score: float
    """From 0 (nothing in common) to about 1; comparable within one answer."""
    is_named: bool = False
    """The query names the tool, or its server, outright."""


class WordShare(Struct, frozen=True):
    """A word that a tool was found by."""

    word: str
    """As the query has it, or a word that the query implies."""
    points: float
    """What it adds to the score."""
    is_implied: bool = False
    """The query does not have it, but implies it."""


class Explanation(Struct, frozen=True):
    """What one tool's score is made of. Its points together are the score, unless that is more than 1."""

    id: str
    part: str = ""
    """The part of the request that the tool fits best; empty: the whole of it."""
    words: tuple[WordShare, ...] = ()
    """The words that the tool has, those with the most points first."""
    vectors: float = 0.0
    """Points for being near in meaning, by the built-in vectors."""
    asked: float = 0.0
    """Points for the share of the request that the tool speaks of."""
    name: float = 0.0
    """Points for the share of the tool's own name that the request has."""
    model: float = 0.0
    """Points by the embedding model, where one is set up."""
    nearness: float = 0.0
    """How near the built-in vectors of request and tool are, 0 to 1."""
    near_words: tuple[tuple[str, float], ...] = ()
    """Words of the request with how near each is to the tool by itself, 0 to 1, nearest first."""
    model_nearness: float | None = None
    """How near they are for the embedding model, against the nearest tool; None: it was not asked about this tool."""

    @property
    def score(self) -> float:
        """All points together."""
        return sum(word.points for word in self.words) + self.vectors + self.asked + self.name + self.model


class Ranker(Protocol):
    """Answers queries about one catalog."""

    def rank(self, query: str, limit: int, *, among: Container[str] | None = None) -> list[Hit]:
        """The best tools, best first, at most `limit`; only ids of `among`, if given. Never raises, whatever is asked.

        `server:NAME` and `tag:NAME` in the query are filters (globs, several of a kind: any). A query of filters
        alone lists what passes them, in the catalog's order. Scores never rise along the list.
        """
        ...

    def explain(self, query: str, limit: int, *, among: Container[str] | None = None) -> Mapping[str, Explanation]:
        """What the scores of these hits of `rank` are made of, by id. Takes several times as long as `rank`.

        Tools that the query names, and those that filters alone let through, have none: they have no points.
        """
        ...


class Rankers(Protocol):
    """Makes rankers, one after the other, and redoes only what changed in between."""

    def of(self, servers: Sequence[tuple[ServerText, Sequence[ToolText]]]) -> Ranker:
        """The ranker of these tools, in the catalog's order. Slow (about 0.2 ms a new tool): call it in a thread."""
        ...
