"""Promise of `pipeline/stages/concurrency_limit.py`: no two calls ever wait for one another, also nested ones."""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge import Bridge, SyncBridge, tool
from mcpbridge.library.agent.models.model import ModelRequest
from mcpbridge.pipeline.hooks.call import HookCall, after, before
from mcpbridge.sandbox.python.program import LIVE, why_none

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


@pytest.mark.skipif(bool(why_none()), reason="needs the extra `code`")
async def test_a_tool_runs_a_program_while_all_others_wait_for_that_tool(tmp_path: Path) -> None:
    """The programs that run wait for the one place of the tool, and its program must not wait for theirs."""
    is_held, all_run, running = asyncio.Event(), asyncio.Event(), itertools.count(1)

    @writer("hold")
    async def hold(program: bool = False) -> str:
        if not program:
            return "held"
        is_held.set()
        await all_run.wait()
        return (await bridge.call_tool("run_code", {"code": "1 + 1"}, user="inner")).text

    @tool(name="begun", annotations={"readOnlyHint": True})
    async def begun() -> str:
        if next(running) == LIVE:
            all_run.set()
        return ""

    config = {"store": {"path": str(tmp_path / "store.db")}, "code": {"enabled": True}}
    async with Bridge.open(config, tools=[hold, begun], remember=False) as bridge:
        with anyio.fail_after(60):
            holding = asyncio.create_task(bridge.call_tool("hold", {"program": True}))
            await is_held.wait()
            code = {"code": "await begun()\nawait hold()"}
            programs = [bridge.call_tool("run_code", code, user=f"user{number}") for number in range(LIVE)]
            results = await asyncio.gather(holding, *programs)
            assert [result.text for result in results] == ["2", *["held"] * LIVE]


@asynccontextmanager
async def opened(tmp_path: Path, tools: Sequence[Any], **calls: Any) -> AsyncGenerator[Bridge]:
    config: dict[str, Any] = {"store": {"path": str(tmp_path / "store.db")}, "calls": {"max_queued": 500, **calls}}
    async with Bridge.open(config, tools=tools, remember=False) as bridge:
        yield bridge


KINDS = ("directly", "through", "turn", "program", "agent", "run")
"""How a tool calls others: as a program does, through `call_tool`, in a turn of a model, in a program of code mode,
through an agent of the user's own, and in a run of a model."""

Calls = list[tuple[int, str, Work]]
"""The number of the tool, how it is called, and the work it is called with."""


def calls(depth: int, most: int, kinds: Sequence[str]) -> st.SearchStrategy[Calls]:
    if not depth:
        return st.just([])
    return st.lists(st.tuples(st.integers(0, 3), st.sampled_from(kinds), works(depth - 1, kinds)), max_size=most)


def works(depth: int, kinds: Sequence[str]) -> st.SearchStrategy[Work]:
    """`before` and `after` are calls that hooks make."""
    hooked = st.just([]) | calls(depth, 1, kinds)
    return st.fixed_dictionaries(
        {"calls": calls(depth, 2, kinds), "at_once": st.booleans(), "before": hooked, "after": hooked}
    )


def without_programs(work: Work) -> Work:
    """The work as a program can give it on: JSON, without further programs, since no program may start another."""
    plain = {name: without_programs_in(work[name]) for name in ("calls", "before", "after")}
    return {"at_once": work["at_once"], **plain}


def without_programs_in(made: Calls) -> list[Any]:
    return [[number, "directly" if kind == "program" else kind, without_programs(work)] for number, kind, work in made]


@pytest.mark.skipif(bool(why_none()), reason="needs the extra `code`")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    roots=st.lists(st.tuples(st.integers(0, 3), works(2, KINDS) | works(3, KINDS[:3])), min_size=1, max_size=4),
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
    """By tools in the loop and in threads, hooks, programs, agents and runs of models; by several users."""

    async def one(number: int, kind: str, work: Work) -> None:
        name, arguments = f"tool{number}", {"work": work}
        match kind:
            case "through":
                results = [await bridge.call_tool("call_tool", {"name": name, "arguments": arguments})]
            case "turn":
                results = await bridge.call_tools([{"name": name, "arguments": arguments}] * 2)
            case "program":
                call = f"{name}(work={without_programs(work)})"
                code = f"import asyncio\nawait asyncio.gather({call}, {call})"
                results = [await bridge.call_tool("run_code", {"code": code}, user=f"programmer{next(numbers)}")]
            case "agent":
                results = [await bridge.call_tool("helper", {"message": "", "data": {"call": (number, work)}})]
            case "run":
                outcome = await bridge.run(TwoCalls(name, arguments), HELLO)
                assert (outcome.status, len(outcome.results)) == ("done", 2)
                results = list(outcome.results)
            case _:
                results = [await bridge.call_tool(name, arguments)]
        for result in results:
            assert not result.is_error, result.text

    async def do(made: Calls, *, at_once: bool = False) -> None:
        inner = [one(*call) for call in made]
        if at_once:
            await asyncio.gather(*inner)
        else:
            for each in inner:
                await each

    async def helper(message: dict[str, Any]) -> str:
        number, work = message["data"]["call"]
        await one(number, "directly", work)
        return "helped"

    @before(tools="tool*", timeout=None)
    async def calls_before(call: HookCall) -> None:
        await do(call.arguments["work"]["before"])

    @after(tools="tool*", timeout=None)
    async def calls_after(call: HookCall) -> None:
        assert call.error is None
        await do(call.arguments["work"]["after"])

    def made(number: int) -> Any:
        hints = {"readOnlyHint": not changing[number]}
        if number == 3:

            @tool(name="tool3", annotations=hints, max_concurrent=places[number])
            def in_thread(work: dict[str, Any]) -> str:
                asyncio.run_coroutine_threadsafe(do(work["calls"], at_once=work["at_once"]), loop).result()
                return "done"

            return in_thread

        @tool(name=f"tool{number}", annotations=hints, max_concurrent=places[number])
        async def in_loop(work: dict[str, Any]) -> str:
            await do(work["calls"], at_once=work["at_once"])
            return "done"

        return in_loop

    loop, numbers = asyncio.get_running_loop(), itertools.count()
    config: dict[str, Any] = {
        "store": {"path": str(tmp_path_factory.mktemp("nested") / "store.db")},
        "calls": {"max_queued": 500, "max_per_client": per_client, "batch": batch},
        "code": {"enabled": True},
        "tools": {"helper": {"agent": f"{AGENTS}:helper"}},
    }
    hooks, tools = [calls_before, calls_after], [made(number) for number in range(4)]
    with module_with(helper=helper):
        async with Bridge.open(config, tools=tools, hooks=hooks, remember=False) as bridge:
            with anyio.fail_after(60):
                users = [
                    bridge.call_tool(f"tool{number}", {"work": work}, user=f"user{at % 2}")
                    for at, (number, work) in enumerate(roots)
                ]
                for result in await asyncio.gather(*users):
                    assert not result.is_error, result.text


AGENTS = "agents_of_nested_calls"
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Call it."}]


@contextmanager
def module_with(**names: Any) -> Generator[None]:
    """A module for the names that a configuration gives."""
    module = sys.modules[AGENTS] = ModuleType(AGENTS)
    vars(module).update(names)
    try:
        yield
    finally:
        del sys.modules[AGENTS]


class TwoCalls:
    """A model that calls one tool twice, side by side, and is done."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self._call = {"name": name, "arguments": json.dumps(arguments)}

    async def __call__(self, request: ModelRequest, /) -> Any:
        calls = [{"id": str(number), "type": "function", "function": self._call} for number in range(2)]
        message = {"content": None, "tool_calls": calls} if request.round == 1 else {"content": "Done."}
        return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]}
