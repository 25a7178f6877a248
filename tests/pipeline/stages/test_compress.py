"""Which tools have had large results: remembered over restarts, and bounded whatever servers list."""

from collections.abc import Sequence

import anyio

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.pipeline.stages.compress import MOST_OF_SERVER, LargeTools
from mcpbridge.storage.memory_store import MemoryStore


async def meeting(store: MemoryStore, tools: Sequence[str]) -> list[frozenset[str]]:
    """One run of a bridge: what it tells, one after the other."""
    told: list[frozenset[str]] = []
    tasks = OwnedTasks()
    async with tasks.running():
        large = LargeTools(store, tasks, told.append)
        await large.load()
        for tool in tools:
            large.met(tool)
        with anyio.fail_after(10):
            await anyio.wait_all_tasks_blocked()
    return told


async def test_they_are_known_in_later_runs() -> None:
    store = MemoryStore()
    assert await meeting(store, ["a/x", "a/x", "b/y"]) == [{"a/x"}, {"a/x", "b/y"}]
    assert await meeting(store, ["a/x"]) == [{"a/x", "b/y"}]


async def test_a_server_with_tools_without_end_takes_the_place_of_no_other() -> None:
    store = MemoryStore()
    tools = [f"evil/{number}" for number in range(MOST_OF_SERVER + 50)]
    told = await meeting(store, [*tools, f"evil/{'x' * 400}", f"b/{'y' * 400}", "good/x"])
    assert told[-1] == {*tools[:MOST_OF_SERVER], "good/x"}
    assert len(told) == MOST_OF_SERVER + 1
    assert len(await store.entries("large_tool", principal="")) == MOST_OF_SERVER + 1
    assert len((await meeting(store, ["evil/new"]))[-1]) == MOST_OF_SERVER + 1
