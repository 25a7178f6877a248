"""What every backend promises (`tools/backend.py`), whatever kind it is of."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import pytest

from mcpbridge.base.errors import BridgeError, UnknownName
from support.backends.backend_calls import call_of, text_of, until
from support.backends.backend_case import BackendCase
from support.backends.kinds import KINDS, Factory

SECONDS = 60.0
"""In which everything that should happen soon must have happened; generous, for busy machines."""

STOP_SECONDS = 30.0


@pytest.fixture(params=sorted(KINDS))
def factory(request: pytest.FixtureRequest) -> Factory:
    return KINDS[request.param]


async def ready(case: BackendCase) -> None:
    await until(lambda: case.backend.condition.state != "starting", SECONDS)
    assert case.backend.condition.state == "ready", case.backend.condition.reason


async def called(case: BackendCase, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    with anyio.fail_after(SECONDS):
        return (await case.backend.run(call_of(tool or case.tool, dict(arguments)))).value()


def children() -> set[str]:
    """Processes that this one started and that have not ended."""
    found: set[str] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError):  # a thread that ended just now
            found.update(task.read_text().split())
    return found


async def test_it_is_made_without_touching_anything_and_runs_at_once(factory: Factory, tmp_path: Path) -> None:
    async with factory(tmp_path) as case:
        kinds = "function executor manual human http openapi grpc command agent pack"
        assert case.backend.kind in kinds.split()
        assert case.backend.condition.state in ("starting", "ready")
        loop = asyncio.get_running_loop()
        turns = 0

        def count() -> None:
            nonlocal turns, going
            turns += 1
            going = loop.call_soon(count)

        going = loop.call_soon(count)
        async with case.backend.running(lambda: None):
            assert turns < 100  # it waits for nothing that takes its time
            going.cancel()
            await ready(case)


async def test_it_tells_when_it_is_ready_and_its_tools_are_fit_to_be_listed(factory: Factory, tmp_path: Path) -> None:
    async with factory(tmp_path) as case:
        told: list[str] = []
        before = case.backend.condition.state
        async with case.backend.running(lambda: told.append(case.backend.condition.state)):
            await ready(case)
            if before == "starting" and case.backend.condition.state == "ready":
                await until(lambda: bool(told), SECONDS)
            names = [tool["name"] for tool in case.backend.tools]
            assert case.tool in names
            assert len(set(names)) == len(names)
            for tool in case.backend.tools:
                assert tool["inputSchema"]["type"] == "object"
                jsonschema_rs.validator_for(tool["inputSchema"])
                if "outputSchema" in tool:
                    assert tool["outputSchema"]["type"] == "object"
                    jsonschema_rs.validator_for(tool["outputSchema"])
                assert isinstance(tool.get("description", ""), str)


async def test_a_call_gives_its_result_and_calls_side_by_side_do_too(factory: Factory, tmp_path: Path) -> None:
    async with factory(tmp_path) as case, case.backend.running(lambda: None):
        await ready(case)
        results = await asyncio.gather(*(called(case, "", case.arguments) for _ in range(3)))
        for result in results:
            assert not result.get("isError"), result
            assert case.expected in text_of(result)
        definition = next(tool for tool in case.backend.tools if tool["name"] == case.tool)
        if "outputSchema" in definition:
            jsonschema_rs.validate(definition["outputSchema"], results[0]["structuredContent"])


async def test_a_call_that_fails_says_why_and_the_next_one_works(factory: Factory, tmp_path: Path) -> None:
    async with factory(tmp_path) as case, case.backend.running(lambda: None):
        await ready(case)
        if case.failing_arguments is None:
            pytest.skip("no call of this kind fails by itself")
        try:
            result = await called(case, case.failing_tool, case.failing_arguments)
            assert result["isError"] is True
            said = text_of(result)
        except BridgeError as error:
            said = error.full_message()
        assert said.strip()
        assert "Traceback" not in said
        assert not any(secret in said for secret in case.forbidden)
        assert case.expected in text_of(await called(case, "", case.arguments))


async def test_a_cancelled_call_ends_and_leaves_nothing(factory: Factory, tmp_path: Path) -> None:
    async with factory(tmp_path) as case, case.backend.running(lambda: None):
        await ready(case)
        if case.slow_arguments is None:
            pytest.skip("no call of this kind is slow")
        before = children()
        slow = asyncio.create_task(case.backend.run(call_of(case.slow_tool or case.tool, dict(case.slow_arguments))))
        if case.begun is not None:
            with anyio.fail_after(SECONDS):
                await case.begun()
        slow.cancel()
        with anyio.fail_after(STOP_SECONDS):
            await asyncio.wait([slow])
        assert slow.cancelled()
        if case.is_over is not None:
            await until(case.is_over, SECONDS)
        await until(lambda: children() <= before, SECONDS)
        assert case.expected in text_of(await called(case, "", case.arguments))


def own_threads() -> set[threading.Thread]:
    """But those of the pools of event loops, which look names up and stay for the next look."""
    return {one for one in threading.enumerate() if not one.name.startswith("asyncio_")}


async def test_leaving_it_ends_its_calls_and_all_that_it_holds(factory: Factory, tmp_path: Path) -> None:
    """In seconds, even with a call under way."""
    async with factory(tmp_path) as case:
        threads, before = own_threads(), children()
        tasks = asyncio.all_tasks()
        slow: asyncio.Task[Any] | None = None
        stack = AsyncExitStack()
        await stack.enter_async_context(case.backend.running(lambda: None))
        await ready(case)
        await called(case, "", case.arguments)
        if case.slow_arguments is not None:
            call = call_of(case.slow_tool or case.tool, dict(case.slow_arguments))
            slow = asyncio.create_task(case.backend.run(call))
            if case.begun is not None:
                with anyio.fail_after(SECONDS):
                    await case.begun()
        with anyio.fail_after(STOP_SECONDS):
            await stack.aclose()
        if slow is not None:
            with anyio.move_on_after(STOP_SECONDS):
                await asyncio.wait([slow])
            if not slow.done():  # its caller ends it then
                slow.cancel()
                await asyncio.wait([slow])
            if not slow.cancelled():
                assert isinstance(slow.exception(), BridgeError | None)
        assert case.backend.condition.state != "ready" or case.backend.kind in ("http", "command")
        await until(lambda: children() <= before, SECONDS)
        await until(lambda: asyncio.all_tasks() <= tasks, SECONDS)
        if case.backend.kind not in ("grpc", "command"):  # their libraries keep threads for later
            await until(lambda: len(own_threads() - threads) <= 1, SECONDS)  # that of a slow call ends when it does


async def test_a_backend_that_was_left_can_run_again(factory: Factory, tmp_path: Path) -> None:
    async with factory(tmp_path) as case:
        for _ in range(2):
            async with case.backend.running(lambda: None):
                await ready(case)
                assert case.expected in text_of(await called(case, "", case.arguments))


async def test_looking_at_it_never_raises(factory: Factory, tmp_path: Path) -> None:
    async with factory(tmp_path) as case:
        with anyio.fail_after(SECONDS):
            await case.backend.check()  # even while it does not run
        async with case.backend.running(lambda: None):
            await ready(case)
            with anyio.fail_after(SECONDS):
                health = await case.backend.check()
            assert health.ok, health.detail
            assert health.seconds >= 0
            assert not any(secret in health.detail for secret in case.forbidden)


async def test_a_command_that_it_does_not_have_is_refused(factory: Factory, tmp_path: Path) -> None:
    async with factory(tmp_path) as case, case.backend.running(lambda: None):
        await ready(case)
        with anyio.fail_after(SECONDS), pytest.raises(UnknownName):
            await case.backend.command("no-such-command", {})


async def test_before_it_runs_a_call_fails_as_one_to_a_server_would(factory: Factory, tmp_path: Path) -> None:
    """No hang, and no error of Python's."""
    async with factory(tmp_path) as case:
        with suppress(BridgeError):
            await called(case, "", case.arguments)


async def test_two_of_a_kind_know_nothing_of_each_other(factory: Factory, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with AsyncExitStack() as both, AsyncExitStack() as first:
        one = await both.enter_async_context(factory(tmp_path / "one"))
        other = await both.enter_async_context(factory(tmp_path / "other"))
        await both.enter_async_context(other.backend.running(lambda: None))
        await first.enter_async_context(one.backend.running(lambda: None))
        await ready(one)
        await ready(other)
        results = await asyncio.gather(called(one, "", one.arguments), called(other, "", other.arguments))
        assert one.expected in text_of(results[0])
        assert other.expected in text_of(results[1])
        await first.aclose()
        assert other.expected in text_of(await called(other, "", other.arguments))
