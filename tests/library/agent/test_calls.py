"""The calls of one turn: side by side, in their order, a few at a time; and what a program may do about each."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import StoreFailed
from mcpbridge.core.tool_calls_and_results import CallResult, ToolCall
from mcpbridge.library.agent.calls import Finished
from mcpbridge.library.calls.run_events import CallProgress, CallReturned, CallStarted, RunEvent
from support.models.agent_runs import bridge_with, texts


def calls(name: str, *arguments: dict[str, Any]) -> list[ToolCall[Any, Any]]:
    return [ToolCall(name, given) for given in arguments]


async def test_calls_run_side_by_side_and_come_back_in_their_order(tmp_path: Path) -> None:
    second_is_done = asyncio.Event()

    async def meet(number: int) -> int:
        if number == 1:
            await second_is_done.wait()
        else:
            second_is_done.set()
        return number

    heard: list[RunEvent] = []
    with anyio.fail_after(60):
        async with bridge_with(tmp_path, meet) as bridge:
            made = calls("meet", {"number": 1}, {"number": 2})
            results = await bridge.run_tool_calls(made, run="r", on_event=heard.append)
    assert texts(results) == ["1", "2"]
    assert [result.call for result in results] == made
    assert [event.result.text for event in heard if isinstance(event, CallReturned)] == ["2", "1"]
    assert [event.call for event in heard if isinstance(event, CallStarted)] == made


async def test_only_a_few_of_a_turn_run_at_a_time(tmp_path: Path) -> None:
    running: list[int] = []
    most = [0]

    async def work(number: int) -> int:
        running.append(number)
        most[0] = max(most[0], len(running))
        await asyncio.sleep(0)
        running.remove(number)
        return number

    with anyio.fail_after(60):
        async with bridge_with(tmp_path, work, calls={"batch": 2, "max_queued": 1}) as bridge:
            results = await bridge.run_tool_calls(calls("work", *({"number": number} for number in range(12))))
    assert texts(results) == [str(number) for number in range(12)]
    assert most == [2]


async def test_failures_are_contained(tmp_path: Path) -> None:
    def fail(how: str) -> str:
        raise RuntimeError(how)

    async with bridge_with(tmp_path, fail) as bridge:
        wanted = [
            *calls("fail", {"how": "badly"}, {"who": "?"}),
            *calls("nobody", {}),
            ToolCall("fail", {}, problem="The arguments cannot be read."),
            *calls("fail", {"how": object()}),
        ]
        results = await bridge.run_tool_calls(wanted)
    assert [result.is_error for result in results] == [True] * 5
    told = ["badly", "how", "nobody", "The arguments cannot be read.", "no JSON"]
    assert [part in result.text for part, result in zip(told, results, strict=True)] == [True] * 5, texts(results)


async def test_cancelling_a_turn_cancels_its_calls(tmp_path: Path) -> None:
    ended: list[str] = []
    begun = [asyncio.Event(), asyncio.Event()]

    async def wait(number: int) -> str:
        begun[number].set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(str(number))
        return ""

    with anyio.fail_after(60):
        async with bridge_with(tmp_path, wait) as bridge:
            task = asyncio.create_task(bridge.run_tool_calls(calls("wait", {"number": 0}, {"number": 1})))
            for one in begun:
                await one.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sorted(ended) == ["0", "1"]


async def test_what_a_tool_yields_is_heard_as_progress_of_its_call(tmp_path: Path) -> None:
    async def search(query: str) -> Any:
        yield "looking"
        yield {"found": [query]}

    heard: list[RunEvent] = []
    async with bridge_with(tmp_path, search) as bridge:
        wanted = calls("search", {"query": "a"})
        await bridge.run_tool_calls(wanted, on_event=heard.append)
    progress = [event for event in heard if isinstance(event, CallProgress)]
    assert [(event.message, event.event) for event in progress] == [
        ("looking", None),
        ('{"found":["a"]}', {"found": ["a"]}),
    ]
    assert [event.call for event in progress] == wanted * 2


async def test_calls_meet_the_rules_of_the_bridge(tmp_path: Path) -> None:
    """Nothing goes around policy, limits and the rest: the same stages see these calls as any client's."""

    def delete() -> str:
        return "gone"

    denied = [{"tools": ["tools/delete"], "permission": "deny"}]
    async with bridge_with(tmp_path, delete, permissions=denied) as bridge:
        (result,) = await bridge.run_tool_calls(calls("delete", {}))
    assert result.is_error


async def test_a_result_that_cannot_be_kept_is_told_all_the_same() -> None:
    """The run is worth more than the chance to go on with it."""

    class Full:
        async def put(self, *_: Any, **__: Any) -> str:
            raise StoreFailed("the disk is full")

    call = calls("x", {})[0]
    store: Any = Full()
    finished = Finished(store, run="r", user="")
    await finished.keep(finished.handles([call])[0], CallResult([], raw={"content": []}, call=call))
