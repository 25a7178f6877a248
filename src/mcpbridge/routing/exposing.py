"""The lists of tools of all clients: made when one is asked for, shared by clients that see the same."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence

import anyio.to_thread

from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.slim import Signature
from mcpbridge.catalog.snapshot import Snapshot
from mcpbridge.policy.decide import Audience
from mcpbridge.routing.exposed import Exposed, MapOf, Shorter
from mcpbridge.routing.exposure import Exposure, exposure_of
from mcpbridge.routing.scopes import Scope, scopes_of
from mcpbridge.routing.settings import ExposeSettings, ProfileSettings
from mcpbridge.upstream.offer_settings import OfferSettings

__all__ = ["MOST", "Exposing"]

MOST = 64
"""Lists that are kept; the one not asked for longest goes first."""
_FEW = 100
"""Tools whose definitions are made shorter on the way."""
_MOST_CLIENTS = 1024
NOTHING = ProfileSettings(servers=["-"])
"""What a profile has that is there no more: no server has such a name."""
_LONGEST_NAME = 256

_Key = tuple[str, Audience, Exposure]


class Exposing:
    """Who is listed what. All methods are called on the event loop's thread."""

    def __init__(
        self,
        settings: ExposeSettings,
        profiles: Mapping[str, ProfileSettings],
        servers: Mapping[str, OfferSettings],
        catalog: Catalog,
        *,
        map_of: MapOf,
        signature: Signature,
        will_search: Callable[[], None],
        gone: Collection[str] = (),
    ) -> None:
        """`map_of` and `signature`: see `Exposed`. `will_search`: hears that somebody may search soon.

        `gone`: profiles that there were before the settings changed. Whoever came to their endpoints sees nothing now.
        """
        self._will_search = will_search
        self._settings, self._catalog = settings, catalog
        self.scopes = scopes_of(profiles, servers)
        """The profiles by name."""
        self._gone = {name: Scope(name, NOTHING, {}) for name in gone if name not in self.scopes}
        self._map_of, self._shorter = map_of, Shorter(settings.mildest, signature)
        self._exposures: dict[tuple[str, str, str], Exposure] = {}
        self._made: OrderedDict[_Key, Exposed] = OrderedDict()
        self._changed: dict[_Key, bool] = {}

    @property
    def profiles(self) -> Collection[str]:
        """Names of the profiles that clients may have come to, also of those that are there no more."""
        return {**self._gone, **self.scopes}.keys()

    def of(self, client: str, view: str = "", profile: str = "") -> Exposure:
        """What the client of this name is listed at an endpoint: of one server (`view`), of a profile, or of all."""
        key = client, view, profile
        known = self._exposures.get(key)
        if known is None:
            scopes = {**self._gone, **self.scopes}
            known = exposure_of(self._settings, client, scopes, profile, is_one_server=bool(view))
            if len(self._exposures) >= _MOST_CLIENTS:
                self._exposures.clear()
            if len(client) <= _LONGEST_NAME:
                self._exposures[key] = known
        return known

    def look(self, view: str, audience: Audience, exposure: Exposure) -> Exposed:
        """The list as of the last snapshot."""
        snapshot = self._catalog.view(view, audience)
        key = view, audience, exposure
        known = self._made.get(key)
        if known is None or known.snapshot is not snapshot:
            known = self._exposed(snapshot, exposure)
            self._keep(key, known)
        self._made.move_to_end(key)
        return known

    async def prepare(self, view: str, audience: Audience, exposure: Exposure) -> None:
        """Do what is slow about a list beside other requests, so that `look` is quick."""
        snapshot = self._catalog.view(view, audience)
        known = self._made.get((view, audience, exposure))
        is_new = known is None or known.snapshot is not snapshot
        is_shorter = exposure.slim != self._settings.mildest or exposure.slim_budget > 0
        if is_new and is_shorter and len(snapshot.tools) > _FEW:
            self._keep((view, audience, exposure), await anyio.to_thread.run_sync(self._exposed, snapshot, exposure))

    def chosen(self, view: str, audience: Audience, exposure: Exposure, ids: Sequence[str]) -> Exposed:
        """The list for one request that wants these tools in it; it is not kept."""
        return self._exposed(self._catalog.view(view, audience), exposure, ids)

    def refresh(self, view: str) -> None:
        """Tools of a view of the catalog changed: find out whose list did. Ask `changed` after that."""
        self._changed = {key: changed for key, changed in self._changed.items() if key[0] != view}
        for key, before in list(self._made.items()):
            if key[0] == view:
                after = self.look(*key)
                self._changed[key] = after.tools.digest != before.tools.digest

    def changed(self, view: str, audience: Audience, exposure: Exposure) -> bool:
        """Whether this list is another one since the last change of the view; for one that nobody looked at: it is."""
        return self._changed.get((view, audience, exposure), True)

    def _keep(self, key: _Key, made: Exposed) -> None:
        self._made[key] = made
        if made.mode == "search":
            self._will_search()
        if len(self._made) > MOST:
            self._made.popitem(last=False)

    def _exposed(self, snapshot: Snapshot, exposure: Exposure, ids: Sequence[str] | None = None) -> Exposed:
        return Exposed(snapshot, exposure, map_of=self._map_of, shorter=self._shorter, chosen=ids)
