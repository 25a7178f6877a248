"""The calls of all bridges of a fleet, for the console: page by page, single ones, and those under way."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import msgspec

from mcpbridge.app.admin.errors import Problem
from mcpbridge.app.fleet.desk import FleetDesk
from mcpbridge.app.fleet.pages import FleetPage, Place, merged_pages, page_of, read_place
from mcpbridge.core.recording import RunningCall
from mcpbridge.fleet.call_logs import Said
from mcpbridge.storage.call_log.query import LogQuery, write_query
from mcpbridge.storage.call_log.reader import Filter, Row
from mcpbridge.storage.call_log.usage import Whose


class FleetHistory:
    """What all bridges have recorded. `whose`, of each method: nothing but calls of these; None: all."""

    def __init__(self, desk: FleetDesk) -> None:
        self._desk = desk

    @property
    def names(self) -> list[str]:
        """What the bridges are called, the oldest first."""
        fleet = self._desk.fleet
        return [] if fleet is None else list(dict.fromkeys(one.name for one in fleet.members.all()))

    async def page(
        self,
        which: Filter,
        *,
        limit: int,
        before: str = "",
        after: str = "",
        content: bool = False,
        whose: Whose | None = None,
        bridge: str = "",
    ) -> FleetPage:
        """The newest calls of all, or of one bridge. `before`, `after`: the texts of places of a page."""
        query = LogQuery("page", which, limit, content=content, whose=whose)
        each: dict[str, Mapping[str, Any]] = {}
        older, newer = read_place(before), read_place(after)
        if older is not None:
            # Who has no number in it was not there when the first page was shown.
            until = min(older.at, which.until) if which.until is not None else older.at
            query = msgspec.structs.replace(query, which=replace(which, until=until))
            own = write_query(msgspec.structs.replace(query, which=which))["which"]
            each = {id_: {"before": number, "which": own} for id_, number in older.numbers.items()}
        elif newer is not None:
            each = {id_: {"after": number} for id_, number in newer.numbers.items()}
        answers = await self._ask(query, each, bridge)
        return merged_pages(answers, limit, older, newer)

    async def events(self, which: Filter, *, limit: int, before: str = "", kinds: Sequence[str] = ()) -> FleetPage:
        """What happened beside calls, of these kinds, newest first; see `read_events`."""
        older = read_place(before)
        each = {id_: {"before": number} for id_, number in older.numbers.items()} if older is not None else {}
        answers = await self._ask(LogQuery("events", which, limit, kinds=kinds), each)
        return merged_pages([page_of(one, limit, is_newest_first=False) for one in answers], limit, older, None)

    async def sessions(self, client: str | None, *, limit: int, before: str = "") -> FleetPage:
        """The sessions of clients, the newest first; one that moved is there for each of its bridges."""
        older = read_place(before)
        each = {id_: {"before": number} for id_, number in older.numbers.items()} if older is not None else {}
        answers = await self._ask(LogQuery("sessions", Filter(client=client), limit), each)
        pages = [page_of(one, limit, is_newest_first=True) for one in answers]
        return merged_pages(pages, limit, older, None, when="began")

    async def session(self, session: str) -> Row | None:
        """One session, as the bridges know it together: where it began first, with its calls at all of them."""
        answers = await self._ask(LogQuery("session", uid=session), {})
        found = sorted((row for one in answers for row in one.rows), key=itemgetter("began"))
        if not found:
            return None
        sums = {name: sum(row[name] for row in found) for name in ("calls", "errors")}
        # The bridge that had it last knows its end.
        return {
            **{key: value for key, value in found[0].items() if key not in ("ended", "why")},
            **sums,
            **_end(found[-1]),
        }

    async def has_newer(
        self, which: Filter, after: str, *, whose: Whose | None = None, bridge: str = ""
    ) -> tuple[bool, str]:
        """Whether there are calls after this place, or other bridges do not answer; and what names the newest place."""
        page = await self.page(which, limit=1, after=after, whose=whose, bridge=bridge)
        known = read_place(after) or Place({})
        is_newer = bool(page.rows) or sorted(known.missing) != sorted(page.after.missing)
        return is_newer, str(page.after)

    async def count(self, which: Filter, most: int, *, whose: Whose | None = None, bridge: str = "") -> int:
        """How many calls there are, up to `most`, at the bridges that answer."""
        answers = await self._ask(LogQuery("count", which, most, whose=whose), {}, bridge)
        return min(most, sum(row["count"] for one in answers for row in one.rows))

    async def call(self, uid: str, *, whose: Whose | None = None) -> Row | None:
        """One call of another bridge whole, with its `bridge`; see `read_call`."""
        answers = await self._ask(LogQuery("call", uid=uid, limit=1, whose=whose), {}, of_others=True)
        return next(({**row, "bridge": one.name} for one in answers for row in one.rows), None)

    async def under_way(self, *, whose: Whose | None = None, bridge: str = "") -> Sequence[tuple[str, RunningCall]]:
        """The calls under way at other bridges, and the name of the bridge of each; those that began first come first.

        Who does not answer is missing: pages name such bridges beside the calls that have ended.
        """
        answers = await self._ask(LogQuery("under_way", whose=whose), {}, bridge, of_others=True)
        found = [
            (one.name, msgspec.convert(call, RunningCall))
            for one in answers
            for row in one.rows
            for call in row.get("calls", ())
        ]
        return sorted(found, key=lambda entry: entry[1].since)

    async def _ask(
        self, query: LogQuery, each: Mapping[str, Mapping[str, Any]], bridge: str = "", *, of_others: bool = False
    ) -> Sequence[Said]:
        try:
            return await self._desk.ask(write_query(query), each, bridge, of_others=of_others)
        except Problem:
            return []  # there is no such bridge, or no fleet any more


def _end(last: Row) -> Row:
    return {name: last[name] for name in ("ended", "why") if name in last}
