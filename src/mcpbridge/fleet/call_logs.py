"""The call logs and counts of all bridges of a fleet: each keeps its own, and whoever looks asks all of them.

So a call costs nothing more than without a fleet, no call is kept twice, and none is lost while the Redis server is
away. Rows of a bridge that does not run are seen when it, or another one with the same file, runs again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.errors import StoreFailed
from mcpbridge.fleet.link.connections import Links, NotSent, OutcomeUnknown, Stream
from mcpbridge.fleet.link.frames import PART, Ask, BadFrame, Kind, Reply
from mcpbridge.fleet.link.serving import Served
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import Member

CALLS = "calls"
"""The path of such an order."""
_PATIENCE = 5.0
"""Seconds that another bridge has to look into its file and to answer."""
_LARGEST = 64 << 20
"""Bytes of what one bridge says."""
_FILE = b"file"
"""The header of an answer that says which file it is of."""

Row = dict[str, Any]


class Found(Struct, frozen=True):
    """What this bridge has."""

    rows: Sequence[Row] = ()
    """JSON values."""
    file: str = ""
    """The same for all bridges that read one file; empty: they come from the memory of the process."""


class Said(Struct, frozen=True):
    """What one bridge has, or several that write one file."""

    member: Member
    rows: Sequence[Row] = ()
    problem: str = ""
    """Why it does not say; empty: it does."""
    file: str = ""
    """See `Found`."""
    beside: tuple[Member, ...] = ()
    """The other bridges that write the same file."""

    @property
    def name(self) -> str:
        """Whose it is."""
        return ", ".join(one.name for one in (self.member, *self.beside))

    @property
    def ids(self) -> Sequence[str]:
        """The ids of these bridges."""
        return [one.id for one in (self.member, *self.beside)]


class CallLogs:
    """What all bridges have, read by way of this one."""

    def __init__(self, links: Links, members: Members) -> None:
        self._links, self._members = links, members
        self.read: Callable[[object], Awaitable[Found | None]] = _nothing
        """What this bridge has, for a query as JSON values; None: it does not understand the query.

        Raises `StoreFailed`. Set by who runs the bridge.
        """

    async def serve(self, served: Served, body: bytes) -> None:
        """Answer another member."""
        try:
            found = await self.read(msgspec.json.decode(body))
        except StoreFailed as error:
            served.reply_whole(Reply(500, []), str(error).encode())
            return
        except msgspec.DecodeError:
            found = None
        if found is None:
            served.reply_whole(Reply(404, []), b"")
            return
        head = Reply(200, [(_FILE, found.file.encode())] if found.file else [])
        encoded = msgspec.json.encode(found.rows)
        if len(encoded) <= PART:
            served.reply_whole(head, encoded)
            return
        served.reply(head)
        await served.write(encoded)
        served.end()

    async def ask(
        self,
        query: Mapping[str, Any],
        each: Mapping[str, Mapping[str, Any]] = {},
        bridge: str = "",
        *,
        of_others: bool = False,
        anew: bool = True,
    ) -> list[Said]:
        """What each member has, the oldest member first. Cancelling is safe.

        `each`: by the id of a member, what the query has for it alone. `bridge`: the name or the id of the only one to
        ask. `of_others`: this one is not asked. `anew`: who is a member is looked up first. Bridges that left a while
        ago are part of the answer, with that as their problem.
        """
        if anew:
            await self._members.look()
        me = self._members.me.id
        wanted = [one for one in self._members.all() if not (of_others and one.id == me)]
        asked = [self._asked(one, {**query, **each.get(one.id, {})}) for one in wanted if _is(one, bridge)]
        said = one_for_each_file(await asyncio.gather(*asked))
        departed = [(one, at) for one, at in self._members.departed() if _is(one, bridge)]
        return said + [Said(one, problem=f"it left the fleet at {_clock(at)}") for one, at in departed]

    async def _asked(self, member: Member, query: Mapping[str, Any]) -> Said:
        try:
            if member.id == self._members.me.id:
                found = await self.read(query) or Found()
                return Said(member, found.rows, file=found.file)
            async with asyncio.timeout(_PATIENCE):
                reply, body = await self._over_the_link(member, msgspec.json.encode(query))
            if reply.status == 200:
                file = dict(reply.headers).get(_FILE, b"").decode("utf-8", "replace")
                return Said(member, msgspec.json.decode(body, type=list[Row]), file=file)
            is_failure = reply.status == 500
            reason = body.decode("utf-8", "replace") if is_failure else f"it is of another version ({member.version})"
        except StoreFailed as error:
            reason = str(error)
        except TimeoutError:
            reason = f"it does not answer within {_PATIENCE:g} s"
        except (NotSent, OutcomeUnknown, BadFrame, msgspec.MsgspecError) as error:
            reason = f"it cannot be reached: {error or 'it left'}"
        return Said(member, problem=reason)

    async def _over_the_link(self, member: Member, query: bytes) -> tuple[Reply, bytes]:
        head = Ask("", CALLS, b"", [], "", len(query))
        stream = await self._links.ask(member.id, member.address, head, query, Kind.ORDER)
        try:
            return await _whole(stream)
        finally:
            stream.close()


def one_for_each_file(answers: Sequence[Said]) -> list[Said]:
    """The same, with one answer for the bridges that read one file: what is in it is there once."""
    found: dict[str, Said] = {}
    for one in answers:
        key = one.file or one.member.id
        known = found.get(key)
        found[key] = one if known is None else replace(known, beside=(*known.beside, one.member))
    return list(found.values())


def _is(member: Member, bridge: str) -> bool:
    return bridge in ("", member.name, member.id)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _whole(stream: Stream) -> tuple[Reply, bytes]:
    reply, body, is_whole = await stream.head()
    parts, size = [body], len(body)
    while not is_whole:
        kind, part = await stream.next()
        is_whole = kind == Kind.REPLY_END
        if kind == Kind.REPLY_PART:
            parts.append(part)
            size += len(part)
            if size > _LARGEST:
                raise BadFrame("it says too much")
            stream.grant(len(part))
    return reply, b"".join(parts)


async def _nothing(_: object) -> Found:
    return Found()
