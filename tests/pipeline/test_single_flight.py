"""One run for all who want the same at the same time; each rule by itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec import Raw

from mcpbridge.errors import BridgeError, UpstreamTimeout
from mcpbridge.model import ignore_update
from mcpbridge.pipeline.single_flight import Flight, Flights
from mcpbridge.wire.body import Body


@asynccontextmanager
async def flights() -> AsyncIterator[Flights]:
    with anyio.fail_after(5):
        found = Flights()
        async with found.running():
            yield found


class Run:
    """A run that ends when the test says so."""

    def __init__(self) -> None:
        self.flight: Flight
        self.began, self.may_end, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.result: Body | BridgeError = Body(b'{"a":1}')

    async def __call__(self, flight: Flight) -> Body:
        self.flight = flight
        self.began.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if isinstance(self.result, BridgeError):
            raise self.result
        return self.result


async def joined(flights: Flights, run: Run) -> tuple["asyncio.Task[Body]", "asyncio.Task[Body | None]"]:
    """One who leads, and one who waits with it."""
    leader = asyncio.create_task(flights.lead("k", run, ignore_update))
    await run.began.wait()
    flight = flights.open("k")
    assert flight is run.flight
    follower = asyncio.create_task(flight.wait(ignore_update))
    await asyncio.sleep(0)
    return leader, follower


async def test_all_get_the_result_and_then_the_next_one_runs_anew() -> None:
    async with flights() as found:
        run = Run()
        tasks = await joined(found, run)
        run.may_end.set()
        first, second = await asyncio.gather(*tasks)
        assert second is not None
        first.put("changed", value=True)
        assert (first.value(), second.value()) == ({"a": 1, "changed": True}, {"a": 1})
        assert found.open("k") is None


async def test_all_get_the_same_error() -> None:
    async with flights() as found:
        run = Run()
        run.result = UpstreamTimeout("up", 1)
        tasks = await joined(found, run)
        run.may_end.set()
        assert await asyncio.gather(*tasks, return_exceptions=True) == [run.result] * 2


@pytest.mark.parametrize("first", [0, 1])
async def test_it_goes_on_for_whoever_is_left_and_ends_with_the_last(first: int) -> None:
    async with flights() as found:
        run = Run()
        tasks = await joined(found, run)
        tasks[first].cancel()
        await asyncio.wait([tasks[first]])
        await asyncio.sleep(0)
        assert not run.cancelled.is_set()
        tasks[1 - first].cancel()
        await run.cancelled.wait()


async def test_a_run_that_is_left_at_once_is_not_there_for_the_next_one() -> None:
    async with flights() as found:
        run, next_run = Run(), Run()
        leader = asyncio.create_task(found.lead("k", run, ignore_update))
        await asyncio.sleep(0)
        leader.cancel()
        await asyncio.wait([leader])
        assert found.open("k") is None
        next_run.may_end.set()
        assert (await found.lead("k", next_run, ignore_update)).value() == {"a": 1}


async def test_a_run_that_ends_slowly_takes_nobody_any_more() -> None:
    async with flights() as found:
        run = Run()
        leader, follower = await joined(found, run)
        for task in (leader, follower):
            task.cancel()
        await asyncio.wait([leader, follower])
        assert found.open("k") is None
        await run.cancelled.wait()


async def test_a_run_that_becomes_personal_lets_the_others_go_and_takes_no_more() -> None:
    async with flights() as found:
        run = Run()
        leader, follower = await joined(found, run)
        run.flight.be_personal()
        assert await follower is None
        assert found.open("k") is None
        run.may_end.set()
        assert await leader is run.result


async def test_a_run_that_becomes_personal_when_its_leader_has_left_ends() -> None:
    async with flights() as found:
        run = Run()
        leader, follower = await joined(found, run)
        leader.cancel()
        await asyncio.wait([leader])
        run.flight.be_personal()
        assert await follower is None
        await run.cancelled.wait()


async def test_progress_is_told_to_those_who_wait() -> None:
    async with flights() as found:
        run, told = Run(), list[str]()

        def told_to(name: str) -> Callable[[str, Raw], None]:
            return lambda method, _: told.append(f"{name} {method}")

        waits: list[Awaitable[object]] = [asyncio.create_task(found.lead("k", run, told_to("leader")))]
        await run.began.wait()
        follower = asyncio.create_task(run.flight.wait(told_to("follower")))
        await asyncio.sleep(0)
        run.flight.update("p", Raw(b"{}"))
        follower.cancel()
        await asyncio.wait([follower])
        run.flight.update("q", Raw(b"{}"))
        run.may_end.set()
        await asyncio.gather(*waits)
        assert told == ["leader p", "follower p", "leader q"]


async def test_stopping_ends_what_runs_and_tells_those_who_wait() -> None:
    async with flights() as found:
        run = Run()
        tasks = await joined(found, run)
        for task in found._flying:  # pyright: ignore[reportPrivateUsage] - as the end of the bridge does
            task.cancel()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, BridgeError) for error in errors)
    assert "cancelled" in str(errors[0])


async def test_leaving_the_context_waits_for_the_runs_and_keeps_an_error_as_it_is() -> None:
    run, waiting = Run(), list[Awaitable[object]]()

    async def fail() -> None:
        async with flights() as found:
            waiting.extend(await joined(found, run))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert run.cancelled.is_set()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(error, BridgeError) for error in errors)


async def test_without_an_owner_it_runs_in_place() -> None:
    run = Run()
    run.may_end.set()
    assert await Flights().lead("k", run, ignore_update) is run.result
