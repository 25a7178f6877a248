"""Owners take turns at what only a few can have at a time (issue 5: one client takes the scripts from nobody)."""

import asyncio
import gc
import os
import signal
import sys
from typing import Any

import pytest
from anyio import fail_after
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.sandbox.fair_queue import FairQueue
from mcpbridge.sandbox.javascript.engine import JavaScript
from mcpbridge.sandbox.javascript.scripts import TransformFailed


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Queue:
    """A fair queue, and who has a place."""

    def __init__(self, places: int) -> None:
        self.turns = FairQueue(places)
        self.running: list[str] = []

    def add(self, owner: str) -> asyncio.Task[None]:
        async def wait() -> None:
            await self.turns.acquire(owner)
            self.running.append(owner)

        return asyncio.create_task(wait())

    async def end(self, owner: str) -> None:
        self.running.remove(owner)
        self.turns.release(owner)
        await settled()


async def test_a_place_that_is_taken_at_once_is_made_up_for_by_the_next_that_is_released() -> None:
    queue = Queue(1)
    tasks = [queue.add("a"), queue.add("b")]
    await settled()
    queue.turns.take("c")
    queue.running.append("c")
    await queue.end("a")
    assert queue.running == ["c"], "c has the place that a had"
    await queue.end("c")
    assert queue.running == ["b"]
    await asyncio.gather(*tasks)


async def test_of_one_owner_one_runs_while_others_wait() -> None:
    queue = Queue(2)
    tasks = [queue.add("a") for _ in range(60)]
    await settled()
    assert queue.running == ["a", "a"]
    tasks += [queue.add("b"), queue.add("b"), queue.add("c")]
    await settled()
    for _ in range(4):  # the first place that is free is another's, and so on
        await queue.end(queue.running[0])
    assert sorted(queue.running) != ["a", "a"]
    order: list[str] = []
    for _ in range(6):
        order.append(queue.running[0])
        await queue.end(queue.running[0])
    assert queue.running == ["a", "a"]  # alone again
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_the_next_place_goes_to_who_has_none() -> None:
    queue = Queue(2)
    tasks = [queue.add(owner) for owner in "aaaabc"]
    await settled()
    seen = [list(queue.running)]
    for _ in range(4):
        await queue.end(queue.running[0])
        seen.append(list(queue.running))
    assert ["".join(one) for one in seen] == ["aa", "ab", "ba", "ac", "ca"]
    await asyncio.wait(tasks)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "end", "cancel", "cancel at once"]))))
def test_no_place_is_lost_or_made(steps: list[tuple[str, str]]) -> None:
    async def scenario() -> None:
        queue, tasks = Queue(2), list[asyncio.Task[None]]()
        for owner, step in steps:
            if step == "add":
                tasks.append(queue.add(owner))
            elif step == "end" and queue.running:
                await queue.end(queue.running[0])
                continue
            elif step == "cancel" and tasks:
                tasks.pop(0).cancel()
            elif step == "cancel at once" and queue.running:  # in the moment in which it gets its turn
                task = queue.add(owner)
                await asyncio.sleep(0)
                queue.turns.release(queue.running.pop(0))
                task.cancel()
            await settled()
            assert len(queue.running) <= 2
        for task in tasks:
            task.cancel()
        await settled()
        for owner in list(queue.running):
            await queue.end(owner)
        last = [queue.add(owner) for owner in "zz"]
        await settled()
        assert queue.running == ["z", "z"]
        await asyncio.wait(last)

    asyncio.run(scenario())


async def test_endless_loops_of_one_owner_keep_no_other_from_its_answer() -> None:
    """Review of issue 5: sixty of them, and another client waited until it was refused."""
    async with JavaScript(deadline=20) as engine:
        loops = [asyncio.create_task(engine.evaluate("while(1);", "[]", binding="json", owner="a")) for _ in range(60)]
        await asyncio.sleep(0)
        other = asyncio.create_task(engine.evaluate("'other'", "[]", binding="json", owner="b"))
        with fail_after(60):
            while not (other.done() or engine._queue._running["b"]):
                await asyncio.sleep(0.01)
            ended = [task for task in loops if task.done()]  # not later: its worker may stand still
            assert await other == "other"
        assert len(ended) <= 3
        for task in loops:
            task.cancel()
        said = await asyncio.gather(*loops, return_exceptions=True)
    assert {type(one) for one in said} <= {asyncio.CancelledError, TransformFailed}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="stops a process")
async def test_an_evaluation_that_is_cancelled_while_it_is_asked_leaves_no_error_behind() -> None:
    """Review of issue 5: `Future exception was never retrieved` on the standard error."""
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        async with JavaScript(deadline=60) as engine:
            for ends in ("cancel", "kill"):
                await engine.evaluate("1", "[]", binding="json")
                [worker] = [worker for worker in engine._workers if worker.is_alive]
                os.kill(worker.pid, signal.SIGSTOP)  # it reads nothing any more, so the question waits in the pipe
                running = asyncio.create_task(engine.evaluate("1", "x" * 10_000_000, binding="text"))
                with fail_after(10):
                    while worker._may_write.is_set():
                        await asyncio.sleep(0)
                if ends == "cancel":
                    running.cancel()
                else:
                    os.kill(worker.pid, signal.SIGKILL)
                with fail_after(10):
                    await asyncio.wait([running])
                    await worker.ended()
                assert running.cancelled() == (ends == "cancel")
                assert running.cancelled() or isinstance(running.exception(), TransformFailed)
                del worker, running
        gc.collect()
        await settled()
    finally:
        loop.set_exception_handler(None)
    assert complaints == []
