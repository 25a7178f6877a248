"""What fails in a turn is told, and leaves the program and the other calls as they were."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge import Bridge, ToolCall, tool
from mcpbridge.base.errors import BridgeClosed, BridgeError, ConfigError, UnknownName

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    await asyncio.sleep(0)
    return a + b


@asynccontextmanager
async def bridged(tmp_path: Path) -> AsyncGenerator[Bridge]:
    async with Bridge.open({"store": {"path": str(tmp_path / "s.db")}}, tools=[add], remember=False) as bridge:
        with anyio.fail_after(30):
            yield bridge


@pytest.mark.parametrize("failing", [{1}, {1, 2, 3}, {3}])
@pytest.mark.parametrize("hook", ["on_call", "on_result"])
async def test_a_hook_that_fails_does_not_end_the_program_later(tmp_path: Path, hook: str, failing: set[int]) -> None:
    """Leaving `async with Bridge` raised a `CancelledError` that nobody had asked for."""

    async def fail(one: Any) -> None:
        number = (one if hook == "on_call" else one.call).arguments["a"]
        await asyncio.sleep(0)
        if number in failing:
            raise ValueError(f"hook {number}")

    calls: list[Any] = [ToolCall(name="add", arguments={"a": number, "b": 1}, id=str(number)) for number in range(1, 4)]
    async with bridged(tmp_path) as bridge:
        hooks: dict[str, Any] = {hook: fail}
        with pytest.raises(ValueError, match="hook"):
            await bridge.run_tool_calls(calls, **hooks)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert (await bridge.call_tool("add", {"a": 1, "b": 2})).text == "3"


class Nothing:
    """A value that has no JSON form."""


@pytest.mark.parametrize("wrong", [Nothing(), {1, Nothing()}, {"deep": [Nothing()]}, lambda: 1, object])
@pytest.mark.parametrize("at", [0, 1, 2])
async def test_an_argument_that_is_no_json_costs_its_own_call_alone(tmp_path: Path, wrong: Any, at: int) -> None:
    """Promise of `Bridge.call_tools`: one that fails is no concern of the others."""
    calls: list[dict[str, Any]] = [{"name": "add", "arguments": {"a": number, "b": 1}} for number in range(3)]
    calls[at]["arguments"]["a"] = wrong
    async with bridged(tmp_path) as bridge:
        results = await bridge.call_tools(calls)
        assert [result.is_error for result in results] == [number == at for number in range(3)]
        assert "no JSON" in results[at].text
        again = await bridge.run_tool_calls(
            [ToolCall(name=call["name"], arguments=call["arguments"]) for call in calls]
        )
        assert [result.is_error for result in again] == [result.is_error for result in results]
        assert {type(result) for result in (*again, *results)} == {type(again[0])}, "both give the same type"


async def test_what_is_wrong_for_all_calls_is_raised(tmp_path: Path) -> None:
    async with bridged(tmp_path) as bridge:
        with pytest.raises(ConfigError):
            await bridge.call_tools([{"name": "add"}], user="x" * 300)
    with pytest.raises(BridgeClosed):
        await bridge.call_tools([{"name": "add"}])


@pytest.mark.parametrize(("user", "advice"), [("", "No user is named: give `user=…`"), ("ann", "user 'ann'")])
async def test_resuming_a_call_that_is_not_found_says_whose_were_looked_for(
    tmp_path: Path, user: str, advice: str
) -> None:
    async with bridged(tmp_path) as bridge:
        with pytest.raises(UnknownName) as refused:
            await bridge.resume("nope", 1, user=user)
    assert advice in refused.value.full_message()


@pytest.mark.parametrize("times", [1, 3])
async def test_calls_of_unknown_tools_are_counted_without_their_names(tmp_path: Path, times: int) -> None:
    """Names are the clients' to choose: each would be a series of its own."""
    async with bridged(tmp_path) as bridge:
        for number in range(times):
            with pytest.raises(BridgeError, match="Unknown tool"):
                await bridge.call_tool(f"nothing{number}")
        await bridge.call_tool("add", {"a": 1, "b": 2})
        [unknown] = [one for key, one in bridge.metrics.by_tool().items() if key == ("mcpbridge", "", "tools/call")]
        assert unknown.calls == times
        assert not any("nothing" in str(key) for key in bridge.metrics.by_tool())
