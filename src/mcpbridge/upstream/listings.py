"""What one server offers: its lists as they came last, and when to ask for them anew.

`session` asks over all pages, `tending` decides when; here is what stays of it from one session to the next.
"""

import asyncio
from collections.abc import Callable

from msgspec import Raw

from mcpbridge.errors import UpstreamUnavailable
from mcpbridge.logs import get_logger
from mcpbridge.upstream.link import LIST_SECONDS
from mcpbridge.upstream.session import UpstreamSession
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.tending import Tending
from mcpbridge.wire.deadlines import Timeouts

__all__ = ["Listings", "Lists"]

log = get_logger("mcpbridge.upstream")

Lists = dict[str, tuple[bytes, ...]]
"""What an upstream offers: kind (a key of `LIST_METHODS`) to its definitions, each as it came."""


class Listings:
    """The lists of one instance."""

    def __init__(self, name: str, settings: ServerSettings, publish: Callable[[Lists, bool], None] | None) -> None:
        """`publish` gets everything it offers, whenever it listed anew, and whether that is the whole.

        None: its lists do not count, so none is asked. That is so for all instances of a server but the first.
        """
        self.settings = settings
        """As they are now."""
        self._name, self._publish = name, publish
        self.are_known = False
        """It is known what it offers: it has listed, or is remembered from earlier."""
        self.lists: Lists = {}
        self.ttl_ms: dict[str, int] = {}
        """Milliseconds that the server says its lists stay fresh, by kind; of those that it says it of."""
        self._tending: Tending | None = None
        self._stale: set[str] = set()
        """Kinds to list once somebody tends the session."""

    def recall(self, lists: Lists, ttl_ms: dict[str, int]) -> None:
        """It offered this when it was up last."""
        self.lists, self.ttl_ms, self.are_known = dict(lists), dict(ttl_ms), True

    def begin(self) -> None:
        """Another connection is opened: what was announced on the last one is seen anyway."""
        self._tending = None
        self._stale.clear()

    def tended_by(self, tending: Tending) -> None:
        """From now on `tending` lists what is stale, and first what has become so already."""
        self._tending = tending
        tending.mark_stale(*self._stale)

    def mark_stale(self, *kinds: str) -> None:
        """These lists may have changed."""
        if self._tending is not None:
            self._tending.mark_stale(*kinds)
        else:
            self._stale.update(kinds)

    def acknowledged(self, params: Raw) -> None:
        """A listen stream is open: the server tells of changes from now on."""
        if self._tending is not None:
            self._tending.acknowledged(params)

    async def first(self, session: UpstreamSession) -> None:
        """List everything for the first time in this session. What fails is left for later; all of it may not.

        Raises:
            UpstreamUnavailable: every list failed.
        """
        seconds = min(self.settings.init_timeout, LIST_SECONDS)
        troubles = await self._list(session, session.lists, seconds)
        if troubles and len(troubles) == len(session.lists):
            raise UpstreamUnavailable(self._name, "; ".join(troubles.values()))
        self._stale.update(troubles)

    async def again(self, session: UpstreamSession, kinds: list[str]) -> list[str]:
        """List these kinds anew and publish what came; returns those that failed."""
        return list(await self._list(session, kinds, self.settings.timeouts.idle))

    async def _list(self, session: UpstreamSession, kinds: list[str], seconds: float) -> dict[str, str]:
        """List these kinds and publish what came. Returns what failed, and why; of those the last list stays."""
        if self._publish is None:
            return {}
        listings = await asyncio.gather(*(session.list_all(kind, Timeouts(seconds, seconds)) for kind in kinds))
        failed: dict[str, str] = {}
        lists = {kind: self.lists.get(kind, ()) for kind in session.lists}
        for kind, listing in zip(kinds, listings, strict=True):
            if listing.trouble:
                failed[kind] = listing.trouble
                log.warning("listing failed", upstream=self._name, kind=kind, reason=listing.trouble)
            if not listing.trouble or not lists[kind]:
                lists[kind] = listing.entries
            self.ttl_ms.pop(kind, None)
            if listing.ttl_ms is not None:
                self.ttl_ms[kind] = listing.ttl_ms
        self.lists, self.are_known = lists, True
        self._publish(lists, not failed)
        return failed
