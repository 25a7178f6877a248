"""Search as the bridge uses it: the index of the current catalog, vectors and background tasks.

The index is made off the event loop when the catalog changes, once somebody has searched. There is one for everybody:
what a client may not see is left out of its answers, not out of the index. So an index holds each tool once, whatever
the policy and the profiles are. All of it is built from the `search` section of the configuration.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import anyio.to_thread

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import CallRefused
from mcpbridge.base.log import get_logger
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.search.published_tools import PublishedTools, text_of
from mcpbridge.catalog.search.ranker import Ranker, Rankers, ServerText, ToolText
from mcpbridge.catalog.settings import EmbedderSettings
from mcpbridge.catalog.snapshot import Snapshot, ToolRef
from mcpbridge.core.model import BRIDGE
from mcpbridge.upstream.pool import Pool

if TYPE_CHECKING:
    from mcpbridge.catalog.search.embeddings.vectors import Vectors
    from mcpbridge.catalog.search.index_cache import IndexCache
    from mcpbridge.catalog.search.ranker import Rankers


log = get_logger("mcpbridge.routing")

ServerSays = Callable[[str], ServerText]
"""What a server says of itself, by its name."""


class SavedBytes(Protocol):
    """Where bytes are kept between runs, which can be made again."""

    def aside(self, key: str) -> bytes:
        """What was put there under a key; empty if there is nothing. May be called in any thread."""
        ...

    def put_aside(self, key: str, data: bytes) -> None:
        """Have this written soon. Called on the event loop's thread."""
        ...


class SearchFailed(CallRefused):
    """The search for tools does not work at the moment."""

    def __init__(self) -> None:
        super().__init__("tools cannot be searched now; the log of the bridge says why")


class Search:
    """Makes rankers and hands out the newest. Its methods are called on the event loop's thread."""

    def __init__(
        self,
        rankers: Callable[[], Rankers],
        snapshot: Callable[[], Snapshot],
        says: ServerSays,
        tags: Callable[[ToolRef], tuple[str, ...]],
        tasks: OwnedTasks,
        prepare: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        """`rankers` is called once, at the first search. `tags`: those of a tool by the configuration.

        `prepare` gets each query before it is ranked, and waits no longer than a search may.
        """
        self._prepare = prepare
        self._make, self._snapshot, self._says, self._tags, self._tasks = rankers, snapshot, says, tags, tasks
        self._rankers: Rankers | None = None
        self._ranker: tuple[Snapshot, Ranker] | None = None
        self._making: asyncio.Task[None] | None = None
        self._failed: Snapshot | None = None
        self._is_wanted = False

    async def ranker(self, query: str = "") -> Ranker:
        """That of the current snapshot; waits while it is made, which an unchanged catalog needs once.

        `query`: what it is wanted for. Of a catalog that changes all the time it is that of a moment ago.

        Raises:
            SearchFailed: it cannot be made; the log says why.
        """
        self._is_wanted = True
        for _ in range(2):  # one may be under way, for the catalog before
            if (self._ranker is not None and self._ranker[0] is self._snapshot()) or self._failed is self._snapshot():
                break
            if self._making is None or self._making.done():
                self._making = self._tasks.spawn(self._remake())
            if self._making is not None:
                await asyncio.shield(self._making)
        if self._ranker is None:
            raise SearchFailed
        if self._prepare is not None and query:
            await self._prepare(query)
        return self._ranker[1]

    def refresh(self) -> None:
        """The catalog changed: make the next ranker ahead of the next search, if there will be one."""
        if self._is_wanted and (self._making is None or self._making.done()):
            self._making = self._tasks.spawn(self._remake())

    def warm(self) -> None:
        """Somebody is about to search."""
        if not self._is_wanted:
            self._is_wanted = True
            self.refresh()

    def text_of(self, ref: ToolRef) -> ToolText:
        """What this tool says of itself; read anew from its definition, about 10 µs."""
        return text_of(ref, self._tags(ref))

    async def _remake(self) -> None:
        """Make the next ranker; whoever waits does so for one, however fast the catalog changes."""
        snapshot = self._snapshot()
        try:
            await self._remake_of(snapshot)
        except Exception as error:
            log.error("searching tools failed", exc_info=error)
            self._failed = snapshot
        if self._snapshot() is not snapshot:
            asyncio.get_running_loop().call_soon(self.refresh)  # it was told of this while it was busy

    async def _remake_of(self, snapshot: Snapshot) -> None:
        if self._rankers is None:
            self._rankers = self._make()
        parts: dict[str, list[ToolRef]] = {}
        for ref in snapshot.tools.values():
            if ref.server != BRIDGE and not ref.app_only:
                parts.setdefault(ref.server, []).append(ref)
        server_texts = {server: self._says(server) for server in parts}
        self._ranker = snapshot, await anyio.to_thread.run_sync(self._ranked, parts, server_texts)

    def _ranked(self, parts: Mapping[str, Sequence[ToolRef]], server_texts: Mapping[str, ServerText]) -> Ranker:
        """In a thread; one at a time, as `_making` is."""
        assert self._rankers is not None, "`_remake` made it"
        return self._rankers.of(
            [
                (server_texts[server], PublishedTools(server, ((ref, self._tags(ref)) for ref in refs)))
                for server, refs in parts.items()
            ]
        )


_LONGEST_SAID = 400
"""Characters of a server's instructions that count in a search."""


class Searching:
    """The search over one catalog. What the settings say of servers is looked up when it is needed."""

    def __init__(
        self, embedder: EmbedderSettings, catalog: Catalog, pool: Pool, saved: SavedBytes | None = None
    ) -> None:
        """Touches nothing: no file, no process. `saved`: where the index is kept between runs.

        Raises:
            ConfigError: the embedder of the settings cannot be had.
        """
        self._catalog, self._pool, self._weight, self._saved = catalog, pool, embedder.weight, saved
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
        cache = self._cache()
        from mcpbridge.catalog.search.index import CatalogRankers

        if self._vectors is None:
            return CatalogRankers(cache)
        from mcpbridge.catalog.search.embeddings.ranker import EmbeddedRankers

        return EmbeddedRankers(lambda: CatalogRankers(cache), self._vectors, self._weight)

    def _cache(self) -> "IndexCache | None":
        if (saved := self._saved) is None:
            return None
        from mcpbridge.catalog.search.index_cache import IndexCache

        loop = asyncio.get_running_loop()

        def save(key: str, data: bytes) -> None:
            with suppress(RuntimeError):  # the bridge has stopped
                loop.call_soon_threadsafe(saved.put_aside, key, data)

        return IndexCache(saved.aside, save)

    async def _prepare(self, query: str) -> None:
        from mcpbridge.catalog.search.embeddings.embedder import texts_of_query

        if self._vectors is not None:
            await self._vectors.prepare(texts_of_query(query))


def _opened(settings: EmbedderSettings, tasks: OwnedTasks) -> "Vectors | None":
    from mcpbridge.catalog.search.embeddings.ranker import open_vectors

    return open_vectors(settings, tasks)
