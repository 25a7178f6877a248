"""The time of a program: it counts while it should, and stands still while it should."""

import asyncio

import pytest
from anyio import fail_after

from mcpbridge.sandbox.python.program import ProgramClock


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def over(watch: ProgramClock) -> str:
    gone = asyncio.Event()
    watch.start(gone.set)
    with fail_after(10):
        await gone.wait()
    watch.stop()
    return watch.over


async def test_what_runs_out_first_is_told() -> None:
    assert await over(ProgramClock(computing=0.001, altogether=5)) == "computing"
    assert await over(ProgramClock(computing=5, altogether=0.001)) == "altogether"


async def test_waiting_is_not_computing() -> None:
    watch = ProgramClock(computing=0.05, altogether=0.2)
    gone = asyncio.Event()
    watch.start(gone.set)
    watch.waits()
    with fail_after(10):
        await gone.wait()
    assert watch.over == "altogether"


async def test_nothing_runs_out_while_a_person_is_asked() -> None:
    watch = ProgramClock(computing=600, altogether=0.05)
    gone = asyncio.Event()
    watch.start(gone.set)
    with watch.asking():
        with watch.asking():
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert watch.over == ""
    with fail_after(10):
        await gone.wait()
    assert watch.over == "altogether"


async def test_a_question_may_come_before_and_outlast_it() -> None:
    watch = ProgramClock(computing=5, altogether=0.01)
    with watch.asking():
        watch.start(lambda: None)
        watch.stop()
    watch.computes()
    assert watch._altogether._timer is None
    assert watch._computing._timer is None
