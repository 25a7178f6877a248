"""One run for all who want the same at the same time; each rule by itself."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec import Raw

from mcpbridge.base.errors import BridgeError, Overloaded, UpstreamHttpError, UpstreamTimeout
from mcpbridge.base.json_values import decoded
from mcpbridge.core.model import ignore_update
from mcpbridge.pipeline.result_cache import SharedRun, SharedRuns, opened
from mcpbridge.protocol.body import Body


@asynccontextmanager
async def flights() -> AsyncIterator[SharedRuns]:
    with anyio.fail_after(60):
        found = SharedRuns()
        async with found.running():
            yield found


class Run:
    """A run that ends when the test says so."""

    def __init__(self) -> None:
        self.flight: SharedRun
        self.began, self.may_end, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.result: Body | BridgeError = Body(b'{"a":1}')

    async def __call__(self, flight: SharedRun) -> Body:
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


async def joined(flights: SharedRuns, run: Run) -> tuple["asyncio.Task[Body]", "asyncio.Task[Body | None]"]:
    """One who leads, and one who waits with it."""
    leader = asyncio.create_task(flights.lead("k", run, ignore_update))
    await run.began.wait()
    flight = flights.open("k")
    assert flight is run.flight
    follower = asyncio.create_task(flight.join(ignore_update))
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


@pytest.mark.parametrize("error", [UpstreamTimeout("up", 1), UpstreamHttpError("up", 429, "busy", retry_after=2)])
async def test_all_get_the_same_error_each_its_own(error: BridgeError) -> None:
    """What is noted on an error of one call, such as how often it was tried, is not told to the others."""
    async with flights() as found:
        run = Run()
        run.result = error
        tasks = await joined(found, run)
        run.may_end.set()
        first, second = await asyncio.gather(*tasks, return_exceptions=True)
        assert first is error
        assert isinstance(second, BridgeError)
        assert second is not error
        assert type(second) is type(error)
        told = second.full_message()
        assert (told, second.facts, vars(second)) == (
            error.full_message(),
            error.facts,
            {**vars(error), "facts": error.facts},
        )
        error.tries, error.facts = 3, {"mcpbridge/x": 1}
        assert second.full_message() == told
        assert "mcpbridge/x" not in second.facts


async def test_a_refusal_of_the_one_who_began_is_not_for_the_others() -> None:
    """Nothing ran, and it was by limits of its own; so they see how far they get."""
    async with flights() as found:
        run = Run()
        run.result = Overloaded("This client has too many calls")
        leader, follower = await joined(found, run)
        run.may_end.set()
        with pytest.raises(Overloaded):
            await leader
        assert await follower is None
        leader, follower = await joined(found, again := Run())
        again.result = run.result
        leader.cancel()
        await asyncio.wait([leader])
        again.may_end.set()
        assert await follower is None


async def test_a_run_that_has_just_landed_takes_nobody_and_keeps_nobody_waiting() -> None:
    """Between its result and the end of its task there is a turn of the loop, in which calls come."""
    async with flights() as found:
        run, more = Run(), list[SharedRun | None]()
        leader, follower = await joined(found, run)

        async def again() -> None:
            await follower
            more.append(found.open("k"))

        waiting = asyncio.create_task(again())
        run.may_end.set()
        await asyncio.gather(leader, waiting)
        assert more == [None]
        late = await run.flight.join(ignore_update)
        assert late is not None
        assert late.value() == {"a": 1}


@pytest.mark.parametrize("seed", range(3))
async def test_whoever_comes_and_goes_nobody_waits_for_ever(seed: int) -> None:
    chance = random.Random(seed)

    async def run(flight: SharedRun) -> Body:
        await asyncio.sleep(chance.random() * 0.002)
        if chance.random() < 0.2:
            flight.be_personal()
        if chance.random() < 0.3:
            raise chance.choice([UpstreamTimeout("up", 1), Overloaded("full"), ZeroDivisionError()])
        await asyncio.sleep(chance.random() * 0.002)
        return Body(b"{}")

    async def one(found: SharedRuns, key: int) -> None:
        for _ in range(3):  # again as soon as there is an answer: the turn in which the run ends
            try:
                flight = found.open(key)
                if flight is None or await flight.join(ignore_update) is None:
                    await found.lead(key, run, ignore_update)
            except (BridgeError, ZeroDivisionError):
                pass

    async with flights() as found:
        tasks = list[asyncio.Task[None]]()
        for _ in range(150):
            tasks.append(asyncio.create_task(one(found, chance.randrange(3))))
            if chance.random() < 0.5:
                asyncio.get_running_loop().call_later(chance.random() * 0.006, tasks[-1].cancel)
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.001)
        await asyncio.wait(tasks)
        errors = [task.exception() for task in tasks if not task.cancelled()]
        assert not any(errors)


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
        follower = asyncio.create_task(run.flight.join(told_to("follower")))
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
        for task in found.under_way():  # as the end of the bridge does
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
    assert await SharedRuns().lead("k", run, ignore_update) is run.result


# -- what a run leaves behind

NOBODY = {"known": 0, "running": 0, "done": 0, "waiting": 0}


async def nothing_left(found: SharedRuns) -> dict[str, int]:
    """The figures once the ends of tasks have been heard of, and whether the next one finds no run."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert found.open("k") is None
    assert not found
    return found.statistics()


@pytest.mark.parametrize("outcome", [Body(b"{}"), UpstreamTimeout("up", 1), Overloaded("full")])
async def test_a_run_that_is_over_leaves_nothing_behind(outcome: Body | BridgeError) -> None:
    async with flights() as found:
        run = Run()
        run.result = outcome
        tasks = await joined(found, run)
        assert found.statistics() == {"known": 1, "running": 1, "done": 0, "waiting": 2}
        run.may_end.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await nothing_left(found) == NOBODY
        assert run.flight.waiting == 0
        again = await found.lead("k", _at_once, ignore_update)
        assert again.value() == {"again": True}


async def _at_once(_: SharedRun) -> Body:
    return Body(b'{"again":true}')


async def test_a_run_that_all_have_left_is_cancelled_and_leaves_nothing_behind() -> None:
    async with flights() as found:
        run = Run()
        leader, follower = await joined(found, run)
        leader.cancel()
        await asyncio.wait([leader])
        assert found.open("k") is run.flight, "one still waits"
        assert not run.cancelled.is_set()
        follower.cancel()
        await asyncio.wait([follower])
        assert found.open("k") is None, "nobody joins a run that is being cancelled"
        await run.cancelled.wait()
        assert await nothing_left(found) == NOBODY
        again = await found.lead("k", _at_once, ignore_update)
        assert again.value() == {"again": True}


async def test_who_waits_when_a_run_is_ended_from_outside_gets_an_error_and_nothing_stays() -> None:
    """As when the bridge ends: whoever waits is not left without an answer."""
    async with flights() as found:
        run = Run()
        leader, follower = await joined(found, run)
        found.cancel(run.flight)
        outcomes = await asyncio.gather(leader, follower, return_exceptions=True)
        assert all(isinstance(one, BridgeError) and "was cancelled" in str(one) for one in outcomes)
        assert await nothing_left(found) == NOBODY


async def test_one_who_has_left_hears_no_more_of_the_progress_of_the_others() -> None:
    async with flights() as found:
        run, heard = Run(), list[str]()
        leader = asyncio.create_task(found.lead("k", run, lambda method, _: heard.append(f"leader {method}")))
        await run.began.wait()
        follower = asyncio.create_task(run.flight.join(lambda method, _: heard.append(f"follower {method}")))
        await asyncio.sleep(0)
        run.flight.update("one", Raw(b"{}"))
        follower.cancel()
        await asyncio.wait([follower])
        run.flight.update("two", Raw(b"{}"))
        run.may_end.set()
        await leader
        run.flight.update("three", Raw(b"{}"))
        assert heard == ["leader one", "follower one", "leader two"]


async def test_a_run_that_became_personal_lets_the_others_go_and_takes_nobody_more() -> None:
    async with flights() as found:
        run = Run()
        leader, follower = await joined(found, run)
        run.flight.be_personal()
        assert await follower is None
        assert found.open("k") is None
        other = await found.lead("k", _at_once, ignore_update)
        assert other.value() == {"again": True}
        run.may_end.set()
        assert (await leader).value() == {"a": 1}
        assert await nothing_left(found) == NOBODY


@pytest.mark.parametrize(
    ("data", "meta"),
    [
        (b'{"content":[],"_meta":{"a":1}}', {"a": 1}),
        (b'{"_meta":{"a":1,"mcpbridge/cache":{"hit":true}},"content":[]}', {"a": 1}),
        (b'{"_meta":{},"content":[]}', {}),
        (b'{"content":[]}', {}),
        (b'{"x":"\\"_meta\\"","content":[]}', {}),
    ],
)
def test_a_kept_result_has_one_meta_to_which_the_mark_is_added(data: bytes, meta: dict[str, int]) -> None:
    begun = opened(data)
    assert decoded(begun + b"1}}")["_meta"] == {**meta, "mcpbridge/cache": 1}
    assert begun.count(b'"_meta":') == 1
    assert begun.count(b'"content":') == 1
