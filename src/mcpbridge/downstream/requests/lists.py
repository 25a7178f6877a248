"""Handlers of the list methods: which tools, prompts and resources a client is shown.

A list depends on who asks, the endpoint and the catalog, and on what the client is about to do if its `_meta` says so
(`mcpbridge/query`); never on earlier calls (MCP 2026-07-28, Tools, Capabilities). The lists are made in
`catalog/listing/`.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from mcpbridge.catalog.definitions.check import KINDS, Kind
from mcpbridge.catalog.listing.exposure import Exposure
from mcpbridge.catalog.listing.pagination import Listing as Pages
from mcpbridge.catalog.listing.profiles import Scope
from mcpbridge.catalog.listing.query_hint import limit_of, request_of
from mcpbridge.catalog.listing.tool_lists import Exposed, Exposing
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.elicitation import NOBODY, Elicitor
from mcpbridge.core.model import Caller, Tool
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.elicitation.ask import LegacyElicitor
from mcpbridge.downstream.handler import Handler, text
from mcpbridge.downstream.notifications.from_upstreams import tell_project
from mcpbridge.downstream.requests.session_tools import SessionTools
from mcpbridge.pipeline.permissions.policy import Audience
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.meta import QUERY
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.session.session import LIST_METHODS

Choose = Callable[[str, Client, Exposure, Elicitor], Awaitable[Sequence[str] | None]]
"""Ids of the tools for a request, best first, of those that this client may know of; None: all of them.

The last is whoever can be asked meanwhile.
"""


class IsUnknown(Protocol):
    """Says of a tool whether the roles of a caller forbid it."""

    def __call__(self, tool: Tool, caller: Caller) -> bool:
        """Whether there is no such tool for this caller."""
        ...


class Listing:
    """Handlers of the list methods."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Pool,
        settled: Callable[[], Awaitable[None]],
        exposing: Exposing,
        *,
        choose: Choose,
        signature: Callable[[ToolRef], str],
        is_open: Callable[[ToolRef], bool],
        is_unknown: "IsUnknown",
        extra: SessionTools,
    ) -> None:
        """`settled` waits while servers start. `signature` says in a line how a tool is called.

        `extra`: what single sessions have besides.

        `is_open`: every call of a tool is allowed, whoever makes it. `is_unknown`: the roles of a caller forbid it.
        """
        self.is_open, self.is_unknown, self.extra = is_open, is_unknown, extra
        self._catalog, self._pool, self._settled = catalog, pool, settled
        self.exposing = exposing
        """Who is listed what."""
        self._choose, self.signature_of = choose, signature

    @property
    def handlers(self) -> dict[str, Handler]:
        """By method; the same in both eras."""
        return {LIST_METHODS[kind]: self._tools if kind == "tools" else self._list(kind) for kind in KINDS}

    def exposure_of(self, client: Client) -> Exposure:
        """What decides which tools this client is listed."""
        return self.exposing.of_client(client)

    def scope_of(self, client: Client) -> Scope | None:
        """The profile that this client is kept to; None: it sees all."""
        return self.exposure_of(client).scope

    def listed(self, client: Client) -> Exposed:
        """What this client is listed, as of the last snapshot, if it asks for nothing in particular."""
        exposed = self._look(client)
        if client.activated and exposed.mode == "search":
            exposure = self.exposure_of(client)
            return self.exposing.chosen(client.view, self._audience(client), exposure, client.activated)
        return exposed

    def answers_now(self, client: Client) -> Iterator[tuple[str, str, bytes]]:
        """What this client would be answered now to the list methods: method, cursor and result, page by page."""
        exposed = self._look(client)
        for kind in KINDS:
            for cursor, result in exposed.listing(kind).pages(client.version):
                yield LIST_METHODS[kind], cursor, result

    def own_name(self, client: Client, name: str) -> str:
        """The catalog's name of a tool that this client may know under a shorter one."""
        return self._look(client).names.get(name, name)

    async def _tools(self, client: Client, frame: Frame, notify: Notify) -> bytes:
        cursor, query, limit = await self._asked(client, frame, notify)
        self._catalog.flush()
        exposure = self.exposure_of(client)
        await self.exposing.prepare(client.view, self._audience(client), exposure)
        if query:
            # A modern client can be asked nothing in the middle of a list request.
            elicitor = (
                NOBODY if client.modern or client.requests is None else LegacyElicitor(client, client.requests, notify)
            )
            ids = await self._choose(query, client, exposure, elicitor)
            if ids is not None:
                chosen = self.exposing.chosen(client.view, self._audience(client), exposure, ids[:limit])
                return (await self._with_extra(client, chosen.tools)).page(cursor, revision=client.version)
        return (await self._with_extra(client, self.listed(client).tools)).page(cursor, revision=client.version)

    async def _with_extra(self, client: Client, tools: Pages) -> Pages:
        if not self.extra.are_any:
            return tools
        hides = partial(self.is_unknown, caller=client) if self._catalog.has_roles else None
        return await self.extra.listing(client, tools, self._catalog.view(client.view).tools, hides)

    def _list(self, kind: Kind) -> Handler:
        async def answer_list(client: Client, frame: Frame, notify: Notify) -> bytes:
            cursor = (await self._asked(client, frame, notify))[0]
            self._catalog.flush()
            return self._look(client).listing(kind).page(cursor, revision=client.version)

        return answer_list

    async def _asked(self, client: Client, frame: Frame, notify: Notify) -> tuple[str | None, str, int | None]:
        """The cursor, what the client tells of and how many tools it wants, once the servers had time to start."""
        await tell_project(self._pool, client, notify)
        await self._settled()
        params = Body(frame.params) if frame.params else Body()
        cursor = text(params, "cursor") if bytes(params.get("cursor") or b"null") != b"null" else None
        meta = params.inner("_meta")
        said = meta.get(QUERY) if meta is not None else None
        return (cursor, request_of(said), limit_of(said)) if said is not None else (cursor, "", None)

    def _look(self, client: Client) -> Exposed:
        return self.exposing.look(client.view, self._audience(client), self.exposure_of(client))

    def _audience(self, client: Client) -> Audience:
        """Found out anew after every wait: the policy may be another one by then."""
        return self._catalog.audience(client.name, client.principal, client.identity)
