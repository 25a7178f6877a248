"""Calls that other calls made, as a tree: by agents and hooks (issue 20; code mode's are in `test_calls_page.py`)."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from mcpbridge import Bridge, tool
from mcpbridge.library.agent.models.model import ModelRequest
from mcpbridge.pipeline.hooks.call import HookCall, before
from support.console_app import Visiting, visible, visit
from support.harness import eventually, python_server

CONFIG: dict[str, Any] = {
    "servers": {"gated": python_server("gated")},
    "call_log": {"enabled": True},
    "calls": {"log_content": True},
}
TASK: list[dict[str, Any]] = [{"role": "user", "content": "Ask."}]


async def read_tree(one: Visiting, tool: str, of: str) -> tuple[str, str]:
    """The page of the last call of a tool, once it names a call `of` that it made; and its tree, as tags."""
    listed = await eventually(lambda: one.get(f"calls?tool={tool}"), lambda text: 'id="call-' in text)
    uid = re.findall(r'id="call-([0-9a-f]{16})"', listed)[0]
    page = await eventually(lambda: one.get(f"calls/{uid}"), lambda text: f">{of}<" in text)
    return page, page.partition("Calls that it made")[2].partition("</section>")[0]


async def test_calls_of_a_hook_are_below_the_call_that_it_looks_at(tmp_path: Path) -> None:
    """Issue 20: nested calls (hooks) as a tree with the parent; of several levels."""

    @before(tools="store")
    async def look_first(call: HookCall) -> None:
        await bridge.call_tool("check", {"text": call.arguments["text"]})

    @tool
    async def check(text: str) -> str:
        return (await bridge.call_tool("gated/echo", {"text": text})).text

    @tool
    def store(text: str) -> str:
        return f"stored {text}"

    config = {**CONFIG, "store": {"path": str(tmp_path / "store.db")}}
    with anyio.fail_after(90):
        async with Bridge.open(config, tools=[check, store], hooks=[look_first], remember=False) as bridge:
            assert (await bridge.call_tool("store", {"text": "it"})).text == "stored it"
            async with visit(bridge) as one:
                _, tree = await read_tree(one, "store", "gated/echo")
                assert re.search(r"<li>.*check.*<ul class=\"tree\"><li>.*gated/echo", tree, re.DOTALL)
                assert tree.count("<li>") == 2
                inner = re.findall(r'/calls/([0-9a-f]{16})"[^>]*>[^<]*gated/echo', tree)
                text = visible(await one.get(f"calls/{inner[0]}"))
                assert re.search(r"Calls / within \S*check", text)
                listed = await one.get("calls")
                assert listed.count('title="Within another call"') == 2


async def test_calls_of_an_agent_are_below_the_call_of_the_agent(tmp_path: Path) -> None:
    """Issue 20: nested calls (agents) as a tree: an agent as a tool, whose model calls tools round by round."""

    async def model(request: ModelRequest, /) -> Mapping[str, Any]:
        if request.round == 3:
            message: dict[str, Any] = {"content": "Done."}
        else:
            call = {"name": "gated__echo", "arguments": json.dumps({"text": f"round {request.round}"})}
            message = {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]}
        return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]}

    @tool
    async def researcher(task: str) -> str:
        run = await bridge.run(model, TASK)
        return f"{task}: {len(run.results)} calls"

    config = {**CONFIG, "store": {"path": str(tmp_path / "store.db")}}
    with anyio.fail_after(90):
        async with Bridge.open(config, tools=[researcher], remember=False) as bridge:
            assert "2 calls" in (await bridge.call_tool("researcher", {"task": "look"})).text
            async with visit(bridge) as one:
                _, tree = await read_tree(one, "researcher", "gated/echo")
                assert tree.count("gated/echo") == 2
                inner = re.findall(r'/calls/([0-9a-f]{16})"', tree)
                page = await one.get(f"calls/{inner[1]}")
                assert re.search(r"within \S*researcher", visible(page))
                assert "round 2" in page
