"""A session that another bridge takes over is found there when it is whole, or not at all."""

import asyncio
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from time import monotonic
from typing import Any, cast

import anyio
import pytest

from mcpbridge.base.errors import StoreFailed
from mcpbridge.downstream.client import Answer, Client
from mcpbridge.downstream.http.exchange import Exchange, Refused
from mcpbridge.downstream.http.legacy import LegacyFront
from mcpbridge.downstream.http.reply import OpenReplies
from mcpbridge.downstream.services import Core
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.fleet.counts import FleetCounts
from mcpbridge.fleet.forwarding import Forwarding
from mcpbridge.fleet.link.certificates import link_contexts
from mcpbridge.fleet.link.connections import Links
from mcpbridge.fleet.members import Members
from mcpbridge.fleet.records import FleetRecords, Kept, Member
from mcpbridge.fleet.sessions.sessions import FleetSessions
from mcpbridge.protocol.jsonrpc import decode_frame
from mcpbridge.storage.settings import redis_address
from support.redis_server import Server, needs_redis

pytestmark = needs_redis


class SlowCore:
    """Takes its time to answer `initialize`, as one does whose servers are slow."""

    express = None

    def __init__(self) -> None:
        self.was_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.open_clients = set[Client]()

    def open(self, client: Client) -> None:
        self.open_clients.add(client)

    async def came_over(self, client: Client) -> None:
        pass

    def close(self, client: Client, _: str) -> None:
        self.open_clients.discard(client)

    async def answer(self, *_: object) -> Answer:
        self.was_asked.set()
        await self.may_answer.wait()
        return Answer(b"{}")


class Bridge:
    def __init__(self, redis: Server, letter: str) -> None:
        self.records, counts = FleetRecords(redis_address(redis.settings()), "take-over"), FleetCounts()
        self.members = Members(self.records, Member(letter * 10, "127.0.0.1:1", letter, "1", "s", 0.0))
        forwarding = Forwarding(Links(link_contexts("a key of these tests", letter * 10)), counts)
        self.core = SlowCore()
        self.front = LegacyFront(cast("Core", self.core), HttpSettings(), OpenReplies(), monotonic)
        self.sessions = FleetSessions(self.records, self.members, forwarding, counts, idle=60, max_body=1000, keep=30)
        self.sessions.serve_by(self.front)
        self.front.elsewhere, self.front.sessions.new_id = self.sessions, self.sessions.new_id

    async def asks(self, session: bytes) -> bool:
        return await self.sessions.serve(_request(session), session)


def _request(session: bytes) -> Exchange:
    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    async def send(_: MutableMapping[str, Any]) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"mcp-session-id", session)]}
    return Exchange(scope, receive, send)


async def test_a_session_is_found_when_it_is_whole(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    first, second = Bridge(redis, "a"), Bridge(redis, "b")
    try:
        with anyio.fail_after(60):
            async with first.sessions.tasks.running(), second.sessions.tasks.running():
                for bridge in (first, second):
                    await bridge.members.look()
                session = await opens(first)
                await first.members.leave()
                await second.members.look()
                await takes_over(second, session, redis)
                for bridge in (first, second):
                    bridge.front.sessions.close()
                    if under_way := bridge.sessions.tasks.under_way():
                        await asyncio.wait(under_way)
    finally:
        for bridge in (first, second):
            await bridge.records.close()
        redis.kill()


async def takes_over(bridge: Bridge, session: bytes, redis: Server) -> None:
    core, front = bridge.core, bridge.front
    leaving = asyncio.ensure_future(bridge.asks(session))
    await core.was_asked.wait()
    assert session not in front.sessions
    leaving.cancel()
    await asyncio.wait({leaving})
    assert session not in front.sessions
    assert not core.open_clients, "nothing is left of it"
    await asyncio.wait(bridge.sessions.tasks.under_way())
    [key] = redis.cli("KEYS", "*:s:*").split()
    assert redis.cli("HGET", key, "owner") == "", "whoever asks first gets it"
    core.was_asked.clear()
    both = [asyncio.ensure_future(bridge.asks(session)) for _ in range(2)]
    await core.was_asked.wait()
    assert session not in front.sessions
    core.may_answer.set()
    assert await asyncio.gather(*both) == [False, False]
    assert session in front.sessions
    assert len(core.open_clients) == 1


async def test_a_bridge_that_was_none_for_a_while_answers_for_no_session_until_it_knows_which_it_has(
    tmp_path: Path,
) -> None:
    """Such as one that was paused: else it would take the answer to a question of the bridge that has it now."""
    redis = Server(tmp_path / "redis").start()
    first, second = Bridge(redis, "a"), Bridge(redis, "b")
    keep, may_keep = first.records.keep, asyncio.Event()

    async def keep_slowly(*arguments: Any) -> Kept:
        await may_keep.wait()
        return await keep(*arguments)

    first.records.keep = keep_slowly
    try:
        with anyio.fail_after(60):
            async with first.sessions.tasks.running(), second.sessions.tasks.running():
                for bridge in (first, second):
                    bridge.core.may_answer.set()
                    await bridge.members.look()
                lost, kept = [await opens(first) for _ in range(2)]
                await second.records.leave(first.members.me.id)  # as if its lease had ended
                await second.members.look()
                assert not await second.asks(lost)
                assert lost in second.front.sessions
                await first.members.look()
                assert lost not in first.front.sessions
                assert kept not in first.front.sessions
                with pytest.raises(Refused, match="not sent: this bridge was no member") as refused:
                    await first.asks(kept)
                assert refused.value.status == 503
                asks = asyncio.ensure_future(first.asks(kept))
                may_keep.set()
                assert not await asks, "it is this bridge's"
                assert kept in first.front.sessions
                assert lost not in first.front.sessions
                with pytest.raises(Refused, match="not sent: the bridge 'b' that has this"):
                    await first.asks(lost)
                for bridge in (first, second):
                    bridge.front.sessions.close()
                    if under_way := bridge.sessions.tasks.under_way():
                        await asyncio.wait(under_way)
    finally:
        for bridge in (first, second):
            await bridge.records.close()
        redis.kill()


async def test_ends_that_no_replica_takes_delay_no_return_after_a_lapse(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    bridge = Bridge(redis, "a")
    end, attempts = bridge.records.end, 0

    async def end_without_replica(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise StoreFailed("no replica has what was written")

    bridge.records.end = end_without_replica
    try:
        with anyio.fail_after(60):
            async with bridge.sessions.tasks.running():
                await bridge.members.look()
                ended, kept = [await opens(bridge) for _ in range(2)]
                session = bridge.front.sessions.get(ended)
                assert session is not None
                bridge.front.sessions.end(session, "its client ended it")
                await bridge.records.leave(bridge.members.me.id)  # as if its lease had ended
                await bridge.members.look()
                assert kept not in bridge.front.sessions, "another bridge may have it"
                while kept not in bridge.front.sessions:
                    await asyncio.sleep(0.01)
                while attempts < 3:  # it is tried again
                    await asyncio.sleep(0.01)
                bridge.records.end = end
                while bridge.sessions.tasks.under_way():
                    await asyncio.sleep(0.01)
        owners = [redis.cli("HGET", key, "owner") for key in redis.cli("KEYS", "*:s:*").split()]
        assert sorted(owners) == ["-", bridge.members.me.id]
    finally:
        await bridge.records.close()
        redis.kill()


async def test_many_sessions_that_end_are_written_down_by_few_commands(tmp_path: Path) -> None:
    """Each may wait for a replica."""
    redis = Server(tmp_path / "redis").start()
    bridge = Bridge(redis, "a")
    end, may_end, commands = bridge.records.end, asyncio.Event(), list[int]()

    async def end_slowly(moves: Mapping[bytes, int], owner: str) -> None:
        commands.append(len(moves))
        await may_end.wait()
        await end(moves, owner)

    bridge.records.end = end_slowly
    try:
        with anyio.fail_after(60):
            async with bridge.sessions.tasks.running():
                await bridge.members.look()
                opened = [await opens(bridge) for _ in range(30)]
                for id_ in opened:
                    session = bridge.front.sessions.get(id_)
                    assert session is not None
                    bridge.front.sessions.end(session, "its client ended it")
                    await asyncio.sleep(0)  # a turn of its own for each
                assert len(bridge.sessions.tasks.under_way()) == 1
                may_end.set()
                await asyncio.wait(bridge.sessions.tasks.under_way())
        assert len(commands) <= 2, commands
        keys = redis.cli("KEYS", "*:s:*").split()
        assert [redis.cli("HGET", key, "owner") for key in keys] == ["-"] * 30
    finally:
        await bridge.records.close()
        redis.kill()


async def opens(bridge: Bridge) -> bytes:
    opened = bridge.front.sessions.open("")
    assert opened is not None
    message = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
    await bridge.sessions.opened(opened, decode_frame(message))
    return opened.id
