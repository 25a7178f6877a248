"""Which clients are notified that their lists changed, and what ends for them that is not theirs any more.

A list changes with the catalog, with the settings, and with the roles of whoever it is for: a new token may name fewer
groups. What a client may not know of any more ends: its subscriptions, listen streams and parked calls. Who has no role
any more has nothing open at all.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog.definitions.check import KINDS
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.core.context import Session
from mcpbridge.core.identity import Identity, is_news
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation.parked_calls import Parking
from mcpbridge.downstream.notifications.listeners import Listeners
from mcpbridge.downstream.requests.lists import Listing


class ListChanges:
    """Notifies clients of their lists. Runs on the event loop."""

    def __init__(
        self, catalog: Catalog, listeners: Listeners, parking: Parking, listing: Callable[[], Listing]
    ) -> None:
        """`listing`: how lists are answered now."""
        self._catalog, self._listeners, self._parking, self._listing = catalog, listeners, parking, listing
        self._is_switching = False
        self._identities: WeakKeyDictionary[Session, Identity] = WeakKeyDictionary()
        """What the last token of each legacy session said that came with one."""
        catalog.on_change(self._changed)
        catalog.on_view_change(self._view_changed)

    @contextmanager
    def switching(self) -> Generator[None]:
        """The settings change within: afterwards those who listen are notified, once, if their lists are others now."""
        before = {listener: self._seen_by(client) for listener, client in self._listeners.everyone()}
        for client in self._everybody:
            client.has_role = self._has_role(client)
        self._is_switching = True
        try:
            yield
        finally:
            self._is_switching = False
        for listener, client in self._listeners.everyone():
            if listener in before:
                after = self._seen_by(client)
                changed = [kind for kind, digest in before[listener].items() if after[kind] != digest]
                self._listeners.tell(listener, {"resources" if kind == "templates" else kind for kind in changed})
        if self._catalog.has_roles:
            self.end_forbidden()

    def opened(self, client: Client) -> None:
        """A legacy session or a channel begins."""
        client.has_role = self._has_role(client)

    def newer_token(self, identity: Identity) -> None:
        """A token says this of somebody: what they opened by way of the same OAuth client is judged by it from now on.

        The scopes and the end stay those of the token that it was opened with.
        """
        found = [
            client for client in self._everybody if client.identity is not None and is_news(identity, client.identity)
        ]
        listeners = {client: listener for listener, client in self._listeners.everyone()}
        for client in found:
            before, seen = client.identity, self._catalog.seen_by(client)
            assert before is not None
            client.has_role = self._has_role(client)
            client.identity = replace(identity, scopes=before.scopes, expires_at=before.expires_at)
            if client in self._listeners.clients:
                self._identities[client.session] = client.identity
            if client in listeners:
                self._listeners.tell(listeners[client], _changed(seen, self._catalog.seen_by(client)))
        if found:
            self.end_forbidden()

    def came_with(self, client: Client, identity: Identity) -> None:
        """A request of a legacy session came with a token that says this.

        If it says something else than the one before, the session may have other roles.
        """
        before = self._identities.get(client.session)
        if before is identity:
            return
        self._identities[client.session] = identity
        if before is None or client not in self._listeners.clients:
            return
        old = self._catalog.view(client.view, self._catalog.audience(client.name, before.principal, before))
        if client.initialized:
            self._listeners.tell(client, _changed(old, self._catalog.seen_by(client)))
        client.has_role = client.has_role or self._has_role(client)
        self.end_forbidden()

    def roles_changed(self, principal: str) -> None:
        """Somebody has other roles from now on, with the same token."""
        for listener, client in list(self._listeners.everyone()):
            if client.principal == principal:
                self._listeners.tell(listener, ("tools", "prompts", "resources"))
        for client in self._everybody:
            if client.principal == principal:
                client.has_role = client.has_role or self._has_role(client)
        self.end_forbidden()

    def end_forbidden(self) -> None:
        """End what clients may not know of any more: subscriptions, listen streams, and parked calls."""
        for client in list(self._listeners.clients):
            for uri in [uri for uri in client.subscriptions if self._is_forbidden(client, uri)]:
                client.subscriptions.pop(uri).end()
        for listen in list(self._listeners.listens):
            client = listen.client
            if client is not None and any(self._is_forbidden(client, uri) for uri in listen.uris):
                listen.end()
        self._parking.end_where(self._forbids_call)
        self._end_without_role()

    def _end_without_role(self) -> None:
        """End what those have open who had a role and have none any more: there is nothing for them to hear."""
        over = [client for client in self._everybody if client.has_role and not self._has_role(client)]
        for client in over:
            client.has_role = False
            if client.hang_up is not None and client in self._listeners.clients:
                # Not within the request that brought the news: it has an answer as any other.
                asyncio.get_running_loop().call_soon(client.hang_up, "the roles of its user were taken away")
        for listen in list(self._listeners.listens):
            if listen.client in over:
                listen.end()

    @property
    def _everybody(self) -> list[Client]:
        """Who has something open."""
        listening = [listen.client for listen in self._listeners.listens if listen.client is not None]
        return [*self._listeners.clients, *listening]

    def _has_role(self, client: Client) -> bool:
        roles = self._catalog.roles
        return roles is None or roles.lets_in(roles.of(client.principal, client.identity))

    def _is_forbidden(self, client: Client, uri: str) -> bool:
        try:
            server, own = self._catalog.view(client.view).resource(uri)
        except UnknownName:
            return False  # nobody's at the moment
        return not self._catalog.sees_resource(client, server, own)

    def _forbids_call(self, client: Client, call: Call) -> bool:
        tool = call.tool
        if tool is not None:
            return self._listing().is_unknown(tool, client)
        return not self._catalog.may_know(client, call.upstream)

    def _changed(self, snapshot: Snapshot, kinds: frozenset[str]) -> None:
        self._view_changed("", kinds)

    def _view_changed(self, view: str, kinds: frozenset[str]) -> None:
        if self._is_switching:
            return  # who sees another list is found out at the end
        lists = {"resources" if kind == "templates" else kind for kind in kinds}
        if "tools" in kinds:
            self._listing().exposing.refresh(view)
        for kind in sorted(lists) if self._catalog.is_looked_at or self._listeners.have_lists else ():
            self._listeners.list_changed(kind, view, partial(self._sees_change, kind, view))

    def _sees_change(self, kind: str, view: str, client: Client) -> bool:
        """Of tools some see others; of all else only those who are kept to roles."""
        if kind != "tools" and not self._catalog.has_roles:
            return True
        audience = self._catalog.audience(client.name, client.principal, client.identity)
        changed = self._catalog.changed(view, audience)
        if kind != "tools":
            return kind in changed or (kind == "resources" and "templates" in changed)
        if kind not in changed:
            return False
        exposure = self._listing().exposure_of(client)
        return bool(client.activated) or self._listing().exposing.changed(view, audience, exposure)

    def _seen_by(self, client: Client) -> dict[str, str]:
        """What this client is listed, by kind, in a few characters each."""
        exposed = self._listing().listed(client)
        return {kind: exposed.listing(kind).digest for kind in KINDS}


def _changed(before: Snapshot, now: Snapshot) -> set[str]:
    """Which lists differ, as notifications name them."""
    differ = [kind for kind in KINDS if before.kind_digest(kind) != now.kind_digest(kind)]
    return {"resources" if kind == "templates" else kind for kind in differ}
