"""The catalogs of single servers, by their own names, for the endpoints that show one server.

The same offers and settings as the merged catalog: filters and renames apply, only prefixes and rewritten URIs do not.
Each is made when it is first looked at, since most are never, and remade when its server's part changes.
"""

from collections.abc import Mapping

from mcpbridge.catalog.offers import Offer
from mcpbridge.catalog.snapshot import KINDS, Builder, Kind, Snapshot
from mcpbridge.model import BRIDGE
from mcpbridge.upstream.offer_settings import OfferSettings

__all__ = ["Views"]

_Part = tuple[Offer | None, OfferSettings | None, Offer | None, frozenset[str]]
"""What the server offers, its settings, what the bridge itself offers, and whose results have been large."""


class Views:
    """Snapshots of single servers. Holds those that were looked at."""

    def __init__(self, builder: Builder) -> None:
        """`builder` makes the merged catalog; these are cut like it."""
        self._builder = builder
        self._made: dict[str, tuple[_Part | None, Builder, Snapshot]] = {}
        """What each was made of and by; None: by a builder that cut otherwise."""

    def configure(self, builder: Builder) -> None:
        """All are cut like this builder's catalog from now on; see `refresh`."""
        self._builder = builder
        for server, (_, before, snapshot) in list(self._made.items()):
            own = builder.for_one_server()
            own.follow(before)
            self._made[server] = None, own, snapshot

    def look(self, server: str, offers: Mapping[str, Offer], settings: Mapping[str, OfferSettings]) -> Snapshot:
        """What clients see of this server alone; nothing of one that offers nothing."""
        part = offers.get(server), settings.get(server), offers.get(BRIDGE), self._builder.large
        known = self._made.get(server)
        if known is not None and known[0] == part:
            return known[2]
        builder = self._builder.for_one_server() if known is None else known[1]
        builder.large = self._builder.large
        snapshot = _snapshot(builder, server, part)
        self._made[server] = part, builder, snapshot
        return snapshot

    def refresh(self, offers: Mapping[str, Offer], settings: Mapping[str, OfferSettings]) -> dict[str, frozenset[Kind]]:
        """Remake what changed; returns by server the kinds whose listing is not what was looked at before."""
        changed: dict[str, frozenset[Kind]] = {}
        for server, (_, _, before) in list(self._made.items()):
            after = self.look(server, offers, settings)
            kinds: frozenset[Kind] = frozenset(
                kind for kind in KINDS if after.kind_digest(kind) != before.kind_digest(kind)
            )
            if kinds:
                changed[server] = kinds
        return changed


def _snapshot(builder: Builder, server: str, part: _Part) -> Snapshot:
    offer, settings, own, _ = part
    offers = [one for one in (offer, own) if one is not None]
    return builder.build(offers, {} if settings is None else {server: settings})
