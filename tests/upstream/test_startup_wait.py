"""The first seconds: who waits for servers that are starting, and how many may."""

import asyncio
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import Overloaded
from mcpbridge.upstream import startup_wait
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.startup_wait import StartupWait
from support.upstreams.scripted_upstream import ScriptedTransport, Watcher

pytestmark = pytest.mark.anyio


def starting(seconds: float) -> StartupWait:
    """The wait for one server that never comes."""
    settings = {"up": ServerSettings.model_validate({"command": "scripted"})}
    return StartupWait(Pool(settings, lambda *_: ScriptedTransport({}), Watcher(), client_info={}), seconds)


@pytest.fixture
def two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_wait, "_PLACES", 2)


async def waiting(wait: Any, count: int) -> list[asyncio.Future[Any]]:
    """So many tasks that wait."""
    tasks = [asyncio.ensure_future(wait()) for _ in range(count)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


@pytest.mark.usefixtures("two_places")
async def test_more_than_there_are_places_for_are_refused_until_some_have_gone() -> None:
    wait = starting(60)
    first, second = await waiting(wait.more, 2)
    with pytest.raises(Overloaded, match="The bridge is starting: 2 calls wait for it, more are not taken"):
        await wait.more()
    first.cancel()
    await asyncio.wait([first])
    [third] = await waiting(wait.more, 1)
    wait.noticed()
    with anyio.fail_after(30):
        assert await second
        assert await third


@pytest.mark.usefixtures("two_places")
async def test_a_listing_that_finds_no_place_does_not_wait() -> None:
    wait = starting(60)
    tasks = await waiting(wait.settled, 2)
    with anyio.fail_after(30):
        await wait.settled()
    assert not wait.is_over
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_nobody_waits_once_the_time_is_up() -> None:
    wait = starting(0.01)
    with anyio.fail_after(30):
        await asyncio.gather(*(wait.settled() for _ in range(3)))
        assert not await wait.more()
