"""Pass on events of the upstreams to the parts of a bridge that need them."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Raw

from mcpbridge.base.log import get_logger
from mcpbridge.catalog.definitions.check import KINDS, Kind
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.unmatched_names import UnmatchedNames
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.core.elicitation import Elicitor
from mcpbridge.downstream.notifications.from_upstreams import UpstreamNotifications
from mcpbridge.engine.pins.enforcement import PinEnforcement
from mcpbridge.pipeline.stages.cache import Cache
from mcpbridge.upstream.session.listings import Lists
from mcpbridge.upstream.startup_wait import StartupWait
from mcpbridge.upstream.supervisor import Upstream

log = get_logger("mcpbridge")

Note = Callable[[str, Mapping[str, object]], object]
"""Gets the kind of an event, and its facts."""

_EVENTS = {
    "ready": "server.ready",
    "retrying": "server.retrying",
    "failed": "server.failed",
    "idle": "server.stopped",
    "stopped": "server.stopped",
    "unavailable": "server.failed",
}
"""What the timeline calls it that a server has come to a state."""


class UpstreamEvents:
    """The `Observer` of all upstreams of a bridge. They are made before what it notifies of them: see `begin`."""

    def __init__(self, catalog: Catalog, note: Note, pins: PinEnforcement) -> None:
        """`note` hears of the states of servers, and of their lists. `pins` decides what is listed of them."""
        self._catalog, self._note, self._pins = catalog, note, pins
        self.settled: set[str] = set()
        """Names of upstreams that were ready or had failed once."""
        self._stood: dict[str, tuple[Upstream, str]] = {}
        """By name, which instance stepped last, and to which state."""
        self._lists: dict[str, Lists] = {}
        """By name, what it listed last."""

    def begin(
        self, news: UpstreamNotifications, cache: Cache, startup: StartupWait, unmatched: Callable[[], UnmatchedNames]
    ) -> None:
        """To be called before an upstream runs. `unmatched`: of the settings in effect."""
        self._news, self._cache, self._startup, self._unmatched = news, cache, startup, unmatched

    def forget(self, name: str) -> None:
        """There is no such upstream any more."""
        self._stood.pop(name, None)
        self._pins.forget(name)
        if self._lists.pop(name, None) is not None:
            self._note("server.removed", {"server": name})

    def note_unmatched(self, name: str, lists: Lists) -> None:
        """Warn of what the settings in effect say of tools of this upstream that it has not."""
        for unmatched in self._unmatched().listed(name, lists.get("tools", ())):
            log.warning("settings match no tool", note=str(unmatched))

    def offered(self, upstream: Upstream, lists: Lists) -> None:
        """An upstream listed anew."""
        self.note_unmatched(upstream.name, lists)
        self._note_lists(upstream.name, lists)
        self._cache.offered(upstream.name, lists)
        shown = self._pins.listed(upstream.name, lists)
        tools, prompts, resources, templates = (shown.get(kind, ()) for kind in KINDS)
        ttl_ms: dict[Kind, int] = {
            kind: upstream.listings.ttl_ms[kind] for kind in KINDS if kind in upstream.listings.ttl_ms
        }
        withheld = self._pins.withheld(upstream.name)
        self._catalog.update(
            Offer(upstream.name, tools, prompts, resources, templates, ttl_ms, upstream.runs_tasks, withheld)
        )
        if upstream.listings.is_relisting:
            self._catalog.settle()  # clients hear of it before they get the answer that it was announced in

    def introduced(self, upstream: Upstream) -> tuple[str, str]:
        """What clients get of what an upstream says of itself."""
        return self._pins.introduced(upstream)

    def review(self, upstreams: Iterable[Upstream]) -> None:
        """Decide anew what is listed of these: what was agreed to of them is different now."""
        for upstream in upstreams:
            upstream.introduce()
            if upstream.lists:
                self.offered(upstream, upstream.lists)

    def _note_lists(self, name: str, lists: Lists) -> None:
        """Tell how many definitions came and went since the last list; a changed one counts as both."""
        before, self._lists[name] = self._lists.get(name), dict(lists)
        if before is None or before == lists:
            return
        changes: dict[str, object] = {}
        for kind in KINDS:
            now, then = set(lists.get(kind, ())), set(before.get(kind, ()))
            if now != then:
                changes[kind] = {"added": len(now - then), "removed": len(then - now)}
        if changes:
            self._note("server.list_changed", {"server": name, **changes})

    def resource_updated(self, upstream: Upstream, params: Raw) -> None:
        """A resource of an upstream changed."""
        self._news.resource_updated(upstream, params)

    def logged(self, upstream: Upstream, params: Raw) -> None:
        """An upstream logged something that belongs to no call."""
        self._news.logged(upstream, params)

    def elicitation_completed(self, upstream: Upstream, params: Raw) -> None:
        """A page that an upstream had somebody open has done its work."""
        self._news.elicitation_completed(upstream, params)

    def beside(self, upstream: Upstream) -> Elicitor | None:
        """Who can be asked for roots outside of any call."""
        return self._news.beside(upstream)

    def stepped(self, upstream: Upstream) -> None:
        """An upstream changed its state."""
        log.debug("upstream state", upstream=upstream.name, state=upstream.status.state)
        before, state_before = self._stood.get(upstream.name, (None, ""))
        status = upstream.status
        self._stood[upstream.name] = upstream, status.state
        if kind := _EVENTS.get(status.state):
            self._note(kind, {"server": upstream.name, "detail": status.reason})
        is_lost = bool(status.reason) and status.state in ("retrying", "failed", "idle")
        if before is not upstream or is_lost or (status.state == "starting" and state_before == "ready"):
            # What it held in memory is gone. So it is of one that nobody used and that was stopped, but that tells
            # nothing of what was read there.
            self._cache.forget(upstream.name)
        if upstream.has_settled:
            self.settled.add(upstream.name)
        self._startup.noticed()
