"""All that searching tools needs, built from the `search` section: the ranker of the catalog, vectors, and tasks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.owned_tasks import OwnedTasks
from mcpbridge.routing.search import Search
from mcpbridge.routing.settings import EmbedderSettings
from mcpbridge.routing.tool_text import ServerText
from mcpbridge.upstream.pool import Pool

if TYPE_CHECKING:  # loaded when they are needed
    from mcpbridge.routing.embedding_vectors import Vectors
    from mcpbridge.routing.ranker import Rankers

__all__ = ["Searching"]

_LONGEST_SAID = 400
"""Characters of a server's instructions that count in a search."""


class Searching:
    """The search over one catalog. What the settings say of servers is looked up when it is needed."""

    def __init__(self, embedder: EmbedderSettings, catalog: Catalog, pool: Pool) -> None:
        """Touches nothing: no file, no process.

        Raises:
            ConfigError: the embedder of the settings cannot be had.
        """
        self._catalog, self._pool, self._weight = catalog, pool, embedder.weight
        self._tasks = OwnedTasks()
        self._vectors = None if embedder.kind == "none" else _opened(embedder, self._tasks)
        prepare = None if self._vectors is None else self._prepare
        self.search = Search(self._rankers, lambda: catalog.snapshot, self.says, self._tags, self._tasks, prepare)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Rankers may be made meanwhile; leaving ends that, and lets go of the model."""
        try:
            async with self._tasks.running():
                yield
        finally:
            if self._vectors is not None:
                await self._vectors.close()

    def says(self, server: str) -> ServerText:
        """What a server says of itself, and the settings of it."""
        settings = self._catalog.settings.get(server)
        upstream = self._pool.upstreams.get(server)
        title = settings.title if settings is not None and settings.title else upstream.title if upstream else ""
        said = upstream.instructions[:_LONGEST_SAID] if upstream is not None else ""
        return ServerText(server, title, said, tuple(settings.tags) if settings is not None else ())

    def _tags(self, ref: ToolRef) -> tuple[str, ...]:
        server = self._catalog.settings.get(ref.server)
        own = server.tool.get(ref.name) if server is not None else None
        return tuple(own.tags) if own is not None else ()

    def _rankers(self) -> "Rankers":
        from mcpbridge.routing.index import CatalogRankers

        if self._vectors is None:
            return CatalogRankers()
        from mcpbridge.routing.embedded_ranker import EmbeddedRankers

        return EmbeddedRankers(CatalogRankers, self._vectors, self._weight)

    async def _prepare(self, query: str) -> None:
        from mcpbridge.routing.embedding import texts_of_query

        if self._vectors is not None:
            await self._vectors.prepare(texts_of_query(query))


def _opened(settings: EmbedderSettings, tasks: OwnedTasks) -> "Vectors | None":
    from mcpbridge.routing.embedding_opening import open_vectors

    return open_vectors(settings, tasks)
