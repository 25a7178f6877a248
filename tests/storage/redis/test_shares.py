"""What bridges count together: never too much, and mostly without asking the server (issue 24)."""

import secrets
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic

import anyio
import pytest

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.units import Rate
from mcpbridge.storage.quotas import Full, Taken, Wanted
from mcpbridge.storage.redis.quotas import RedisQuotas
from mcpbridge.storage.redis.shares import SharedCounts
from mcpbridge.storage.settings import redis_address
from support.redis_server import Server, needs_redis, shared_server

pytestmark = [needs_redis, pytest.mark.anyio]


@pytest.fixture
def own(tmp_path: Path) -> Generator[Server]:
    """A server that a test may stop."""
    server = Server(tmp_path / "redis").start()
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def bridges(
    server: Server, number: int, prefix: str = "", *, others: int = 0
) -> AsyncGenerator[list[SharedCounts]]:
    """So many that know one another, and so many others that are there."""
    prefix = prefix or f"t{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        with anyio.fail_after(90):
            found = [SharedCounts(redis_address(server.settings()), prefix) for _ in range(number)]
            for one in found:
                await stack.enter_async_context(one.running())
            while any(one.bridges != number + others for one in found):
                await anyio.sleep(0.01)
            yield found


async def may_call(counts: SharedCounts, rate: Rate, name: str = "x") -> bool:
    """Whether a call is within the rate, as the stage finds it."""
    share, now = counts.rate(name, rate), monotonic()
    if share.has(now):
        share.take(now)
        return True
    return not any(await counts.take_tokens([share]))


def scripts_run(server: Server) -> int:
    """How many scripts it has run."""
    lines = server.cli("INFO", "commandstats").splitlines()
    counts = [line.partition("calls=")[2].partition(",")[0] for line in lines if line.startswith("cmdstat_eval")]
    return sum(map(int, counts))


async def until_refused(counts: SharedCounts, rate: Rate, found: list[int]) -> None:
    while await may_call(counts, rate):
        found[0] += 1
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("times", [1, 7, 300, 20_000])
async def test_three_bridges_together_have_one_rate(times: int) -> None:
    """To 2 %: a batch that one bridge has left is all that the others may miss."""
    async with bridges(shared_server(), 3) as all_:
        found, rate = [0], Rate(times, 86400)
        async with anyio.create_task_group() as tasks:
            for one in all_:
                tasks.start_soon(until_refused, one, rate, found)
        assert times * 0.98 <= found[0] <= times + 1 + times * 0.001


async def test_a_rate_that_flows_holds_to_two_percent() -> None:
    rate, passed, is_over = Rate(1000, 2), [0], False
    async with bridges(shared_server(), 3) as all_:
        began = monotonic()

        async def hammer(counts: SharedCounts) -> None:
            while not is_over:
                if await may_call(counts, rate):
                    passed[0] += 1
                await anyio.sleep(0)

        async with anyio.create_task_group() as tasks:
            for one in all_ * 3:
                tasks.start_soon(hammer, one)
            while passed[0] < 4000:
                await anyio.sleep(0.01)
            allowed = rate.times + (monotonic() - began) * rate.times / rate.seconds
            total, is_over = passed[0], True
    assert allowed * 0.98 <= total + 1 <= allowed * 1.02 + 1


async def test_the_common_call_asks_nobody(own: Server) -> None:
    async with bridges(own, 1) as [one]:
        before = scripts_run(own)
        rate = Rate(1_000_000, 3600)
        for _ in range(20_000):
            assert await may_call(one, rate)
        assert scripts_run(own) - before < 200
        before = scripts_run(own)
        budget = one.budget("somebody")
        for _ in range(1600):
            assert await budget.take(100_000)
        assert scripts_run(own) - before < 200


async def test_who_is_refused_does_not_ask_again_and_again(own: Server) -> None:
    async with bridges(own, 1) as [one]:
        rate = Rate(1, 3600)
        assert await may_call(one, rate)
        assert not await may_call(one, rate)
        before = scripts_run(own)
        for _ in range(2000):
            assert not await may_call(one, rate)
        assert scripts_run(own) - before < 200  # but for the beats


async def test_a_call_that_one_rate_refuses_takes_nothing_of_another() -> None:
    async with bridges(shared_server(), 2) as [one, other]:
        wide, narrow = Rate(5, 3600), Rate(1, 3600)
        assert not any(await one.take_tokens([one.rate("wide", wide), one.rate("narrow", narrow)]))
        for _ in range(10):
            waits = await other.take_tokens([other.rate("wide", wide), other.rate("narrow", narrow)])
            assert waits[0] == 0
            assert waits[1] > 3000
        found = [0]
        while await may_call(other, wide, "wide"):
            found[0] += 1
        assert found == [4]


async def test_what_a_bridge_leaves_of_its_share_comes_back() -> None:
    """Of one that stops at once, of one that calls no more after its lease; and a rate's tokens after a crash, too."""
    prefix, rate = f"t{secrets.token_hex(4)}", Rate(1000, 86400)
    async with bridges(shared_server(), 1, prefix) as [one]:
        for _ in range(10):
            assert await may_call(one, rate)
        assert one.rate("x", rate).tokens > 0
        for _ in range(10):
            assert await one.budget("who").take(1000)
        assert one.budget("who").calls > 0
    async with bridges(shared_server(), 1, prefix) as [other]:
        found = [0]
        await until_refused(other, rate, found)
        assert 990 <= found[0] <= 991
        while await other.budget("who").take(1000):
            found[0] += 1
        assert found[0] in (990 + 990, 990 + 991)


async def test_a_share_that_is_not_used_goes_back_after_a_while() -> None:
    async with bridges(shared_server(), 2) as [one, other]:
        for _ in range(3):
            assert await one.budget("who").take(1000)
        assert one.budget("who").calls > 0
        with anyio.fail_after(60):
            while one.budget("who").calls:
                await anyio.sleep(0.02)
        found = 0
        while await other.budget("who").take(1000):
            found += 1
        assert found == 997


@pytest.mark.parametrize("most", [1, 5, 100, 2000])
async def test_a_budget_is_never_exceeded_and_small_ones_are_borrowed_singly(most: int) -> None:
    async with bridges(shared_server(), 3) as all_:
        made = [0]

        async def spend(counts: SharedCounts) -> None:
            while await counts.budget("who").take(most):
                made[0] += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for one in all_ * 2:
                tasks.start_soon(spend, one)
        assert made == [most]


async def test_without_the_server_a_rate_is_divided_and_a_budget_refused(own: Server) -> None:
    rate = Rate(90, 86400)
    async with bridges(own, 3) as all_:
        for one in all_:
            assert await one.budget("who").take(1000)
        own.signal(signal.SIGSTOP)
        found = [0]
        for one in all_:
            await until_refused(one, rate, found)
            one.budget("who").calls = 0
            with pytest.raises(StoreFailed):
                await one.budget("who").take(1000)
        assert found == [90], "each has a third"
        own.signal(signal.SIGCONT)
        while any(one.is_away for one in all_):
            await anyio.sleep(0.02)
        assert not await may_call(all_[0], rate), "what was used meanwhile counts"
        assert await all_[0].budget("who").take(1000)


async def test_a_rate_that_was_used_up_is_so_when_the_server_goes(own: Server) -> None:
    rate = Rate(60, 86400)
    async with bridges(own, 2) as [one, other]:
        found = [0]
        await until_refused(one, rate, found)
        assert not await may_call(other, rate)
        own.kill()
        for counts in (one, other):
            counts.lost(StoreFailed("gone"))
            await until_refused(counts, rate, found)
        assert found == [60]


# -- quotas


def wanted(limit: int, amount: int = 1, subject: str = "user x ann", slot: float = 86400.0) -> Wanted:
    return Wanted(subject, "calls day", slot, slot, slot + 4e9, limit, amount, 1)


@pytest.mark.parametrize("limit", [1, 20, 3000])
async def test_a_quota_is_never_exceeded_by_several_bridges(limit: int) -> None:
    prefix, used = f"t{secrets.token_hex(4)}", [0]
    async with bridges(shared_server(), 3, prefix) as all_:
        stores = [RedisQuotas(redis_address(shared_server().settings()), prefix, one) for one in all_]

        async def spend(store: RedisQuotas) -> None:
            while isinstance((await store.take([[wanted(limit)]], 1.8e9))[0], Taken):
                used[0] += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for store in stores * 2:
                tasks.start_soon(spend, store)
        assert used == [limit]
        [found] = await stores[0].used(1.8e9)
        assert found == ("user x ann", "calls day", 86400.0, limit)
        for store in stores:
            await store.close()


async def test_what_was_not_used_of_a_quota_is_there_for_another_bridge(own: Server) -> None:
    async with bridges(own, 2, "p") as all_:
        one, other = [RedisQuotas(redis_address(own.settings()), "p", counts) for counts in all_]
        taken = await one.take([[wanted(10, 4)]], 1.8e9)
        assert isinstance(taken[0], Taken)
        one.settle([taken[0]], [9])
        with anyio.fail_after(30):
            while (await other.used(1.8e9))[0][3] != 9:
                await anyio.sleep(0.01)
        [last] = await other.take([[wanted(10, 4)]], 1.8e9)
        assert isinstance(last, Taken)
        assert (last.amount, last.used) == (1, 10)
        [full] = await one.take([[wanted(10)]], 1.8e9)
        assert isinstance(full, Full)
        assert full.slots == [(86400.0, 10)]
        other.settle([last], [0])  # it was not sent: this bridge may use it again
        assert isinstance((await other.take([[wanted(10)]], 1.8e9))[0], Taken)
        await one.close()
        await other.close()


async def test_of_two_roles_the_one_with_room_lets_a_call_pass() -> None:
    prefix = f"t{secrets.token_hex(4)}"
    async with bridges(shared_server(), 1, prefix) as [counts]:
        store = RedisQuotas(redis_address(shared_server().settings()), prefix, counts)
        small, large = wanted(1, subject="user a ann"), wanted(3, subject="team b")
        found = [await store.take([[small], [large]], 1.8e9) for _ in range(4)]
        assert [[one.wanted.subject for one in each] for each in found] == [
            ["user a ann", "team b"],
            ["team b"],
            ["team b"],
            ["user a ann", "team b"],
        ]
        assert all(isinstance(one, Full) for one in found[3])
        await store.close()


async def test_quotas_are_counted_without_asking_for_each_call_and_fail_without_the_server(own: Server) -> None:
    async with bridges(own, 1, "p") as [counts]:
        store = RedisQuotas(redis_address(own.settings()), "p", counts)
        before = scripts_run(own)
        for _ in range(2000):
            [one] = await store.take([[wanted(10_000_000)]], 1.8e9)
            assert isinstance(one, Taken)
        assert scripts_run(own) - before < 400
        own.signal(signal.SIGSTOP)

        async def until_nothing_is_left() -> None:
            while True:
                await store.take([[wanted(10_000_000)]], 1.8e9)

        with pytest.raises(StoreFailed):
            await until_nothing_is_left()
        own.signal(signal.SIGCONT)
        while counts.is_away:
            await anyio.sleep(0.02)
        assert isinstance((await store.take([[wanted(10_000_000)]], 1.8e9))[0], Taken)
        [(_, _, _, amount)] = await store.used(1.8e9)
        assert amount >= 2001
        await store.close()


async def test_whoever_fails_while_counting_together_leaves_no_connection_behind(own: Server) -> None:
    def connected() -> int:
        return len(own.cli("CLIENT", "LIST").splitlines()) - 1  # without redis-cli

    async def fail() -> None:
        async with bridges(own, 1):
            assert connected() == 1
            raise RuntimeError("the bridge fails")

    with pytest.raises(RuntimeError, match="the bridge fails"):
        await fail()
    with anyio.fail_after(60):
        while connected():
            await anyio.sleep(0.01)
