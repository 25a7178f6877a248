"""Runs of calls that bridges count together (issue 24): as one bridge counts them."""

import secrets
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.base.errors import StoreFailed
from mcpbridge.pipeline.stages.call_budget import Chain
from mcpbridge.storage.redis.chains import SharedChain
from mcpbridge.storage.redis.shares import SharedCounts
from storage.redis.test_shares import bridges
from support.harness import first_line
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


async def test_calls_that_follow_one_another_by_way_of_several_bridges_count_together() -> None:
    async with bridges(shared_server(), 3) as all_:
        for place in range(1, 7):
            chain = all_[place % 3].chain("run")
            assert await chain.begin(most=6, pause=0) == place
            await chain.end(place)
        assert [await one.chain("run").begin(most=6, pause=0) for one in all_] == [0, 0, 0]
        assert await all_[0].chain("another").begin(most=6, pause=0) == 1


async def test_calls_at_the_same_time_are_one_step_whatever_bridges_they_come_to() -> None:
    async with bridges(shared_server(), 2) as all_:
        chains = [one.chain("run") for one in all_ * 3]
        assert [await chain.begin(most=2, pause=0) for chain in chains] == [1] * 6
        for chain in chains:
            await chain.end(1)
        assert await chains[0].begin(most=2, pause=0) == 2


RUN = st.tuples(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=25))
"""What may follow one another, and the steps: which bridge begins a call, or whether the oldest one ends."""


@given(runs=st.lists(RUN, min_size=6, max_size=6))
@settings(max_examples=5, deadline=None)
def test_whatever_bridges_are_used_the_places_are_those_of_one_bridge(
    runs: list[tuple[int, list[tuple[int, bool]]]],
) -> None:
    async def compare(both: list[SharedCounts], name: str, most: int, steps: list[tuple[int, bool]]) -> None:
        alone, under_way = Chain(), list[tuple[SharedChain, int]]()
        for which, is_end in steps:
            if is_end and under_way:
                chain, place = under_way.pop(0)
                alone.end(0, place)
                await chain.end(place)
                continue
            chain = both[which].chain(name)
            place = await chain.begin(most=most, pause=0)
            assert place == alone.begin(0, most=most, pause=0)
            if place:
                under_way.append((chain, place))

    async def compare_all() -> None:
        async with bridges(shared_server(), 2) as both:
            for at, (most, steps) in enumerate(runs):
                await compare(both, str(at), most, steps)

    anyio.run(compare_all)


async def test_a_run_ends_with_a_pause_at_all_bridges_and_not_while_one_has_a_call_of_it() -> None:
    pause = 0.3
    async with bridges(shared_server(), 2) as all_:
        one, other = [each.chain("run") for each in all_]
        assert await one.begin(most=1, pause=pause) == 1
        assert await other.begin(most=1, pause=pause) == 1
        await other.end(1)
        await anyio.sleep(2 * pause)  # the time itself is what is tried
        assert await other.begin(most=1, pause=pause) == 0, "the call of the first one still runs"
        await one.end(1)
        await until_it_begins(other, pause)


async def until_it_begins(chain: SharedChain, pause: float) -> None:
    """Pause, and try it, until it is a new run."""
    with anyio.fail_after(60):
        while not await chain.begin(most=1, pause=pause):
            await anyio.sleep(2 * pause)


MORTAL = """
import sys
import anyio
from mcpbridge.storage.redis.shares import SharedCounts
from mcpbridge.storage.settings import StoreSettings, redis_address

async def main():
    counts = SharedCounts(redis_address(StoreSettings(kind="redis", url=sys.argv[1])), sys.argv[2])
    async with counts.running():
        chain = counts.chain("run")
        print(await chain.begin(most=1, pause=0.2), flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_calls_of_a_bridge_keep_a_run_alive_until_it_dies() -> None:
    prefix, pause = f"t{secrets.token_hex(4)}", 0.2
    command = [sys.executable, "-c", MORTAL, str(shared_server().settings().url), prefix]
    async with await anyio.open_process(command, stderr=None) as mortal:
        try:
            assert mortal.stdout
            with anyio.fail_after(60):
                assert await first_line(mortal.stdout) == "1"
            async with bridges(shared_server(), 1, prefix, others=1) as [one]:
                chain = one.chain("run")
                assert await chain.begin(most=1, pause=pause) == 1
                await chain.end(1)
                for _ in range(4):
                    await anyio.sleep(2 * pause)  # the time itself is what is tried
                    assert await chain.begin(most=1, pause=pause) == 0, "its lease lives, so its call counts"
                mortal.kill()
                await mortal.wait()
                await until_it_begins(chain, pause)
        finally:
            if mortal.returncode is None:
                mortal.kill()


async def test_without_the_server_no_call_begins_and_what_ended_meanwhile_is_known_when_it_is_back(own: Server) -> None:
    async with bridges(own, 2) as all_:
        one, other = [each.chain("run") for each in all_]
        assert await one.begin(most=2, pause=0) == 1
        own.signal(signal.SIGSTOP)
        with pytest.raises(StoreFailed):
            await other.begin(most=2, pause=0)
        await one.end(1)
        own.signal(signal.SIGCONT)
        with anyio.fail_after(60):
            while True:
                try:
                    place = await other.begin(most=2, pause=0)
                except StoreFailed:
                    place = 0
                if place == 2:
                    break
                if place:
                    await other.end(0)
                await anyio.sleep(0.05)


async def test_once_the_server_is_known_to_be_away_nobody_waits_for_it(own: Server) -> None:
    """Not a single turn of the loop: neither who begins a call, nor who ends one, nor who waits behind another."""
    async with bridges(own, 1) as [counts]:
        chain = counts.chain("run")
        assert await chain.begin(most=9, pause=0) == 1
        own.signal(signal.SIGSTOP)
        outcomes = list[str]()

        async def begin() -> None:
            try:
                await chain.begin(most=9, pause=0)
            except StoreFailed as error:
                outcomes.append(str(error))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(begin)
        assert len(outcomes) == 20
        assert sum("is away" in outcome for outcome in outcomes) >= 18, "one found it out, or the beat did"
        for work in (begin(), chain.end(1)):
            with pytest.raises(StopIteration):
                work.send(None)
        assert len(outcomes) == 21
