"""Who has a name: the snapshot of the moment, or a server that is still starting."""

from collections.abc import Callable
from typing import TypeVar

from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.downstream.handling import Startup
from mcpbridge.errors import BridgeError, UnknownName
from mcpbridge.model import Caller
from mcpbridge.policy.decide import Audience
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.supervisor import Upstream

__all__ = ["Finding"]

_Found = TypeVar("_Found")


class Finding:
    """Looks names up, and waits for those that may come yet."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        startup: Startup,
        missing: Callable[[str], BridgeError | None] = lambda name: None,
    ) -> None:
        """`missing`: why a tool of this name, which no server has, is not there now; None: nobody knows of it."""
        self._catalog, self._pool, self._more, self._missing = catalog, pool, startup.more, missing

    async def find(
        self, view: str, name: str, look: Callable[[Snapshot], _Found], *, seen_by: Caller | None = None
    ) -> _Found:
        """What `look` finds in a view; while servers are starting it may be a server's that has not listed yet.

        `seen_by`: who is suggested tools where there is none of that name; None: no tools are looked for.

        Raises:
            UpstreamUnavailable: by its prefix the name belongs to a server that is not to be had; says why.
            UnknownName: nobody has it.
            Overloaded: too many wait for the start already.
        """
        try:
            return await self._find(view, name, look, seen_by)
        except UnknownName:
            if (why := self._missing(name)) is not None:
                raise why from None
            raise

    async def _find(self, view: str, name: str, look: Callable[[Snapshot], _Found], seen_by: Caller | None) -> _Found:
        try:
            return look(self._catalog.view(view, self._audience(seen_by)))
        except UnknownName:
            upstream = self._unlisted(view) if view else self._named_in(name)
        if upstream is not None:
            await upstream.ready()  # its own start alone is waited for
        if view or upstream is not None:
            return look(self._catalog.flush(view, self._audience(seen_by)))
        is_over = False
        while True:
            try:  # first without waiting: what was listed a moment ago may not be in the snapshot yet
                return look(self._catalog.flush(audience=self._audience(seen_by)))
            except UnknownName:
                if is_over:
                    raise
            is_over = not await self._more()

    def _audience(self, caller: Caller | None) -> Audience | None:
        return self._catalog.audience(caller.name, caller.principal) if caller is not None else None

    def _named_in(self, name: str) -> Upstream | None:
        """The server whose prefix the name has, if it has not listed anything so far."""
        for server in self._pool.upstreams:
            if name.startswith((f"{server}__", f"{server}/", f"{server}.")) and (upstream := self._unlisted(server)):
                return upstream
        return None

    def _unlisted(self, server: str) -> Upstream | None:
        """This server, if it has not listed anything so far."""
        upstream = self._pool.upstreams.get(server)
        return upstream if upstream is not None and not upstream.lists else None
