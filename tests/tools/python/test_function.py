"""Functions as tools: what they return, yield and raise, and what becomes of calls that nobody wants any more."""

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import anyio
import pytest
from pydantic import BaseModel, ValidationError

from mcpbridge.base.errors import ConfigError, Overloaded, ToolInactive, UpstreamGone, UpstreamUnavailable
from mcpbridge.core.context import CallContext
from mcpbridge.tools.python.function import FunctionBackend
from mcpbridge.tools.python.output import Result
from mcpbridge.tools.python.settings import FunctionSettings
from support.backends.backend_calls import SECRET, call_of, found, made, result, text_of, until


class Weather(TypedDict):
    high: float


@asynccontextmanager
async def running(function: Callable[..., Any], **settings: Any) -> AsyncGenerator[FunctionBackend]:
    backend = FunctionBackend.of(function, name="tool", settings=FunctionSettings(**settings))
    async with found(backend):
        yield backend


async def of(function: Callable[..., Any], arguments: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    async with running(function, **settings) as backend:
        return await result(backend, "tool", arguments or {})


async def test_sync_ones_run_in_threads_and_async_ones_on_the_loop() -> None:
    here = threading.get_ident()

    def sync() -> bool:
        return threading.get_ident() == here

    async def asynchronous() -> bool:
        return threading.get_ident() == here

    assert text_of(await of(sync)) == "false"
    assert text_of(await of(asynchronous)) == "true"
    assert text_of(await of(partial(lambda make: make(), asynchronous))) == "true"


async def test_a_sync_one_does_not_hold_up_others() -> None:
    go = threading.Event()

    def wait() -> str:
        return "went on" if go.wait(60) else "held up"

    async with running(wait) as backend:
        first = asyncio.create_task(result(backend, "tool", {}))
        await until(lambda: any(one.name == "tool tool" for one in threading.enumerate()))
        go.set()
        assert text_of(await first) == "went on"


async def test_progress_comes_before_the_result_and_counts_on() -> None:
    def steps() -> Generator[Any, None, str]:
        yield "one"
        yield {"message": "two", "progress": 5, "total": 10}
        yield {"rows": 3}
        return "done"

    heard: list[dict[str, Any]] = []
    async with running(steps) as backend:
        found = (await backend.run(call_of("tool", {}, heard))).value()
    assert text_of(found) == "done"
    assert heard == [
        {"method": "notifications/progress", "progress": 1, "message": "one"},
        {"method": "notifications/progress", "progress": 5, "total": 10, "message": "two"},
        {
            "method": "notifications/progress",
            "progress": 6,
            "message": '{"rows":3}',
            "_meta": {"mcpbridge/event": {"rows": 3}},
        },
    ]


async def test_async_generators_give_a_result_or_their_last_event() -> None:
    closed: list[str] = []

    async def marked() -> AsyncGenerator[Any]:
        try:
            yield "one"
            yield Result({"high": 3})
            yield "never"
        finally:
            closed.append("marked")

    async def unmarked() -> AsyncGenerator[Any]:
        yield "one"
        yield {"high": 4}

    assert (await of(marked))["structuredContent"] == {"high": 3}
    assert closed == ["marked"]
    assert (await of(unmarked))["structuredContent"] == {"high": 4}


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_event_that_the_schema_does_not_allow_fails_the_call(*, is_async: bool) -> None:
    closed: list[bool] = []

    def sync() -> Generator[Any]:
        try:
            yield {"step": 1}
            yield {"step": "two"}
        finally:
            closed.append(True)

    async def asynchronous() -> AsyncGenerator[Any]:
        try:
            yield {"step": 1}
            yield {"step": "two"}
        finally:
            closed.append(True)

    schema = {"type": "object", "properties": {"step": {"type": "integer"}}}
    found = await of(asynchronous if is_async else sync, event_schema=schema)
    assert found["isError"]
    assert "event schema: step:" in text_of(found)
    assert closed == [True]


async def test_a_long_stream_of_events_is_told_without_heaping_up() -> None:
    def many() -> Generator[int, None, str]:
        yield from range(1, 3001)
        return "done"

    heard: list[dict[str, Any]] = []
    async with running(many) as backend:
        assert text_of((await backend.run(call_of("tool", {}, heard))).value()) == "done"
    assert [one["progress"] for one in heard] == list(range(1, 3001))


async def test_what_it_raises_is_a_result_without_traceback_and_secrets() -> None:
    def fail() -> None:
        raise ValueError(f"wrong key {SECRET}")

    backend = FunctionBackend.of(fail, name="tool", backend_context=made_around())
    async with found(backend):
        failed = await result(backend, "tool", {})
    assert failed == {"content": [{"type": "text", "text": "ValueError: wrong key [redacted]"}], "isError": True}


def made_around() -> Any:
    from mcpbridge.tools.backend import BackendContext

    return BackendContext(None, lambda text: text.replace(SECRET, "[redacted]"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError"),
        (ExceptionGroup("some", [KeyError("x")]), "KeyError: 'x'"),
        (TimeoutError("slow"), "TimeoutError: slow"),
        (StopIteration("odd"), "StopIteration"),
        (RuntimeError("x" * 5000), "…"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_nothing_that_it_raises_gets_out(error: BaseException, told: str, *, is_async: bool) -> None:
    async def asynchronous() -> None:
        raise error

    def sync() -> None:
        raise error

    failed = await of(asynchronous if is_async else sync)
    assert failed["isError"]
    assert told in text_of(failed)
    assert len(text_of(failed)) < 2100


async def test_errors_of_the_bridge_pass_as_they_are() -> None:
    async def inactive() -> None:
        raise ToolInactive("tool", "no key", "Set KEY.")

    with pytest.raises(ToolInactive):
        await of(inactive)


async def test_results_are_held_to_the_schema() -> None:
    def right() -> Weather:
        return {"high": 1.5}

    def wrong() -> Weather:
        return {"low": 1}  # type: ignore[typeddict-item]

    async with running(right) as backend:
        assert backend.tools[0]["outputSchema"]["required"] == ["high"]
        assert (await result(backend, "tool", {}))["structuredContent"] == {"high": 1.5}
    failed = await of(wrong)
    assert failed["isError"]
    assert "does not fit the output schema" in text_of(failed)


async def test_an_output_schema_of_no_object_is_wrapped() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    async with running(lambda: [1, 2], output_schema=schema) as backend:
        assert backend.tools[0]["outputSchema"]["properties"]["result"] == schema
        assert (await result(backend, "tool", {}))["structuredContent"] == {"result": [1, 2]}
    assert (await of(lambda: ["x"], output_schema=schema))["isError"]


async def test_a_cancelled_coroutine_cleans_up() -> None:
    at: list[str] = []
    begun = asyncio.Event()

    async def wait() -> None:
        try:
            begun.set()
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            at.append("cleaned up")

    async with running(wait) as backend:
        task = asyncio.create_task(backend.run(call_of("tool", {})))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert at == ["cleaned up"]


async def test_a_cancelled_generator_in_a_thread_is_closed() -> None:
    closed, begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def endless() -> Generator[int]:
        try:
            number = 0
            while True:
                number += 1
                yield number
                loop.call_soon_threadsafe(begun.set)
        finally:
            closed.set()

    async with running(endless) as backend:
        task = asyncio.create_task(backend.run(call_of("tool", {})))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        await until(closed.is_set)


async def test_a_repeated_call_is_not_cancelled_because_the_first_try_was() -> None:
    """The stages above may try one call again."""
    seen: list[bool] = []
    begun = asyncio.Event()

    async def look(context: CallContext) -> None:
        seen.append(context.cancelled)
        begun.set()
        if len(seen) == 1:
            await asyncio.sleep(3600)

    async with running(look) as backend:
        call = call_of("tool", {})
        first = asyncio.create_task(backend.run(call))
        await begun.wait()
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        await backend.run(call)
    assert seen == [False, False]


async def test_threads_that_nobody_waits_for_are_bounded_and_end_nothing() -> None:
    release = threading.Event()
    begun: list[int] = []

    def deaf() -> None:
        begun.append(1)
        release.wait(30)

    try:
        async with running(deaf, max_concurrent=1) as backend:
            for number in (1, 2):
                task = asyncio.create_task(backend.run(call_of("tool", {})))
                await until(lambda number=number: len(begun) == number)  # type: ignore[misc]
                task.cancel()
                await asyncio.wait([task])
            with pytest.raises(Overloaded, match="nobody waits for"):
                await backend.run(call_of("tool", {}))
            release.set()
            await until(lambda: not any(one.name == "tool tool" for one in threading.enumerate()))
            await backend.run(call_of("tool", {}))
    finally:
        release.set()


async def test_leaving_ends_calls_under_way() -> None:
    async def wait() -> None:
        await asyncio.sleep(3600)

    async with running(wait) as backend:
        task = asyncio.create_task(backend.run(call_of("tool", {})))
        await asyncio.sleep(0)
    with pytest.raises(UpstreamGone):
        await task
    with pytest.raises(UpstreamUnavailable):
        await backend.run(call_of("tool", {}))


async def test_what_does_not_heed_the_end_holds_nothing_up() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def deaf() -> None:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                pass

    with anyio.fail_after(60):
        async with running(deaf) as backend:
            task = asyncio.create_task(backend.run(call_of("tool", {})))
            await begun.wait()
    go.set()
    assert text_of((await task).value()) == ""


def test_a_thread_that_never_ends_does_not_keep_the_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, threading\n"
        "from mcpbridge.tools.python.function import FunctionBackend\n"
        "from mcpbridge.core.model import Call\n"
        "from mcpbridge.protocol.body import Body\n"
        "begun = threading.Event()\n"
        "def deaf():\n    begun.set()\n    threading.Event().wait()\n"
        "async def main():\n"
        "    backend = FunctionBackend.of(deaf)\n"
        "    async with backend.running(lambda: None):\n"
        "        task = asyncio.create_task(backend.run(Call('tools/call', 'tools', 'deaf', Body())))\n"
        "        await asyncio.to_thread(begun.wait)\n"
        "        task.cancel()\n"
        "asyncio.run(main())\nprint('over')\n"
    )
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.endswith("over\n"), ended.stderr
    assert ended.returncode == 0


# -- those that the configuration names


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(:\n", r"mod_\d+\.py:1: SyntaxError"),
        ("x = 1\nimport nothing_like_this\n", r"mod_\d+\.py:2: ModuleNotFoundError: .*nothing_like_this"),
        ("\n\nraise SystemExit(3)\n", r"mod_\d+\.py:3: SystemExit: 3"),
        ("def g(): ...\n", r"mod_\d+\.py has no 'f'"),
        ("f = 3\n", "it is no function but int"),
        ("def f(*a): ...\n", "`\\*a` has no name"),
        ("def f(a: 'b.c'): ...\nb = 3\n", "AttributeError"),
        (f"raise ValueError('{SECRET}')\n", r"ValueError: \[redacted\]"),
    ],
)
async def test_what_cannot_be_imported_says_where_and_why_and_can_be_mended(
    text: str, told: str, tmp_path: Path
) -> None:
    module = f"mod_{time.monotonic_ns()}"
    file = tmp_path / f"{module}.py"
    file.write_text(text)
    backend = made("tool", "function", tmp_path, function=f"{module}:f")
    async with found(backend, "failed") as changes:
        assert backend.condition.reason
        assert re.search(told, backend.condition.reason), backend.condition.reason
        assert SECRET not in backend.condition.reason
        assert backend.tools == []
        assert not (await backend.check()).ok
        file.write_text("def f(n: int) -> int:\n    return n + 1\n# and so that its size differs: " + "x" * len(text))
        before = changes()
        assert (await backend.check()).ok
        assert changes() == before + 1
        assert text_of(await result(backend, "tool", {"n": 1})) == "2"
    sys.modules.pop(module, None)


async def test_a_module_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    backend = made("tool", "function", tmp_path, function="nothing_like_this.at_all:f")
    async with found(backend, "failed"):
        assert "no module is called 'nothing_like_this'" in backend.condition.reason
        assert str(tmp_path) in backend.condition.reason


async def test_its_directory_is_searched_while_it_runs_and_last(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise ValueError('not meant')\n")
    module = f"beside_{time.monotonic_ns()}"
    (tmp_path / f"{module}.py").write_text("import json\ndef f():\n    return json.dumps([1])\n")
    one, other = (made("tool", "function", tmp_path, function=f"{module}:f") for _ in range(2))
    async with found(one):
        async with found(other):
            assert sys.path[-1] == str(tmp_path)
        assert sys.path.count(str(tmp_path)) == 1
        assert text_of(await result(one, "tool", {})) == "[1]"
    assert str(tmp_path) not in sys.path
    sys.modules.pop(module, None)


async def test_an_import_that_takes_its_time_holds_up_nobody(tmp_path: Path) -> None:
    module = f"slow_{time.monotonic_ns()}"
    (tmp_path / f"{module}.py").write_text("import threading\nthreading.Event().wait(20)\n")
    backend = made("tool", "function", tmp_path, function=f"{module}:f")
    with anyio.fail_after(10):
        async with backend.running(lambda: None):
            assert backend.condition.state == "starting"
            with pytest.raises(UpstreamUnavailable, match="still being imported"):
                await backend.run(call_of("tool", {}))


@pytest.mark.parametrize("name", ["f", "mod.f", "mod:", ":f", "mod:f()", "mod:f;x", "mod:f\n", "a b:c", "localhost:80"])
def test_what_names_no_function_is_no_setting(name: str) -> None:
    with pytest.raises(ValidationError, match="function"):
        FunctionSettings(function=name)


class Model(BaseModel):
    high: int


async def test_what_is_said_by_hand_comes_first() -> None:
    def tell(n: int) -> Model:
        """Not this."""
        return Model(high=n)

    async with running(tell, description="This.", annotations={"readOnlyHint": True}) as backend:
        tool = backend.tools[0]
        assert (tool["description"], tool["annotations"]) == ("This.", {"readOnlyHint": True})
    for key, told in {
        "event_schema": "its `event_schema` is none",
        "output_schema": "its output schema is none",
    }.items():
        with pytest.raises(ConfigError, match=f"'tool' cannot be a tool: {told}"):
            FunctionBackend.of(tell, name="tool", settings=FunctionSettings.model_validate({key: {"type": "nothing"}}))
