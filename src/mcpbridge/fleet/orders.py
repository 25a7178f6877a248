"""What bridges of a fleet ask one another about themselves: how they are, and to take nothing new.

These are no requests of clients. They go over the same link, so whoever asks has the key of the fleet.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Struct, field

from mcpbridge.base.background_tasks import repeat
from mcpbridge.fleet.call_logs import CALLS, CallLogs
from mcpbridge.fleet.counts import FleetCounts
from mcpbridge.fleet.link.connections import Links, NotSent, OutcomeUnknown
from mcpbridge.fleet.link.frames import Ask, BadFrame, Kind, Reply
from mcpbridge.fleet.link.serving import Served
from mcpbridge.fleet.members import LEASE_SECONDS, Members
from mcpbridge.fleet.records import Member
from mcpbridge.fleet.sessions.lapses import Absence, OtherLease, is_cut_off
from mcpbridge.fleet.sessions.sessions import FleetSessions

_PATIENCE = 2.0
"""Seconds that another bridge has to answer; what is asked takes it no time."""
_MEASURE_EVERY = 5.0
"""Seconds between two measurements of a link."""
_WATCH_EVERY, _WATCH_SELDOM = 0.25, 1.0
"""Seconds between two looks at the own lease, and between two questions to the others while the records are away."""
_DOUBT_SECONDS = 2.0
"""Age of the own lease after which the others are asked for theirs: two beats."""
_SHORT_PATIENCE = 0.75
"""Seconds that they have to answer that: the lease lives so long."""
_STATUS, _DRAIN, _RESUME, _PING = "status", "drain", "resume", "ping"


class Own(Struct, frozen=True):
    """What the process knows of itself beside its fleet."""

    calls: int = 0
    """Calls under way."""
    problems: list[str] = field(default_factory=list[str])
    """Why something that should be kept may be lost."""


class Report(Struct, frozen=True):
    """How a bridge of the fleet is, by its own words."""

    sessions: int = 0
    busy_sessions: int = 0
    """Those of them that have requests or streams, or calls whose clients have lost their connections."""
    calls: int = 0
    """Calls under way that it answers itself."""
    passing_on: int = 0
    """Requests that it has passed on to other bridges, which answer them now."""
    is_draining: bool = False
    has_lease: bool = True
    lease_age: float = 0.0
    """Seconds since the lease was renewed."""
    is_settling: bool = False
    """The records were away for all a moment ago: for some seconds nobody takes a session of another."""
    store: str = ""
    """Why the shared records cannot be reached; empty: they can."""
    store_failures: int = 0
    """Times that the lease could not be renewed."""
    storage_problems: list[str] = field(default_factory=list[str])
    links: list[str] = field(default_factory=list[str])
    """Ids of the members that it has a connection to."""
    unreachable: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of the members that it could not reach, and why."""
    forwarded: dict[str, int] = field(default_factory=dict[str, int])
    """Requests that it asked other bridges, by what became of them."""
    taken_over: int = 0
    """Sessions of other bridges that it took over."""
    handed_on: int = 0
    """Sessions that it left to others."""


class UnknownMember(Exception):
    """No bridge of the fleet has this name or id, or several have the name."""


class OrderFailed(Exception):
    """Another bridge of the fleet does not do what it was asked."""


_reports = msgspec.json.Decoder(Report)
_encode = msgspec.json.Encoder().encode


class Orders:
    """What this bridge answers the others, and what it asks them."""

    def __init__(self, links: Links, members: Members, sessions: FleetSessions, counts: FleetCounts) -> None:
        self._links, self._members, self._sessions = links, members, sessions
        self.counts = counts
        """What this bridge has counted."""
        self.call_logs = CallLogs(links, members)
        self.own: Callable[[], Own] = Own
        """What its process knows; set by who runs the bridge."""

    # -- what the others ask

    async def answer(self, served: Served, body: bytes) -> None:
        """Answer what another member asks."""
        name = served.head.path
        if name == CALLS:
            await self.call_logs.serve(served, body)
            return
        if name == _DRAIN:
            await self._sessions.start_draining()
        elif name == _RESUME:
            await self._sessions.resume()
        elif name not in (_STATUS, _PING):
            served.reply_whole(Reply(404, []), b"")
            return
        served.reply_whole(Reply(200, []), b"" if name == _PING else _encode(self.report()))

    def report(self) -> Report:
        """How this bridge is."""
        members, counts, own = self._members, self.counts, self.own()
        sessions = self._sessions.own()
        return Report(
            sessions=len(sessions),
            busy_sessions=sum(1 for one in sessions if one.is_in_use),
            calls=own.calls,
            passing_on=self._sessions.passing_on,
            is_draining=members.me.is_draining,
            has_lease=members.has_lease,
            lease_age=round(members.lease_age, 3),
            is_settling=members.is_settling,
            store=members.problem,
            store_failures=members.failures,
            storage_problems=own.problems,
            links=self._links.open(),
            unreachable=dict(self._links.problems),
            forwarded={str(name): count for name, count in counts.forwarded.items()},
            taken_over=counts.taken_over,
            handed_on=counts.handed_on,
        )

    # -- what the others are asked

    async def reports(self) -> list[tuple[Member, Report | str]]:
        """Each member and how it is, or why it does not say; the oldest first. Cancelling is safe."""
        await self._members.look()
        members = self._members.all()
        return list(zip(members, await asyncio.gather(*map(self._report_of, members)), strict=True))

    async def _report_of(self, member: Member) -> Report | str:
        if member.id == self._members.me.id:
            return self.report()
        try:
            return await self._asked(member, _STATUS)
        except OrderFailed as error:
            return str(error)

    async def drain(self, which: str, *, undo: bool = False) -> tuple[Member, Report]:
        """Have a bridge take nothing new and hand its sessions on; `undo`: take new ones again.

        `which`: its name or id; empty: this one. Returns at once, with how it is; calls under way continue.

        Raises:
            UnknownMember: no bridge has this name, or several.
            OrderFailed: it cannot be reached, or does not know what is asked.
        """
        await self._members.look()
        me = self._members.me
        member = self._named(which) if which else me
        if member.id == me.id:
            await (self._sessions.resume() if undo else self._sessions.start_draining())
            return self._members.me, self.report()
        report = await self._asked(member, _RESUME if undo else _DRAIN)
        await self._members.look()  # so that this bridge, too, sends it nothing new from now on
        return member, report

    def _named(self, which: str) -> Member:
        all_members = self._members.all()
        found = [one for one in all_members if one.id == which] or [one for one in all_members if one.name == which]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownMember(f"{len(found)} bridges are called {which!r}; name one by its id: {_ids(found)}")
        raise UnknownMember(f"no bridge of the fleet is called {which!r}; there are {_names(all_members)}")

    async def _asked(self, member: Member, what: str, patience: float = _PATIENCE) -> Report:
        try:
            reply, body = await self._ask(member, what, patience)
            if reply.status != 200:
                raise OrderFailed(f"{member.name!r} is of another version ({member.version}), and does not know this")
            return _reports.decode(body)
        except (NotSent, OutcomeUnknown, BadFrame, msgspec.MsgspecError) as error:
            raise OrderFailed(f"{member.name!r} at {member.address} cannot be reached: {error or 'it left'}") from error
        except TimeoutError as error:
            raise OrderFailed(f"{member.name!r} at {member.address} does not answer within {patience:g} s") from error

    async def _ask(self, member: Member, what: str, patience: float = _PATIENCE) -> tuple[Reply, bytes]:
        async with asyncio.timeout(patience):
            began = perf_counter()
            head = Ask("", what, b"", [], "", 0)
            was_open = member.id in self._links.open()
            stream = await self._links.ask(member.id, member.address, head, b"", Kind.ORDER)
            try:
                reply, body, _ = await stream.head()
            finally:
                stream.close()
            if was_open and what in (_STATUS, _PING):
                self.counts.add_round_trip(perf_counter() - began)
            return reply, body

    async def measure(self) -> None:
        """Measure how long the links take that are open, until cancelled."""
        await repeat(_MEASURE_EVERY, self._measure_once)

    async def _measure_once(self) -> None:
        for id_ in self._links.open():
            if (member := self._members.find(id_)) is not None:
                try:
                    await self._ask(member, _PING)
                except (NotSent, OutcomeUnknown, BadFrame, TimeoutError):
                    continue  # whoever needs the link learns why

    async def watch(self) -> None:
        """Step back when the lease has ended and others may have theirs, until cancelled."""
        await repeat(_WATCH_EVERY, self._watch_once)

    async def _watch_once(self) -> None:
        members = self._members
        if members.lease_age < _DOUBT_SECONDS or self._sessions.is_cut_off or not members.others:
            return
        said = await asyncio.gather(*map(self._lease_of, members.others))
        if is_cut_off(members.lease_age, said):
            await asyncio.sleep(LEASE_SECONDS - members.lease_age)
            if not members.has_lease:
                self._sessions.step_back()
        elif not members.has_lease:
            await asyncio.sleep(_WATCH_SELDOM)

    async def _lease_of(self, member: Member) -> OtherLease | Absence:
        try:
            report = await self._asked(member, _STATUS, _SHORT_PATIENCE)
        except OrderFailed as failed:
            why = failed.__cause__
            is_refused = isinstance(why, NotSent) and isinstance(why.__cause__, ConnectionRefusedError)
            return Absence.GONE if is_refused else Absence.SILENT
        return OtherLease(report.lease_age, report.is_settling)


def member_document(member: Member, me: Member) -> Mapping[str, Any]:
    """A member as commands show it."""
    return {
        "name": member.name,
        "id": member.id,
        "address": member.address,
        "version": member.version,
        "since": member.since,
        "draining": member.is_draining,
        "same_settings": member.settings == me.settings,
        "is_this": member.id == me.id,
    }


def _ids(members: list[Member]) -> str:
    return ", ".join(one.id for one in members)


def _names(members: list[Member]) -> str:
    return ", ".join(one.name for one in members)
