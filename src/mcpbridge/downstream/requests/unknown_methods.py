"""Methods that the bridge does not know, of revisions and extensions to come: passed on if it is plain whose they are.

With several servers behind an endpoint nobody can know which one a method belongs to, so it is refused. An endpoint
that shows one server passes it on, if that server has announced a capability that the method may be of: it may refuse
it, and has as much time as for a call. Params and result cross as they are.
"""

from collections.abc import Collection, Mapping
from typing import Any

from mcpbridge.base.errors import BadRequest
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.core.elicitation import QUESTIONS
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.requests.delivery import Delivery
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import METHOD_NOT_FOUND
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, Frame
from mcpbridge.protocol.payload import Payload
from mcpbridge.upstream.pool import Pool

_OURS = ("notifications/", "tasks/", "subscriptions/", "server/", "rpc.")
"""Beginnings of what belongs to one hop, or is a notification that was given an id."""


class UnknownMethods:
    """Passes on what the bridge has no handler for."""

    def __init__(
        self, catalog: Catalog, pool: Pool, delivery: Delivery, legacy: Collection[str], modern: Collection[str]
    ) -> None:
        """`legacy`, `modern`: the methods that the bridge serves in each era. One of the other era is refused."""
        self._catalog, self._pool, self._delivery = catalog, pool, delivery
        self._legacy, self._modern = legacy, modern
        self._known = frozenset((*legacy, *modern)) | QUESTIONS

    async def answer(self, client: Client, frame: Frame, notify: Notify) -> Payload:
        """The answer of the one server that the request can be for.

        Raises:
            BadRequest: it is nobody's.
        """
        server = self.server_of(client, frame.method)
        result = await self.pass_on(server, client, frame, notify) if server else None
        if result is None:
            raise self._refusal(client, frame.method)
        return result

    def _refusal(self, client: Client, method: str) -> BadRequest:
        text = f"Method not found: {method[:100]}"
        if client.modern and method in self._legacy:
            text += f" (it is not part of revision {client.version})"
        elif not client.modern and method in self._modern and method != "server/discover":
            text += " (it needs the per-request _meta envelope of revision 2026-07-28)"
        return BadRequest(METHOD_NOT_FOUND, text)

    def server_of(self, client: Client, method: str) -> str:
        """The one server that this request can be for; empty when there are several, or it is no such request."""
        if method in self._known or method.startswith(_OURS) or not client.version:
            return ""
        names = list(self._pool.upstreams)
        server = client.view or (names[0] if len(names) == 1 else "")
        # Such a request may be about anything of the server, so it is for those from whom nothing of it is kept.
        return server if server and self._catalog.seen_by(client).shows_all_of(server) else ""

    async def pass_on(self, server: str, client: Client, frame: Frame, notify: Notify) -> Payload | None:
        """The server's result; None when it is not asked.

        It is not when it speaks another era, in which the method could mean anything, or has announced no capability
        for it: servers that do not know a method may keep silent.

        Raises: as any call.
        """
        upstream = self._pool.upstreams[server]
        await upstream.requests.ready()
        if upstream.modern != client.modern or not _may_know(upstream.capabilities, frame.method):
            return None
        params = Body(frame.params if bytes(memoryview(frame.params)[:1]) else EMPTY_OBJECT)
        return await self._delivery.deliver(client, frame, (server, ""), params, notify)


def _may_know(capabilities: Mapping[str, Any], method: str) -> bool:
    """A server that announced this may have the method: `x/y` is of the capability `x`, or of some extension."""
    return any(capabilities.get(name) for name in ("extensions", "experimental")) or (
        capabilities.get(method.partition("/")[0]) is not None
    )
