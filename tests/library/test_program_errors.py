"""What goes wrong in a program's own code, as callers, models and the log are told it: in words, without secrets."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from pydantic import BaseModel

from mcpbridge import Bridge, CallContext, Context, ToolCall, adapt_function, human_tool, tool
from mcpbridge.base.errors import (
    ArgumentsRefused,
    BridgeError,
    CallFailed,
    CallRefused,
    ConfigError,
    NotPermitted,
    UnknownName,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.base.json_values import decoded
from mcpbridge.base.log import Logger, get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.engine.requests import RequestFailed, check_names, encoded, params_json
from mcpbridge.engine.wiring.tools import ProgramTool
from mcpbridge.library.client import open_options as log_lines
from mcpbridge.protocol.meta import CONTEXT
from mcpbridge.tools.agent.local_agent import LocalAgent
from mcpbridge.tools.agent.settings import AgentSettings
from mcpbridge.tools.backend import BackendContext, keeping_secrets
from mcpbridge.tools.packs import Pack, PackBackend, PackTool
from mcpbridge.tools.python.executor import ExecutorBackend
from mcpbridge.tools.python.function import FunctionBackend
from mcpbridge.tools.settings import BackendSettings
from support.virtual_time import pass_time

SECRET = "hunter2-of-the-configuration"
SERVER = {"command": "never-started", "disabled": True, "env": {"TOKEN": "${SEC}"}}


@pytest.fixture(autouse=True)
def _lines() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - a fixture
    """Lines go where programs have them, and afterwards where they went before."""
    sink, Logger.sink = Logger.sink, log_lines._log  # pyright: ignore[reportPrivateUsage] - as `use_logging` does
    yield
    Logger.sink = sink


@asynccontextmanager
async def bridge_with(tmp_path: Path, *tools: Any, **options: Any) -> AsyncGenerator[Bridge]:
    """A bridge with these tools, whose configuration has a secret."""
    config = {"store": {"path": str(tmp_path / "store.db")}, "servers": {"h": SERVER}}
    with anyio.fail_after(90):
        async with Bridge.open(config, tools=tools, remember=False, environ={"SEC": SECRET}, **options) as bridge:
            assert bridge.redact(SECRET) == "[redacted]"
            yield bridge


def _giving(*tools: Any) -> Callable[[object], list[Any]]:
    """A resolver that gives these to everybody."""
    return lambda context: list(tools)


# -- secrets


def leak(x: int = 1) -> str:
    """Tell too much."""
    raise ValueError(f"db {SECRET}")


async def leak_later(x: int = 1) -> str:
    """Tell too much, on the event loop."""
    raise ValueError(f"db {SECRET}")


def refuse(x: int = 1) -> str:
    """Refuse, and tell too much."""
    raise NotPermitted(f"not for {SECRET}")


def fail_inside(x: int = 1) -> str:
    """Have a part of the bridge fail."""
    raise CallFailed(f"inside {SECRET}")


class Leaking:
    """An executor."""

    def validate_inputs(self, x: int = 1) -> bool:
        """Refuses some."""
        if x > 1:
            raise ValueError(f"checked {SECRET}")
        return True

    def execute(self, x: int = 1) -> str:
        """Tell too much."""
        return leak(x)

    def execute_command(self, name: str, data: Mapping[str, Any]) -> None:
        """Fail."""
        leak()


def agent_that_leaks(message: str) -> str:
    """Tell too much."""
    return leak()


def _agent() -> ProgramTool:
    settings = AgentSettings.model_validate({"agent": f"{__name__}:agent_that_leaks"})
    made = LocalAgent("agent", settings, BackendContext(runner=None))  # pyright: ignore[reportArgumentType] - it runs no program
    return ProgramTool(made, settings)


def _pack() -> ProgramTool:
    return ProgramTool(
        PackBackend.of(Pack(name="pack", tools=[PackTool(function=leak)])), BackendSettings(), has_several=True
    )


KINDS: dict[str, tuple[Callable[[], Any], str, dict[str, Any]]] = {
    "function": (lambda: leak, "leak", {"x": 1}),
    "async": (lambda: tool(leak_later), "leak_later", {"x": 1}),
    "refusal": (lambda: tool(refuse), "refuse", {"x": 1}),
    "nested": (lambda: tool(fail_inside), "fail_inside", {"x": 1}),
    "adapted": (
        lambda: adapt_function(leak, name="ad", description="d", input_schema={"type": "object"}),
        "ad",
        {"x": 1},
    ),
    "given": (
        lambda: ("given", ProgramTool(FunctionBackend.of(leak, name="given"), BackendSettings())),
        "given",
        {"x": 1},
    ),
    "executor": (lambda: ("ex", ProgramTool(ExecutorBackend.of(Leaking(), name="ex"), BackendSettings())), "ex", {}),
    "executor-check": (
        lambda: ("ex", ProgramTool(ExecutorBackend.of(Leaking(), name="ex"), BackendSettings())),
        "ex",
        {"x": 2},
    ),
    "pack": (lambda: ("pack", _pack()), "pack/leak", {}),
    "agent": (lambda: ("agent", _agent()), "agent", {"message": "hello"}),
    "human": (lambda: human_tool(leak, leak_answer, name="ask"), "ask", {"x": 1}),
}


def leak_answer(response: str) -> str:
    """Tell too much of the answer."""
    raise ValueError(f"answer {SECRET}")


@pytest.mark.parametrize("later", [False, True], ids=["opened", "added"])
@pytest.mark.parametrize("kind", KINDS)
async def test_no_tool_of_a_program_tells_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, *, later: bool
) -> None:
    make, name, arguments = KINDS[kind]
    async with bridge_with(tmp_path, *([] if later else [make()])) as bridge:
        if later:
            await bridge.add_tool(make())
        await bridge.backends.check(name.partition("/")[0])  # what is imported is there
        result = await bridge.call_tool(name, arguments)
        assert result.is_error
        assert "[redacted]" in result.text
        assert SECRET not in repr(result)
        if kind == "executor":
            with pytest.raises(BridgeError) as failed:
                await bridge.command("ex", "anything")
            assert SECRET not in str(failed.value)
    assert SECRET not in caplog.text


async def test_an_answer_that_a_tool_fails_at_tells_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(q: str) -> None:
        """Ask somebody."""

    async with bridge_with(tmp_path, human_tool(ask, leak_answer, name="ask")) as bridge:
        paused = (await bridge.call_tool("ask", {"q": "x"})).paused
        assert paused is not None
        with pytest.raises(CallFailed, match=r"answer \[redacted\]") as failed:
            await bridge.resume(paused.id, "a")
        assert SECRET not in str(failed.value)
    assert SECRET not in caplog.text


async def test_what_a_resolver_gives_tells_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with bridge_with(tmp_path, resolver=_giving(leak)) as bridge:
        result = await bridge.call_tool("leak", {"x": 1}, run="r")
        assert result.text == "ValueError: db [redacted]"

    def broken(context: object) -> list[Any]:
        raise ValueError(SECRET)

    async with bridge_with(tmp_path, resolver=broken) as bridge:
        with pytest.raises(RequestFailed):
            await bridge.call_tool("leak", {"x": 1})
    assert "the resolver failed" in caplog.text
    assert SECRET not in caplog.text


def test_a_backend_masks_what_its_maker_masks_as_well() -> None:
    around = BackendContext(runner=None, redact=lambda text: text.replace("mine", "*"))  # pyright: ignore[reportArgumentType]
    backend = FunctionBackend.of(leak, backend_context=around)
    for _ in range(3):  # handed over with each bridge
        keeping_secrets(backend, lambda text: text.replace("yours", "+"))
    assert backend._invoker.describe_error(ValueError("mine yours")) == "ValueError: * +"  # pyright: ignore[reportPrivateUsage]


def test_lines_mask_the_secrets_of_all_bridges_that_there_are(caplog: pytest.LogCaptureFixture) -> None:
    one, two = Redactor(["first-secret"]), Redactor(["second-secret"])
    log_lines.use_logging(one)
    log_lines.use_logging(two)
    log_lines.use_logging(two)
    log = get_logger()
    log.error("told first-secret", reason="second-secret", plain="kept", number=3)
    assert caplog.messages[-1] == "told [redacted] reason='[redacted]' plain='kept' number=3"
    try:
        raise ValueError("second-secret")
    except ValueError:
        log.exception("it failed")
    assert caplog.records[-1].exc_info is None
    assert "ValueError: [redacted]" in caplog.messages[-1]
    harmless = ValueError("nothing to hide")
    log.error("it failed", exc_info=harmless)
    assert caplog.records[-1].exc_info is not None
    assert caplog.records[-1].exc_info[1] is harmless
    del one
    log.warning("first-secret and second-secret")
    assert caplog.messages[-1] == "first-secret and [redacted]"  # that bridge is gone
    assert two is not None


async def test_a_traceback_in_the_log_has_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with bridge_with(tmp_path, leak) as bridge:
        await bridge.call_tool("leak", {"x": 1})
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    lines = record.getMessage().split("\n")
    assert lines[0] == "a tool failed tool='leak'"
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: db [redacted]"
    assert all("\\n" not in line for line in lines)


# -- what handlers let out


@tool
def inner() -> int:
    """Fail."""
    raise ValueError("inner broke")


class Boom(Exception):
    """The model fails."""


async def _value_of(bridge: Bridge) -> object:
    return (await bridge.call(inner.call())).value


async def _run_in(bridge: Bridge) -> object:
    async def model(request: object) -> Any:
        raise Boom("no model")

    return await bridge.run(model, "hello")


async def _raise(error: Exception) -> object:
    raise error


NESTED: dict[str, tuple[Callable[[Bridge], Coroutine[Any, Any, Any]], str]] = {
    "value": (_value_of, "ValueError: inner broke"),
    "unknown tool": (lambda bridge: bridge.call_tool("nosuch"), "Unknown tool: nosuch"),
    "unknown name": (lambda bridge: bridge.remove_tool("nosuch"), "Unknown tool: nosuch"),
    "a run": (_run_in, "Boom: no model"),
    "settings": (lambda bridge: bridge.add_server("x", {"comand": "y"}), "comand"),
    "own": (lambda bridge: _raise(BridgeError("mine")), "mine"),
    "upstream": (lambda bridge: _raise(UpstreamUnavailable("x", "it rests")), "Server 'x': it rests"),
    "timeout": (lambda bridge: _raise(UpstreamTimeout("x", 3)), "no answer within 3 s"),
}


@pytest.mark.parametrize("kind", NESTED)
async def test_what_the_bridge_raises_within_a_tool_is_the_tool_failing(tmp_path: Path, kind: str) -> None:
    work, told = NESTED[kind]
    bridges: list[Bridge] = []

    @tool
    async def outer() -> str:
        """Use the bridge."""
        return str(await work(bridges[0]))

    async with bridge_with(tmp_path, inner, outer) as bridge:
        bridges.append(bridge)
        result = await bridge.call_tool("outer")
        assert result.is_error
        assert result.text.startswith("The tool 'outer' failed: ")
        assert told in result.text
        assert "outcome.messages" not in result.text  # advice for programs
        async with bridge.client() as client:
            theirs = await client.call_tool("outer", {})
        assert theirs.is_error
        assert told in str(theirs.content)


async def test_a_refusal_of_a_tool_stays_one(tmp_path: Path) -> None:
    @tool
    def picky() -> str:
        """Refuse."""
        refused = CallRefused("not today")
        refused.advice = "Come back tomorrow."
        raise refused

    async with bridge_with(tmp_path, picky) as bridge:
        result = await bridge.call_tool("picky")
        assert (result.is_error, result.text) == (True, "not today. Come back tomorrow.")
        assert result.meta["mcpbridge/error"] == "CallRefused"


async def test_a_tool_that_ends_while_it_is_called_is_no_failure_of_it(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @tool
    async def waits(context: CallContext) -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with bridge_with(tmp_path, waits) as bridge:
        given = bridge._program_tools["waits"]  # pyright: ignore[reportPrivateUsage]
        call = asyncio.create_task(bridge.call_tool("waits"))
        await begun.wait()
        await given.backend._invoker.end()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        result = await call
        assert result.meta["mcpbridge/error"] == "UpstreamGone"


@pytest.mark.parametrize("takes_context", [False, True])
async def test_a_tool_that_exits_ends_no_program(tmp_path: Path, *, takes_context: bool) -> None:
    async def leaves(context: CallContext) -> str:
        """End the process."""
        raise SystemExit(3)

    async def goes() -> str:
        """End the process."""
        raise SystemExit(3)

    async with bridge_with(tmp_path, tool(name="leave")(leaves if takes_context else goes)) as bridge:
        assert (await bridge.call_tool("leave")).text == "SystemExit: 3"


# -- what is no JSON


class Row(BaseModel):
    """A row."""

    n: int


@dataclass
class Point:
    """A point."""

    x: int


async def test_arguments_and_metadata_that_are_no_json_are_refused_by_name(tmp_path: Path) -> None:
    seen: list[Any] = []

    @tool
    def show(x: Any, context: CallContext) -> str:
        """Show it."""
        seen.append((x, dict(context.metadata)))
        return "shown"

    nothing, bad = {"x": 1}, {"x": 1, "bad": object()}
    async with bridge_with(tmp_path, show) as bridge:
        with pytest.raises(ArgumentsRefused, match="The argument 'bad' of show is no JSON"):
            await bridge.call_tool("show", bad)
        with pytest.raises(ArgumentsRefused, match="The argument 'bad' of show is no JSON"):
            await bridge.call(ToolCall[Any, Any]("show", bad))
        with pytest.raises(ArgumentsRefused, match="The argument 'bad' is no JSON"):
            await bridge.request("tools/call", {"name": "show", "arguments": bad})
        with pytest.raises(ArgumentsRefused, match="The metadata 'bad' is no JSON"):
            await bridge.call_tool("show", nothing, metadata=bad)
        with pytest.raises(ArgumentsRefused, match="`name` of the request is no JSON"):
            await bridge.request("tools/call", {"name": object()})
        with pytest.raises(ArgumentsRefused, match="`k` in the `_meta` of the request is no JSON"):
            await bridge.request("tools/call", {"name": "show", "_meta": {"k": {object()}}})
        (one,) = await bridge.run_tool_calls([ToolCall[Any, Any]("show", bad)])
        assert "'bad'" in one.text
        assert not seen
        await bridge.call_tool("show", {"x": Row(n=1)}, metadata={"row": Row(n=2), "point": Point(3), "m": 4})
        assert seen == [({"n": 1}, {"row": {"n": 2}, "point": {"x": 3}, "m": 4})]


@examples(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**60), 2**60)
            | st.text(st.characters(exclude_categories=["Cs"])),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
            max_leaves=8,
        ),
        max_size=4,
    ),
    st.sampled_from(["arguments", "_meta", "other"]),
)
def test_params_with_one_model_in_them_are_what_they_are_without(values: dict[str, Any], where: str) -> None:
    params = {"name": "x", where: {**values, "row": Row(n=1)}, "a": 1}
    assert decoded(bytes(params_json(params))) == {"name": "x", where: {**values, "row": {"n": 1}}, "a": 1}
    said = {"_meta": {CONTEXT: {"tenant": "t", "metadata": {**values, "row": Row(n=1)}}}}
    assert decoded(bytes(params_json(said))) == {
        "_meta": {CONTEXT: {"tenant": "t", "metadata": {**values, "row": {"n": 1}}}}
    }
    assert decoded(encoded(values)) == values


# -- names


@pytest.mark.parametrize("wrong", ["show_row", "tools/show_row", "tools__show_row", "Show_Rows", "tools/shw_rows"])
async def test_a_misspelt_tool_is_answered_with_the_nearest(tmp_path: Path, wrong: str) -> None:
    @tool
    def show_rows() -> str:
        """Show."""
        return ""

    async with bridge_with(tmp_path, show_rows) as bridge:
        with pytest.raises(RequestFailed, match=r"did you mean show_rows\?"):
            await bridge.call_tool(wrong)
        with pytest.raises(RequestFailed, match=r"did you mean show_rows\?"):
            await bridge.call(ToolCall[Any, Any](wrong, {}))


async def test_names_that_would_count_as_none_are_refused(tmp_path: Path) -> None:
    called: list[str] = []

    @tool
    def note(context: CallContext) -> str:
        """Note it."""
        called.append(context.run)
        return ""

    async def model(request: object) -> Any:
        raise AssertionError("it is not asked")

    long, most = "r" * 201, "r" * 200
    wrong = (ConfigError, ValueError)
    async with bridge_with(tmp_path, note) as bridge:
        named: dict[str, Any]
        for named in ({"run": long}, {"tenant": long}, {"user": long}):
            with pytest.raises(wrong, match="200"):
                await bridge.request("tools/call", {"name": "note"}, **named)
            with pytest.raises(wrong, match="200"):
                await bridge.call_tool("note", **named)
            with pytest.raises(wrong, match="200"):
                await bridge.call(ToolCall[Any, Any]("note", {}), **named)
        for named in ({"run": long}, {"tenant": long}):
            with pytest.raises(wrong, match="200"):
                await bridge.run_tool_calls([ToolCall[Any, Any]("note", {})], **named)
            with pytest.raises(wrong, match="200"):
                await bridge.run(model, "hello", **named)
        with pytest.raises(wrong, match="200"):
            await bridge.paused_calls(run=long)
        with pytest.raises(ConfigError, match="200"):
            await bridge.set_context(long, {})
        assert not called
        await bridge.call_tool("note", run=most, user=most, tenant=most)
        assert called == [most]
        # what a client says stays as it is: it counts as none
        said = {"name": "note", "_meta": {"mcpbridge/run": long}}
        await bridge.request("tools/call", said)
        assert called[-1] not in (most, long)


def test_a_name_is_a_text() -> None:
    check_names(run="", user="x", tenant="y" * 200)
    with pytest.raises(ConfigError, match="it is int"):
        check_names(run=3)  # pyright: ignore[reportArgumentType] - of programs without types


async def test_a_context_of_a_tool_that_is_not_there_is_not_set(tmp_path: Path) -> None:
    @tool
    def keeps(context: Context[dict[str, int]]) -> int:
        """Keep."""
        return context.value.get("n", 0)

    async with bridge_with(tmp_path, keeps) as bridge:
        with pytest.raises(UnknownName, match="keep"):
            await bridge.set_context("r", {"n": 5}, "keps")
        await bridge.set_context("r", {"n": 5}, "keeps")
        assert (await bridge.call_tool("keeps", run="r")).text == "5"
        await bridge.set_context("r", {"any": 1})

    async with bridge_with(tmp_path, resolver=_giving(keeps)) as bridge:  # who knows what it will give
        await bridge.set_context("q", {"n": 6}, "keeps")
        assert (await bridge.call_tool("keeps", run="q")).text == "6"


# -- cancellation


class Watched:
    """What handlers saw of their cancellation."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.flags: list[tuple[str, bool]] = []


def _handlers(seen: Watched) -> Mapping[str, Any]:
    async def waits(context: CallContext) -> str:
        """Wait."""
        seen.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.flags.append(("except", context.cancelled))
            raise
        finally:
            seen.flags.append(("finally", context.cancelled))
        return ""

    async def keeps(context: Context[dict[str, int]]) -> str:
        """Wait, with a context."""
        seen.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.flags.append(("finally", context.cancelled))
        return ""

    async def yields(context: CallContext) -> AsyncGenerator[str]:
        """Wait among events."""
        yield "first"
        seen.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.flags.append(("finally", context.cancelled))

    async def cleans_up(context: CallContext) -> str:
        """Take its time."""
        seen.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            seen.flags.append(("cleaned", context.cancelled))
        return ""

    return {"waits": waits, "keeps": keeps, "yields": yields, "cleans_up": cleans_up}


@pytest.mark.parametrize("how", ["cancelled", "scope", "timeout"])
@pytest.mark.parametrize("handler", ["waits", "keeps", "yields", "cleans_up"])
async def test_a_handler_that_is_cancelled_sees_that_it_is(tmp_path: Path, handler: str, how: str) -> None:
    seen = Watched()
    options: dict[str, Any] = {"timeout": 30} if how == "timeout" else {}
    async with bridge_with(tmp_path, tool(**options)(_handlers(seen)[handler])) as bridge:
        if how == "timeout":
            call = asyncio.create_task(bridge.call_tool(handler, run="r"))
            await seen.begun.wait()
            pass_time(31)
            assert (await call).is_error
        elif how == "scope":
            with anyio.CancelScope() as scope:
                async with asyncio.TaskGroup() as members:
                    members.create_task(_cancel_when(seen.begun, scope))
                    await bridge.call_tool(handler, run="r")
        else:
            call = asyncio.create_task(bridge.call_tool(handler, run="r"))
            await seen.begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    assert seen.flags
    assert all(flag for _, flag in seen.flags)


async def _cancel_when(begun: asyncio.Event, scope: anyio.CancelScope) -> None:
    await begun.wait()
    scope.cancel()


async def test_a_time_limit_of_its_own_does_not_cancel_a_handler(tmp_path: Path) -> None:
    flags: list[bool] = []

    @tool
    async def patient(context: CallContext) -> str:
        """Give up in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                try:
                    await asyncio.Event().wait()
                finally:
                    flags.append(context.cancelled)
        with anyio.move_on_after(0.01):
            try:
                await asyncio.Event().wait()
            finally:
                flags.append(context.cancelled)
        return "done"

    async with bridge_with(tmp_path, patient) as bridge:
        assert (await bridge.call_tool("patient")).text == "done"
    assert flags == [False, False]


async def test_a_handler_in_a_thread_sees_that_it_is_cancelled(tmp_path: Path) -> None:
    begun, may_look, saw = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def works(context: CallContext) -> str:
        """Work."""
        loop.call_soon_threadsafe(begun.set)
        may_look.wait(60)
        if context.cancelled:
            saw.set()
        return ""

    async with bridge_with(tmp_path, works) as bridge:
        call = asyncio.create_task(bridge.call_tool("works"))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        may_look.set()
        assert await asyncio.to_thread(saw.wait, 60)
