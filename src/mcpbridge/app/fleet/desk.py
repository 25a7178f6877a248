"""What a running bridge answers about its fleet: who belongs to it, how they are, and to drain one of them.

The fleet begins when the bridge serves over HTTP, and the desk is there before; without a fleet it says so.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from mcpbridge.app.admin.control_client import Document
from mcpbridge.app.admin.control_socket import Answers
from mcpbridge.app.admin.errors import Problem
from mcpbridge.library.bridge import Bridge

if TYPE_CHECKING:  # loaded where there is a fleet
    from mcpbridge.app.admin.prometheus import Page
    from mcpbridge.fleet.call_logs import Found, Said
    from mcpbridge.fleet.fleet import Fleet
    from mcpbridge.fleet.orders import Own
    from mcpbridge.storage.call_log.usage import Whose

NO_FLEET = "this bridge belongs to no fleet: its configuration has no `[fleet]`, or it does not serve over HTTP"


class Pulse(Struct, frozen=True):
    """What a bridge of the fleet says of itself every second while somebody looks."""

    bridge: str
    """Its name."""
    id: str
    problem: str
    """Why it says nothing; empty: it does."""
    counts: Mapping[str, Any]
    """See `_pulse` in `app/fleet/own_records.py`; empty if there is a problem."""


class FleetDesk:
    """Who asks for the fleet of this bridge comes here."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.fleet: Fleet | None = None
        """The fleet, while there is one."""

    def open(self, fleet: "Fleet") -> None:
        """There is one from now on."""
        self.fleet = fleet
        fleet.orders.own, fleet.orders.call_logs.read = self._own, self._read

    def close(self) -> None:
        """There is none any more."""
        self.fleet = None

    @property
    def name(self) -> str:
        """What this bridge is called in its fleet; empty: there is none."""
        return self.fleet.members.me.name if self.fleet is not None else ""

    def answers(self) -> Answers:
        """What commands ask, by `do`."""
        return {
            "fleet.members": self._members,
            "fleet.status": self._status,
            "fleet.drain": self._drain,
            "fleet.log": self._log,
            "fleet.usage": self._usage,
            "fleet.stats": self._stats,
        }

    def facts(self) -> Mapping[str, Any]:
        """What `mcpbridge status` says of it; empty: there is no fleet."""
        if self.fleet is None:
            return {}
        from mcpbridge.fleet.orders import member_document

        members = self.fleet.members
        bridges = [member_document(one, members.me) for one in members.all()]
        return {
            "fleet": {
                "name": members.me.name,
                "id": members.me.id,
                "members": len(members.all()),
                "draining": members.me.is_draining,
                "problem": members.problem,
                "bridges": [{**one, "since": _time(one["since"])} for one in bridges],
            }
        }

    def metrics(self) -> "Callable[[Page], None] | None":
        """The numbers of now, and what writes them; None: there is no fleet."""
        if self.fleet is None:
            return None
        from mcpbridge.app.fleet.metrics import add_fleet, numbers_of

        numbers = numbers_of(self.fleet)
        return lambda page: add_fleet(page, numbers)

    async def members(self) -> Document:
        """Who belongs to the fleet, as far as this bridge knows.

        Raises:
            Problem: there is no fleet.
        """
        from mcpbridge.fleet.orders import member_document

        fleet = self._fleet()
        await fleet.members.look()
        me = fleet.members.me
        found = [member_document(one, me) for one in fleet.members.all()]
        return {"members": found, **_around(fleet)}

    async def status(self) -> Document:
        """How each member is, by its own words, and all together.

        Raises:
            Problem: there is no fleet.
        """
        from mcpbridge.fleet.orders import member_document

        fleet = self._fleet()
        me = fleet.members.me
        rows: list[dict[str, Any]] = []
        for member, report in await fleet.orders.reports():
            row: dict[str, Any] = dict(member_document(member, me))
            rows.append(row | ({"error": report} if isinstance(report, str) else msgspec.to_builtins(report)))
        return {"members": rows, "together": _together(rows), **_around(fleet)}

    async def drain(self, which: str, *, undo: bool) -> Document:
        """Have a member take nothing new, or take it again. `which`: its name or id; empty: this bridge.

        Raises:
            Problem: there is no fleet, or no such member, or it cannot be reached.
        """
        from mcpbridge.fleet.orders import OrderFailed, UnknownMember, member_document

        fleet = self._fleet()
        try:
            member, report = await fleet.orders.drain(which, undo=undo)
        except UnknownMember as error:
            raise Problem("unknown", str(error)) from error
        except OrderFailed as error:
            raise Problem("failed", str(error)) from error
        self._bridge.trail.note("fleet.resumed" if undo else "fleet.drained", {"detail": f"{member.name} {member.id}"})
        return {**member_document(member, fleet.members.me), **msgspec.to_builtins(report), "draining": not undo}

    async def log(
        self, query: Mapping[str, Any], after: Mapping[str, int], bridge: str = "", since: float | None = None
    ) -> Document:
        """What the call logs of all bridges say, or of the only one to ask: `rows`, oldest first, with their `bridge`.

        `after`: by the id of a bridge, and by what its file is called, the number of the last record that is known. In
        the answer: the numbers for the next look. `since` (seconds since 1970): of a bridge that is not in `after`,
        only what began since then. `missing`: bridges that do not say.

        Raises:
            Problem: there is no fleet, or no such bridge.
        """
        from mcpbridge.app.fleet.together import missing_of
        from mcpbridge.storage.call_log.reader import iso_time

        said = await self.ask(query, {id_: {"after": number} for id_, number in after.items()}, bridge)
        rows, known = list[dict[str, Any]](), dict(after)
        for one in said:
            names = [name for name in (*one.ids, one.file) if name]
            last = max((after[name] for name in names if name in after), default=None)
            if last is not None:  # a bridge that started anew has another id, and the same file
                found = [row for row in one.rows if row.get("id", last + 1) > last]
            else:
                found = [row for row in one.rows if since is None or str(row.get("at", "")) >= iso_time(since)]
            rows += [{**row, "bridge": one.name} for row in found]
            if not one.problem:
                number = max([last or 0, *(row.get("id", 0) for row in one.rows)])
                known |= dict.fromkeys(names, number)
        rows.sort(key=lambda row: str(row.get("at", "")))
        return {"rows": rows, "after": known, "missing": missing_of(said)}

    async def usage(self, asked: Mapping[str, str], whose: "Whose | None" = None, bridge: str = "") -> Document:
        """Who used what at all bridges: as `requested_usage`, with the sums of each (`bridges`), and who is `missing`.

        Raises:
            Problem: there is no fleet, or no such bridge, or something of what is asked is wrong.
        """
        from mcpbridge.app.admin.usage import read_request
        from mcpbridge.app.fleet.together import usage_together
        from mcpbridge.storage.call_log.query import LogQuery, write_query

        which, by, price = read_request(asked, time.time())
        said = await self.ask(write_query(LogQuery("usage", which, by=by, whose=whose)), {}, bridge)
        report = usage_together(said, which, by, price, counts_missing=whose is None)
        if whose is not None:  # why a bridge cannot be reached is for those who run it
            report["missing"] = [{**one, "reason": "it does not answer"} for one in report["missing"]]
        return report

    async def stats(self, bridge: str = "") -> Document:
        """What all bridges have counted since they started: `bridges`, `together`, and who is `missing`.

        Raises:
            Problem: there is no fleet, or no such bridge.
        """
        from mcpbridge.app.fleet.together import stats_together

        return stats_together(await self.ask({"what": "stats"}, {}, bridge))

    async def pulses(self, *, of_others: bool) -> Sequence[Pulse]:
        """What changes at the bridges, for pages that look every second. Cancelling is safe.

        Raises:
            Problem: there is no fleet.
        """
        said = await self.ask({"what": "pulse"}, of_others=of_others, anew=False)
        return [Pulse(one.name, one.member.id, one.problem, one.rows[0] if one.rows else {}) for one in said]

    async def ask(
        self, query: Mapping[str, Any], each: Mapping[str, Mapping[str, Any]] = {}, bridge: str = "", **how: bool
    ) -> "Sequence[Said]":
        """See `CallLogs.ask`.

        Raises:
            Problem: there is no fleet, or no such bridge.
        """
        said = await self._fleet().orders.call_logs.ask(query, each, bridge, **how)
        if bridge and not said:
            raise Problem("unknown", f"no bridge of the fleet is called {bridge[:80]!r}")
        return said

    async def _read(self, document: object) -> "Found | None":
        from mcpbridge.app.fleet.own_records import own_records

        return await own_records(self._bridge, document)

    def _fleet(self) -> "Fleet":
        if self.fleet is None:
            raise Problem("no_fleet", NO_FLEET)
        return self.fleet

    def _own(self) -> "Own":
        from mcpbridge.fleet.orders import Own

        bridge = self._bridge
        problems = bridge.status()["storage_problems"]
        return Own(calls=len(bridge.running_calls()), problems=[str(one) for one in problems])

    # -- over the control socket

    async def _members(self, _: Document) -> Document:
        try:
            return {"pid": os.getpid(), **await self.members()}
        except Problem as problem:
            return _failed(problem)

    async def _status(self, _: Document) -> Document:
        try:
            return {"pid": os.getpid(), **await self.status()}
        except Problem as problem:
            return _failed(problem)

    async def _log(self, request: Document) -> Document:
        query = cast("Mapping[str, Any]", request.get("query") or {})
        after = cast("Mapping[str, int]", request.get("after") or {})
        bridge, since = str(request.get("bridge") or ""), cast("float | None", request.get("since"))
        try:
            return {"pid": os.getpid(), **await self.log(query, after, bridge, since)}
        except Problem as problem:
            return _failed(problem)

    async def _usage(self, request: Document) -> Document:
        asked = {name: str(request[name]) for name in ("by", "since", "until", "price") if request.get(name)}
        if request.get("user") is not None:
            asked["user"] = str(request["user"])  # '' is the local one
        try:
            return {"pid": os.getpid(), **await self.usage(asked, bridge=str(request.get("bridge") or ""))}
        except Problem as problem:
            return _failed(problem)

    async def _stats(self, request: Document) -> Document:
        try:
            return {"pid": os.getpid(), **await self.stats(str(request.get("bridge") or ""))}
        except Problem as problem:
            return _failed(problem)

    async def _drain(self, request: Document) -> Document:
        try:
            done = await self.drain(str(request.get("name") or ""), undo=bool(request.get("undo")))
            return {"pid": os.getpid(), **done}
        except Problem as problem:
            return _failed(problem)


def _around(fleet: "Fleet") -> dict[str, Any]:
    """Who is no member though it has a lease, and why who has one may not be known."""
    members = fleet.members
    return {"incompatible": msgspec.to_builtins(members.incompatible), "problem": members.problem}


def _together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What all have that answer."""
    known = [row for row in rows if "error" not in row]
    together: dict[str, Any] = {
        name: sum(int(row.get(name, 0)) for row in known)
        for name in ("sessions", "busy_sessions", "calls", "passing_on", "taken_over", "handed_on", "store_failures")
    }
    outcomes = sorted({name for row in known for name in row["forwarded"]})
    together["forwarded"] = {name: sum(int(row["forwarded"].get(name, 0)) for row in known) for name in outcomes}
    together |= {"members": len(rows), "silent": len(rows) - len(known)}
    together["draining"] = sum(1 for row in rows if row["draining"])
    together["same_settings"] = all(row["same_settings"] for row in rows)
    return together


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _failed(problem: Problem) -> Document:
    return {"pid": os.getpid(), "code": problem.code, "error": str(problem)}
