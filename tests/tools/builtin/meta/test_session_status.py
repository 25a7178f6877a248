"""`brief`, `pulse`, `task-complete`, `final-answer` (issue 8)."""

from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge


def settings(*names: str, **more: Any) -> Settings:
    return Settings.model_validate({"builtin": {"enable": list(names)}, **more})


async def listed(bridge: Bridge) -> set[str]:
    return {tool["name"] for tool in (await bridge.request("tools/list", {}))["tools"]}


async def test_they_are_there_where_they_are_enabled() -> None:
    async with Bridge(settings()) as bridge:
        assert not {"brief", "pulse", "final-answer"} & await listed(bridge)
    async with Bridge(settings("brief", "context-status")) as bridge:
        assert {"brief", "context-status"} <= await listed(bridge)


async def test_pulse_tells_of_the_session_that_asks() -> None:
    async with Bridge(settings("pulse", "final-answer")) as bridge:
        for _ in range(2):
            await bridge.request("tools/call", {"name": "final-answer", "arguments": {"format": "odd"}}, user="ann")
        ann = await bridge.request("tools/call", {"name": "pulse", "arguments": {}}, user="ann")
        bob = await bridge.request("tools/call", {"name": "pulse", "arguments": {}}, user="bob")
        assert ann["structuredContent"]["calls"] == 2
        assert ann["structuredContent"]["errors"] == 2
        assert ann["structuredContent"]["tokens"] > 0
        assert bob["structuredContent"]["calls"] == 0


async def test_brief_tells_what_there_is() -> None:
    limits = {"calls": {"max_calls": 7, "rate_limit": "30/min"}}
    async with Bridge(settings("brief", "pulse", **limits)) as bridge:
        result = await bridge.request("tools/call", {"name": "brief", "arguments": {}})
        told = result["structuredContent"]
        assert told["tools"] == 0
        assert told["limits"]["calls_in_all"] == 7
        assert "calls in all 7" in result["content"][0]["text"]
        pulse = await bridge.request("tools/call", {"name": "pulse", "arguments": {}})
        assert pulse["structuredContent"]["calls_left"] == 5  # it is one of the two that were made


@pytest.mark.parametrize("name", ["pulse", "context-status"])
@pytest.mark.parametrize("most", [1, 2, 3, 5])
async def test_so_many_calls_are_left_as_it_says(name: str, most: int) -> None:
    """docs/reference/builtin.md: calls left. The last one that is allowed says 0, and the next one is refused."""
    async with Bridge(settings(name, "task-complete", calls={"max_calls": most})) as bridge:
        left: list[int] = []
        for _ in range(most):
            told = await bridge.request("tools/call", {"name": name, "arguments": {}})
            left.append(told["structuredContent"]["calls_left"])
        assert left == list(range(most - 1, -1, -1))
        refused = await bridge.request("tools/call", {"name": name, "arguments": {}})
        assert refused["_meta"]["mcpbridge/error"] == "BudgetSpent"


async def test_calls_that_run_at_the_moment_are_not_left() -> None:
    begun, end = anyio.Event(), anyio.Event()

    async def waits() -> str:
        begun.set()
        await end.wait()
        return "done"

    config = {"builtin": {"enable": ["pulse"]}, "calls": {"max_calls": 4}}
    async with Bridge.open(config, tools=[waits], remember=False) as bridge, anyio.create_task_group() as tasks:
        tasks.start_soon(bridge.request, "tools/call", {"name": "waits", "arguments": {}})
        with anyio.fail_after(30):
            await begun.wait()
            told = await bridge.request("tools/call", {"name": "pulse", "arguments": {}})
        assert told["structuredContent"]["calls_left"] == 2
        end.set()


async def test_a_final_answer_reaches_the_program() -> None:
    async with Bridge(settings("final-answer", "task-complete")) as bridge:
        events = bridge.events.subscribe()
        said = {"answer": {"total": 3}, "format": "json", "confidence": 0.8}
        result = await bridge.request("tools/call", {"name": "final-answer", "arguments": said})
        assert result["structuredContent"] == said
        with anyio.fail_after(30):
            async for event in events:
                if event.name == "deliverable":
                    assert event.data == {"tool": "final-answer", **said}
                    break
        refused = await bridge.request("tools/call", {"name": "final-answer", "arguments": {"confidence": 2}})
        assert refused["isError"]
        done = await bridge.request("tools/call", {"name": "task-complete", "arguments": {"summary": "All of it"}})
        assert done["structuredContent"] == {"summary": "All of it", "status": "done"}


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(ValidationError, match="did you mean `web-search`"):
        settings("web_serch")
