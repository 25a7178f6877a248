"""What all request handlers share: their shape, reading params, and finding names.

`text` reads a string of the params, with an error that a client understands. `NameLookup` looks a name up in the
snapshot of the moment and waits for servers that are still starting. The handlers themselves are in `requests/`,
`notifications/` and `tasks/`; `server.py` has the table of methods.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from mcpbridge.base.errors import BadRequest, BridgeError, UnknownName
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.core.model import Caller
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.pipeline.permissions.policy import Audience
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS
from mcpbridge.protocol.jsonrpc import Frame, decode_text
from mcpbridge.protocol.payload import Payload
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.supervisor import Upstream

Handler = Callable[[Client, Frame, Notify], Awaitable[Payload]]
"""Answers one request with the bytes of its result. Errors are raised; `errors.to_answer` turns them into answers."""


class Startup(Protocol):
    """What is known of servers that are still starting."""

    async def settled(self) -> None:
        """Return once the catalog is worth listing: every server is ready or has failed, or had its time to."""
        ...

    async def more(self) -> bool:
        """Return when another server has got ready or failed; False when none is waited for any more.

        Raises:
            Overloaded: too many wait already.
        """
        ...


EMPTY = b"{}"


def text(params: Body, name: str) -> str:
    """A string member of the params.

    Raises:
        BadRequest: it is missing, or no string.
    """
    try:
        return decode_text(params.fields[name])
    except KeyError:
        raise BadRequest(INVALID_PARAMS, f"params.{name} is missing") from None
    except msgspec.ValidationError:
        raise BadRequest(INVALID_PARAMS, f"params.{name} must be a string") from None


_FoundT = TypeVar("_FoundT")


class NameLookup:
    """Looks names up, and waits for those that may come yet."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        startup: Startup,
        missing: Callable[[str], BridgeError | None] = lambda name: None,
    ) -> None:
        """`missing`: why a tool of this name, which no server has, is not there now; None: nobody knows of it.

        Who is kept to roles hears nothing of that, nor of servers that are none of its own.
        """
        self._catalog, self._pool, self._more, self._missing = catalog, pool, startup.more, missing

    async def find(
        self, view: str, name: str, look: Callable[[Snapshot], _FoundT], *, caller: Caller, suggests: bool = False
    ) -> _FoundT:
        """What `look` finds in a view; while servers are starting it may be a server's that has not listed yet.

        `caller`: for whom. `suggests`: it is suggested tools where there is none of that name.

        Raises:
            UpstreamUnavailable: by its prefix the name belongs to a server that is not to be had; says why.
            UnknownName: nobody has it.
            Overloaded: too many wait for the start already.
        """
        try:
            return await self._find(view, name, look, caller if suggests or self._catalog.has_roles else None)
        except UnknownName:
            if (why := self._missing(name)) is not None and not self._catalog.is_kept(caller):
                raise why from None
            raise

    async def _find(self, view: str, name: str, look: Callable[[Snapshot], _FoundT], seen_by: Caller | None) -> _FoundT:
        """`seen_by`: whose catalog is looked at; None: the whole."""
        try:
            return look(self._catalog.view(view, self._audience(seen_by)))
        except UnknownName:
            upstream = self._unlisted(view) if view else self._named_in(name)
            if upstream is not None and seen_by is not None and not self._catalog.may_know(seen_by, upstream.name):
                raise
        if upstream is not None:
            await upstream.requests.ready()  # its own start alone is waited for
        else:
            await self._pool.lists_in_force(view)  # a server may have announced the tool a moment ago
        if view or upstream is not None:
            return look(self._catalog.flush(view, self._audience(seen_by)))
        is_over = False
        while True:
            try:  # first without waiting: what was listed a moment ago may not be in the snapshot yet
                return look(self._catalog.flush(audience=self._audience(seen_by)))
            except UnknownName as unknown:
                if is_over or unknown.is_ambiguous:  # of two that have it, a third makes no one
                    raise
            is_over = not await self._more()

    def _audience(self, caller: Caller | None) -> Audience | None:
        if caller is None:
            return None
        return self._catalog.audience(caller.name, caller.principal, caller.identity)

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
