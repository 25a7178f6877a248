"""Decides when the next snapshot is made, and which clients hear of it (`list_changed`).

Upstreams come and go in bursts: all of them at start-up, or a server that registers its tools one by one. So changes
are gathered for a moment and become one snapshot. Clients hear only of what they can see: a list that a server
announces as changed, and that comes out the same, announces nothing.

Two kinds of part catalogs are cut from the whole here. `Audiences`: clients under the same policy rules share one
snapshot without the tools that are denied to them. `Views`: the endpoint of a single server shows its catalog under
the server's own names, made when it is first looked at. How a snapshot is built is in `snapshot_builder.py`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from mcpbridge.catalog.definitions.check import KINDS, Kind
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.catalog.snapshot_builder import SnapshotBuilder
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.core.identity import Identity
from mcpbridge.core.model import BRIDGE, Caller
from mcpbridge.core.source_settings import OfferSettings
from mcpbridge.pipeline.permissions.policy import ANYBODY, Audience, Policy, ToolPolicy

if TYPE_CHECKING:  # few bridges have roles
    from mcpbridge.pipeline.roles.roles import Roles

SETTLE_SECONDS = 0.05
"""Seconds to gather changes before the next snapshot; then clients get one `list_changed` for all of them."""

MOST = 32
"""Audiences whose catalogs are kept, those of single servers included; the one not asked for longest goes first."""

_Key = tuple[str, Audience]
_KEPT = frozenset((-1,))
"""See `pipeline/roles/roles.py`."""


class _Cuts:
    """One catalog and what was cut from it."""

    def __init__(self, whole: Snapshot, policy: Policy) -> None:
        self.whole = whole
        hidden: list[str] = []
        self._depending: list[tuple[str, ToolPolicy]] = []
        for wire, ref in chain(whole.tools.items(), whole.unlisted.items()):
            policy_of_tool = policy.of(ref)
            if policy_of_tool.is_hidden:
                hidden.append(wire)
            elif policy_of_tool.is_hidden is None:
                self._depending.append((wire, policy_of_tool))
        self._always, self._roles = frozenset(hidden), policy.roles
        self._snapshots: dict[tuple[frozenset[str], Audience], Snapshot] = {}

    def of(self, audience: Audience) -> Snapshot:
        """By what is hidden, and by roles: two with the same of both share one."""
        hidden = self._always.union(wire for wire, policy in self._depending if policy.hides(audience))
        roles = frozenset(number for number in audience if number < 0)
        cut = self._snapshots.get((hidden, roles))
        if cut is None:
            if len(self._snapshots) >= MOST:
                self._snapshots.clear()
            cut = self._snapshots[hidden, roles] = self._cut(hidden, roles, audience)
        return cut

    def _cut(self, hidden: frozenset[str], roles: Audience, audience: Audience) -> Snapshot:
        if not roles or self._roles is None:
            return self.whole.hiding(hidden)
        unknown = frozenset(wire for wire, policy in self._depending if policy.is_unknown(audience))
        return self.whole.hiding(hidden).without(unknown, _Visible(self._roles, roles))


class _Visible:
    """What there is besides tools for those with these roles."""

    def __init__(self, roles: "Roles", audience: Audience) -> None:
        self._roles, self._audience = roles, audience

    def prompt(self, server: str, names: Collection[str]) -> bool:
        return self._roles.sees_prompt(self._audience, server, names)

    def resource(self, server: str, uri: str) -> bool:
        return self._roles.sees_resource(self._audience, server, uri)


class Audiences:
    """The catalogs of the audiences that looked lately."""

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy if policy is not None and policy.may_hide else None
        self._cuts: dict[str, _Cuts] = {}
        """By server; the merged catalog under the empty name."""
        self._seen: OrderedDict[_Key, tuple[Snapshot, Snapshot]] = OrderedDict()
        """The whole, and what this audience sees of it."""

    def look(self, server: str, audience: Audience, whole: Snapshot) -> Snapshot:
        """What this audience sees of `whole`, the catalog of this server (or of all)."""
        if self._policy is None:
            return whole
        key = server, audience
        known = self._seen.get(key)
        if known is not None and known[0] is whole:
            self._seen.move_to_end(key)
            return known[1]
        cuts = self._cuts.get(server)
        if cuts is None or cuts.whole is not whole:
            cuts = self._cuts[server] = _Cuts(whole, self._policy)
        cut = cuts.of(audience)
        self._seen[key] = whole, cut
        self._seen.move_to_end(key)
        if len(self._seen) > MOST:
            self._seen.popitem(last=False)
        return cut

    def refresh(self, whole_of: Callable[[str], Snapshot]) -> Mapping[_Key, frozenset[Kind]]:
        """Cut what changed anew; returns the kinds whose listing is not what it was, for each known audience."""
        changed: dict[_Key, frozenset[Kind]] = {}
        for key, (before, seen_before) in list(self._seen.items()):
            server, audience = key
            whole = whole_of(server)
            if whole.digest == before.digest:
                changed[key] = frozenset()
                continue
            seen = self.look(server, audience, whole)
            changed[key] = frozenset(kind for kind in KINDS if seen.kind_digest(kind) != seen_before.kind_digest(kind))
        return changed


_Part = tuple[Offer | None, OfferSettings | None, Offer | None, frozenset[str]]
"""What the server offers, its settings, what the bridge itself offers, and whose results have been large."""


class Views:
    """Snapshots of single servers. Holds those that were looked at."""

    def __init__(self, builder: SnapshotBuilder) -> None:
        """`builder` makes the merged catalog; these are cut like it."""
        self._builder = builder
        self._views: dict[str, tuple[_Part | None, SnapshotBuilder, Snapshot]] = {}
        """What each was made of and by; None: by a builder that cut otherwise."""

    def configure(self, builder: SnapshotBuilder) -> None:
        """All are cut like this builder's catalog from now on; see `refresh`."""
        self._builder = builder
        for server, (_, before, snapshot) in list(self._views.items()):
            own = builder.for_one_server()
            own.follow(before)
            self._views[server] = None, own, snapshot

    def look(self, server: str, offers: Mapping[str, Offer], settings: Mapping[str, OfferSettings]) -> Snapshot:
        """What clients see of this server alone; nothing of one that offers nothing."""
        part = offers.get(server), settings.get(server), offers.get(BRIDGE), self._builder.large
        known = self._views.get(server)
        if known is not None and known[0] == part:
            return known[2]
        builder = self._builder.for_one_server() if known is None else known[1]
        builder.large = self._builder.large
        snapshot = _snapshot(builder, server, part)
        self._views[server] = part, builder, snapshot
        return snapshot

    def refresh(self, offers: Mapping[str, Offer], settings: Mapping[str, OfferSettings]) -> dict[str, frozenset[Kind]]:
        """Remake what changed; returns by server the kinds whose listing is not what was looked at before."""
        changed: dict[str, frozenset[Kind]] = {}
        for server, (_, _, before) in list(self._views.items()):
            after = self.look(server, offers, settings)
            kinds: frozenset[Kind] = frozenset(
                kind for kind in KINDS if after.kind_digest(kind) != before.kind_digest(kind)
            )
            if kinds:
                changed[server] = kinds
        return changed


def _snapshot(builder: SnapshotBuilder, server: str, part: _Part) -> Snapshot:
    offer, settings, own, _ = part
    offers = [one for one in (offer, own) if one is not None]
    return builder.build(offers, {} if settings is None else {server: settings})


OnChange = Callable[[Snapshot, frozenset[Kind]], None]
"""Gets the new snapshot and the kinds whose listing is not what it was. Called on the event loop; must not raise."""

OnViewChange = Callable[[str, frozenset[Kind]], None]
"""Gets the server whose own catalog changed, and the kinds whose listing is not what it was; as `OnChange`."""


class Catalog:
    """The current snapshot. All methods are called on the event loop's thread."""

    def __init__(
        self,
        settings: Mapping[str, OfferSettings],
        builder: SnapshotBuilder | None = None,
        *,
        settle: float = SETTLE_SECONDS,
        policy: Policy | None = None,
    ) -> None:
        """`settle`: seconds to gather changes, counted from the first one, so that a steady stream cannot defer it.

        `policy`: what it denies to an audience, that does not see.
        """
        self.settings = settings
        """Of the servers, as they are in effect; changes under way are not in `snapshot` (see `flush`)."""
        self._policy = policy
        self.has_roles = policy is not None and policy.roles is not None
        """Somebody may be kept to roles."""
        self._builder = builder or SnapshotBuilder()
        self._settle = settle
        self._offers: dict[str, Offer] = {}
        self._built: Mapping[str, Offer] = {}
        """The offers that the current snapshot was made of."""
        self._built_settings = settings
        """The settings that it was made with."""
        self._listeners: list[OnChange] = []
        self._view_listeners: list[OnViewChange] = []
        self._views = Views(self._builder)
        self._audiences = Audiences(policy)
        self._changed: dict[str, frozenset[Kind]] = {}
        self._changed_for: Mapping[tuple[str, Audience], frozenset[Kind]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.is_looked_at = False
        """Somebody may have been listed something. Before that nobody has a list that could be out of date."""
        self.snapshot = self._builder.build((), settings)
        """The catalog as it was last made, hidden tools included; changes under way are not in it (see `flush`)."""

    def view(self, server: str, audience: Audience | None = None) -> Snapshot:
        """The catalog of one server by its own names, as of the last snapshot; the merged one for an empty name.

        It lists what this audience may call; everything, for None. Names mean the same in all of them.
        """
        whole = self._views.look(server, self._built, self._built_settings) if server else self.snapshot
        return whole if audience is None else self._audiences.look(server, audience, whole)

    def update(self, offer: Offer) -> None:
        """A server's whole offer, in place of its last one."""
        if self._offers.get(offer.server) != offer:
            self._offers[offer.server] = offer
            self._schedule()

    def expect_large(self, tools: frozenset[str]) -> None:
        """Results of these tools (ids, by the server's own names) have been large: their definitions say what helps."""
        if tools != self._builder.large:
            self._builder.large = tools
            self._schedule()

    def remove(self, server: str) -> None:
        """A server that offers nothing any more; unknown ones are fine."""
        if self._offers.pop(server, None) is not None:
            self._schedule()

    def configure(
        self,
        settings: Mapping[str, OfferSettings],
        builder: SnapshotBuilder | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Other settings for the same offers: filters, renames, servers that came or went.

        `builder`: how snapshots are cut from now on; `policy`: what is denied from now on, at once (see `audience`).
        None: as before.
        """
        self.settings = settings
        if builder is not None and builder.options != self._builder.options:
            builder.follow(self._builder)
            self._builder = builder
            self._views.configure(builder)
        if policy is not None:
            self._policy, self._audiences, self.has_roles = policy, Audiences(policy), policy.roles is not None
        self._schedule()

    def audience(self, client: str, principal: str, identity: Identity | None = None) -> Audience:
        """For whom to look (see `view`): which rules of the policy in effect are about this caller, and its roles.

        `identity`: what its token says; None: it has none. An audience is not to be kept: it means nothing under
        another policy.
        """
        return self._policy.audience(client, principal, identity) if self._policy is not None else ANYBODY

    def seen_by(self, caller: Caller) -> Snapshot:
        """The catalog of this caller's view, for what it calls: what its roles forbid is not in it.

        What rules of `permissions` deny is unlisted, and named as it was: a call of it says who denied it.
        """
        if not self.has_roles:
            return self.view(caller.view)
        return self.view(caller.view, self.audience(caller.name, caller.principal, caller.identity))

    def may_know(self, caller: Caller, server: str) -> bool:
        """Whether there may be something of this server for this caller, listed by now or not."""
        roles = self.roles
        return roles is None or roles.may_see(roles.of(caller.principal, caller.identity), server)

    @property
    def policy(self) -> Policy | None:
        """The policy in effect; None: everybody may do everything."""
        return self._policy

    @property
    def roles(self) -> "Roles | None":
        """Who may do what; None: nobody is kept to roles."""
        return self._policy.roles if self._policy is not None else None

    def sees_resource(self, caller: Caller, server: str, uri: str) -> bool:
        """Whether the roles of this caller let it read this resource, as the server spells it."""
        roles = self.roles
        return roles is None or roles.sees_resource(roles.of(caller.principal, caller.identity), server, uri)

    def sees_tool(self, caller: Caller, id_: str) -> bool:
        """Whether the roles of this caller let it know of the tool with this id; of one that there is not, they do not.

        For what is left of calls: results, tasks.
        """
        sees = self.restriction_of(caller)
        return sees is None or sees(id_)

    def restriction_of(self, caller: Caller) -> Callable[[str], bool] | None:
        """As `sees_tool`, for many tools at once; None: no roles keep this caller from any."""
        if not self.is_kept(caller):
            return None
        seen = self.view("", self.audience(caller.name, caller.principal, caller.identity)).by_wire.values()
        ids = {ref.id for ref in seen} | {f"{ref.server}/{ref.name}" for ref in seen}
        return ids.__contains__

    def is_kept(self, caller: Caller) -> bool:
        """Whether this caller is kept to its roles."""
        return self.has_roles and bool(self.audience(caller.name, caller.principal, caller.identity) & _KEPT)

    def flush(self, view: str = "", audience: Audience | None = None) -> Snapshot:
        """The snapshot (see `view`) with every change up to now in it; listeners are notified before this returns."""
        self.settle()
        self.is_looked_at = True
        return self.view(view, audience)

    def settle(self) -> None:
        """Have every change up to now in the snapshot; listeners are notified before this returns."""
        if self._timer is not None:
            self._timer.cancel()
            self._rebuild()

    def changed(self, server: str, audience: Audience) -> frozenset[Kind]:
        """The kinds whose listing this audience sees otherwise in this view since the snapshot before.

        Listeners ask when they are notified. For an audience that nobody looked for lately, what changed for anybody.
        """
        everybody: frozenset[Kind] = frozenset()
        return self._changed_for.get((server, audience), self._changed.get(server, everybody))

    def on_change(self, listener: OnChange) -> Callable[[], None]:
        """Notify `listener` of every new snapshot that lists something else. Returns how to stop that."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def on_view_change(self, listener: OnViewChange) -> None:
        """Notify `listener` when the catalog of one server by its own names, if anyone looked at it, has changed."""
        self._view_listeners.append(listener)

    def close(self) -> None:
        """Drop changes that are still being gathered; nobody is notified of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._settle, self._rebuild)

    def _rebuild(self) -> None:
        self._timer = None
        before = self.snapshot
        self._built, self._built_settings = dict(self._offers), self.settings
        self.snapshot = self._builder.build(tuple(self._built.values()), self._built_settings)
        after = self.snapshot
        changed: frozenset[Kind] = frozenset(
            kind for kind in KINDS if after.kind_digest(kind) != before.kind_digest(kind)
        )
        views = self._views.refresh(self._built, self._built_settings)
        self._changed = {"": changed, **views}
        self._changed_for = self._audiences.refresh(self.view)
        if changed:
            for listener in tuple(self._listeners):
                listener(self.snapshot, changed)
        for server, kinds in views.items():
            for view_listener in tuple(self._view_listeners):
                view_listener(server, kinds)
