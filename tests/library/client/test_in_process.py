"""`Bridge.client`: the official client in the process of the bridge, with all that passes on a wire, in both eras."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp
import mcp_types as types
import pytest
from mcp import MCPError

from mcpbridge.core.context import CallContext
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.client import in_process
from mcpbridge.library.client.in_process import InProcess
from support.answering_clients import ACCEPT, FORM, ROOTS, SAMPLE, ask
from support.harness import python_server

BOTH = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


@asynccontextmanager
async def bridge_of(tmp_path: Path, *tools: Any, **servers: Any) -> AsyncIterator[Bridge]:
    config = {"servers": servers, "store": {"path": str(tmp_path / "s.db")}, "results": {"strategy": "off"}}
    with anyio.fail_after(60):
        async with Bridge.open(config, tools=tools, remember=False) as bridge:
            assert await bridge.settled(30)
            yield bridge


def text_of(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text


class Gate:
    """A tool that tells when it runs, and how that ended."""

    def __init__(self) -> None:
        self.entered, self.cancelled = asyncio.Event(), asyncio.Event()

    async def hold(self) -> str:
        """Wait."""
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return "never"


# -- asking


@BOTH
async def test_lists_calls_resources_and_prompts_are_as_on_a_wire(tmp_path: Path, mode: str) -> None:
    async with bridge_of(tmp_path, rich=python_server("rich")) as bridge, bridge.client(mode=mode) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else mode)
        assert {"rich__echo", "rich__work"} <= {tool.name for tool in (await client.list_tools()).tools}
        assert text_of(await client.call_tool("rich__echo", {"text": "hello"})) == "hello"
        [contents] = (await client.read_resource("memo://one")).contents
        assert contents.model_dump()["text"] == "content of memo://one"
        [message] = (await client.get_prompt("rich__greet", {"who": "Ada"})).messages
        assert message.content == types.TextContent(type="text", text="Greet Ada.")
        with pytest.raises(MCPError, match="nobody"):
            await client.call_tool("nobody", {})


@BOTH
async def test_what_nobody_knows_crosses_as_the_sdk_allows(tmp_path: Path, mode: str) -> None:
    raw = '{"content":[{"type":"text","text":"é\\u2028\\n"}],"_meta":{"odd/key":[1,null,{"a":12345678901234567890}]}}'
    async with bridge_of(tmp_path, plain=python_server("plain")) as bridge, bridge.client(mode=mode) as client:
        result = await client.call_tool("plain__raw_result", {"raw": raw})
    assert (result.meta or {})["odd/key"] == json.loads(raw)["_meta"]["odd/key"]
    assert text_of(result) == "é\u2028\n"


@BOTH
async def test_progress_comes_before_the_result(tmp_path: Path, mode: str) -> None:
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with bridge_of(tmp_path, rich=python_server("rich")) as bridge, bridge.client(mode=mode) as client:
        result = await client.call_tool("rich__work", {"steps": 3}, progress_callback=hear)
    assert text_of(result) == "done"
    assert heard == [1, 2, 3]


@BOTH
async def test_servers_ask_the_callbacks_of_this_client(tmp_path: Path, mode: str) -> None:
    """Elicitation, sampling, roots."""
    shown: list[str] = []

    async def elicit(_context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        shown.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def sample(_context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="ho")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def roots(_context: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada")])

    asking: Any = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
    async with (
        bridge_of(tmp_path, up=python_server("asking", "legacy")) as bridge,
        bridge.client(mode=mode, **asking) as client,
    ):
        result = await client.call_tool("up__play", {"steps": ask(FORM, SAMPLE, ROOTS)})
    got = list(json.loads(text_of(result)).values())
    assert ACCEPT in got
    assert "file:///home/ada" in json.dumps(got)
    assert '"ho"' in json.dumps(got)
    assert shown == ["[up] Who are you?"]


# -- cancelling


@BOTH
async def test_a_cancelled_call_is_cancelled_where_it_runs(tmp_path: Path, mode: str) -> None:
    gate = Gate()
    async with bridge_of(tmp_path, gate.hold) as bridge, bridge.client(mode=mode) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "hold")
            await gate.entered.wait()
            tasks.cancel_scope.cancel()
        await gate.cancelled.wait()
        assert (await client.list_tools()).tools, "the connection is as it was"


async def test_leaving_the_client_cancels_its_calls(tmp_path: Path) -> None:
    gate = Gate()
    async with bridge_of(tmp_path, gate.hold) as bridge, anyio.create_task_group() as tasks:

        async def call_and_be_left(client: mcp.Client) -> None:
            with pytest.raises(MCPError, match=r"[Cc]losed"):
                await client.call_tool("hold")

        async with bridge.client() as client:
            tasks.start_soon(call_and_be_left, client)
            await gate.entered.wait()
        await gate.cancelled.wait()


async def test_a_connection_that_is_cut_ends_what_waits_on_it(tmp_path: Path) -> None:
    gate = Gate()
    async with bridge_of(tmp_path, gate.hold) as bridge:
        inside = InProcess(bridge.server)
        async with mcp.Client(inside) as client, anyio.create_task_group() as tasks:

            async def call() -> None:
                with pytest.raises(MCPError):
                    await client.call_tool("hold")

            tasks.start_soon(call)
            await gate.entered.wait()
            with pytest.raises(RuntimeError, match="one of its own"):
                await inside.__aenter__()
            inside.end()


async def test_a_client_that_stays_after_the_bridge_hangs_nowhere(tmp_path: Path) -> None:
    entered, over = asyncio.Event(), asyncio.Event()

    async def stay(client: mcp.Client) -> None:
        async with client:
            await client.call_tool("plain__echo", {"text": "hi"})
            entered.set()
            await over.wait()
            assert (await client.call_tool("plain__echo", {"text": "hi"})).is_error

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        async with bridge_of(tmp_path, plain=python_server("plain")) as bridge:
            tasks.create_task(stay(bridge.client(mode="legacy")))
            await entered.wait()
        over.set()


# -- hearing


async def test_a_legacy_client_hears_of_changes_and_what_it_subscribed_to(tmp_path: Path) -> None:
    heard, news = list[str](), asyncio.Event()

    async def hear(message: Any) -> None:
        heard.append(type(message).__name__)
        news.set()

    def extra() -> str:
        """One more."""
        return "more"

    async def until(name: str) -> None:
        while name not in heard:
            news.clear()
            await news.wait()

    async with (
        bridge_of(tmp_path, rich=python_server("rich")) as bridge,
        bridge.client(mode="legacy", message_handler=hear) as client,
    ):
        await bridge.add_tool(extra)
        await until("ToolListChangedNotification")
        assert "extra" in {tool.name for tool in (await client.list_tools()).tools}
        await client.session.send_request(
            types.SubscribeRequest(params=types.SubscribeRequestParams(uri="memo://one")), types.EmptyResult
        )
        await client.call_tool("rich__touch", {"uri": "memo://one"})
        await until("ResourceUpdatedNotification")


async def test_a_modern_client_listens_for_changes(tmp_path: Path) -> None:
    def extra() -> str:
        """One more."""
        return "more"

    async with bridge_of(tmp_path, rich=python_server("rich")) as bridge, bridge.client() as client:
        await client.list_tools()
        async with client.listen(tools_list_changed=True, resource_subscriptions=["memo://one"]) as changes:
            await bridge.add_tool(extra)
            assert type(await anext(aiter(changes))).__name__ == "ToolsListChanged"
            assert "extra" in {tool.name for tool in (await client.list_tools()).tools}
            await client.call_tool("rich__touch", {"uri": "memo://one"})
            assert type(await anext(aiter(changes))).__name__ == "ResourceUpdated"


# -- who it is


def whose(context: CallContext) -> str:
    """Who calls."""
    return f"{context.user}, {context.session.client}"


@BOTH
async def test_clients_side_by_side_are_whose_the_program_says(tmp_path: Path, mode: str) -> None:
    info = types.Implementation(name="mine", version="1")
    async with (
        bridge_of(tmp_path, whose) as bridge,
        bridge.client(user="ada", mode=mode, client_info=info) as ada,
        bridge.client(user="bob", mode=mode) as bob,
    ):
        assert text_of(await ada.call_tool("whose")) == "ada, mine"
        assert text_of(await bob.call_tool("whose")) == "bob, mcp"


async def test_a_client_may_see_one_server_by_its_own_names(tmp_path: Path) -> None:
    servers = {"one": python_server("plain"), "two": python_server("rich")}
    async with bridge_of(tmp_path, **servers) as bridge, bridge.client(view="two") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "work" in names
        assert not [name for name in names if name.startswith("one")]


async def test_more_than_the_bridge_holds_for_a_slow_reader_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "READ_LIMIT", 1000)

    def large(number: int) -> str:
        """Far more than may wait."""
        return f"{number}" * 10_000

    async with bridge_of(tmp_path, large) as bridge, bridge.client() as client:
        got: list[str] = []

        async def call(number: int) -> None:
            got.append(text_of(await client.call_tool("large", {"number": number})))

        async with anyio.create_task_group() as tasks:
            for number in range(9):
                tasks.start_soon(call, number)
    assert sorted(got) == [str(number) * 10_000 for number in range(9)]
