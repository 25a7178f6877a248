"""Notifications of upstreams to the clients that they concern; and the client's project to the upstreams.

`UpstreamNotifications` is an `upstream.supervisor.Observer`: it decides which clients hear that a resource changed, a
log message came, or a page has done its work.

A server that needs `${PROJECT_ROOT}` lists nothing until there is a project. `tell_project` notifies the servers at
once what is known of a client's project, before the client asks what they offer. A client is asked for its roots only
if a server waits for them.
"""

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Raw

from mcpbridge.catalog.refresh import Catalog
from mcpbridge.core.elicitation import Elicitor
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.elicitation.ask import LegacyElicitor, modern_home
from mcpbridge.downstream.notifications.listeners import Listeners, covers
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode_notification
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.projects import place_of
from mcpbridge.upstream.supervisor import Upstream


class UpstreamNotifications:
    """Takes news to the clients."""

    def __init__(self, catalog: Catalog, pool: Pool, listeners: Listeners, is_theirs: Callable[[], bool]) -> None:
        """`is_theirs`: no call runs but those of the clients that listen."""
        self._catalog, self._pool, self._listeners, self._is_theirs = catalog, pool, listeners, is_theirs

    def resource_updated(self, upstream: Upstream, params: Raw) -> None:
        """A resource of an upstream has changed."""
        try:
            uri = Body(params).text("uri")
        except (msgspec.DecodeError, KeyError):
            return
        published = self._catalog.snapshot.published_uri(upstream.name, uri)
        concerns = partial(_is_at_home, upstream)
        self._listeners.resource_updated(params, published, covers, concerns=concerns)
        self._listeners.resource_updated(params, uri, covers, view=upstream.name, concerns=concerns)

    def logged(self, upstream: Upstream, params: Raw) -> None:
        """An upstream logged something that belongs to no single call.

        It may be of somebody's call all the same, and reveal it. So it goes to the session that asked for its level
        only while there is no other client whose it could be.
        """
        if len(self._listeners.clients) == 1 and self._is_theirs():
            self._listeners.logged(upstream.name, params, lambda client: self._catalog.may_know(client, upstream.name))

    def elicitation_completed(self, upstream: Upstream, params: Raw) -> None:
        """A page that an upstream had a client open has done its work: that client is notified (2025-11-25)."""
        try:
            asked = upstream.name, Body(params).text("elicitationId")
        except (msgspec.DecodeError, KeyError):
            return
        for client in list(self._listeners.clients):
            if asked in client.elicitations:
                client.elicitations.discard(asked)
                client.push(encode_notification("notifications/elicitation/complete", bytes(params)))

    def beside(self, upstream: Upstream) -> Elicitor | None:
        """The one session that an upstream's session can be about; None when there are several, or none."""
        able = [client for client in self._listeners.clients if client.initialized and _may_use(client, upstream)]
        if len(able) != 1 or able[0].requests is None:
            return None
        return LegacyElicitor(able[0], able[0].requests, able[0].push)

    def used_by(self, client: Client) -> list[Upstream]:
        """The instances that calls of this client may go to."""
        return [upstream for upstream in self._pool.everyone() if _may_use(client, upstream)]


def _may_use(client: Client, upstream: Upstream) -> bool:
    """Calls of this client may go to this instance: its endpoint shows the server, and it is opened for such as it."""
    is_shown = client.view in ("", upstream.name)
    return is_shown and upstream.declared.suits(client.capabilities) and _is_at_home(upstream, client)


def _is_at_home(upstream: Upstream, client: Client) -> bool:
    """The instance is everybody's, or it is this client's."""
    in_project = client.principal, place_of(client.known_project)
    return upstream.home in (None, client, modern_home(client), in_project, (client.principal, ""))


def expect(pool: Pool, client: Client) -> None:
    """A client came: what waits for one like it is opened."""
    pool.expect(client.capabilities, client.view, project=client.known_project, principal=client.principal)


async def tell_project(pool: Pool, client: Client, notify: Notify) -> None:
    """Return when every server that the client sees knows of its project, if it has one."""
    if client.modern:
        if client.capabilities or client.known_project:
            expect(pool, client)
    elif client.requests is not None and pool.wants_project(client.view):
        await LegacyElicitor(client, client.requests, notify).project()
        expect(pool, client)
