"""Where the session of a client with a server is written down for the bridge that has the client next (issue 24)."""

import asyncio
import signal
from pathlib import Path

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.downstream.client import Client
from mcpbridge.fleet.upstream_sessions import UpstreamSessions
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.upstream.transports.continued_sessions import KeptSession, SessionKeeper
from support.harness import eventually
from support.redis_server import Server, needs_redis

pytestmark = needs_redis

ONE, TWO = KeptSession("one", b"digest", b"{}"), KeptSession("two", b"digest", b"{}")


def client() -> Client:
    return Client(principal="alice", front="http", conversation="a session")


def keeper_of(store: LazyStore, tasks: OwnedTasks, of: Client) -> SessionKeeper:
    found = UpstreamSessions(store.shared, tasks).keeper("far", of, "")
    assert found is not None
    return found


async def test_what_begins_while_the_store_is_away_is_written_down_afterwards_and_at_no_bridge_alone(
    tmp_path: Path,
) -> None:
    redis, tasks = Server(tmp_path / "redis").start(), OwnedTasks()
    here, there = LazyStore(redis.settings()), LazyStore(redis.settings())
    try:
        async with asyncio.timeout(120), here.running(), there.running(), tasks.running():
            one, other = keeper_of(here, tasks, client()), keeper_of(there, tasks, client())
            one.keep(ONE)
            await eventually(other.load, lambda kept: kept == ONE)
            redis.signal(signal.SIGSTOP)
            one.keep(TWO)
            assert await one.load() is None, "nobody knows"
            redis.signal(signal.SIGCONT)
            await eventually(other.load, lambda kept: kept == TWO, 60)
            other.forget(TWO.id)
            await eventually(other.load, lambda kept: kept is None, 60)
            assert await eventually(one.load, lambda kept: kept is None, 60) is None
            await asyncio.wait(tasks.under_way() or {asyncio.ensure_future(asyncio.sleep(0))})
    finally:
        redis.kill()


async def test_what_was_handed_on_meanwhile_is_not_written_down_any_more(tmp_path: Path) -> None:
    redis, tasks = Server(tmp_path / "redis").start(), OwnedTasks()
    here, there = LazyStore(redis.settings()), LazyStore(redis.settings())
    try:
        async with asyncio.timeout(120), here.running(), there.running(), tasks.running():
            former, present = client(), client()
            one, other = keeper_of(here, tasks, former), keeper_of(there, tasks, present)
            redis.signal(signal.SIGSTOP)
            one.keep(ONE)
            assert await one.load() is None
            former.is_handed_on = True
            redis.signal(signal.SIGCONT)
            other.keep(TWO)
            await asyncio.wait(tasks.under_way())
            assert await other.load() == TWO
            assert (one.is_handed_on, other.is_handed_on) == (True, False), "it came back as another client's"
    finally:
        redis.kill()
