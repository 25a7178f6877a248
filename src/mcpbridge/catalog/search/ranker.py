"""The Ranker protocol: which tools fit a request, best first; and the texts of tools and servers that rankers read.

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


class Ranker(Protocol):
    """Answers queries about one catalog."""

    def rank(self, query: str, limit: int, *, among: Container[str] | None = None) -> list[Hit]:
        """The best tools, best first, at most `limit`; only ids of `among`, if given. Never raises, whatever is asked.

        `server:NAME` and `tag:NAME` in the query are filters (globs, several of a kind: any). A query of filters
        alone lists what passes them, in the catalog's order. Scores never rise along the list.
        """
        ...


class Rankers(Protocol):
    """Makes rankers, one after the other, and redoes only what changed in between."""

    def of(self, servers: Sequence[tuple[ServerText, Sequence[ToolText]]]) -> Ranker:
        """The ranker of these tools, in the catalog's order. Slow (about 0.2 ms a new tool): call it in a thread."""
        ...
