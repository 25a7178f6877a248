"""Instances of single users: whose they are, how many there may be, and who waits (issue 23)."""

import asyncio
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import Overloaded
from mcpbridge.core.model import Call
from mcpbridge.pipeline.deliver import Deliver
from mcpbridge.protocol.body import Body
from mcpbridge.upstream.pool import Pool
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport, Someone, call_of, pool_of


class Caller:
    """Whose call it is."""

    def __init__(self, principal: str) -> None:
        self.principal, self.name, self.identity = principal, "", None


def of(principal: str) -> Call:
    client = Someone()
    client.principal = principal
    call = call_of(client=client)
    call.caller = Caller(principal)  # type: ignore[assignment] - all that is read of it
    return call


def begin(pool: Pool, principal: str) -> "asyncio.Task[Body]":
    return asyncio.ensure_future(Deliver(pool)(of(principal)))


def pool_for_users(transport: ScriptedTransport, **settings: Any) -> Pool:
    return pool_of({"up": transport}, up={"share": "user", **settings})


def silent() -> ScriptedTransport:
    return ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})


def answered(transport: ScriptedTransport) -> None:
    for line in transport.lines:
        for asked in line.asked("tools/call"):
            line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})


async def asked(transport: ScriptedTransport, count: int) -> None:
    """Return when so many calls have come to the server."""
    while sum(len(line.asked("tools/call")) for line in transport.lines) < count:
        await anyio.sleep(0.01)


async def test_the_clients_of_one_user_share_an_instance_that_nobody_else_gets() -> None:
    with anyio.fail_after(30):
        pool = pool_for_users(ScriptedTransport(LEGACY_SERVER))
        async with pool.running():
            base = pool.upstreams["up"]
            clients = [of(principal).client for principal in ("alice", "bob", "alice")]
            first, second, third = [await pool.serving(base, client) for client in clients]
            assert first is third
            assert len({id(base), id(first), id(second)}) == 3


async def test_who_is_behind_a_call_counts_and_not_what_its_client_can_be_asked() -> None:
    """A call of nobody who can be asked is not one of the local user."""
    with anyio.fail_after(30):
        pool = pool_for_users(ScriptedTransport(LEGACY_SERVER))
        async with pool.running():
            base, client = pool.upstreams["up"], of("").client
            alices = await pool.serving(base, client, "alice")
            assert alices.home == ("alice", "")
            assert alices is not await pool.serving(base, client)


async def test_the_idle_instance_of_another_user_makes_room() -> None:
    with anyio.fail_after(30):
        pool = pool_for_users(ScriptedTransport(LEGACY_SERVER), max_instances=1)
        async with pool.running():
            await begin(pool, "alice")
            await begin(pool, "bob")
            assert pool.instances("up") == 2
            assert [one.home for one in pool.everyone()] == [None, ("bob", "")]


async def test_what_runs_for_a_user_stops_when_it_is_idle_and_not_before() -> None:
    """What one user has running says nothing of the others'."""
    with anyio.fail_after(30):
        transport = silent()
        pool = pool_for_users(transport, instance_idle=0.02)
        async with pool.running():
            alice, bob = begin(pool, "alice"), begin(pool, "bob")
            await asked(transport, 2)
            instances = {one.home: one for one in pool.everyone() if one.home is not None}
            assert set(instances) == {("alice", ""), ("bob", "")}
            line = next(line for line in transport.lines if line.asked("tools/call"))
            line.gives({"jsonrpc": "2.0", "id": line.asked("tools/call")[0]["id"], "result": {"content": []}})
            await asyncio.wait([alice, bob], return_when=asyncio.FIRST_COMPLETED)
            idle, busy = ("alice", "bob") if alice.done() else ("bob", "alice")
            while instances[idle, ""].status.state != "stopped":
                await anyio.sleep(0.01)
            assert not line.is_open
            assert [one.home for one in pool.everyone()] == [None, (busy, "")], "who is busy keeps theirs"
            assert instances[busy, ""].status.state == "ready"
            transport.script["tools/call"] = {"content": []}
            await begin(pool, idle)
            answered(transport)
            await asyncio.gather(alice, bob)
            while pool.instances("up") > 1:
                await anyio.sleep(0.01)


async def test_a_further_user_waits_while_all_are_busy() -> None:
    with anyio.fail_after(30):
        transport = silent()
        pool = pool_for_users(transport, max_instances=1, queue_timeout=20)
        async with pool.running():
            alice = begin(pool, "alice")
            await asked(transport, 1)
            bob = begin(pool, "bob")
            for _ in range(20):
                await asyncio.sleep(0)
            assert not bob.done()
            answered(transport)
            await alice
            await asked(transport, 2)
            answered(transport)
            await bob


async def test_who_waits_too_long_or_in_too_long_a_queue_is_refused() -> None:
    with anyio.fail_after(30):
        transport = silent()
        pool = pool_for_users(transport, max_instances=1, queue_timeout=0.05, max_queued=1)
        async with pool.running():
            alice = begin(pool, "alice")
            await asked(transport, 1)
            with pytest.raises(Overloaded, match="max_instances"):
                await begin(pool, "bob")
            alice.cancel()
            await asyncio.wait([alice])


async def test_what_runs_for_a_user_ends_when_the_account_is_gone() -> None:
    with anyio.fail_after(30):
        transport = silent()
        pool = pool_for_users(transport)
        async with pool.running():
            alice, bob = begin(pool, "alice"), begin(pool, "bob")
            await asked(transport, 2)
            assert pool.end_of_user("alice") == 1
            with pytest.raises(Exception, match="up"):
                await alice
            assert not bob.done()
            assert [one.home for one in pool.everyone()] == [None, ("bob", "")]
            answered(transport)
            await bob
