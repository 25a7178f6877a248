"""Rankers of one catalog after the other: what is made of a server serves as long as its texts stay the same."""

import sys
from collections.abc import Sequence

from msgspec import Struct

from mcpbridge.routing.dense import Near, packed
from mcpbridge.routing.fields import ServerFields, ToolFields, server_fields, tool_fields
from mcpbridge.routing.filters import Scope
from mcpbridge.routing.lanes import Shape
from mcpbridge.routing.lexical import Postings, WordIndex, postings_of
from mcpbridge.routing.names import NameIndex
from mcpbridge.routing.needs import Fits
from mcpbridge.routing.ranking import CatalogRanker
from mcpbridge.routing.tool_text import ServerText, ToolText
from mcpbridge.routing.vectors import table
from mcpbridge.routing.words import runs_of, stems_of

__all__ = ["CatalogRankers"]

_NAME = 200
"""Characters of a name that can be named."""
_SAID = 400
"""Characters of a description from which its vector is made: what it begins with says what the tool is for."""


class _Part(Struct, frozen=True, eq=False):
    """What is made of one server."""

    texts: int
    """A hash of the texts that it was made of."""
    ids: tuple[str, ...]
    names: tuple[tuple[str, str, str], ...]
    stems: tuple[tuple[str, ...], ...]
    """Of each tool's name, those that are not in its server's."""
    scopes: tuple[Scope, ...]
    postings: Postings
    vectors: bytes


class CatalogRankers:
    """Makes rankers by words and vectors, and keeps the parts of the servers that the last one was made of."""

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}
        self._table = table() if sys.byteorder == "little" else None

    def of(self, servers: Sequence[tuple[ServerText, Sequence[ToolText]]]) -> CatalogRanker:
        """As the protocol says."""
        parts: dict[int, _Part] = {}
        order: list[_Part] = []
        for server, tools in servers:
            about = server_fields(server)
            fields = [tool_fields(tool) for tool in tools]
            ids = tuple(tool.id for tool in tools)
            tags = tuple(tool.tags for tool in tools)
            texts = hash((server, about, tuple(fields), ids, tags))
            part = self._parts.get(texts) or self._made(texts, server, tools, about, fields)
            parts[texts] = part
            order.append(part)
        self._parts = parts
        return self._merged([server for server, _ in servers], order)

    def _made(
        self,
        texts: int,
        server: ServerText,
        tools: Sequence[ToolText],
        about: ServerFields,
        fields: Sequence[ToolFields],
    ) -> _Part:
        vectors = b""
        if self._table is not None:
            vectors = packed(self._table.vector(_words(about, tool)) for tool in fields)
        said = frozenset(stems_of(about.name))
        return _Part(
            texts,
            tuple(tool.id for tool in tools),
            tuple((tool.id[:_NAME], tool.name[:_NAME], server.name[:_NAME]) for tool in tools),
            tuple(tuple(stem for stem in dict.fromkeys(stems_of(tool.name)) if stem not in said) for tool in fields),
            tuple(Scope.of(server, tool) for tool in tools),
            postings_of(about, fields),
            vectors,
        )

    def _merged(self, servers: Sequence[ServerText], parts: Sequence[_Part]) -> CatalogRanker:
        first = 0
        spans: list[tuple[str, str, range]] = []
        for server, part in zip(servers, parts, strict=True):
            spans.append((server.name[:_NAME], server.title[:_NAME], range(first, first + len(part.ids))))
            first += len(part.ids)
        shape = Shape(first)
        near = Near(shape, [part.vectors for part in parts], self._table.dims) if self._table is not None else None
        words = WordIndex(shape, ((len(part.ids), part.postings) for part in parts))
        return CatalogRanker(
            [one for part in parts for one in part.ids],
            [scope for part in parts for scope in part.scopes],
            shape,
            NameIndex((names for part in parts for names in part.names), spans),
            Fits(shape, words, near, [stems for part in parts for stems in part.stems]),
            self._table,
        )


def _words(about: ServerFields, tool: ToolFields) -> list[tuple[str, int]]:
    """What a tool's vector is made of, and how much each word counts."""
    texts = ((about.name, 1), (tool.name, 2), (tool.title, 1), (tool.description[:_SAID], 1))
    return [(word, weight) for text, weight in texts for run in runs_of(text) for word in run.plain]
