"""The calls that pages show: those of this bridge or, in a fleet, of all its bridges, as far as the visitor may see."""

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from mcpbridge.app.console.call_history import COUNTED, CallHistory
from mcpbridge.app.console.context import ConsoleContext
from mcpbridge.app.console.guard import Visitor
from mcpbridge.app.console.pages.calls.filters import CallFilters, filters_for, number_of
from mcpbridge.core.recording import RunningCall
from mcpbridge.storage.call_log.reader import Filter, Row
from mcpbridge.storage.call_log.usage import Whose

if TYPE_CHECKING:  # loaded where there is a fleet
    from mcpbridge.app.fleet.history import FleetHistory
    from mcpbridge.app.fleet.pages import FleetPage

_UID_DIGITS = 16


class CallsPage(Struct, frozen=True):
    """Some calls, newest first; in a fleet each has its `bridge`."""

    rows: Sequence[Row]
    before: str
    """What an address has to say for older ones; empty: there are none."""
    after: str
    """The same for newer ones."""
    missing: Sequence[Mapping[str, str]] = ()
    """Bridges of the fleet that do not answer, and why."""


class AllCalls:
    """What is asked for a request: it says who looks, and with which filters.

    Methods raise `StoreFailed` where this bridge has no fleet, and its file cannot be read.
    """

    def __init__(self, console: ConsoleContext) -> None:
        self._console, self.here = console, CallHistory(console.bridge)

    @property
    def bridges(self) -> Sequence[str]:
        """The names of the bridges of the fleet; empty: there is none."""
        return self._fleet.names if self._console.in_fleet else ()

    @cached_property
    def _fleet(self) -> "FleetHistory":
        from mcpbridge.app.fleet.history import FleetHistory

        assert self._console.fleet is not None
        return FleetHistory(self._console.fleet)

    def filters(self, request: Request) -> CallFilters:
        """See `filters_for`."""
        return filters_for(request.state.visitor, request.query_params, time.time(), bridges=self.bridges)

    def before(self, request: Request) -> str:
        """Where the page begins that an address asks for; empty: with the newest call."""
        text = request.query_params.get("before", "")
        if not self._console.in_fleet:
            return str(_number(text) or "")
        from mcpbridge.app.fleet.pages import read_place

        return text if read_place(text) is not None else ""

    async def page(
        self, request: Request, filters: CallFilters, *, limit: int, before: str = "", content: bool = False
    ) -> CallsPage:
        """The newest calls. `before`: what the page of newer ones said."""
        if not self._console.in_fleet:
            page = await self.here.page(filters.which, limit=limit, before=_number(before), content=content)
            return CallsPage(page.rows, str(page.before or ""), str(page.after))
        found = await self._fleet.page(
            filters.which,
            limit=limit,
            before=before,
            content=content,
            whose=_whose(request),
            bridge=filters.bridge,
        )
        page = _as_page(found)
        if _whose(request) is None:
            return page
        # Why a bridge cannot be reached is for those who run it.
        return replace(page, missing=[{**one, "reason": ""} for one in page.missing])

    async def newest(self, request: Request, filters: CallFilters, after: str) -> str:
        """What names the newest call, if there are some that are newer than `after` says; else empty.

        In a fleet also when other bridges than before do not answer.
        """
        if not self._console.in_fleet:
            page = await self.here.page(filters.which, limit=1, after=_number(after))
            return str(page.rows[0]["id"]) if page.rows else ""
        has_newer, newest = await self._fleet.has_newer(
            filters.which, after, whose=_whose(request), bridge=filters.bridge
        )
        return newest if has_newer else ""

    async def count(self, request: Request, filters: CallFilters) -> int:
        """How many calls there are, up to `COUNTED`."""
        if not self._console.in_fleet:
            return await self.here.count(filters.which)
        return await self._fleet.count(filters.which, COUNTED, whose=_whose(request), bridge=filters.bridge)

    async def events(self, which: Filter, *, limit: int, before: str = "", kinds: Sequence[str] = ()) -> CallsPage:
        """What happened beside calls, newest first, for those who may see all."""
        if self._console.in_fleet:
            return _as_page(await self._fleet.events(which, limit=limit, before=before, kinds=kinds))
        rows = await self.here.events(which, limit=limit, before=_number(before), kinds=kinds)
        return CallsPage(rows[::-1], str(rows[0]["id"]) if len(rows) == limit else "", "")

    async def sessions(self, client: str | None, *, limit: int, before: str = "") -> CallsPage:
        """The sessions of clients, newest first, for those who may see all."""
        if self._console.in_fleet:
            return _as_page(await self._fleet.sessions(client, limit=limit, before=before))
        rows = await self.here.sessions(client=client, limit=limit, before=_number(before))
        return CallsPage(rows, str(rows[-1]["id"]) if len(rows) == limit else "", "")

    async def session(self, session: str) -> Row | None:
        """One session, for those who may see all; None: nothing is known of its begin."""
        return await (self._fleet.session(session) if self._console.in_fleet else self.here.session(session))

    async def elsewhere(self, request: Request, uid: str) -> Row | None:
        """A call of another bridge of the fleet, whole; None: there is none that the visitor may see."""
        if not self._console.in_fleet or len(uid) != _UID_DIGITS:
            return None
        return await self._fleet.call(uid, whose=_whose(request))

    async def under_way(self, request: Request, bridge: str = "") -> Sequence[tuple[str, RunningCall]]:
        """The calls under way at other bridges of the fleet, with the name of the bridge of each."""
        if not self._console.in_fleet:
            return ()
        return await self._fleet.under_way(whose=_whose(request), bridge=bridge)

    async def whole(self, request: Request, uid: str) -> Row | None:
        """A call of this bridge or another one, whole; None: there is none."""
        return await self.here.call(uid) or await self.elsewhere(request, uid)


def _as_page(page: "FleetPage") -> CallsPage:
    return CallsPage([dict(row) for row in page.rows], str(page.before or ""), str(page.after), page.missing)


def _whose(request: Request) -> Whose | None:
    """The rule for this visitor, to which the other bridges keep, too."""
    visitor: Visitor = request.state.visitor
    return None if visitor.sees_all else Whose([visitor.principal])


def _number(text: str) -> int:
    return number_of({"number": text}, "number")
