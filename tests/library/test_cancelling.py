"""What cancelling a method of a program costs: what its docstring says, wherever it is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import anyio
import pytest

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.define_tools.decorator import tool
from support.harness import eventually, python_server

TURNS = range(25)
"""Turns of the event loop after which it is cancelled; where nothing is slow, the work ends before the last."""


def settings(**sections: Any) -> Settings:
    return Settings.model_validate({"store": {"kind": "memory"}, **sections})


@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


async def is_cancelled(work: Coroutine[Any, Any, object], turns: int) -> bool:
    """Whether the work was cancelled, so many turns after it began; else it had ended by then."""
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None
    return task.cancelled()


async def names(bridge: Bridge) -> set[str]:
    return {one.name for one in await bridge.list_tools()}


async def test_a_tool_whose_adding_is_cancelled_is_not_there() -> None:
    with anyio.fail_after(60):
        async with Bridge(settings()) as bridge:
            for turns in TURNS:
                was_cancelled = await is_cancelled(bridge.add_tool(greet), turns)
                assert ("greet" in await names(bridge)) != was_cancelled
                if not was_cancelled:
                    await bridge.remove_tool("greet")


async def test_a_tool_whose_removal_is_cancelled_stays() -> None:
    with anyio.fail_after(60):
        async with Bridge(settings()) as bridge:
            for turns in TURNS:
                if "greet" not in await names(bridge):
                    await bridge.add_tool(greet)
                was_cancelled = await is_cancelled(bridge.remove_tool("greet"), turns)
                assert ("greet" in await names(bridge)) == was_cancelled


async def test_a_reload_that_is_cancelled_changes_nothing() -> None:
    with anyio.fail_after(60):
        async with Bridge(settings()) as bridge:
            for turns in TURNS:
                size = 1 + turns
                was_cancelled = await is_cancelled(bridge.reload(settings(search={"limit": size})), turns)
                assert (bridge.settings.search.limit == size) != was_cancelled


@pytest.mark.parametrize("turns", [1, 3, 10])
async def test_a_server_whose_adding_is_cancelled_is_added_all_the_same(turns: int) -> None:
    with anyio.fail_after(60):
        async with Bridge(settings()) as bridge:
            assert await is_cancelled(bridge.add_server("more", python_server("plain")), turns)
            await eventually(lambda: names(bridge), lambda known: "more__echo" in known)
