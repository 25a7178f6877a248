"""Promise of `pipeline/stages/concurrency_limit.py`: no two calls ever wait for one another, also nested ones."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge import Bridge, SyncBridge, tool

pytestmark = pytest.mark.anyio

Work = dict[str, Any]
"""What a tool does: `calls`, which are other work by the tools of these names, and whether side by side."""


def writer(name: str) -> Any:
    return tool(name=name, annotations={"readOnlyHint": False}, max_concurrent=1)


async def test_a_tool_calls_another_changing_tool(tmp_path: Path) -> None:
    """Both take the one place for changes of their client: the inner one uses that of the outer one."""

    @writer("create_page")
    async def create_page() -> str:
        return "page"

    @writer("create_report")
    async def create_report() -> str:
        return (await bridge.call_tool("create_page")).text + " in a report"

    async with opened(tmp_path, [create_page, create_report]) as bridge:
        with anyio.fail_after(20):
            assert (await bridge.call_tool("create_report")).text == "page in a report"


async def test_a_tool_in_a_thread_calls_another_through_a_bridge_for_threads(tmp_path: Path) -> None:
    def run() -> str:
        @writer("create_page")
        def create_page() -> str:
            return "page"

        @writer("create_report")
        def create_report() -> str:
            return bridge.call_tool("create_page").text + " in a report"

        config = {"store": {"path": str(tmp_path / "store.db")}}
        with SyncBridge.open(config, tools=[create_page, create_report], remember=False) as bridge:
            return bridge.call_tool("create_report").text

    with anyio.fail_after(20):
        assert await asyncio.to_thread(run) == "page in a report"


async def test_two_tools_that_call_each_other_do_not_wait_for_one_another(tmp_path: Path) -> None:
    """Each has one place and needs that of the other while it holds its own."""
    both = asyncio.Barrier(2)

    @tool(name="a", annotations={"readOnlyHint": True}, max_concurrent=1)
    async def a(deep: bool = False) -> str:
        if deep:
            return "a"
        await both.wait()
        return (await bridge.call_tool("b", {"deep": True})).text

    @tool(name="b", annotations={"readOnlyHint": True}, max_concurrent=1)
    async def b(deep: bool = False) -> str:
        if deep:
            return "b"
        await both.wait()
        return (await bridge.call_tool("a", {"deep": True})).text

    async with opened(tmp_path, [a, b]) as bridge:
        with anyio.fail_after(20):
            first, second = await asyncio.gather(bridge.call_tool("a"), bridge.call_tool("b"))
            assert (first.text, second.text) == ("b", "a")


async def test_work_that_goes_on_after_its_call_holds_nothing(tmp_path: Path) -> None:
    """What a tool leaves behind calls in its own name, and waits as any other call."""
    later: list[asyncio.Task[Any]] = []
    held, release = asyncio.Event(), asyncio.Event()

    @writer("hold")
    async def hold() -> str:
        held.set()
        await release.wait()
        return "held"

    @writer("leave")
    async def leave() -> str:
        later.append(asyncio.create_task(bridge.call_tool("hold")))
        return "left"

    async with opened(tmp_path, [hold, leave]) as bridge:
        with anyio.fail_after(20):
            await bridge.call_tool("leave")
            await held.wait()
            other = asyncio.create_task(bridge.call_tool("leave"))
            await asyncio.sleep(0)
            assert not other.done(), "the change of another call is under way"
            release.set()
            await other
            await asyncio.gather(*later)


@asynccontextmanager
async def opened(tmp_path: Path, tools: Sequence[Any], **calls: Any) -> AsyncGenerator[Bridge]:
    config: dict[str, Any] = {"store": {"path": str(tmp_path / "store.db")}, "calls": {"max_queued": 500, **calls}}
    async with Bridge.open(config, tools=tools, remember=False) as bridge:
        yield bridge


KINDS = ("directly", "through", "turn")


def works(depth: int) -> Any:
    names = st.integers(0, 3).map(lambda number: f"tool{number}")
    calls = (
        st.just([]) if not depth else st.lists(st.tuples(names, st.sampled_from(KINDS), works(depth - 1)), max_size=2)
    )
    return st.fixed_dictionaries({"calls": calls, "at_once": st.booleans()})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    roots=st.lists(st.tuples(st.integers(0, 3), works(3)), min_size=1, max_size=4),
    places=st.lists(st.integers(1, 2), min_size=4, max_size=4),
    changing=st.lists(st.booleans(), min_size=4, max_size=4),
    per_client=st.integers(0, 2),
    batch=st.integers(1, 3),
)
async def test_calls_of_any_nesting_end(
    tmp_path_factory: pytest.TempPathFactory,
    roots: list[tuple[int, Work]],
    places: list[int],
    changing: list[bool],
    per_client: int,
    batch: int,
) -> None:
    """By tools in the loop and in threads, directly, through `call_tool` and as turns of a model; by several users."""

    async def one(kind: str, name: str, work: Work) -> None:
        arguments = {"work": work}
        if kind == "through":
            result = await bridge.call_tool("call_tool", {"name": name, "arguments": arguments})
            assert not result.is_error, result.text
        elif kind == "turn":
            for made in await bridge.call_tools([{"name": name, "arguments": arguments}] * 2):
                assert not made.is_error, made.text
        else:
            result = await bridge.call_tool(name, arguments)
            assert not result.is_error, result.text

    async def do(work: Work) -> None:
        inner = [one(kind, name, more) for name, kind, more in work["calls"]]
        if work["at_once"]:
            await asyncio.gather(*inner)
        else:
            for each in inner:
                await each

    def made(number: int) -> Any:
        hints = {"readOnlyHint": not changing[number]}
        if number == 3:

            @tool(name="tool3", annotations=hints, max_concurrent=places[number])
            def in_thread(work: dict[str, Any]) -> str:
                asyncio.run_coroutine_threadsafe(do(work), loop).result()
                return "done"

            return in_thread

        @tool(name=f"tool{number}", annotations=hints, max_concurrent=places[number])
        async def in_loop(work: dict[str, Any]) -> str:
            await do(work)
            return "done"

        return in_loop

    loop = asyncio.get_running_loop()
    tools, calls = [made(number) for number in range(4)], {"max_per_client": per_client, "batch": batch}
    async with opened(tmp_path_factory.mktemp("nested"), tools, **calls) as bridge:
        with anyio.fail_after(60):
            users = [
                bridge.call_tool(f"tool{number}", {"work": work}, user=f"user{at % 2}")
                for at, (number, work) in enumerate(roots)
            ]
            for result in await asyncio.gather(*users):
                assert not result.is_error, result.text
