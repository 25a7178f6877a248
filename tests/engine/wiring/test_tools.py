"""Backends that a program gives, and tools that it computes for single clients (issue 8)."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import ConfigError, UnknownName, UpstreamError, UpstreamTimeout
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import Call
from mcpbridge.downstream.requests.session_tools import ResolverContext
from mcpbridge.engine.requests import RequestFailed
from mcpbridge.engine.wiring.tools import ProgramTool
from mcpbridge.library.bridge import Bridge
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.backend import Backend, Condition, Health
from mcpbridge.tools.python.function import FunctionBackend
from mcpbridge.tools.settings import BackendSettings


class Greeter:
    """A backend as small as one can be."""

    kind = "function"
    condition = Condition("ready")

    def __init__(self, *names: str, seconds: float = 0.0) -> None:
        self.names, self.seconds, self.entered = names, seconds, 0

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        schema = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
        return [{"name": name, "description": f"Say {name}", "inputSchema": schema} for name in self.names]

    @asynccontextmanager
    async def running(self, changed: object) -> AsyncIterator[None]:
        self.entered += 1
        try:
            yield
        finally:
            self.entered -= 1

    async def run(self, call: Call) -> Body:
        await anyio.sleep(self.seconds)
        arguments = call.params.inner("arguments")
        who = arguments.text("who") if arguments is not None else ""
        return Body(encode({"content": [{"type": "text", "text": f"{call.target} {who}"}]}))

    async def check(self) -> Health:
        return Health(ok=True)

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        raise UnknownName("command", name)


def given(*names: str, several: bool = False, seconds: float = 0.0, **settings: Any) -> ProgramTool:
    return ProgramTool(Greeter(*names, seconds=seconds), BackendSettings(**settings), several)


async def names_of(bridge: Bridge, **context: Any) -> list[str]:
    listed = await bridge.request("tools/list", {}, **context)
    return [tool["name"] for tool in listed["tools"] if tool["name"] != "recall"]


async def said(bridge: Bridge, name: str, who: str = "you", **context: Any) -> str:
    result = await bridge.request("tools/call", {"name": name, "arguments": {"who": who}}, **context)
    return result["content"][0]["text"]


async def test_a_backend_of_the_program_is_listed_called_and_taken_out_again() -> None:
    """Issue 8: add, replace and remove tools while running, from the library."""
    async with Bridge(Settings(), tools={"hello": given("hello")}) as bridge:
        assert await names_of(bridge) == ["hello"]
        assert await said(bridge, "hello") == "hello you"
        many = given("one", "two", several=True)
        await bridge.set_backend("greet", many)
        assert await names_of(bridge) == ["greet__one", "greet__two", "hello"]
        assert await said(bridge, "greet__two") == "two you"
        await bridge.set_backend("greet", None)
        assert await names_of(bridge) == ["hello"]
        assert isinstance(many.backend, Greeter)
        with anyio.fail_after(30):
            while many.backend.entered:
                await anyio.sleep(0.01)


async def test_a_backends_arguments_are_checked_and_its_time_is_kept() -> None:
    """The stages of every call: nothing of that is the backend's business."""
    async with Bridge(Settings(), tools={"slow": given("slow", seconds=30, call_timeout=0.05)}) as bridge:
        wrong = await bridge.request("tools/call", {"name": "slow", "arguments": {"who": [1]}})
        assert wrong["isError"]
        assert "who" in wrong["content"][0]["text"]
        late = await bridge.request("tools/call", {"name": "slow", "arguments": {"who": "x"}})
        assert late["isError"]
        assert "tools/slow" in late["content"][0]["text"]


async def test_a_name_can_be_had_once() -> None:
    async with Bridge(Settings(), tools={"hello": given("hello")}) as bridge:
        with pytest.raises(ConfigError, match="already"):
            await bridge.set_backend("mcpbridge", given("x"))
        assert await names_of(bridge) == ["hello"]


async def test_what_the_policy_denies_is_not_listed() -> None:
    settings = Settings.model_validate({"permissions": [{"tools": ["tools/secret"], "permission": "deny"}]})
    both = {"open": given("open"), "secret": given("secret")}
    async with Bridge(settings, tools=both) as bridge:
        assert await names_of(bridge) == ["open"]
        refused = await bridge.request("tools/call", {"name": "secret", "arguments": {"who": "x"}})
        assert refused["isError"]


async def test_each_client_has_the_tools_that_the_resolver_computes_for_it() -> None:
    """Issue 8: a resolver hook computes extra tools per client or session."""
    asked: list[str] = []
    made: dict[str, Greeter] = {}

    async def resolve(context: ResolverContext) -> Sequence[Backend]:
        asked.append(context.principal)
        made[context.principal] = Greeter(f"of_{context.principal}", "hello")
        return [made[context.principal]]

    async with Bridge(Settings(), tools={"hello": given("hello")}, resolver=resolve) as bridge:
        assert await names_of(bridge, user="ann") == ["hello", "of_ann"]
        assert await names_of(bridge, user="bob") == ["hello", "of_bob"]
        assert await names_of(bridge, user="ann") == ["hello", "of_ann"]
        assert asked == ["ann", "bob"]
        assert await said(bridge, "of_ann", user="ann") == "of_ann you"
        with pytest.raises(RequestFailed, match="of_ann"):
            await said(bridge, "of_ann", user="bob")
        first = made["ann"]
        bridge.resolve_again()
        assert await names_of(bridge, user="ann") == ["hello", "of_ann"]
        assert asked == ["ann", "bob", "ann"]
        with anyio.fail_after(30):
            while first.entered:
                await anyio.sleep(0.01)
    assert not any(one.entered for one in made.values())


async def test_a_resolver_that_fails_takes_nothing_else_away() -> None:
    async def resolve(context: ResolverContext) -> Sequence[Backend]:
        raise RuntimeError("no")

    async with Bridge(Settings(), tools={"hello": given("hello")}, resolver=resolve) as bridge:
        assert await names_of(bridge) == ["hello"]
        assert await said(bridge, "hello") == "hello you"


async def test_a_resolver_that_failed_once_is_asked_again() -> None:
    asked: list[str] = []

    async def resolve(context: ResolverContext) -> Sequence[Backend]:
        asked.append(context.client)
        if len(asked) == 1:
            raise RuntimeError("not yet")
        return [Grouped("late")]

    async with Bridge(Settings(), resolver=resolve) as bridge:
        assert await names_of(bridge) == []
        assert await names_of(bridge) == ["late"]
        assert await said(bridge, "late") == "late you"


class Grouped(Greeter):
    """One that runs tasks of its own, as anyio has them."""

    @asynccontextmanager
    async def running(self, changed: object) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 0)
            yield


class Unbegun(Greeter):
    """One that cannot begin."""

    @asynccontextmanager
    async def running(self, changed: object) -> AsyncIterator[None]:
        raise RuntimeError("no disk")
        yield


async def test_a_backend_that_cannot_begin_takes_no_other_with_it() -> None:
    """Neither one of the program nor one of the resolver."""

    async def resolve(context: ResolverContext) -> Sequence[Backend]:
        return [Unbegun("worse"), Greeter("more")]

    tools = {"hello": given("hello"), "bad": ProgramTool(Unbegun("bad"), BackendSettings())}
    async with Bridge(Settings(), tools=tools, resolver=resolve) as bridge:
        assert await names_of(bridge) == ["hello", "more"]
        [bad] = [one for one in bridge.status()["backends"] if one["name"] == "bad"]
        assert (bad["state"], bad["reason"]) == ("failed", "it could not begin: RuntimeError: no disk")
        assert not (await bridge.backends.check("bad")).ok
        assert "no disk" in await said(bridge, "bad")
        await bridge.set_backend("bad", given("bad"))
        assert await said(bridge, "bad") == "bad you"


class Endless(Greeter):
    """One that does not end by itself."""

    @asynccontextmanager
    async def running(self, changed: object) -> AsyncIterator[None]:
        yield
        await anyio.sleep_forever()


async def test_a_backend_that_does_not_end_keeps_no_bridge_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.engine.wiring.tools.ENDING_SECONDS", 0.05)
    with anyio.fail_after(10):
        async with Bridge(Settings(), tools={"hello": ProgramTool(Endless("hello"), BackendSettings())}) as bridge:
            assert await said(bridge, "hello") == "hello you"


def greet(who: str) -> str:
    """Greet."""
    return f"Hello, {who}!"


async def test_a_single_tool_of_the_program_is_called_as_the_program_calls_it() -> None:
    """As a table of `[tools]` is; and what is said of it is shown."""
    settings = BackendSettings(description="Say hello.", annotations={"readOnlyHint": True})
    async with Bridge(Settings(), tools={"hi": ProgramTool(FunctionBackend.of(greet), settings)}) as bridge:
        assert await names_of(bridge) == ["hi"]
        assert await said(bridge, "hi") == "Hello, you!"
        listed = await bridge.request("tools/list", {})
        [tool] = [one for one in listed["tools"] if one["name"] == "hi"]
        assert tool["description"] == "Say hello."
        assert tool["annotations"]["readOnlyHint"] is True


@pytest.mark.parametrize(
    ("settings", "several"),
    [
        ({"output_schema": {"type": "string"}}, False),
        ({"input_schema": {"type": "object"}}, False),
        ({"tool": {"greet": {"rename": "hi"}}}, False),
        ({"tools": {"include": ["greet"]}}, False),
        ({"description": "Say hello."}, True),
    ],
)
async def test_settings_that_nothing_would_come_of_are_refused(settings: dict[str, Any], several: bool) -> None:
    backend = ProgramTool(FunctionBackend.of(greet), BackendSettings.model_validate(settings), several)
    async with Bridge(Settings()) as bridge:
        with pytest.raises(ConfigError, match=next(iter(settings))):
            await bridge.set_backend("greet", backend)
        assert await names_of(bridge) == []


async def test_a_management_command_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(Greeter):
        async def command(self, name: str, data: Mapping[str, Any]) -> Any:
            await anyio.sleep_forever()

    monkeypatch.setattr("mcpbridge.engine.wiring.tools._COMMAND_SECONDS", 0.05)
    async with Bridge(Settings(), tools={"slow": ProgramTool(Stuck("slow"), BackendSettings())}) as bridge:
        with anyio.fail_after(10), pytest.raises(UpstreamTimeout, match="slow"):
            await bridge.command("slow", "reindex")


async def test_a_backend_that_something_cancels_from_within_ends_nobody_else() -> None:
    class Odd(Greeter):
        async def check(self) -> Health:
            raise asyncio.CancelledError

        async def command(self, name: str, data: Mapping[str, Any]) -> Any:
            raise asyncio.CancelledError

    backends = {"odd": ProgramTool(Odd("odd"), BackendSettings()), "well": given("well")}
    async with Bridge(Settings(), tools=backends) as bridge:
        with pytest.raises(UpstreamError, match="'reindex' failed: CancelledError"):
            await bridge.command("odd", "reindex")
        found = {one.name: (one.ok, one.detail) for one in await bridge.health_checks.check_all()}
        assert found == {"odd": (False, "CancelledError"), "well": (True, "")}


async def test_what_a_tool_says_of_itself_is_believed_unless_it_is_not_trusted() -> None:
    class Reader(Greeter):
        @property
        def tools(self) -> Sequence[Mapping[str, Any]]:
            return [{**tool, "annotations": {"readOnlyHint": True}} for tool in super().tools]

    settings = Settings.model_validate(
        {"permissions": [{"tools": ["tools/*"], "permission": "deny", "when": "!tool.read_only"}]}
    )
    both = {
        "own": ProgramTool(Reader("own"), BackendSettings()),
        "other": ProgramTool(Reader("other"), BackendSettings(trusted=False)),
    }
    async with Bridge(settings, tools=both) as bridge:
        assert await names_of(bridge) == ["own"]
