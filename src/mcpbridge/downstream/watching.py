"""Subscriptions: `resources/subscribe` of legacy sessions and `subscriptions/listen` of modern clients.

Both count as subscribers at the upstream that owns the resource; it hears of the first and of the last one only.
"""

from msgspec import Raw

from mcpbridge.downstream.channel import Client, Notify
from mcpbridge.downstream.finding import Finding
from mcpbridge.downstream.handling import EMPTY, Handler, text
from mcpbridge.downstream.listeners import Listen, Listeners
from mcpbridge.downstream.task_news import TaskNews
from mcpbridge.errors import BadRequest, BridgeError
from mcpbridge.upstream.pool import Pool
from mcpbridge.wire.body import Body
from mcpbridge.wire.codes import INVALID_PARAMS, METHOD_NOT_FOUND
from mcpbridge.wire.frame import Frame, decode_fields

__all__ = ["Watching"]

_Target = tuple[str, str]
"""Server, and the resource's URI there."""


class Watching:
    """Handlers of the requests that subscribe."""

    def __init__(self, finding: Finding, pool: Pool, listeners: Listeners, news: TaskNews) -> None:
        self._finding, self._pool, self._listeners, self._news = finding, pool, listeners, news

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
        for target in client.subscriptions.values():
            self._count(target, on=False)
        client.subscriptions.clear()

    async def _subscribe(self, client: Client, frame: Frame, _: Notify) -> bytes | Raw:
        uri = text(Body(frame.params), "uri")
        if uri not in client.subscriptions:
            target = await self._watch(client.view, uri)
            if uri in client.subscriptions:  # the same was asked for twice while its server started
                self._count(target, on=False)
            client.subscriptions[uri] = target
        return EMPTY

    async def _unsubscribe(self, client: Client, frame: Frame, _: Notify) -> bytes | Raw:
        target = client.subscriptions.pop(text(Body(frame.params), "uri"), None)
        if target is not None:
            self._count(target, on=False)
        return EMPTY

    async def _listen(self, client: Client, frame: Frame, notify: Notify) -> bytes | Raw:
        try:
            listen = Listen.read(bytes(frame.id), decode_fields(frame.params), notify)
        except KeyError:
            raise BadRequest(INVALID_PARAMS, "subscriptions/listen needs params.notifications") from None
        listen.view = client.view
        watched: dict[str, _Target] = {}
        try:
            for uri in sorted(listen.uris):
                try:
                    watched[uri] = await self._watch(client.view, uri)
                except BridgeError:
                    continue  # not honoured, so not acknowledged
            async with self._news.heard_on(listen, client) as tasks:
                self._listeners.listens.add(listen)
                listen.acknowledge(list(watched), tasks)
                await listen.ended
        finally:
            self._listeners.listens.discard(listen)
            for target in watched.values():
                self._count(target, on=False)
        return listen.result

    async def _watch(self, view: str, uri: str) -> _Target:
        """One subscriber more. Raises CallRefused: nobody has the resource, or its server announces no changes."""
        target = await self._finding.find(view, uri, lambda snapshot: snapshot.resource(uri))
        upstream = self._pool.upstreams.get(target[0])
        if upstream is not None and upstream.session is not None and not upstream.session.has_subscriptions:
            raise BadRequest(METHOD_NOT_FOUND, f"Server '{target[0]}' does not announce changes of its resources")
        self._count(target, on=True)
        return target

    def _count(self, target: _Target, *, on: bool) -> None:
        server, uri = target
        upstream = self._pool.upstreams.get(server)
        if upstream is not None:
            (upstream.wanted.subscribe if on else upstream.wanted.unsubscribe)(uri)
