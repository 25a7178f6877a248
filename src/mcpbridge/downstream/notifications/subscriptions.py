"""Subscriptions: `resources/subscribe` of legacy sessions and `subscriptions/listen` of modern clients.

Both count as subscribers at the upstream that owns the resource; the upstream hears of the first and of the last one
only. If a server keeps its clients apart, the bridge subscribes at the instance that gets the client's calls. How
notifications reach the subscribers is decided in `listeners.py`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from mcpbridge.base.errors import BadRequest, BridgeError, Overloaded, UnknownName
from mcpbridge.catalog.listing.profiles import Scope
from mcpbridge.core.elicitation import ClientCapabilities, Elicitor
from mcpbridge.downstream.client import Client, Notify, ResourceSubscription
from mcpbridge.downstream.elicitation.ask import LegacyElicitor, NoElicitor
from mcpbridge.downstream.handler import EMPTY, Handler, NameLookup, text
from mcpbridge.downstream.notifications.listeners import Listen, Listeners
from mcpbridge.downstream.notifications.task_status import TaskStatusStreams
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from mcpbridge.protocol.jsonrpc import Frame, decode_fields
from mcpbridge.upstream.pool import Pool

MAX_OPEN = 64
"""Listen streams on one channel."""


class Subscriptions:
    """Handlers of the requests that subscribe."""

    def __init__(
        self,
        finding: NameLookup,
        pool: Pool,
        listeners: Listeners,
        news: TaskStatusStreams,
        scope_of: Callable[[Client], Scope | None],
    ) -> None:
        """`scope_of`: the profile that a client is kept to."""
        self._scope_of = scope_of
        self._finding, self._pool, self._listeners, self._news = finding, pool, listeners, news
        self.listening: set[asyncio.Task[Any]] = set()
        """The tasks that answer `subscriptions/listen`, which ends only with the stream."""
        self._open: Counter[object] = Counter()
        """Listen streams by the channel that they share; over HTTP each is a connection of its own."""

    @property
    def legacy(self) -> dict[str, Handler]:
        """By method, for legacy sessions."""
        return {"resources/subscribe": self._subscribe, "resources/unsubscribe": self._unsubscribe}

    @property
    def modern(self) -> dict[str, Handler]:
        """By method, for modern clients."""
        return {"subscriptions/listen": self._listen}

    def forget(self, client: Client) -> None:
        """A legacy session ended: its subscriptions with it."""
        for watched in client.subscriptions.values():
            watched.end()
        client.subscriptions.clear()

    async def _subscribe(self, client: Client, frame: Frame, notify: Notify) -> bytes | Raw:
        uri = text(Body(frame.params), "uri")
        if uri not in client.subscriptions:
            watched = await self._watch(client, uri, notify)
            if uri in client.subscriptions:  # the same was asked for twice while its server started
                watched.end()
            else:
                client.subscriptions[uri] = watched
        watched = client.subscriptions[uri]
        try:
            await watched.begun()
        except asyncio.CancelledError:
            if client.subscriptions.get(uri) is watched and not watched.is_wanted:
                del client.subscriptions[uri]
                watched.end()
            raise
        return EMPTY

    async def _unsubscribe(self, client: Client, frame: Frame, _: Notify) -> bytes | Raw:
        watched = client.subscriptions.pop(text(Body(frame.params), "uri"), None)
        if watched is not None:
            watched.end()
        return EMPTY

    async def _listen(self, client: Client, frame: Frame, notify: Notify) -> bytes | Raw:
        try:
            listen = Listen.read(bytes(frame.id), decode_fields(frame.params), notify)
        except KeyError:
            raise BadRequest(INVALID_PARAMS, "subscriptions/listen needs params.notifications") from None
        listen.view, listen.client = client.view, client
        if client.channel is not None and self._open[client.channel] >= MAX_OPEN:
            raise Overloaded(f"{MAX_OPEN} streams of this client are open; end one of them first")
        self._open[client.channel] += 1
        watched: dict[str, ResourceSubscription] = {}
        task = asyncio.current_task()
        assert task is not None, "a request is answered in one"
        self.listening.add(task)
        try:
            for uri in sorted(listen.uris):
                try:
                    watched[uri] = await self._watch(client, uri, notify)
                except BridgeError:
                    continue  # not honoured, so not acknowledged
            await asyncio.gather(*(one.begun() for one in watched.values()))
            async with self._news.heard_on(listen, client) as tasks:
                self._listeners.add(listen)
                listen.acknowledge(list(watched), tasks)
                await listen.ended
        finally:
            self.listening.discard(task)
            self._open[client.channel] -= 1
            if not self._open[client.channel]:
                del self._open[client.channel]
            self._listeners.listens.discard(listen)
            for one in watched.values():
                one.end()
        return listen.result

    async def _watch(self, client: Client, uri: str, notify: Notify) -> ResourceSubscription:
        """One subscriber more, of whom the server may not have heard yet.

        Raises:
            CallRefused: nobody has the resource, or its server announces no changes.
            UpstreamError: there is no instance of it for this client.
        """
        server, own = await self._finding.find(client.view, uri, lambda snapshot: snapshot.resource(uri), caller=client)
        scope = self._scope_of(client)
        if scope is not None and not scope.has_server(server):
            raise UnknownName("resource", uri)
        base = self._pool.upstreams.get(server)
        if base is None:
            return ResourceSubscription(None, own)  # it never changes
        if base.lacks("resources", "subscribe"):
            raise BadRequest(METHOD_NOT_FOUND, f"Server '{server}' does not announce changes of its resources")
        upstream = base
        if not base.is_shared:
            subscriber = _subscriber(client, notify)
            upstream = await self._pool.serving(base, subscriber, client.principal, client.identity)
        watched = ResourceSubscription(upstream.wanted, own)  # an instance stays while anything is wanted of it
        if upstream.status.state in ("retrying", "failed"):
            upstream.wanted.follow([own])  # nobody knows when it is back; what changes until then counts as missed
        return watched


class _ModernSubscriber(NoElicitor):
    """A modern client, whose calls go to the instance for what it can be asked during them."""

    __slots__ = ("capabilities",)

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.capabilities: ClientCapabilities = client.capabilities


def _subscriber(client: Client, notify: Notify) -> Elicitor:
    return LegacyElicitor(client, client.requests, notify) if client.requests is not None else _ModernSubscriber(client)
