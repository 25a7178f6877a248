"""A ranker that adds the judgement of an embedding model to another ranker's.

The other ranker chooses the candidates, so its filters and what may be found at all are its own; the model reorders
them. Tools that the query names stay in front. Where vectors are missing, answers are the other ranker's.
`EmbeddedRankers` opens the embedder that the settings name.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from statistics import median

from msgspec.structs import replace

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.catalog.search.embeddings.embedder import (
    Embedder,
    Vector,
    VectorCache,
    cache_path,
    similarities,
    texts_of_query,
    tool_text,
)
from mcpbridge.catalog.search.embeddings.vectors import Vectors
from mcpbridge.catalog.search.index_cache import digest_of
from mcpbridge.catalog.search.ranker import Explanation, Hit, Ranker, Rankers, ServerText, ToolText
from mcpbridge.catalog.search.weights import PART_NEARNESS, SAME_NEARNESS
from mcpbridge.catalog.settings import EmbedderSettings

_DEPTH = 200
"""Candidates that are judged: nearly every tool that fits is among them."""
_FEWEST, _PRODUCTS = 20, 150_000
"""Candidates, and products of two numbers, for which there is time without numpy: the latter take 10 ms."""


class EmbeddedRanker:
    """A `Ranker` over another one."""

    def __init__(self, base: Ranker, texts: Mapping[str, str], vectors: Vectors, weight: float) -> None:
        """`texts`: what the model gets of each tool, by id. `weight`: the model's share in a score, 0 to 1."""
        self._base, self._texts, self._vectors, self._weight = base, texts, vectors, weight

    def rank(self, query: str, limit: int, *, among: Container[str] | None = None) -> list[Hit]:
        """The best tools, best first. Without the model if `Vectors.prepare` has not found the query's vectors."""
        asked = self._asked(query)
        if not asked or limit <= 0:
            return self._base.rank(query, limit, among=among)
        hits = self._base.rank(query, max(limit, _DEPTH), among=among)
        return fused(hits, self._near(asked, hits), self._weight)[:limit]

    def explain(self, query: str, limit: int, *, among: Container[str] | None = None) -> Mapping[str, Explanation]:
        """As the protocol says."""
        asked = self._asked(query)
        if not asked or limit <= 0:
            return self._base.explain(query, limit, among=among)
        depth = max(limit, _DEPTH)
        hits, base = self._base.rank(query, depth, among=among), self._base.explain(query, depth, among=among)
        near = self._near(asked, hits)
        top = max((hit.score for hit in hits if not hit.is_named), default=0.0)
        wanted = {hit.id for hit in self.rank(query, limit, among=among)}
        own = 1 - self._weight
        return {
            id_: one if top <= 0 or id_ not in near else _weighed(one, own, self._weight * top, near[id_])
            for id_, one in base.items()
            if id_ in wanted
        }

    def _asked(self, query: str) -> list[Vector]:
        return self._vectors.query(texts_of_query(query)) if self._vectors.is_ready else []

    def _near(self, asked: Sequence[Vector], hits: Sequence[Hit]) -> dict[str, float]:
        """How near the hits are, as far as there is time to find out; the lower ones count as far."""
        most = len(hits)
        if "numpy" not in sys.modules:
            most = max(_FEWEST, _PRODUCTS // sum(map(len, asked)))
        known = {hit.id: vector for hit in hits[:most] if (vector := self._vectors.tool(self._texts.get(hit.id, "")))}
        return nearness(asked, known) | {hit.id: 0.0 for hit in hits[most:]}


def _weighed(one: Explanation, own: float, model: float, near: float) -> Explanation:
    """The points with the share that is left to them, and those of the model."""
    return replace(
        one,
        words=tuple(replace(word, points=word.points * own) for word in one.words),
        vectors=one.vectors * own,
        asked=one.asked * own,
        name=one.name * own,
        model=model * near,
        model_nearness=near,
    )


class EmbeddedRankers:
    """`Rankers` over others. Made on the event loop's thread; `of` is called in another one."""

    def __init__(self, base: Callable[[], Rankers], vectors: Vectors, weight: float) -> None:
        """`base` is called once, with the first catalog."""
        self._make, self._vectors, self._weight = base, vectors, weight
        self._base: Rankers | None = None
        self._texts: dict[bytes, dict[str, str]] = {}
        """By `digest_of` each server: what the model is given of each of its tools."""
        self._loop = asyncio.get_running_loop()

    def of(self, servers: Sequence[tuple[ServerText, Sequence[ToolText]]]) -> Ranker:
        """The ranker of these tools; the vectors that are missing are made from now on, in the background."""
        if self._base is None:
            self._base = self._make()
        texts = self._texts_of(servers)
        _soon(self._loop, lambda: self._vectors.want(texts.values()))
        return EmbeddedRanker(self._base.of(servers), texts, self._vectors, self._weight)

    def _texts_of(self, servers: Sequence[tuple[ServerText, Sequence[ToolText]]]) -> dict[str, str]:
        """What the model is given of each tool; of servers that did not change the same as before."""
        before, self._texts = self._texts, {}
        found: dict[str, str] = {}
        for server, tools in servers:
            digest = digest_of(server, tools)
            texts = before.get(digest)
            if texts is None:
                texts = {tool.id: tool_text(server, tool) for tool in tools}
            self._texts[digest] = texts
            found |= texts
        return found

    async def prepare(self, query: str) -> bool:
        """To be awaited before a query is put to a ranker; on the event loop's thread. False: it ranks without.

        Waits no longer than the settings allow, and not at all while the tools' vectors are made.
        """
        return await self._vectors.prepare(texts_of_query(query))


def nearness(asked: Sequence[Vector], vectors: Mapping[str, Vector]) -> dict[str, float]:
    """How near each vector is to a request and its parts (`texts_of_query`): 1 is the one nearest to the whole.

    The one in the middle counts a third. So the order counts, and by how much one is nearer than others: between
    which numbers they all lie differs from model to model, and says nothing.
    """
    best = dict.fromkeys(vectors, 0.0)
    for number, query in enumerate(asked):
        found = similarities(query, list(vectors.values()))
        nearest = max(found, default=0.0)
        room = 1.5 * (nearest - median(found or [0.0]))
        share = PART_NEARNESS if number else 1.0
        for one, similar in zip(vectors, found, strict=True):
            near = 1 - (nearest - similar) / room if room > SAME_NEARNESS else 1.0
            best[one] = max(best[one], share * near)
    return best


def fused(hits: Sequence[Hit], near: Mapping[str, float], weight: float) -> list[Hit]:
    """The same hits in the order of both judgements; those that are named stay first and as they are.

    `near`: how near a tool is to the query for the model, 0 to 1; one without is judged by its score alone. The best
    keeps about the score that the best had, so that scores say as before whether anything fits at all.
    """
    named = [hit for hit in hits if hit.is_named]
    others = [hit for hit in hits if not hit.is_named]
    top = max((hit.score for hit in others), default=0.0)
    if top <= 0 or not near:
        return list(hits)
    judged = [
        hit.score if (other := near.get(hit.id)) is None else (1 - weight) * hit.score + weight * top * other
        for hit in others
    ]
    order = sorted(range(len(others)), key=judged.__getitem__, reverse=True)
    return named + [replace(others[place], score=judged[place]) for place in order]


def _soon(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        pass  # the bridge has stopped


def open_vectors(
    settings: EmbedderSettings, tasks: OwnedTasks, *, environ: Mapping[str, str] = os.environ
) -> Vectors | None:
    """The vectors of the model in the settings; None if there is to be none. Nothing is read or contacted yet.

    They are to be closed after the tasks have ended.

    Raises:
        ConfigError: something is missing in the settings.
    """
    if settings.kind == "none":
        return None
    return Vectors(_embedder(settings), VectorCache(cache_path(environ)), tasks, timeout=settings.timeout)


def _embedder(settings: EmbedderSettings) -> Embedder:
    if settings.kind == "http":
        from mcpbridge.catalog.search.embeddings.http import HttpEmbedder

        return HttpEmbedder(settings)
    from mcpbridge.catalog.search.embeddings.local import LocalEmbedder

    return LocalEmbedder(settings.model)
