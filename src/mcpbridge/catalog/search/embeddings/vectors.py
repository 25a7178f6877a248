"""The vectors of the current catalog's tools, made in the background, and of queries, made while they wait a little.

A search never waits for tools' vectors, and for its query's no longer than it may: without them tools are found by
words. A model that fails is left alone for a while. What is at hand is read by any thread; the rest is the loop's.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import anyio.to_thread

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.search.embeddings.embedder import (
    Embedder,
    EmbedderFailed,
    Vector,
    VectorCache,
    direction,
    key_of,
)
from mcpbridge.catalog.search.embeddings.encoder import load_numpy

log = get_logger("mcpbridge.routing")

_BATCH = 32
"""Texts that a model is given at once: what was made is kept after each."""
_READ = 2000
"""Texts that are looked for in the cache at once."""
_ENOUGH = 0.9
"""Part of the tools that must have a vector: of a few the best is near to nothing."""
_PAUSES = (5.0, 30.0, 120.0, 600.0)
"""Seconds that a model is left alone after it failed, and failed again."""
_RESTING = 30.0
"""Seconds in which no query is put to a model that failed, or was too slow."""
_QUERIES = 256
"""Queries whose vectors are kept; what a request asks for is often asked for again."""


class Vectors:
    """One model's vectors. Its methods are called on the event loop's thread, but for those that say otherwise."""

    def __init__(
        self,
        embedder: Embedder,
        cache: VectorCache | None,
        tasks: OwnedTasks,
        *,
        timeout: float,
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        """`timeout`: seconds that a search waits for its query's vectors. `embedder` and `cache` are closed by it."""
        self._embedder, self._cache, self._tasks = embedder, cache, tasks
        self._timeout, self._pauses = timeout, pauses
        self._wanted: dict[str, None] = {}
        self._tools: dict[str, Vector] = {}
        """By text; of texts that are wanted only. Swapped whole, or added to."""
        self._looked_for: dict[str, None] = {}
        """What is wanted as it was when the cache was looked into."""
        self._queries: dict[str, Vector] = {}
        self._asking: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._filling: asyncio.Task[None] | None = None
        self._rests_until = 0.0
        self._failures = 0

    @property
    def name(self) -> str:
        """The model's."""
        return self._embedder.name

    @property
    def is_ready(self) -> bool:
        """Whether nearly all tools have their vectors. On any thread."""
        return bool(self._wanted) and len(self._tools) >= _ENOUGH * len(self._wanted)

    @property
    def is_settled(self) -> bool:
        """Nothing is being made for tools."""
        return self._filling is None or self._filling.done()

    def tool(self, text: str) -> Vector | None:
        """That of a tool's text, if it is at hand. On any thread."""
        return self._tools.get(text)

    def query(self, texts: Sequence[str]) -> list[Vector]:
        """Those of a query's texts; none if one is missing. On any thread."""
        known = self._queries
        found = [known.get(text) for text in texts]
        return [vector for vector in found if vector] if all(found) else []

    def want(self, texts: Iterable[str]) -> None:
        """From now on these are the tools; what is not at hand is read or made, and the others are forgotten."""
        self._wanted = dict.fromkeys(texts)
        self._tools = {text: vector for text, vector in self._tools.items() if text in self._wanted}
        if self.is_settled:
            self._filling = self._tasks.spawn(self._fill())

    async def prepare(self, texts: Sequence[str]) -> bool:
        """Have a query's vectors at hand; waits for as long as it may. False: it has to be answered without."""
        key = tuple(texts)
        if not key or not self.is_ready:
            return False
        if not self.query(key):
            now = asyncio.get_running_loop().time()
            if now < self._rests_until:
                return False
            task = self._asking.get(key) or self._tasks.spawn(self._ask(key))
            if task is None:  # the bridge stops
                return False
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key, None))
            done, _ = await asyncio.wait([task], timeout=self._timeout)
            if not done:
                self._rest()
        return bool(self.query(key))

    async def settled(self) -> None:
        """Wait until all that is wanted is there, or cannot be had at all. For programs that measure."""
        while self._filling is not None and not self._filling.done():
            await asyncio.wait([self._filling])

    async def close(self) -> None:
        """Let go of the model and of the file. What is under way is ended by who owns the tasks."""
        await self._embedder.close()
        if self._cache is not None:
            await self._cache.close()

    # -- queries

    async def _ask(self, texts: Sequence[str]) -> None:
        """Goes on when nobody waits any more: who asks again is answered with it."""
        prefix = self._embedder.prefixes.query
        try:
            made = await self._embed([prefix + text for text in texts])
        except EmbedderFailed as error:
            self._rest()
            self._complain(error)
            return
        for text, vector in zip(texts, made, strict=True):
            self._queries.pop(text, None)
            self._queries[text] = vector
        while len(self._queries) > _QUERIES:
            del self._queries[next(iter(self._queries))]

    def _rest(self) -> None:
        self._rests_until = asyncio.get_running_loop().time() + _RESTING

    # -- tools

    async def _fill(self) -> None:
        """Until all that is wanted is there; a newer catalog is seen to first."""
        await anyio.to_thread.run_sync(load_numpy)  # with it vectors are compared faster
        while missing := [text for text in self._wanted if text not in self._tools]:
            if self._looked_for is not self._wanted:
                self._looked_for = self._wanted
                await self._read(missing)
                continue
            for first in range(0, len(missing), _BATCH):
                if self._looked_for is not self._wanted or not await self._add(missing[first : first + _BATCH]):
                    break

    async def _add(self, texts: Sequence[str]) -> bool:
        """Have a few vectors made. False, after a pause: the model has failed."""
        try:
            made = await self._embed([self._embedder.prefixes.tool + text for text in texts])
        except EmbedderFailed as error:
            self._complain(error)
            await asyncio.sleep(self._pauses[min(self._failures, len(self._pauses)) - 1])
            return False
        self._failures = 0
        self._take(texts, made)
        await self._keep(texts, made)
        return True

    async def _read(self, texts: Sequence[str]) -> None:
        """Take from the cache what is there."""
        if self._cache is None:
            return
        for first in range(0, len(texts), _READ):
            keys = {self._key(text): text for text in texts[first : first + _READ]}
            found = await self._cache.get(list(keys))
            self._take([keys[key] for key in found], list(found.values()))

    async def _keep(self, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        if self._cache is not None:
            pairs = zip(texts, vectors, strict=True)
            await self._cache.put({self._key(text): vector for text, vector in pairs if vector})

    def _key(self, text: str) -> bytes:
        return key_of(self.name, self._embedder.prefixes.tool + text)

    def _take(self, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        for text, vector in zip(texts, vectors, strict=True):
            if text in self._wanted:
                self._tools[text] = vector

    # -- both

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        """The model's vectors as they are kept.

        Raises:
            EmbedderFailed: it has none.
        """
        try:
            vectors = list(_directions(await self._embedder.embed(texts)))
        except (ValueError, TypeError, OverflowError) as error:
            raise EmbedderFailed(f"a model's vectors cannot be used: {error}") from error
        if len(vectors) != len(texts):
            raise EmbedderFailed(f"a model made {len(vectors)} vectors of {len(texts)} texts")
        return vectors

    def _complain(self, error: EmbedderFailed) -> None:
        self._failures += 1
        if self._failures == 1:
            log.warning("searching tools without the embedding model", model=self.name, reason=str(error))


def _directions(vectors: Iterable[Sequence[float] | Vector]) -> Iterator[Vector]:
    for vector in vectors:
        yield vector if isinstance(vector, bytes) else direction(vector)
