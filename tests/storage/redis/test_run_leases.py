"""Of bridges that get the same call at the same time one runs it, and the others get its result (issue 24)."""

import asyncio
import secrets
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.storage.redis.epochs import SharedEpochs
from mcpbridge.storage.redis.run_leases import MOST_BYTES, Published, RunLease, RunLeases
from mcpbridge.storage.settings import redis_address
from support.redis_server import Server, needs_redis

pytestmark = [needs_redis, pytest.mark.anyio]
KEY = "a key of the fleet of these tests"
RESULT = b'{"content":[{"type":"text","text":"what the server said"}]}'
Found = RunLease | Published | None


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    found = Server(tmp_path / "redis").start()
    yield found
    found.kill()


def always(_began: float, _ended: float) -> bool:
    return True


def nobody(_news: bytes) -> None: ...


class Bridge:
    """What one bridge has of a fleet."""

    def __init__(self, server: Server, prefix: str) -> None:
        self.epochs = SharedEpochs(redis_address(server.settings()), prefix)
        self.leases = RunLeases(self.epochs, prefix, KEY)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with self.epochs.running(), self.leases.running():
            yield

    async def lead(
        self,
        key: str = "call",
        epoch: str | None = None,
        *,
        is_fresh: Callable[[float, float], bool] = always,
        on_progress: Callable[[bytes], None] = nobody,
    ) -> Found:
        """The lease of a call in this epoch, or what was published; of the present one unless it is given."""
        epoch = epoch or await self.epochs.current("up")
        assert epoch is not None
        return await self.leases.lead([key, epoch], "up", epoch, is_fresh=is_fresh, on_progress=on_progress)

    async def lease(self, key: str = "call") -> RunLease:
        """The lease, which nobody has."""
        found = await self.lead(key)
        assert isinstance(found, RunLease)
        return found


@asynccontextmanager
async def bridges(server: Server, number: int) -> AsyncGenerator[list[Bridge]]:
    prefix = f"t{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        with anyio.fail_after(120):
            found = [Bridge(server, prefix) for _ in range(number)]
            for one in found:
                await stack.enter_async_context(one.running())
            yield found


def runs(server: Server) -> list[str]:
    """The keys of runs at the server."""
    return server.cli("KEYS", "*:run:*").split()


async def waiting(server: Server, asked: Coroutine[Any, Any, Found]) -> "asyncio.Task[Found]":
    """A bridge that asks for a lease which another one has; returns once that can know of it."""
    before = wanted(server)
    task = asyncio.create_task(asked)
    while wanted(server) == before:
        assert not task.done()
        await anyio.sleep(0.01)
    assert wanted(server) == before + 1
    return task


def wanted(server: Server, key: str = "") -> int:
    """How many have waited for the only run, or this one."""
    return int(server.cli("HGET", key or runs(server)[0], "wanted") or 0)


async def test_whoever_waits_gets_the_result_and_how_old_it_is(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        lease = await one.lease()
        task = await waiting(server, other.lead())
        assert await lease.end(RESULT, 60, may_keep=True)
        found = await task
        assert isinstance(found, tuple)
        assert found[0] == RESULT
        assert found[1] is not None
        assert found[1] >= 0
        (key,) = runs(server)
        assert 0 < int(server.cli("PTTL", key)) <= 5000
        assert "the server said" not in server.cli("--no-raw", "HGETALL", key)


async def test_a_result_is_published_for_no_longer_than_it_is_good(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        lease = await one.lease()
        task = await waiting(server, other.lead())
        await lease.end(RESULT, 2, may_keep=True)
        await task
        assert not runs(server) or 0 < int(server.cli("PTTL", *runs(server))) <= 2000


async def test_a_run_that_nobody_waits_for_leaves_nothing(server: Server) -> None:
    async with bridges(server, 1) as (one,):
        lease = await one.lease()
        assert await lease.end(RESULT, 60, may_keep=True)
        assert not runs(server)
        lease = await one.lease()
        lease.give_up()
        assert not await lease.end(RESULT, 60, may_keep=True)
    assert not runs(server), "also when the bridge ends at once"


async def test_other_calls_have_leases_of_their_own(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        await one.lease("a")
        await other.lease("b")


async def test_of_those_that_wait_for_one_that_gives_up_one_is_the_next(server: Server) -> None:
    async with bridges(server, 4) as (first, *others):
        lease = await first.lease()
        tasks = [await waiting(server, other.lead()) for other in others]
        lease.give_up()
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        (found,) = (task.result() for task in done)
        assert isinstance(found, RunLease)
        while wanted(server) != 2:
            await anyio.sleep(0.01)
        await found.end(RESULT, 60, may_keep=True)
        for task in pending:
            published = await task
            assert isinstance(published, tuple)
            assert published[0] == RESULT


async def test_nobody_waits_in_turn_behind_failures(server: Server) -> None:
    """After two that gave up, whoever has waited for both runs by itself, whoever else does."""
    async with bridges(server, 2) as (first, last):
        lease = await first.lease()
        task = await waiting(server, last.lead())
        (key,) = runs(server)
        server.cli("HSET", key, "owner", "another")
        while wanted(server) != 2:
            await anyio.sleep(0.01)
        assert not task.done()
        server.cli("HSET", key, "owner", "the next")
        assert await task is None
        lease.give_up()


async def test_whoever_waits_takes_over_from_one_that_was_killed_and_the_others_wait_on(server: Server) -> None:
    """Also if that is over before they look again."""
    async with bridges(server, 3) as (first, second, third):
        await first.lease()
        task = await waiting(server, second.lead())
        server.cli("PEXPIRE", *runs(server), "1")  # what time does
        taken = await task
        assert isinstance(taken, RunLease)
        await taken.end(RESULT, 60, may_keep=True)
        found = await third.lead()
        assert isinstance(found, tuple)
        assert found[0] == RESULT


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_a_bridge_that_was_stopped_for_a_while_does_nothing_to_the_lease_of_the_next(
    server: Server, is_given_up: bool
) -> None:
    async with bridges(server, 3) as (first, second, third):
        lost = await first.lease()
        server.cli("DEL", *runs(server))  # what time does
        lease = await second.lease()
        if is_given_up:
            lost.give_up()
            while repr(first.leases) != "<RunLeases: 0 tasks>":
                await anyio.sleep(0.01)
        else:
            await lost.end(b'{"content":[]}', 60, may_keep=True)
        task = await waiting(server, third.lead())
        await lease.end(RESULT, 60, may_keep=True)
        found = await task
        assert isinstance(found, tuple)
        assert found[0] == RESULT


async def test_a_lease_lasts_as_long_as_the_run_and_those_who_wait_hear_of_progress(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        news, has_come = list[bytes](), anyio.Event()

        def heard(params: bytes) -> None:
            news.append(params)
            has_come.set()

        lease = await one.lease()
        (key,) = runs(server)
        task = await waiting(server, other.lead(on_progress=heard))
        server.cli("PEXPIRE", key, "2500")
        while int(server.cli("PTTL", key)) <= 2500:
            await anyio.sleep(0.01)
        lease.progressed(b'{"progress":1}')
        lease.progressed(b'{"progress":2}')
        await has_come.wait()
        assert news == [b'{"progress":2}']
        await lease.end(RESULT, 60, may_keep=True)
        assert isinstance(await task, tuple)
        assert news == [b'{"progress":2}'], "each comes once"


async def test_a_result_beside_a_write_is_for_those_who_waited_and_not_to_be_kept(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        lease = await one.lease()
        task = await waiting(server, other.lead())
        await other.epochs.changed("up")
        later = await other.lead()
        assert isinstance(later, RunLease), "whoever comes after the write waits for nothing that began before"
        assert not await lease.end(RESULT, 60, may_keep=True)
        assert await task == (RESULT, None)
        later.give_up()


async def test_a_result_that_may_not_be_kept_here_is_not_kept_elsewhere(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        lease = await one.lease()
        task = await waiting(server, other.lead())
        assert await lease.end(RESULT, 60, may_keep=False)
        assert await task == (RESULT, None)


async def test_who_asks_says_how_old_a_run_may_be(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        lease = await one.lease()
        ages = list[tuple[float, float]]()

        def is_fresh(began: float, ended: float) -> bool:
            ages.append((began, ended))
            return False

        assert await other.lead(is_fresh=is_fresh) is None
        task = await waiting(server, other.lead())
        await lease.end(RESULT, 60, may_keep=True)
        await task
        assert await other.lead(is_fresh=is_fresh) is None
        assert ages[0][1] == 0
        assert ages[1][0] >= ages[1][1] >= 0
        assert ages[1][0] >= ages[0][0]


async def test_what_is_too_large_is_not_published(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        lease = await one.lease()
        task = await waiting(server, other.lead())
        assert await lease.end(secrets.token_bytes(MOST_BYTES), 60, may_keep=True)
        assert isinstance(await task, RunLease)
        lease = await one.lease("long")
        task = asyncio.create_task(other.lead("long"))
        while not any(wanted(server, key) for key in runs(server)):
            await anyio.sleep(0.01)
        assert await lease.end(b"x" * MOST_BYTES * 2, 60, may_keep=True), "compressed, it is short"
        assert isinstance(await task, tuple)


async def test_a_result_that_was_changed_at_the_server_is_none(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        lease = await one.lease()
        task = await waiting(server, other.lead())
        await lease.end(RESULT, 60, may_keep=True)
        await task
        server.cli("HSET", *runs(server), "result", "0123456789ab" * 4)
        assert await other.lead() is None


async def test_cancelling_whoever_waits_takes_nothing_from_the_others(server: Server) -> None:
    async with bridges(server, 3) as (one, other, third):
        lease = await one.lease()
        task, last = [await waiting(server, bridge.lead()) for bridge in (other, third)]
        task.cancel()
        await asyncio.wait([task])
        assert await lease.end(RESULT, 60, may_keep=True)
        assert isinstance(await last, tuple)


async def test_without_an_answer_of_the_server_each_runs_by_itself(server: Server) -> None:
    async with bridges(server, 2) as (one, other):
        epoch = await one.epochs.current("up")
        lease = await one.lease()
        task = await waiting(server, other.lead())
        server.signal(signal.SIGSTOP)
        try:
            assert await task is None
            assert await one.lead("more", epoch) is None
            assert not await lease.end(RESULT, 60, may_keep=True)
        finally:
            server.signal(signal.SIGCONT)


async def test_a_miss_costs_two_scripts(server: Server) -> None:
    """One more question than without leases: the second one also says whether the epoch is the same."""
    async with bridges(server, 1) as (one,):
        epoch = await one.epochs.current("up")

        def asked() -> int:
            lines = server.cli("INFO", "commandstats").splitlines()
            counts = (
                line.partition("calls=")[2].partition(",")[0] for line in lines if line.startswith("cmdstat_eval")
            )
            return sum(map(int, counts))

        for _ in range(2):  # the first time a script is not known there
            before = asked()
            lease = await one.lead(epoch=epoch)
            assert isinstance(lease, RunLease)
            await lease.end(RESULT, 60, may_keep=True)
        assert asked() - before == 2
