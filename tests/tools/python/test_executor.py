"""Executors: their methods, when they run, and what becomes of what those say."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from mcpbridge.base.errors import ArgumentsRefused, ConfigError, UnknownName, UpstreamError, UpstreamUnavailable
from mcpbridge.core.context import CallContext
from mcpbridge.tools.python.executor import ExecutorBackend
from mcpbridge.tools.python.settings import ExecutorSettings
from support.backends.backend_calls import SECRET, call_of, found, made, result, text_of, until


@asynccontextmanager
async def running(instance: object, **settings: Any) -> AsyncGenerator[ExecutorBackend]:
    backend = ExecutorBackend.of(instance, name="tool", settings=ExecutorSettings(**settings))
    async with found(backend):
        yield backend


class Deployed:
    """Looks things up."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.may_deploy = threading.Event()
        self.fails = 0

    def deploy(self) -> None:
        self.log.append("deploy")
        if self.fails:
            self.fails -= 1
            raise ConnectionError(f"no index {SECRET}")
        assert self.may_deploy.wait(60)

    def execute(self, word: str) -> str:
        self.log.append(f"execute {word}")
        return word.upper()

    def close(self) -> None:
        self.log.append("close")


async def test_it_is_deployed_once_before_the_first_call_whoever_comes() -> None:
    instance = Deployed()
    async with running(instance) as backend:
        assert backend.tools[0]["description"] == "Looks things up."
        assert instance.log == []
        calls = [asyncio.create_task(result(backend, "tool", {"word": word})) for word in "abc"]
        await until(lambda: instance.log == ["deploy"])
        calls[0].cancel()  # that takes it from nobody
        instance.may_deploy.set()
        assert [text_of(one) for one in await asyncio.gather(*calls[1:])] == ["B", "C"]
        assert text_of(await result(backend, "tool", {"word": "d"})) == "D"
    assert instance.log.count("deploy") == 1
    assert instance.log[-1] == "close"


async def test_a_failed_deployment_is_told_and_tried_again() -> None:
    instance = Deployed()
    instance.fails = 1
    instance.may_deploy.set()
    async with running(instance) as backend:
        with pytest.raises(UpstreamUnavailable, match="its `deploy` failed: ConnectionError: no index"):
            await result(backend, "tool", {"word": "a"})
        health = await backend.check()
        assert (health.ok, "ConnectionError" in health.detail) == (False, True)
        assert text_of(await result(backend, "tool", {"word": "a"})) == "A"
        assert (await backend.check()).ok


async def test_what_fails_to_close_ends_all_the_same() -> None:
    class Sticky:
        def execute(self) -> str:
            return "x"

        async def close(self) -> None:
            raise OSError("stuck")

    async with running(Sticky()) as backend:
        assert text_of(await result(backend, "tool", {})) == "x"


class Stopped(BaseException):
    """What no `except Exception` holds up."""


async def cancelled_itself() -> None:
    """Somebody of theirs cancelled what they wait for."""
    work = asyncio.ensure_future(asyncio.sleep(10))
    work.cancel()
    await work


async def stopped() -> None:
    raise Stopped("now")


async def left() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("warm_up", [True, False])
@pytest.mark.parametrize(
    ("fails", "told"),
    [(cancelled_itself, "CancelledError"), (stopped, "Stopped: now"), (left, "SystemExit: 3")],
)
async def test_nothing_that_its_methods_raise_gets_out(
    fails: Callable[[], Awaitable[None]], told: str, *, warm_up: bool
) -> None:
    """Else it would pass for a cancellation of the bridge, or end that, without a word."""

    class Odd:
        is_broken = True
        closed = False

        async def deploy(self) -> None:
            if self.is_broken:
                await fails()

        def execute(self) -> str:
            return "done"

        async def execute_command(self, name: str, data: dict[str, Any]) -> None:
            await fails()

        async def check(self) -> None:
            await fails()

        async def close(self) -> None:
            self.closed = True
            await fails()

    instance = Odd()
    async with running(instance, warm_up=warm_up) as backend:
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable, match=f"`deploy` failed: {told}"):
                await result(backend, "tool", {})
        instance.is_broken = False
        assert text_of(await result(backend, "tool", {})) == "done"
        with pytest.raises(UpstreamError, match=f"the command 'x' failed: {told}"):
            await backend.command("x", {})
        health = await backend.check()
        assert (health.ok, health.detail) == (False, f"its `check` failed: {told}")
        assert text_of(await result(backend, "tool", {})) == "done"
    assert instance.closed


async def test_a_command_that_is_cancelled_is_cancelled() -> None:
    began = asyncio.Event()
    heard: list[str] = []

    class Slow:
        def execute(self) -> None: ...

        async def execute_command(self, name: str, data: dict[str, Any]) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard.append(name)
                raise

    async with running(Slow()) as backend:
        waiting = asyncio.create_task(backend.command("reindex", {}))
        await began.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert heard == ["reindex"]


async def test_it_warms_up_at_the_start_where_that_is_set_and_by_command() -> None:
    instance = Deployed()
    instance.may_deploy.set()
    async with running(instance, warm_up=True):
        await until(lambda: instance.log == ["deploy"])
    other = Deployed()
    other.may_deploy.set()
    async with running(other) as backend:
        assert await backend.command("warmup", {}) is None
        assert other.log == ["deploy"]
        with pytest.raises(UnknownName):
            await backend.command("reindex", {})


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, ""),
        (True, ""),
        ((True, "fine"), ""),
        ([], ""),
        (False, "the tool refuses them"),
        ("too many", "too many"),
        (["a is odd", "b is odd"], "a is odd; b is odd"),
        ((False, "too many"), "too many"),
        ((False, ["x"]), "x"),
        (ValueError("no"), "ValueError: no"),
    ],
)
async def test_what_validation_says_decides(answer: object, told: str) -> None:
    class Checked:
        def validate_inputs(self, number: int) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

        def execute(self, number: int, other: int = 1) -> int:
            return number + other

    async with running(Checked()) as backend:
        if not told:
            assert text_of(await result(backend, "tool", {"number": 1, "other": 2})) == "3"
            return
        with pytest.raises(ArgumentsRefused, match=f"^Invalid arguments: {told}"):
            await result(backend, "tool", {"number": 1})


async def test_validation_may_put_other_arguments_in_place() -> None:
    class Normalizing:
        async def validate_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
            return {"word": inputs["word"].strip()}

        def execute(self, word: str) -> str:
            return f"<{word}>"

    async with running(Normalizing()) as backend:
        assert text_of(await result(backend, "tool", {"word": "  x "})) == "<x>"


async def test_a_broken_validation_is_a_failure_and_no_refusal() -> None:
    class Broken:
        def validate_inputs(self, **inputs: Any) -> None:
            raise ConnectionError("gone")

        def execute(self) -> None: ...

    async with running(Broken()) as backend:
        failed = await result(backend, "tool", {})
        assert failed["isError"]
        assert text_of(failed) == "ConnectionError: gone"


async def test_execute_may_take_one_object_the_context_and_yield() -> None:
    class Plain:
        input_schema: ClassVar[dict[str, Any]] = {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
        }

        def execute(self, task: dict[str, Any], context: CallContext) -> Generator[str, None, dict[str, Any]]:
            yield "begun"
            return {"got": task, "run": bool(context.run)}

    heard: list[dict[str, Any]] = []
    async with running(Plain()) as backend:
        assert backend.tools[0]["inputSchema"] == Plain.input_schema
        found = (await backend.run(call_of("tool", {"a": 1}, heard))).value()
    assert found["structuredContent"] == {"got": {"a": 1}, "run": True}
    assert [one["message"] for one in heard] == ["begun"]


class Managed:
    commands = ("reindex", "fail")

    def __init__(self) -> None:
        self.works: object = None

    def execute(self) -> None: ...

    async def execute_command(self, name: str, data: dict[str, Any]) -> Any:
        if name == "fail":
            raise ValueError(f"broken {SECRET}")
        return {"did": name, **data}

    def check(self) -> object:
        if isinstance(self.works, Exception):
            raise self.works
        return self.works


async def test_commands_return_json_and_unknown_ones_are_named() -> None:
    async with running(Managed()) as backend:
        assert await backend.command("reindex", {"all": True}) == {"did": "reindex", "all": True}
        with pytest.raises(UnknownName, match="did you mean fail, reindex"):
            await backend.command("other", {})
        with pytest.raises(UpstreamError, match="the command 'fail' failed: ValueError"):
            await backend.command("fail", {})


async def test_commands_that_hang_keep_no_call_from_running() -> None:
    go_on = threading.Event()

    class Slow:
        def execute(self) -> str:
            return "done"

        def execute_command(self, name: str, data: dict[str, Any]) -> bool:
            return go_on.wait(60)

    async with running(Slow(), max_concurrent=1) as backend:
        hanging = [asyncio.create_task(backend.command("reindex", {})) for _ in range(4)]
        await asyncio.sleep(0)
        assert text_of(await result(backend, "tool", {})) == "done"
        go_on.set()
        assert await asyncio.gather(*hanging) == [True] * 4


async def test_a_class_that_names_no_commands_is_asked() -> None:
    class Asked:
        def execute(self) -> None: ...

        def execute_command(self, name: str, data: dict[str, Any]) -> object:
            return {"x": data["y"]}[name]

    async with running(Asked()) as backend:
        assert await backend.command("x", {"y": 1}) == 1
        with pytest.raises(UnknownName):
            await backend.command("z", {"y": 1})
        with pytest.raises(UpstreamError, match="the command 'x' failed: KeyError: 'y'"):
            await backend.command("x", {})


async def test_a_refusal_tells_no_secrets(tmp_path: Path) -> None:
    module = f"secretive_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{module}.py").write_text(
        f"class C:\n def validate_inputs(self): return 'not {SECRET}'\n def execute(self): ..."
    )
    backend = made("tool", "executor", tmp_path, executor_class=f"{module}:C")
    async with found(backend):
        with pytest.raises(ArgumentsRefused, match=r"not \[redacted\]"):
            await result(backend, "tool", {})


@pytest.mark.parametrize("name", ["C", "pkg.mod:", "pkg mod.C", "1.C", "pkg.mod:C()", "__import__('os').x"])
def test_what_names_no_class_is_no_setting(name: str) -> None:
    with pytest.raises(ValidationError, match="executor_class"):
        ExecutorSettings(executor_class=name)


@pytest.mark.parametrize(
    ("works", "ok"), [(None, True), (True, True), ("42 rows", True), (False, False), (OSError("gone"), False)]
)
async def test_its_own_check_is_asked(works: object, *, ok: bool) -> None:
    instance = Managed()
    instance.works = works
    async with running(instance) as backend:
        health = await backend.check()
        assert health.ok is ok
        assert ("42 rows" in health.detail) == (works == "42 rows")


@pytest.mark.parametrize(
    ("text", "settings", "told"),
    [
        ("class C: ...", {}, "it has no method `execute`"),
        ("class C:\n def __init__(self, a): ...", {}, "it cannot be made: TypeError"),
        (f"class C:\n def __init__(self): raise ValueError('{SECRET}')", {}, "ValueError: [redacted]"),
        ("C = 3", {}, "it is no class but int"),
        ("class C:\n def execute(self, *a): ...", {}, "`*a` has no name"),
        ("class C:\n def execute(self): ...", {"constructor_args": {"b": 1}}, "TypeError: C() takes no arguments"),
    ],
)
async def test_what_cannot_be_made_says_why(text: str, settings: dict[str, Any], told: str, tmp_path: Path) -> None:
    module = f"made_{abs(hash((text, str(tmp_path))))}"
    (tmp_path / f"{module}.py").write_text(text)
    backend = made("tool", "executor", tmp_path, executor_class=f"{module}.C", **settings)
    async with found(backend, "failed"):
        assert told in backend.condition.reason


def test_an_object_of_the_program_is_looked_at_at_once() -> None:
    with pytest.raises(ConfigError, match="'tool' cannot be a tool: it has no method `execute`"):
        ExecutorBackend.of(object(), name="tool")
