"""No process survives the `async with` that started it, however that is left or not even entered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import anyio
import pytest

from mcpbridge.base.process import process
from mcpbridge.library.bridge import Bridge
from support.harness import Place, eventually, python_server


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers here use up every grace."""
    monkeypatch.setattr(process, "STDIN_GRACE", 0.02)
    monkeypatch.setattr(process, "TERM_GRACE", 0.02)


def bridge_of(place: Place, kind: type[Bridge] = Bridge) -> Bridge:
    config = place.config({"rooted": python_server("rooted")}, store={"path": str(place.folder / "s.db")})
    return kind.open(config, remember=False)


@asynccontextmanager
async def nothing_left(place: Place) -> AsyncIterator[None]:
    try:
        with anyio.fail_after(60):
            yield
        assert not place.survivors()
    finally:
        place.kill_survivors()


async def is_up(bridge: Bridge, place: Place) -> None:
    assert (await bridge.call_tool("rooted__echo", {"text": "hi"})).text == "hi"
    assert len(place.survivors()) == 3, "the server, and what it started"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_an_error_in_the_body_ends_everything_and_arrives_as_it_was(
    place: Place, error: type[BaseException]
) -> None:
    """Also: whoever wrote `except ValueError` around it meets no group of errors."""

    async def program() -> None:
        async with bridge_of(place) as bridge:
            await is_up(bridge, place)
            raise error("of the program")

    async with nothing_left(place):
        with pytest.raises(error, match="of the program") as caught:
            await program()
        assert type(caught.value) is error


async def test_a_cancel_during_a_call_ends_everything(place: Place) -> None:
    up = asyncio.Event()

    async def program() -> None:
        async with bridge_of(place) as bridge:
            await is_up(bridge, place)
            up.set()
            await bridge.call_tool("rooted__hold")

    async with nothing_left(place):
        task = asyncio.create_task(program())
        await up.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_scope_that_ends_ends_everything(place: Place) -> None:
    async with nothing_left(place):
        with anyio.CancelScope() as scope:
            async with bridge_of(place) as bridge:
                await is_up(bridge, place)
                scope.cancel()
                await bridge.call_tool("rooted__hold")
        assert scope.cancelled_caught


async def test_a_second_cancel_while_it_ends_changes_nothing(place: Place) -> None:
    up = asyncio.Event()

    async def program() -> None:
        async with bridge_of(place) as bridge:
            await is_up(bridge, place)
            up.set()
            await asyncio.Event().wait()

    async with nothing_left(place):
        task = asyncio.create_task(program())
        await up.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()

        async def left() -> dict[int, str]:
            return place.survivors()

        await eventually(left, lambda found: not found)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13])
async def test_a_cancel_while_it_opens_leaves_nothing(place: Place, steps: int) -> None:
    """At this many steps of the loop after its beginning."""

    async def program() -> None:
        async with bridge_of(place):
            await asyncio.Event().wait()

    async with nothing_left(place):
        task = asyncio.create_task(program())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class FailsLate(Bridge):
    """Opening it fails when its servers have been started."""

    def _load_registry(self) -> NoReturn:
        raise ValueError("half open")


async def test_what_fails_half_open_leaves_nothing(place: Place) -> None:
    async with nothing_left(place):
        with pytest.raises(ValueError, match="half open"):
            async with bridge_of(place, FailsLate):
                pytest.fail("it is open")


async def test_what_is_never_entered_starts_nothing(place: Place) -> None:
    async with nothing_left(place):
        bridge_of(place)
        await asyncio.sleep(0)
