"""What bridges count together, behind Sentinels and on a cluster: a failover gives nobody more (issue 24)."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.units import Rate
from mcpbridge.fleet.servers.leases import ServerLeases
from mcpbridge.storage.quotas import Taken, Wanted
from mcpbridge.storage.redis.epochs import SharedEpochs
from mcpbridge.storage.redis.quotas import RedisQuotas
from mcpbridge.storage.redis.shares import SharedCounts
from mcpbridge.storage.settings import redis_address
from support.redis_groups import Cluster, Sentinels
from support.redis_server import needs_redis

pytestmark = [needs_redis, pytest.mark.anyio]


async def test_on_a_cluster_everything_is_counted_as_on_one_server(tmp_path: Path) -> None:
    group = Cluster(tmp_path)
    address = redis_address(group.settings())
    epochs, leases = SharedEpochs(address, "p"), ServerLeases(address, "p")
    counts = SharedCounts(address, "p")
    try:
        with anyio.fail_after(120):
            async with counts.running():
                while counts.is_away:
                    await anyio.sleep(0.05)
                share = counts.rate("x", Rate(3, 86400))
                waits = [(await counts.take_tokens([share]))[0] for _ in range(4)]
                assert [wait > 0 for wait in waits] == [False, False, False, True]
                assert [await counts.budget("who").take(2) for _ in range(3)] == [True, True, False]
                quotas = RedisQuotas(address, "p", counts)
                wanted = Wanted("user x ann", "calls day", 1.0, 1.0, 4e9, 1, 1, 1)
                found = [(await quotas.take([[wanted]], 1.8e9))[0] for _ in range(2)]
                assert [isinstance(one, Taken) for one in found] == [True, False]
                assert len(await quotas.used(1.8e9)) == 1
                await quotas.close()
            first = await epochs.current("x")
            await epochs.changed("x")
            assert first != await epochs.current("x") != await epochs.current("y")
            claim = await leases.acquire("x", "me", 3, may_take=True)
            assert (claim.owner, claim.epoch, claim.is_new) == ("", 3, False)
            assert await leases.renew("x", "me", 4)
            assert (await leases.acquire("x", "other", 0, may_take=True)).owner == "me"
    finally:
        await epochs.close()
        await leases.close()
        group.end()


async def test_a_failover_gives_nobody_more_of_a_budget(tmp_path: Path) -> None:
    group = Sentinels(tmp_path)
    made = 0
    try:
        with anyio.fail_after(180):
            counts = SharedCounts(redis_address(group.settings()), "p")
            async with counts.running():
                budget = counts.budget("who")
                while made < 10:
                    try:
                        made += await budget.take(30)
                    except StoreFailed:
                        await anyio.sleep(0.05)
                group.master.kill()
                is_over = False
                while not is_over:
                    try:
                        is_over = not await budget.take(30)
                        made += not is_over
                    except StoreFailed:
                        await anyio.sleep(0.1)
        assert made <= 30
    finally:
        group.end()


async def test_replicas_that_are_down_stop_no_budgets_and_leases_but_approvals(tmp_path: Path) -> None:
    group = Sentinels(tmp_path)
    store, leases = group.store(), ServerLeases(redis_address(group.settings()), "p")
    counts = SharedCounts(redis_address(group.settings()), "p")
    try:
        with anyio.fail_after(180):
            async with counts.running():
                for number in range(5):
                    await store.put("grant", b"once", principal="ann", expires_in=600, handle=f"g{number}")
                await leases.acquire("x", "me", 0, may_take=True)
                assert await leases.renew("x", "me", 1)
                assert await counts.budget("him").take(30), "the replica is there"
                group.replica.kill()
                assert await leases.renew("x", "me", 1), "a renewal waits for no replica"
                await until_done(lambda: counts.budget("who").take(30))
                await until_done(lambda: leases.acquire("y", "me", 0, may_take=True))
                for number in range(5):
                    with pytest.raises(StoreFailed, match="a failover could undo it"):
                        await store.take("grant", f"g{number}", principal="ann")
                assert await store.put("result", b"", principal="ann", expires_in=600), "it does not count as failing"
    finally:
        await leases.close()
        await store.close()
        group.end()


async def until_done(work: Callable[[], Awaitable[object]]) -> None:
    """The Sentinels need a moment to find a server down."""
    while True:
        try:
            await work()
        except StoreFailed:
            await anyio.sleep(0.1)
        else:
            return
