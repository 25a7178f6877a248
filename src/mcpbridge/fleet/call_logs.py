"""The call logs of all bridges of a fleet: each has a file of its own, and whoever looks asks all of them.

So a call costs nothing more than without a fleet, no call is kept twice, and none is lost while the Redis server is
away. Rows of a bridge that does not run are seen when it, or another one with the same file, runs again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

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

Row = dict[str, Any]


class Said(Struct, frozen=True):
    """What one bridge has."""

    member: Member
    rows: Sequence[Row] = ()
    problem: str = ""
    """Why it does not say; empty: it does."""


class CallLogs:
    """What all bridges have, read by way of this one."""

    def __init__(self, links: Links, members: Members) -> None:
        self._links, self._members = links, members
        self.read: Callable[[object], Awaitable[Sequence[Row] | None]] = _nothing
        """Reads the file of this bridge: a query and rows, as JSON values; None: it does not understand the query.

        Raises `StoreFailed`. Set by who runs the bridge.
        """

    async def serve(self, served: Served, body: bytes) -> None:
        """Answer another member."""
        try:
            rows = await self.read(msgspec.json.decode(body))
        except StoreFailed as error:
            served.reply_whole(Reply(500, []), str(error).encode())
            return
        except msgspec.DecodeError:
            rows = None
        if rows is None:
            served.reply_whole(Reply(404, []), b"")
            return
        encoded = msgspec.json.encode(rows)
        if len(encoded) <= PART:
            served.reply_whole(Reply(200, []), encoded)
            return
        served.reply(Reply(200, []))
        await served.write(encoded)
        served.end()

    async def ask(self, query: Mapping[str, Any], after: Mapping[str, int], bridge: str = "") -> list[Said]:
        """What each member has, the oldest member first. Cancelling is safe.

        `after`: by the id of a member, the number of the last record of it that is known. `bridge`: the name or the id
        of the only one to ask.
        """
        await self._members.look()
        members = [one for one in self._members.all() if bridge in ("", one.name, one.id)]
        asked = [self._asked(one, {**query, "after": after.get(one.id, 0)}) for one in members]
        return list(await asyncio.gather(*asked))

    async def _asked(self, member: Member, query: Mapping[str, Any]) -> Said:
        try:
            if member.id == self._members.me.id:
                rows = await self.read(query)
                return Said(member, rows or ())
            async with asyncio.timeout(_PATIENCE):
                status, body = await self._over_the_link(member, msgspec.json.encode(query))
            if status == 200:
                return Said(member, msgspec.json.decode(body, type=list[Row]))
            reason = (
                body.decode("utf-8", "replace") if status == 500 else f"it is of another version ({member.version})"
            )
        except StoreFailed as error:
            reason = str(error)
        except TimeoutError:
            reason = f"it does not answer within {_PATIENCE:g} s"
        except (NotSent, OutcomeUnknown, BadFrame, msgspec.MsgspecError) as error:
            reason = f"it cannot be reached: {error or 'it left'}"
        return Said(member, problem=reason)

    async def _over_the_link(self, member: Member, query: bytes) -> tuple[int, bytes]:
        head = Ask("", CALLS, b"", [], "", len(query))
        stream = await self._links.ask(member.id, member.address, head, query, Kind.ORDER)
        try:
            return await _whole(stream)
        finally:
            stream.close()


async def _whole(stream: Stream) -> tuple[int, bytes]:
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
    return reply.status, b"".join(parts)


async def _nothing(_: object) -> Sequence[Row]:
    return ()
