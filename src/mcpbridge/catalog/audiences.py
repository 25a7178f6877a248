"""What the policy lets each audience see of a catalog: the same snapshot, less the tools that are denied to it.

Clients of whom the same rules speak see the same, so there are few audiences; those that see the same tools share one
snapshot with its encoded pages. Where nothing can be denied, the whole is handed out and this costs nothing.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import chain

from mcpbridge.catalog.snapshot import KINDS, Kind, Snapshot
from mcpbridge.policy.decide import Audience, Policy, ToolPolicy

__all__ = ["MOST", "Audiences"]

MOST = 32
"""Audiences whose catalogs are kept, those of single servers included; the one not asked for longest goes first."""

_Key = tuple[str, Audience]


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
        self._always = frozenset(hidden)
        self._made: dict[frozenset[str], Snapshot] = {}

    def of(self, audience: Audience) -> Snapshot:
        hidden = self._always.union(wire for wire, policy in self._depending if policy.hides(audience))
        cut = self._made.get(hidden)
        if cut is None:
            if len(self._made) >= MOST:
                self._made.clear()
            cut = self._made[hidden] = self.whole.hiding(hidden)
        return cut


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
