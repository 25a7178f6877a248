"""The way to the process of another bridge (`share = "fleet"`, issue 24): what it says of messages when it ends."""

import asyncio
from pathlib import Path

import anyio

from fleet.test_link import ME, OTHER, linked
from mcpbridge.base.errors import BridgeError, UpstreamUnavailable
from mcpbridge.fleet.link.frames import Reply
from mcpbridge.fleet.link.serving import Served
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import FleetRecords, Member
from mcpbridge.fleet.servers.channels import NOT_HERE, OK, LinkChannel
from mcpbridge.fleet.servers.leases import ServerLeases
from mcpbridge.fleet.servers.shared_servers import SharedServers
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.transport import Outgoing
from mcpbridge.storage.settings import StoreSettings, redis_address
from support.redis_server import Server, needs_redis


class Calls:
    """Whoever waits for answers."""

    has_unasked = False

    def __init__(self) -> None:
        self.not_sent: list[bytes] = []
        self.errors: list[BridgeError] = []
        self._failed = asyncio.Event()
        self.reason = ""

    def frame(self, frame: Frame, via: bytes) -> None: ...

    def spoiled(self, ids: list[bytes], reason: str, via: bytes) -> None: ...

    def failed(self, id_: bytes, error: BridgeError, *, sent: bool) -> None:
        assert not sent
        assert "not sent" in str(error)
        assert not self.reason, "nothing follows the end"
        self.not_sent.append(id_)
        self.errors.append(error)
        self._failed.set()

    async def until_failed(self, count: int) -> None:
        while len(self.not_sent) < count:
            self._failed.clear()
            await self._failed.wait()

    def pause_after(self, seconds: float) -> float:
        return 0.0

    def closed(self, reason: str) -> None:
        self.reason = reason


async def test_nothing_is_sent_once_its_calls_have_failed() -> None:
    """Two calls wait behind one that the other bridge refuses: they were not sent, and are not."""
    arrived: list[bytes | None] = []
    may_answer = asyncio.Event()

    async def answer(served: Served) -> None:
        arrived.append(await served.body())
        await may_answer.wait()
        served.reply_whole(Reply(NOT_HERE if len(arrived) == 1 else OK, []), b"")

    async with linked(answer) as (links, address):
        calls = Calls()
        channel = LinkChannel("x", 1, Member(OTHER, address, "other", "1", "", 0.0), 1, links, calls)
        for number in (b"1", b"2", b"3"):
            channel.send(Outgoing(b"call %b" % number, "tools/call", number))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.pump)
            may_answer.set()
        assert arrived == [b"call 1"]
        assert sorted(calls.not_sent) == [b"1", b"2", b"3"]
        assert calls.reason


async def test_requests_behind_one_that_the_other_bridge_does_not_answer_are_not_sent() -> None:
    """The first may have arrived; the others have certainly not. What comes once it answers is sent as before."""
    arrived: list[bytes | None] = []
    may_answer, came = asyncio.Event(), {b"note": asyncio.Event(), b"call 5": asyncio.Event()}

    async def answer(served: Served) -> None:
        arrived.append(body := await served.body())
        if body in came:
            came[body].set()
        await may_answer.wait()
        served.reply_whole(Reply(OK, []), b"")

    async with linked(answer) as (links, address):
        calls = Calls()
        channel = LinkChannel("x", 1, Member(OTHER, address, "other", "1", "", 0.0), 1, links, calls)
        for number in (b"1", b"2", b"3"):
            channel.send(Outgoing(b"call %b" % number, "tools/call", number))
        channel.send(Outgoing(b"note", "notifications/cancelled"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.pump)
            await calls.until_failed(2)
            channel.send(Outgoing(b"call 4", "tools/call", b"4"))
            assert len(calls.not_sent) == 2, "not before its caller waits"
            await calls.until_failed(3)
            assert calls.not_sent == [b"2", b"3", b"4"]
            assert not any(error.is_tried_again for error in calls.errors if isinstance(error, UpstreamUnavailable))
            may_answer.set()
            await came[b"note"].wait()
            channel.send(Outgoing(b"call 5", "tools/call", b"5"))
            await came[b"call 5"].wait()
            assert arrived == [b"call 1", b"note", b"call 5"]
            assert not calls.reason
            tasks.cancel_scope.cancel()


class Unused:
    """What would start the server here."""


@needs_redis
async def test_whoever_stops_waiting_leaves_nothing_at_the_owner(tmp_path: Path) -> None:
    """The connection to a server is given up while the bridge that runs it is still starting it."""
    redis = Server(tmp_path / "redis").start()
    address = redis_address(StoreSettings(kind="redis", url=redis.url))
    records, leases = FleetRecords(address, "x"), ServerLeases(address, "x")
    asked, left = asyncio.Event(), asyncio.Event()

    async def answer(served: Served) -> None:
        asked.set()
        await served.until_left()
        left.set()

    try:
        async with linked(answer) as (links, owner):
            await records.beat(Member(OTHER, owner, "other", "1", "", 0.0), 60)
            assert await leases.renew("memory", OTHER, 1)
            members = Members(records, Member(ME, "127.0.0.1:1", "me", "1", "", 0.0))
            servers = SharedServers(leases, members, links)

            async def use() -> None:
                async with servers.channel("memory", Unused(), Calls()):  # type: ignore[arg-type] - it starts nothing
                    pass

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(use)
                await asked.wait()
                tasks.cancel_scope.cancel()
            await left.wait()
    finally:
        await records.close()
        await leases.close()
        redis.kill()
