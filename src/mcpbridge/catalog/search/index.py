"""The index of one catalog's tools: it orders them for a query.

Tools that the query names come first, then those that fit its needs best. When the catalog changes, the parts of
servers whose texts stayed the same are used again. Words are in `lexical/`, vectors in `embeddings/`.
"""

import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import compress, islice
from typing import TypeVar, cast

from msgspec.structs import replace

from mcpbridge.catalog.search.index_cache import IndexCache, ServerIndex, digest_of
from mcpbridge.catalog.search.lexical.bitsets import Mask, Shape
from mcpbridge.catalog.search.lexical.bm25 import (
    ServerFields,
    ToolFields,
    WordIndex,
    postings_of,
    server_fields,
    tool_fields,
)
from mcpbridge.catalog.search.lexical.concepts import expansions
from mcpbridge.catalog.search.lexical.needs import Best, FitParts, Fits, clauses, need_of
from mcpbridge.catalog.search.lexical.word_vectors import Near, Table, packed, table
from mcpbridge.catalog.search.published_tools import labels_of
from mcpbridge.catalog.search.query_filters import Scope, parse_filters
from mcpbridge.catalog.search.ranker import Explanation, Hit, ServerText, ToolText, WordShare
from mcpbridge.catalog.search.weights import PART, PART_WORDS, STEP
from mcpbridge.catalog.words import NameIndex, forget_runs, runs_of, stems_of

_T = TypeVar("_T")

_QUERY = 8000
"""Characters of a query that are looked at."""
_DEPTH = 24
"""Tools that are looked at closely."""
_PART_DEPTH = 10
"""The same for a part of a request: the answer has room for some tools of each part."""
_SEEN = 4
"""Sets of tools of which is kept where in the catalog they are."""


class CatalogRanker:
    """Ranks by words and vectors. A value; safe to share between threads."""

    def __init__(
        self,
        ids: Sequence[str],
        scopes: Sequence[Scope],
        shape: Shape,
        names: NameIndex,
        fits: Fits,
        table: Table | None,
    ) -> None:
        self._ids, self._scopes, self._shape, self._names = ids, scopes, shape, names
        self._fits, self._table = fits, table
        self._seen: tuple[tuple[Container[str], int, Mask], ...] = ()

    def rank(self, query: str, limit: int, *, among: Container[str] | None = None) -> list[Hit]:
        """As the protocol says."""
        filters, text = parse_filters(query[:_QUERY])
        text = text.strip()
        allowed = self._allowed(filters.passes if filters else None, among)
        if filters and not text:
            flags = allowed.flags if allowed is not None else b"\1" * len(self._ids)
            return [Hit(one, 1.0) for one in islice(compress(self._ids, flags), max(0, limit))]
        named = [number for number in self._names.named(text) if allowed is None or allowed.flags[number]]
        scores, sure = self._scores(text, max(limit, _DEPTH), allowed)
        for number in named:
            scores.pop(number, None)
        ordered = sorted(scores.items(), key=lambda one: (-one[1], one[0]))
        scale = sure / ordered[0][1] if ordered and ordered[0][1] > 0 else 0.0
        found = [Hit(self._ids[number], 1.0, is_named=True) for number in named]
        found += [
            Hit(self._ids[number], max(0.0, min(1.0, score * scale))) for number, score in ordered[: max(0, limit)]
        ]
        return found[: max(0, limit)]

    def _allowed(self, passes: Callable[[Scope], bool] | None, among: Container[str] | None) -> Mask | None:
        allowed = None if among is None else self._of_these(among)
        if passes is None:
            return allowed
        if allowed is None:
            return self._shape.mask(bytes(map(passes, self._scopes)))
        both = zip(allowed.flags, self._scopes, strict=True)
        return self._shape.mask(bytes([flag and passes(scope) for flag, scope in both]))

    def _of_these(self, among: Container[str]) -> Mask:
        """The tools of these ids. Callers pass the same mapping again and again: what became of it is kept."""
        size = len(cast("Sized", among)) if isinstance(among, Mapping | frozenset) else None
        for seen, before, mask in self._seen:
            if seen is among and size == before:
                return mask
        mask = self._shape.mask(bytes(map(among.__contains__, self._ids)))
        if size is not None:
            self._seen = ((among, size, mask), *self._seen[: _SEEN - 1])
        return mask

    def explain(self, query: str, limit: int, *, among: Container[str] | None = None) -> Mapping[str, Explanation]:
        """As the protocol says."""
        filters, text = parse_filters(query[:_QUERY])
        text = text.strip()
        if not text:
            return {}
        allowed = self._allowed(filters.passes if filters else None, among)
        wanted = {hit.id for hit in self.rank(query, limit, among=among) if not hit.is_named}
        tools = [number for number, id_ in enumerate(self._ids) if id_ in wanted]
        scores, sure = self._scores(text, max(limit, _DEPTH), allowed)
        for number in self._names.named(text):
            if allowed is None or allowed.flags[number]:
                scores.pop(number, None)
        top = max(scores.values(), default=0.0)
        scale = sure / top if top > 0 else 0.0
        best: dict[int, tuple[float, str, float]] = {}
        for part, one, weight in self._needs(text, max(limit, _DEPTH), allowed):
            for place, fit in enumerate(one.fits):
                factor = weight * STEP**place if part is not None else 1.0
                if fit.tool in tools and fit.score * factor > best.get(fit.tool, (-1.0,))[0]:
                    best[fit.tool] = fit.score * factor, part or "", factor * scale
        found: dict[str, Explanation] = {}
        for part in {part for _, part, _ in best.values()}:
            of_part = [tool for tool, (_, of, _) in best.items() if of == part]
            found |= self._explained(part or text, part, {tool: best[tool][2] for tool in of_part}, allowed)
        return found

    def _explained(
        self, text: str, part: str, factors: Mapping[int, float], allowed: Mask | None
    ) -> dict[str, Explanation]:
        """What made the scores of tools that fit this text; `factors` bring theirs to those of the hits."""
        tools = list(factors)
        parts = self._fits.parts(need_of(text, self._table), tools, allowed)
        words, implied = _words_by_stem(text), _implied_by_stem(text)
        near: dict[int, list[tuple[str, float]]] = {tool: [] for tool in tools}
        table = self._table
        asked = list(dict.fromkeys((*words.values(), *implied.values())))[:_NEAR_WORDS]
        for word, vector in [(word, table.vector([(word, 1)])) for word in asked] if table is not None else ():
            for tool, one in self._fits.near(vector, tools).items():
                near[tool].append((word, one))
        return {
            self._ids[tool]: Explanation(
                self._ids[tool],
                part,
                _shares(parts[tool], factor, words, implied),
                parts[tool].vectors * factor,
                parts[tool].asked * factor,
                parts[tool].name * factor,
                nearness=parts[tool].near,
                near_words=tuple(sorted((one for one in near[tool] if one[1] > 0), key=lambda one: -one[1])),
            )
            for tool, factor in factors.items()
        }

    def _scores(self, text: str, depth: int, allowed: Mask | None) -> tuple[dict[int, float], float]:
        """The tools for a request, as a whole and by its parts, with their scores; and how well the best one fits."""
        needs = self._needs(text, depth, allowed)
        if len(needs) == 1:
            ((_, whole, _),) = needs
            return {fit.tool: fit.score for fit in whole.fits}, whole.sure
        scores: dict[int, float] = {}
        for _, best, weight in needs:
            for place, fit in enumerate(best.fits):
                score = fit.score * weight * STEP**place
                scores[fit.tool] = max(score, scores.get(fit.tool, 0.0))
        return scores, max(best.sure for _, best, _ in needs)

    def _needs(self, text: str, depth: int, allowed: Mask | None) -> Sequence[tuple[str | None, Best, float]]:
        """A request as a whole, and its parts if it has several needs: text, best tools, and what their scores count.

        The text of the whole is empty; None if there are no parts, so that no place counts less than another.
        """
        whole = self._best(text, depth, allowed)
        texts = clauses(text)
        of_part = min(depth, max(_PART_DEPTH, depth // max(1, len(texts))))
        parts = [(part, self._best(part, of_part, allowed)) for part in texts]
        if not parts:
            return [(None, whole, 1.0)]
        most = max(best.telling for _, best in parts) or 1.0
        weighed = [(part, best, PART * (best.telling / most) ** PART_WORDS) for part, best in parts]
        return [("", whole, 1.0), *weighed]

    def _best(self, text: str, depth: int, allowed: Mask | None) -> Best:
        return self._fits.best(need_of(text, self._table), depth, allowed)


_NAME = 200
"""Characters of a name that can be named."""
_MAX_DESCRIPTION = 400
"""Characters of a description from which its vector is made: what it begins with says what the tool is for."""


_NEAR_WORDS = 16
"""Words of a request of which an explanation says how near each is by itself."""


def _words_by_stem(text: str) -> dict[str, str]:
    """The words of a request by their stems: what people wrote, not what is compared."""
    found: dict[str, str] = {}
    for run in runs_of(text):
        for word in run.plain:
            for stem in stems_of(word):
                found.setdefault(stem, word)
        for stem in run.stems:
            found.setdefault(stem, stem)
    return found


def _implied_by_stem(text: str) -> dict[str, str]:
    return {stem: word for word in expansions(text) for stem in stems_of(word)}


def _shares(
    parts: FitParts, factor: float, words: Mapping[str, str], implied: Mapping[str, str]
) -> tuple[WordShare, ...]:
    found = [
        WordShare(words.get(stem) or implied.get(stem, stem), points * factor, stem not in words)
        for stem, points in parts.words.items()
        if points * factor > 0  # what all tools have that may be shown says nothing
    ]
    return tuple(sorted(found, key=lambda one: -one.points))


class CatalogRankers:
    """Makes rankers by words and vectors, and keeps the parts of the servers that the last one was made of."""

    def __init__(self, cache: IndexCache | None = None) -> None:
        """`cache`: where what is made of each server is kept for the next start."""
        self._parts: dict[bytes, tuple[int, ServerIndex]] = {}
        """By digest: the first of its tools in the last ranker, and its index without the vectors."""
        self._near: Near | None = None
        """Of the last ranker: has the vectors of all parts."""
        self._cache = cache
        self._table = table() if sys.byteorder == "little" else None

    def of(self, servers: Sequence[tuple[ServerText, Sequence[ToolText]]]) -> CatalogRanker:
        """As the protocol says."""
        known = self._near.vectors() if self._near is not None else b""
        width = 2 * self._table.dims if self._table is not None else 0
        order: list[ServerIndex] = []
        is_new = False
        for server, tools in servers:
            digest = digest_of(server, tools)
            if (kept := self._parts.get(digest)) is not None:
                first, part = kept
                part = replace(part, vectors=known[first * width : (first + len(tools)) * width])
            else:
                part, is_new = self._part(digest, server, tools), True
            order.append(part)
        ranker = self._merged(servers, order)
        if is_new:
            self._forget_words()
        return ranker

    def _part(self, digest: bytes, server: ServerText, tools: Sequence[ToolText]) -> ServerIndex:
        """What was kept of a server; made anew if that is of other texts."""
        kept = self._cache.get(server.name, digest) if self._cache is not None else None
        if kept is None:
            kept = self._build(digest, server, tools)
            if self._cache is not None:
                self._cache.put(server.name, kept)
        return kept

    def _build(self, digest: bytes, server: ServerText, tools: Sequence[ToolText]) -> ServerIndex:
        about = server_fields(server)
        fields = [tool_fields(tool) for tool in _unhurried(tools)]
        vectors = b""
        if self._table is not None:
            vectors = packed(self._table.vector(_words(about, tool)) for tool in _unhurried(fields))
        in_server = frozenset(stems_of(about.name))
        stems = (dict.fromkeys(stem for stem in stems_of(tool.name) if stem not in in_server) for tool in fields)
        return ServerIndex(digest, "\n".join(map(" ".join, stems)), postings_of(about, _unhurried(fields)), vectors)

    def _merged(
        self, servers: Sequence[tuple[ServerText, Sequence[ToolText]]], parts: Sequence[ServerIndex]
    ) -> CatalogRanker:
        ids: list[str] = []
        names: list[tuple[str, str, str]] = []
        scopes: list[Scope] = []
        spans: list[tuple[str, str, range]] = []
        stems: list[str] = []
        kept: dict[bytes, tuple[int, ServerIndex]] = {}
        same: dict[Scope, Scope] = {}
        for (server, tools), part in zip(servers, parts, strict=True):
            first, name = len(ids), server.name[:_NAME]
            kept[part.digest] = first, replace(part, vectors=b"")
            for label in labels_of(tools):
                ids.append(label.id)
                names.append((label.id[:_NAME], label.name[:_NAME], name))
                scope = Scope.of(server, label.tags)
                scopes.append(same.setdefault(scope, scope))
            spans.append((name, server.title[:_NAME], range(first, len(ids))))
            stems += part.stems.split("\n") if tools else ()
        shape = Shape(len(ids))
        near = Near(shape, [part.vectors for part in parts], self._table.dims) if self._table is not None else None
        sizes = [len(tools) for _, tools in servers]
        words = WordIndex(shape, zip(sizes, (part.postings for part in parts), strict=True))
        self._parts, self._near = kept, near
        fits = Fits(shape, words, near, stems)
        return CatalogRanker(ids, scopes, shape, NameIndex(names, spans), fits, self._table)

    def _forget_words(self) -> None:
        """Let go of what is known of words: queries have few of all those that a catalog has."""
        forget_runs()
        if self._table is not None:
            self._table.forget()


_AT_A_TIME = 8
"""Tools that are read before other threads have a turn: about a millisecond."""
_PAUSE = 1e-4
"""Seconds."""


def _unhurried(tools: Iterable[_T]) -> Iterator[_T]:
    """The same, with pauses: else the event loop would wait for this thread, which never waits for anything."""
    for number, tool in enumerate(tools):
        if number % _AT_A_TIME == 0:
            time.sleep(_PAUSE)
        yield tool


def _words(about: ServerFields, tool: ToolFields) -> list[tuple[str, int]]:
    """What a tool's vector is made of, and how much each word counts."""
    texts = ((about.name, 1), (tool.name, 2), (tool.title, 1), (tool.description[:_MAX_DESCRIPTION], 1))
    return [(word, weight) for text, weight in texts for run in runs_of(text) for word in run.plain]
