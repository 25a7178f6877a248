"""The library's front: opening a bridge, what there is, calls, tools and servers that come and go."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge import Bridge, ModelRequest, RequestFailed, SyncBridge
from mcpbridge.base.errors import BridgeClosed, CallFailed, ConfigError, UnknownName
from mcpbridge.downstream.requests.session_tools import ResolverContext
from mcpbridge.engine.registry.http_rules import RegistryProblem
from mcpbridge.pipeline.approvals.request import ApprovalRequest
from support.harness import python_server

PLAIN = {"servers": {"plain": python_server("plain")}}


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def test_a_file_tables_and_any_clients_json_open_the_same(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    command, args = PLAIN["servers"]["plain"]["command"], PLAIN["servers"]["plain"]["args"]
    file.write_text(f"[servers.plain]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n")
    tables = {"mcpServers": {"plain": {"command": command, "args": args}}}
    for config in (file, str(file), PLAIN, tables):
        async with Bridge.open(config, remember=False) as bridge:
            result = await bridge.call_tool("plain/echo", {"text": "hi"})
            assert (result.text, result.value, result.is_error) == ("hi", "hi", False)


@pytest.mark.parametrize("given", [{}, PLAIN, None, "servers.toml"])
def test_what_is_no_checked_settings_is_refused_and_told_what_opens_it(given: Any) -> None:
    with pytest.raises(ConfigError, match=rf"not {type(given).__name__}\s+Bridge.open\(\.\.\.\) reads"):
        Bridge(given)
    with pytest.raises(ConfigError, match=rf"not {type(given).__name__}\s+SyncBridge.open\(\.\.\.\) reads"):
        SyncBridge(given)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"servers": {"x": {"comand": "y"}}}, "comand"),
        ({"servers": {"x": {"command": "y", "unavailable": "z"}}}, "unavailable"),
        ({"source": "x"}, "source"),
        ("no/such/servers.toml", "no/such/servers.toml"),
        ({"results": {"threshold": "${NOT_THERE}"}}, "NOT_THERE"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(config: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Bridge.open(config, environ={})


async def test_secrets_are_fetched_while_the_event_loop_continues(tmp_path: Path) -> None:
    """Issue 22: a password manager may take seconds, and the program has other work meanwhile."""
    gate, asked = tmp_path / "gate", tmp_path / "asked"
    os.mkfifo(gate)
    script = tmp_path / "manager"
    script.write_text(f"#!/bin/sh\necho . >> {asked}\nread line < {gate}\necho the-$line-token\n")
    script.chmod(0o755)
    server = {**python_server("plain"), "env": {"TOKEN": f"${{cmd:{script}}}"}}
    opened = anyio.Event()
    bridge = Bridge.open({"servers": {"plain": server}}, remember=False)
    assert not asked.exists(), "nothing is fetched before the bridge is entered"

    async def use() -> None:
        async with bridge:
            assert bridge.settings.servers["plain"].env["TOKEN"] == "the-secret-token"
            assert "the-secret-token" not in str(bridge.redact("it is the-secret-token"))
            assert not (await bridge.call_tool("plain/echo", {"text": "hi"})).is_error
            opened.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use)
            while not asked.exists():
                await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(gate.write_text, "secret\n")
            await opened.wait()
    assert asked.read_text() == ".\n"


def test_secrets_of_other_sections_and_without_a_loop_are_fetched_at_once() -> None:
    config = {"servers": {"plain": {"command": "x", "env": {"A": "${cmd:echo of-a-server}"}}}}
    assert Bridge.open(config).settings.servers["plain"].env["A"] == "of-a-server"


async def test_a_secret_that_a_bridge_is_made_with_is_fetched_when_it_is_opened() -> None:
    config = {"servers": {}, "http": {"tokens": [{"name": "me", "sha256": "${cmd:printf %064d 7}"}]}}
    assert Bridge.open(config).settings.http.tokens[0].sha256.endswith("07")


async def test_variables_come_from_where_the_program_says_and_are_never_told(tmp_path: Path) -> None:
    config = {"servers": {"plain": {**python_server("plain"), "env": {"TOKEN": "${TOKEN}"}}}}
    async with Bridge.open(config, remember=False, environ={"TOKEN": "s3cret-value"}) as bridge:
        assert "s3cret-value" not in json.dumps(bridge.status())
        assert bridge.redact("it is s3cret-value") != "it is s3cret-value"


async def test_tools_are_listed_found_and_chosen() -> None:
    async with Bridge.open(PLAIN, tools=[add], remember=False) as bridge:
        assert await bridge.settled(30)
        every = {tool.id: tool for tool in await bridge.list_tools()}
        assert {"plain/echo", "plain/hold", "tools/add", "mcpbridge/recall"} <= every.keys()
        assert every["tools/add"].input_schema["required"] == ["a"]
        assert [tool.id for tool in await bridge.list_tools("add two numbers", limit=1)] == ["tools/add"]
        assert await bridge.list_tools("bake a chocolate cake") == []
        chosen = await bridge.list_tools(only=["add", "plain/h*", "plain__echo"])
        assert [tool.id for tool in chosen] == ["tools/add", "plain/hold", "plain/echo"]
        assert await bridge.list_tools(only=["none/*"]) == []
        with pytest.raises(UnknownName, match="plain/echo"):
            await bridge.list_tools(only=["plain/ecko"])


async def test_what_the_body_raises_comes_out_as_it_is() -> None:
    """Task groups inside are nobody's business outside."""
    error = ValueError("mine")

    async def fail() -> None:
        async with Bridge.open(PLAIN, remember=False) as bridge:
            await bridge.call_tool("plain/echo")
            raise error

    with pytest.raises(ValueError, match="mine") as raised:
        await fail()
    assert raised.value is error


async def test_failures_are_results_and_what_there_is_not_is_an_error() -> None:
    def fail() -> None:
        raise ValueError("no such luck")

    async with Bridge.open({}, tools=[fail], remember=False) as bridge:
        result = await bridge.call_tool("fail")
        assert result.is_error
        with pytest.raises(CallFailed, match="no such luck"):
            assert result.value
        with pytest.raises(RequestFailed, match="Unknown tool: fall"):
            await bridge.call_tool("fall")


async def test_large_results_are_previews_that_can_be_asked() -> None:
    def rows() -> list[dict[str, int]]:
        return [{"id": number, "square": number * number} for number in range(2000)]

    async with Bridge.open({}, tools=[rows], remember=False) as bridge:
        short = await bridge.call_tool("rows")
        assert short.handle
        assert len(short.text) < 4000
        asked = await bridge.recall(short.handle, where="id == 1999", select="square")
        assert "3996001" in asked.text
        whole = await bridge.call_tool("rows", whole=True)
        assert not whole.handle
        assert whole.value["result"] == [{"id": number, "square": number * number} for number in range(2000)]
        read = await bridge.read_resource(f"mcpbridge://results/{short.handle}")
        assert "3996001" in read["contents"][0]["text"]


async def test_tools_and_servers_come_change_and_go() -> None:
    def greet() -> str:
        return "hello"

    def other() -> str:
        return "good day"

    other.__name__ = "greet"
    async with Bridge.open({}, remember=False) as bridge:
        await bridge.add_tool(greet)
        assert (await bridge.call_tool("tools/greet")).text == "hello"
        with pytest.raises(ConfigError, match="greet"):
            await bridge.add_tool(other)
        await bridge.replace_tool(other)
        assert (await bridge.call_tool("greet")).text == "good day"
        await bridge.remove_tool("tools/greet")
        with pytest.raises(UnknownName):
            await bridge.remove_tool("greet")
        await bridge.add_server("plain", python_server("plain"))
        assert "plain/echo" in [tool.id for tool in await bridge.list_tools()]
        with pytest.raises(RegistryProblem):
            await bridge.add_server("plain", python_server("plain"))
        assert "plain/echo" in [tool.id for tool in await bridge.list_tools()]
        assert (await bridge.call_tool("plain/echo", {"text": "hi"})).text == "hi"
        await bridge.replace_server("plain", python_server("plain", "2025-06-18"))
        assert (await bridge.call_tool("plain/echo", {"text": "hi"})).text == "hi"
        await bridge.remove_server("plain")
        with pytest.raises(RequestFailed):
            await bridge.call_tool("plain/echo")


async def test_tools_of_the_program_can_be_offered_as_they_are() -> None:
    def late(text: str) -> str:
        return text

    def other() -> None: ...

    other.__name__ = "late"
    async with Bridge.open({}, tools=[add], remember=False) as bridge:
        offered = await bridge.tools_for("openai", tools=[add, late, add])
        assert [tool["function"]["name"] for tool in offered] == ["add", "late"]
        assert (await bridge.call_tool("late", {"text": "there"})).text == "there"
        assert len(await bridge.tools_for("openai", tools=[late])) == 1
        with pytest.raises(ConfigError, match="another tool 'late'"):
            await bridge.tools_for("openai", tools=[other])


async def test_a_resolver_gives_tools_for_one_run() -> None:
    asked: list[str] = []

    def tools_of(context: ResolverContext) -> list[Any]:
        asked.append(context.run)

        def whose() -> str:
            """Tell whose tool this is."""
            return context.run

        return [whose, add] if context.run else []

    async with Bridge.open({}, resolver=tools_of, remember=False) as bridge:
        assert "tools/whose" not in [tool.id for tool in await bridge.list_tools()]
        for run in ("a", "b"):
            assert "tools/whose" in [tool.id for tool in await bridge.list_tools(run=run)]
            assert "tools/whose" in [tool.id for tool in await bridge.list_tools("whose tool", run=run)]
            assert (await bridge.call_tool("whose", run=run)).text == run
            offered = await bridge.tools_for("openai", tools=["whose"], run=run)
            assert [tool["function"]["name"] for tool in offered] == ["whose"]
        with pytest.raises(RequestFailed):
            await bridge.call_tool("whose")
    assert asked == ["", "a", "b"]


async def test_a_run_may_have_a_resolver_of_its_own() -> None:
    def own(context: ResolverContext) -> list[Any]:
        def secret() -> str:
            return f"for {context.run}"

        return [secret]

    async def model(request: ModelRequest) -> dict[str, Any]:
        names = [tool["function"]["name"] for tool in request.tools]
        if request.round > 1:
            return {"choices": [{"message": {"role": "assistant", "content": f"had {names}"}}]}
        call = {"id": "c1", "type": "function", "function": {"name": "secret", "arguments": "{}"}}
        return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}

    async with Bridge.open({"results": {"strategy": "off"}}, remember=False) as bridge:
        said = [{"role": "user", "content": "go"}]
        outcome = await bridge.run(model, said, run="r1", resolver=own)
        assert outcome.results[0].text == "for r1"
        assert "'secret'" in outcome.text
        assert (await bridge.run(model, said, run="r2")).results[0].is_error


async def test_a_tool_of_one_run_is_no_other_runs_and_no_clients() -> None:
    """A function may know what only its user may know."""

    def closure(whose: str) -> Any:
        def secret() -> str:
            return f"data of {whose}"

        return secret

    def model(request: ModelRequest) -> dict[str, Any]:
        if request.round > 2:
            return {"choices": [{"message": {"role": "assistant", "content": request.messages[-1]["content"]}}]}
        call = {"id": f"c{request.round}", "type": "function", "function": {"name": "secret", "arguments": "{}"}}
        return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}

    async with Bridge.open({}, remember=False) as bridge:
        for whose in ("ann", "bob"):
            outcome = await bridge.run(model, "go", tools=[closure(whose)], run="chat", tenant=whose)
            assert [result.text for result in outcome.results] == [f"data of {whose}"] * 2
            assert outcome.text == f"data of {whose}"
        assert "tools/secret" not in [tool.id for tool in await bridge.list_tools()]
        with pytest.raises(RequestFailed):
            await bridge.call_tool("secret", run="chat", tenant="eve")
        with pytest.raises(RequestFailed):
            await bridge.call_tool("secret", run="chat", tenant="ann", user="eve")


async def test_a_bridge_that_does_not_run_says_so() -> None:
    bridge = Bridge.open({}, tools=[add], remember=False)
    with pytest.raises(BridgeClosed, match="async with"):
        await bridge.call_tool("add", {"a": 1})
    with pytest.raises(BridgeClosed):
        await bridge.list_tools()
    async with bridge:
        assert (await bridge.call_tool("add", {"a": 1})).text == "2"
    for work in (bridge.list_tools(), bridge.call_tool("add", {"a": 1}), bridge.add_tool(abs), bridge.tools_for("mcp")):
        with pytest.raises(BridgeClosed, match="ended"):
            await work


async def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools are called 'add'"):
        Bridge.open({}, tools=[add, add])


async def test_what_a_server_asks_the_program_answers() -> None:
    """As clients with these capabilities do; both through the way of every question."""
    asked: list[Mapping[str, Any]] = []

    def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(params)
        return {"name": "Ann"}

    async def sample(params: Mapping[str, Any]) -> str:
        return f"said {params['messages'][0]['content']['text']}"

    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    said = {"role": "user", "content": {"type": "text", "text": "hi"}}
    steps = [
        {"send": _question(1, "elicitation/create", {"message": "Who?", "requestedSchema": form})},
        {"send": _question(2, "sampling/createMessage", {"messages": [said], "maxTokens": 5})},
        {"await": [1, 2]},
    ]
    config = {"servers": {"asking": python_server("asking", "legacy")}}
    async with Bridge.open(config, remember=False, on_elicitation=answer, on_sampling=sample) as bridge:
        with anyio.fail_after(60):
            results = [await bridge.call_tool("asking/play", {"steps": steps}) for _ in range(2)]
    for result in results:
        answers = json.loads(result.text)
        assert answers["1"] == {"action": "accept", "content": {"name": "Ann"}}
        assert answers["2"]["content"]["text"] == "said hi"
    assert [params["message"] for params in asked] == ["[asking] Who?"] * 2


def _question(id_: int, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


async def test_approvals_are_listed_agreed_to_and_refused() -> None:
    config = {"servers": {"plain": python_server("plain", tool={"echo": {"permission": "require_approval"}})}}
    async with Bridge.open(config, remember=False) as bridge, anyio.create_task_group() as tasks:
        assert await bridge.settled(30)
        found: list[str] = []

        async def call(text: str) -> None:
            result = await bridge.call_tool("plain/echo", {"text": text})
            found.append(f"{text}: {result.text}")

        with anyio.fail_after(60):
            for text in ("yes", "no"):
                tasks.start_soon(call, text)
                while not (pending := await bridge.pending_approvals()):
                    await anyio.sleep(0.02)
                (one,) = pending
                await (bridge.approve(one.request.id) if text == "yes" else bridge.deny(one.request.id))
                while not found or not found[-1].startswith(text):
                    await anyio.sleep(0.02)
    assert found[0] == "yes: yes"
    assert "was not approved" in found[1]


async def test_the_program_is_asked_first_and_hooks_see_its_calls() -> None:
    seen: list[str] = []

    def agree(request: ApprovalRequest) -> bool:
        seen.append(request.tool)
        return True

    config = {"servers": {"plain": python_server("plain", permission="require_approval")}}
    async with Bridge.open(config, remember=False, approver=agree) as bridge:
        assert (await bridge.call_tool("plain/echo", {"text": "hi"})).text == "hi"
    assert seen == ["plain/echo"]


async def test_events_are_heard() -> None:
    async with Bridge.open({"observe": {}}, tools=[add], remember=False) as bridge:
        events = bridge.events()
        await bridge.call_tool("add", {"a": 1}, run="r1")
        with anyio.fail_after(30):
            async for event in events:
                if event.name == "call.finished":
                    break
        assert (event.run, event.tool, event.data.outcome) == ("r1", "tools/add", "ok")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"config": 5}, "int"),
        ({"tools": add}, r"tools=\[…\]"),
        ({"tools": [5]}, "no tool"),
        ({"approver": True}, "approver"),
    ],
    ids=["config", "tool", "number", "approver"],
)
def test_wrong_parameters_are_told(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Bridge.open(**{"config": {}, **wrong})


async def test_wrong_requests_are_told() -> None:
    async with Bridge.open({}, tools=[add], remember=False) as bridge:
        with pytest.raises(TypeError, match="mapping"):
            await bridge.call_tool("add", ["a"])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="OpenAIModel"):
            bridge.run("gpt-5", "hello")  # type: ignore[arg-type]
        with pytest.raises(RequestFailed, match="Unknown resource: nope://x"):
            await bridge.read_resource("nope://x")
        with pytest.raises(ConfigError, match="without a configuration file"):
            await bridge.add_server("plain", python_server("plain"), keep=True)
        assert [tool.id for tool in await bridge.list_tools(only="tools/*")] == ["tools/add"]


async def test_a_question_may_be_a_text_and_a_model_an_ordinary_function() -> None:
    heard: list[Any] = []

    def model(request: ModelRequest) -> dict[str, Any]:
        heard.extend(request.messages)
        return {"choices": [{"message": {"role": "assistant", "content": "hello"}}]}

    async with Bridge.open({}, remember=False) as bridge:
        assert (await bridge.run(model, "hi")).text == "hello"
    assert heard == [{"role": "user", "content": "hi"}]


async def test_a_model_may_find_tools_by_itself() -> None:
    """More tools than an API takes: the bridge's finders stand for all of them."""

    def model(request: ModelRequest) -> dict[str, Any]:
        wanted = {
            1: ("find_tools", {"query": "add two numbers"}),
            2: ("call_tool", {"name": "add", "arguments": {"a": 2}}),
        }
        if request.round not in wanted:
            return {"choices": [{"message": {"role": "assistant", "content": request.messages[-1]["content"]}}]}
        name, arguments = wanted[request.round]
        call = {
            "id": f"c{request.round}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}

    async with Bridge.open({}, tools=[add], remember=False) as bridge:
        outcome = await bridge.run(model, "add", tools=["mcpbridge/find_tools", "mcpbridge/call_tool"])
    assert "add" in outcome.results[0].text
    assert outcome.text == "3"


async def test_a_client_gets_the_best_of_a_query_as_the_bridge_does() -> None:
    def late(text: str) -> str:
        """Send a letter by post."""
        return text

    async with Bridge.open(PLAIN, tools=[add, late], remember=False) as bridge, bridge.client() as client:
        for query, best in (("add two numbers", "add"), ("send a letter", "late")):
            (own,) = await bridge.list_tools(query, limit=1)
            (listed,) = (await client.list_tools(query=query, limit=1)).tools
            assert listed.name == own.name == best
