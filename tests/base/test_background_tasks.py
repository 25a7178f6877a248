"""A task group leaves the task that enters it as it was, however it ends."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from mcpbridge.base.background_tasks import FirstStep, TaskGroup, own_group, repeat

pytestmark = pytest.mark.anyio

SOURCE = Path(__file__).parent.parent.parent / "src/mcpbridge"


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def fail(after: asyncio.Event | None = None) -> None:
    if after is not None:
        await after.wait()
    raise ValueError("it fails")


async def wait() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("when", ["body", "leaving", "both"])
async def test_a_failure_that_is_caught_leaves_no_cancellation(when: str, others: int) -> None:
    leaving = asyncio.Event()
    with anyio.fail_after(30):
        with pytest.raises(ExceptionGroup) as failed:  # noqa: PT012 - the group is what is tested
            async with TaskGroup() as group:
                for _ in range(others):
                    group.create_task(wait())
                if when in ("leaving", "both"):
                    group.create_task(fail(leaving))
                if when in ("body", "both"):
                    group.create_task(fail())
                    with pytest.raises(asyncio.CancelledError):
                        await asyncio.Event().wait()
                asyncio.get_running_loop().call_soon(leaving.set)
        assert any(isinstance(error, ValueError) for error in failed.value.exceptions)
        assert cancelling() == 0
        async with asyncio.TaskGroup() as later:  # it would end with a cancellation that nobody asked for
            later.create_task(asyncio.sleep(0))
        async with asyncio.timeout(30):
            await asyncio.sleep(0)


async def test_a_body_that_fails_leaves_no_cancellation() -> None:
    with pytest.raises(ExceptionGroup):  # noqa: PT012 - as above
        async with TaskGroup() as group:
            group.create_task(fail())
            raise KeyError("it fails as well")
    assert cancelling() == 0


async def test_a_cancellation_from_outside_still_counts() -> None:
    leaving, seen = asyncio.Event(), list[int]()

    async def caller() -> None:
        try:
            async with TaskGroup() as group:
                group.create_task(fail(leaving))
                group.create_task(wait())
        except BaseException:
            seen.append(cancelling())
            raise

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    leaving.set()
    await asyncio.wait([task], timeout=30)
    assert seen == [1]


async def test_what_the_body_of_an_own_group_raises_leaves_no_cancellation() -> None:
    ended = asyncio.Event()

    async def member() -> None:
        await ended.wait()
        raise ValueError("it fails at the end")

    with pytest.raises((KeyError, ExceptionGroup)):  # noqa: PT012 - as above
        async with own_group(ended.set) as group:
            group.create_task(member())
            await asyncio.sleep(0)
            raise KeyError("the body")
    assert cancelling() == 0


def test_no_other_task_group_of_the_standard_library_is_entered() -> None:
    """The class is mended in one place."""
    used = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\basyncio\.TaskGroup\(\)", path.read_text())
    ]
    assert used == []


async def test_a_first_step_is_taken_even_by_a_task_that_is_cancelled_before() -> None:
    """asyncio never enters the coroutine of such a task: it can clean up nothing, and answer nobody."""
    seen: list[str] = []

    async def work() -> str:
        seen.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            return "answered"
        return "never"

    task = asyncio.create_task(FirstStep(work()))
    task.cancel()
    with anyio.fail_after(30):
        assert await task == "answered"
    assert seen == ["began", "cancelled"]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_first_step_may_be_the_last(is_cancelled: bool) -> None:
    async def work() -> str:
        return "done"

    task = asyncio.create_task(FirstStep(work()))
    if is_cancelled:
        task.cancel()
    with anyio.fail_after(30):
        assert await task == "done"
    assert await FirstStep(work()) == "done"


async def test_a_first_step_that_is_never_taken_can_be_given_up() -> None:
    async def work() -> None:
        raise AssertionError("it never runs")

    FirstStep(work()).close()


async def test_work_that_fails_is_done_again() -> None:
    done: list[int] = []

    async def work() -> bool:
        done.append(len(done))
        if len(done) < 3:
            raise RuntimeError("not yet")
        return len(done) == 5

    with anyio.fail_after(30):
        await repeat(0, work)
    assert len(done) == 5


async def test_work_that_loses_its_cancellation_is_not_done_again() -> None:
    begun, times = asyncio.Event(), 0

    async def work() -> None:
        nonlocal times
        times += 1
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

    task = asyncio.create_task(repeat(3600, work, at_once=True))
    await begun.wait()
    task.cancel()
    with anyio.fail_after(30):
        await asyncio.wait([task])
    assert task.cancelled()
    assert times == 1
