"""Who belongs to the fleet, as this bridge knows it: it renews its own lease every second, and learns of the others.

While the server of the store cannot be reached, those that were there last count as there, and for some seconds after.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from time import monotonic, time

from msgspec.structs import replace

from mcpbridge.base.background_tasks import OwnedTasks, repeat
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.fleet.records import FORMAT, Beat, FleetRecords, Incompatible, Member

log = get_logger("mcpbridge.fleet")

LEASE_SECONDS = 3.0
"""After which a member that does not renew its lease is none any more."""
BEAT_SECONDS = 1.0
"""Between two renewals."""
_SEARCH_SECONDS = 0.1
"""At least, between two looks for a member that is not known."""
_SHORT_LOOK_SECONDS = 0.2
"""How long whoever could not reach a member waits for a look: with the attempt before, less than a second."""
_REMEMBERED, _REMEMBERED_SECONDS = 20, 3600.0
"""Bridges that have left which are remembered by their names, and for how long."""
_MOST_ABSENT = 200
"""Bridges that are remembered by their ids, for as long: nearly all of them never come back."""
ID_LENGTH = 10
"""Letters of a member's id; ids of sessions end with them."""


def new_member_id() -> str:
    """A random id."""
    return secrets.token_hex(ID_LENGTH // 2)


class Members:
    """The members of the fleet, this bridge among them."""

    def __init__(self, records: FleetRecords, me: Member) -> None:
        self.me = me
        self.problem = ""
        """Why the lease could not be renewed the last time; empty: it could."""
        self.failures = 0
        """Times that it could not."""
        self.on_gone: Callable[[str], None] = lambda _: None
        """Called with each member that is none any more."""
        self.on_lapsed: Callable[[], None] = lambda: None
        """Called when this bridge was none for a while, or may have been: others may have its sessions."""
        self.on_back: Callable[[], None] = lambda: None
        """Called then, too: the others may have announced what did not reach this bridge."""
        self.differing: dict[str, tuple[str, str]] = {}
        """By member: the digests of its configuration and of this bridge's, where they differ."""
        self.incompatible: list[Incompatible] = []
        """Bridges with leases that are no members for this one, since their version keeps records in another form."""
        self.is_settling = False
        """The records were away for all when this bridge last reached them: nobody gets a session of another then."""
        self._records = records
        self._known: Mapping[str, Member] = {me.id: me}
        self._departed: dict[str, tuple[Member, float]] = {}
        """By name, who has left, and when: in seconds since 1970."""
        self._absent: dict[str, float] = {}
        """By id, when it was seen to be no member any more: in seconds of `monotonic`."""
        self._awaited: dict[str, Member] = {}
        """Members of before the server was away, which are not back yet."""
        self._has_joined = self._has_left = False
        self._looking = asyncio.Lock()
        self._renewed = monotonic()
        self._looked = self._renewed
        """When the last look began that has ended."""
        self._is_unsure = False
        """A beat may have been taken whose answer never came: what it would have said of the lease is not known."""

    def find(self, id_: str) -> Member | None:
        """A member by its id."""
        return self._known.get(id_)

    async def get(self, id_: str) -> Member | None:
        """As `find`; of one that is not known the records are asked, since it may have joined a moment ago.

        Anybody can name members that there are not, so that the records are asked ten times a second at most.
        """
        if id_ not in self._known:
            asked = monotonic()
            await asyncio.sleep(max(0.0, self._looked + _SEARCH_SECONDS - asked))
            await self.look(since=asked)
        return self._known.get(id_)

    async def is_still(self, id_: str, tasks: OwnedTasks) -> bool:
        """Whether one that cannot be reached is a member all the same. The records have little time to answer.

        `tasks`: where the look continues.
        """
        if (looking := tasks.spawn(self.look())) is not None:
            await asyncio.wait({looking}, timeout=_SHORT_LOOK_SECONDS)
        return id_ in self._known

    def all(self) -> list[Member]:
        """All of them, the oldest first."""
        return sorted(self._known.values(), key=lambda member: (member.since, member.id))

    def departed(self) -> list[tuple[Member, float]]:
        """The bridges that left in the last hour, in order or not, and when: in seconds since 1970.

        One that is back under its name, or was followed by another one of that name, is not among them.
        """
        names, now = {one.name for one in self._known.values()}, time()
        found = [(one, at) for one, at in self._departed.values() if one.name not in names]
        return [(one, at) for one, at in found if now - at < _REMEMBERED_SECONDS]

    def absent(self) -> list[str]:
        """The ids of bridges that left in the last hour: those that only could not renew their leases may come back."""
        return [id_ for id_ in self._absent if self.may_return(id_)]

    def may_return(self, id_: str) -> bool:
        """Whether this is one of them."""
        return monotonic() - self._absent.get(id_, -_REMEMBERED_SECONDS) < _REMEMBERED_SECONDS

    @property
    def has_lease(self) -> bool:
        """Whether this bridge surely is a member now."""
        return self.lease_age < LEASE_SECONDS

    @property
    def lease_age(self) -> float:
        """Seconds since the lease was renewed."""
        return monotonic() - self._renewed

    @property
    def others(self) -> list[Member]:
        """The members beside this bridge; none before it has joined them."""
        return [one for one in self.all() if one.id != self.me.id] if self._has_joined else []

    async def look(self, *, since: float | None = None) -> None:
        """Renew the lease, and learn who else has one. A look that began after this moment will do, too: `since`."""
        asked = monotonic() if since is None else since
        async with self._looking:  # else what was seen first might be heard last
            if self._has_left or self._looked > asked:
                return
            began, was_unsure, self._is_unsure = monotonic(), self._is_unsure, True
            await self._look(began, was_unsure=was_unsure)
            self._looked = began

    async def _look(self, began: float, *, was_unsure: bool) -> None:
        try:
            beat = await self._records.beat(self.me, LEASE_SECONDS)
        except StoreFailed as error:
            self.failures += 1
            if not self.problem:
                log.warning("the fleet's records cannot be reached", reason=str(error))
            self.problem = str(error)
            return
        if self.problem:
            log.info("the fleet's records can be reached again")
        self.problem, self._is_unsure, self._renewed = "", False, began
        lapsed = self._has_joined and (was_unsure or not beat.held)
        if self._has_joined and not beat.held:
            log.warning("this bridge was no member of its fleet for a while")
        self._has_joined, self.is_settling = True, beat.is_settling
        former, known = self._known, self._with_awaited(beat, has_lapsed=lapsed)
        self._known = known
        for id_ in former.keys() - known.keys():
            log.info("a bridge has left the fleet", member=id_, name=former[id_].name)
            self._departed.pop(former[id_].name, None)  # so that the last is the newest
            self._departed[former[id_].name] = former[id_], time()
            while len(self._departed) > _REMEMBERED:
                del self._departed[next(iter(self._departed))]
            self._absent[id_] = monotonic()
            while len(self._absent) > _MOST_ABSENT:
                del self._absent[next(iter(self._absent))]
            self.on_gone(id_)
        for id_ in known.keys() - former.keys():
            other = known[id_]
            self._absent.pop(id_, None)
            log.info("a bridge has joined the fleet", member=id_, name=other.name, address=other.address)
        self._compare()
        self._name_incompatible(beat.incompatible)
        if lapsed:
            self.on_lapsed()
            self.on_back()

    def _with_awaited(self, beat: Beat, *, has_lapsed: bool) -> Mapping[str, Member]:
        """The members, with those that may be about to come back: the server may have lost what it knew of them."""
        if has_lapsed:
            self._awaited = dict(self._known)
        if not beat.is_settling:
            self._awaited = {}
        self._awaited = {id_: one for id_, one in self._awaited.items() if id_ not in beat.members}
        return {**beat.members, **self._awaited}

    def configured(self, settings: str) -> None:
        """This bridge has another configuration, with this digest, from now on."""
        self.me = replace(self.me, settings=settings)

    def stopped_calls(self, servers: tuple[str, ...]) -> None:
        """The breakers of this bridge let no calls through to these servers; the others hear of it with its beat."""
        if servers != self.me.stopped:
            self.me = replace(self.me, stopped=servers)

    def _compare(self) -> None:
        """Warn once of each member whose configuration differs from this bridge's, or whose key does."""
        differ = {one.id: (one.settings, self.me.settings) for one in self._known.values() if self._differs(one)}
        for id_ in differ.keys() - self.differing.keys():
            log.warning("bridges of the fleet have different configurations", member=id_, name=self._known[id_].name)
        for id_ in self.differing.keys() - differ.keys():
            if id_ in self._known:
                log.info("bridges of the fleet have one configuration again", member=id_, name=self._known[id_].name)
        self.differing = differ

    def _name_incompatible(self, incompatible: list[Incompatible]) -> None:
        """Warn once of each."""
        for one in incompatible:
            if one not in self.incompatible:
                log.warning(
                    "a bridge of another version keeps records in another form, so nothing is shared with it",
                    member=one.id,
                    name=one.name,
                    version=one.version,
                    format=one.format,
                    own_format=FORMAT,
                )
        self.incompatible = incompatible

    def _differs(self, other: Member) -> bool:
        return other.id != self.me.id and other.settings != self.me.settings

    async def keep_lease(self) -> None:
        """Renew it until cancelled."""
        await repeat(BEAT_SECONDS, self.look)

    async def drain(self, *, is_draining: bool = True) -> None:
        """Say to all that this bridge takes nothing new, or does so again."""
        self.me = replace(self.me, is_draining=is_draining)
        await self.look()

    async def leave(self) -> None:
        """Be none any more."""
        self._has_left = True
        async with self._looking:
            try:
                await self._records.leave(self.me.id)
            except StoreFailed as error:
                log.warning("this bridge could not leave its fleet; its lease ends by itself", reason=str(error))
