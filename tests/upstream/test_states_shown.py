"""What a pool, an upstream and its parts show of their state to people who look for a fault."""

import asyncio
import gc
import warnings

import anyio

from mcpbridge.upstream.concurrency import ConcurrencyLimiter, WaitingRoom
from mcpbridge.upstream.connection.circuit_breaker import CircuitBreaker
from mcpbridge.upstream.connection.connection import Connection
from mcpbridge.upstream.session_lock import SessionLock
from mcpbridge.upstream.settings import BreakerSettings, ServerSettings
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport, pool_of


async def test_a_pool_and_an_upstream_show_their_state() -> None:
    """Promise of the bridge: `repr` and `statistics` tell the state without a debugger."""
    pool = pool_of({"up": ScriptedTransport(LEGACY_SERVER)})
    upstream = pool.upstreams["up"]
    assert repr(pool) == "<Pool 1 upstreams, 0 ready, 0 more instances>"
    with anyio.fail_after(30):
        async with pool.running():
            assert await pool.settled(30)
            assert repr(pool) == "<Pool 1 upstreams, 1 ready, 0 more instances>"
            assert repr(upstream) == "<Upstream 'up' ready, 0 running>"
            assert repr(upstream.connection) == "<Connection 'up' ready, 0 waiting>"
            assert repr(upstream.requests) == "<UpstreamRequests 'up' 0 running, closed>"
            assert repr(upstream.session) == "<UpstreamSession 'up' 2025-06-18, 0 in flight>"
            assert repr(upstream.usage) == "<Usage 0 running, 0 holding>"
            with upstream.usage.held():
                assert repr(upstream.usage) == "<Usage 0 running, 1 holding>"
            [numbers] = pool.statistics()["servers"]["up"]
            assert numbers == {
                "state": "ready",
                "restarts": 0,
                "running": 0,
                "waiting": 0,
                "in_flight": 0,
                "tasks": 0,
                "subscriptions": 0,
                "breaker": "closed",
                "braked": "",
            }
    assert repr(upstream) == "<Upstream 'up' stopped, 0 running>"
    assert pool.statistics()["servers"]["up"][0]["state"] == "stopped"


async def test_queues_show_who_is_in_them() -> None:
    limiter = ConcurrencyLimiter("Server 'up'", slots=1, places=4, patience=5)
    lock = SessionLock("up", places=4, patience=5)
    assert limiter.try_enter()
    assert lock.try_enter("one", is_asked=False)
    waiting = [asyncio.ensure_future(limiter.enter()), asyncio.ensure_future(lock.enter("other", is_asked=False))]
    await asyncio.sleep(0)
    assert repr(limiter) == "<ConcurrencyLimiter Server 'up': 0 of 1 free, 1 waiting>"
    assert repr(lock) == "<SessionLock 'up' 1 calls inside, 1 waiting>"
    limiter.leave()
    lock.leave()
    await asyncio.gather(*waiting)
    async with (room := WaitingRoom("Server 'up' is starting", places=2)):
        assert repr(room) == "<WaitingRoom Server 'up' is starting: 1 of 2 places taken>"


def test_a_circuit_breaker_shows_whether_it_is_tripped() -> None:
    breaker = CircuitBreaker(BreakerSettings(failures=1))
    assert repr(breaker) == "<CircuitBreaker 0 failures in a row>"
    breaker.failed(0.0, 0.0)
    assert repr(breaker) == "<CircuitBreaker 1 failures in a row, tripped>"


async def test_a_connection_that_is_dropped_while_it_is_open_warns() -> None:
    """Promise of the bridge: a leaked connection issues a ResourceWarning, as a leaked file does."""
    pool = pool_of({"up": ScriptedTransport(LEGACY_SERVER)})
    with anyio.fail_after(30):
        async with pool.running():
            assert await pool.settled(30)
            session = pool.upstreams["up"].session
    assert session is not None
    connection = Connection("up", ServerSettings(command="x"), ScriptedTransport({}), stepped=lambda: None)
    connection.session = session
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del connection
        gc.collect()
    [leak] = [warning for warning in caught if "'up'" in str(warning.message)]
    assert leak.category is ResourceWarning
    assert "dropped while it was open" in str(leak.message)


async def test_a_connection_that_ended_is_dropped_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connection = Connection("up", ServerSettings(command="x"), ScriptedTransport({}), stepped=lambda: None)
        assert repr(connection) == "<Connection 'up' stopped, 0 waiting>"
        del connection
        gc.collect()
