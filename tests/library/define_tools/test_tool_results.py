"""`ToolResult`: artifacts for the program, `_meta` for clients, and errors that are said rather than raised."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from mcpbridge import Bridge, ToolCall, ToolResult, tool
from mcpbridge.base.errors import CallFailed, StoreFailed
from mcpbridge.core.context import BridgeContext
from mcpbridge.core.model import Call
from mcpbridge.library.define_tools.builder import ToolBuilder
from mcpbridge.pipeline.hooks.call import Answer, HookCall, after
from mcpbridge.protocol.body import Body
from mcpbridge.tools.python.output import ARTIFACTS, KIND, Result, keep, read

SECRET = "artifact-nobody-sees"


class Row(BaseModel):
    """A row of a table."""

    name: str
    day: date = date(2020, 1, 2)


@dataclass
class Chart:
    title: str


@asynccontextmanager
async def bridge_with(tmp_path: Path, *tools: Any, hooks: Any = (), **config: Any) -> AsyncGenerator[Bridge]:
    """A bridge with these tools and nothing else."""
    config = {"store": {"path": str(tmp_path / "store.db")}, **config}
    with anyio.fail_after(60):
        async with Bridge.open(config, tools=tools, hooks=hooks, remember=False, environ={}) as bridge:
            yield bridge


async def test_artifacts_reach_the_program_and_nobody_else(tmp_path: Path) -> None:
    log = tmp_path / "calls.db"

    @tool
    def chart() -> ToolResult[str]:
        rows = [Row(name=SECRET), Chart(SECRET), {"x": [1]}, SECRET]
        return ToolResult("here is a chart", artifacts=rows, meta={"example.com/x": 1})

    config: dict[str, Any] = {"call_log": {"enabled": True, "path": str(log)}, "calls": {"log_content": True}}
    async with bridge_with(tmp_path, chart, **config) as bridge:
        raw = await bridge.request("tools/call", {"name": "chart", "arguments": {}})
        assert raw["content"] == [{"type": "text", "text": "here is a chart"}]
        assert raw["_meta"]["example.com/x"] == 1
        assert SECRET not in json.dumps(raw)
        found = await bridge.call(chart.call())
        assert found.value == "here is a chart"
        assert list(found.artifacts) == [{"name": SECRET, "day": "2020-01-02"}, {"title": SECRET}, {"x": [1]}, SECRET]
        handle = raw["_meta"][ARTIFACTS]
        assert await read(bridge.store, "", handle) == list(found.artifacts)
        assert await read(bridge.store, "somebody else", handle) == []
        assert await read(bridge.store, "", "a" * 26) == []
        recalled = await bridge.request("tools/call", {"name": "recall", "arguments": {"handle": handle}})
        assert recalled["isError"]
        assert SECRET not in json.dumps(recalled)
    assert b"here is a chart" in log.read_bytes()
    assert SECRET.encode() not in log.read_bytes()


async def test_the_content_of_a_tool_result_is_checked_as_any_value_is(tmp_path: Path) -> None:
    @tool
    async def row(kind: str) -> ToolResult[Row]:
        if kind == "wrong":
            return ToolResult({"day": "x"})  # type: ignore[arg-type, return-value]
        if kind == "error":
            return ToolResult("no such row", is_error=True)  # type: ignore[arg-type, return-value]
        return ToolResult(Row(name="a"), artifacts=[1])

    async with bridge_with(tmp_path, row) as bridge:
        listed = (await bridge.request("tools/list", {}))["tools"]
        assert row.definition["outputSchema"]["properties"].keys() == {"name", "day"}
        assert {one["name"] for one in listed} >= {"row"}
        found = await bridge.call(row.call("right"))
        assert (found.value, list(found.artifacts)) == (Row(name="a"), [1])
        wrong = await bridge.call(row.call("wrong"))
        assert wrong.is_error
        assert "does not fit the output schema" in wrong.text
        failed = await bridge.call(row.call("error"))
        assert (failed.is_error, failed.text) == (True, "no such row")


async def test_what_is_no_json_or_the_bridge_s_own_is_a_fault_of_the_tool(tmp_path: Path) -> None:
    @tool
    def no_json() -> ToolResult[str]:
        return ToolResult("x", artifacts=[object()])

    @tool
    def pretends() -> ToolResult[str]:
        return ToolResult("x", meta={"mcpbridge/result": {"handle": "a"}})

    @tool
    def blocks() -> ToolResult[list[dict[str, Any]]]:
        return ToolResult([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], artifacts=[2])

    async with bridge_with(tmp_path, no_json, pretends, blocks) as bridge:
        found = await bridge.call_tool("no_json")
        assert found.is_error
        assert "The tool 'no_json' is at fault: its artifacts: list is no JSON" in found.text
        assert "names that begin with `mcpbridge/` are the bridge's own" in (await bridge.call_tool("pretends")).text
        found = await bridge.call_tool("blocks")
        assert (found.text, list(found.artifacts)) == ("one\ntwo", [2])


MODULE = """
from mcpbridge.tools.packs import Pack, PackTool
from mcpbridge.core.tool_calls_and_results import ToolResult

def shaped(x: int):
    return ToolResult({"x": x}, artifacts=["of a pack"])

class Executor:
    "An executor."

    async def execute(self, x: int):
        return ToolResult("done", artifacts=["of an executor"])

pack = Pack(name="given", tools=[PackTool(function=shaped, output="it is {x}")])
"""
CONFIG = """
packs = ["artifacts_of_kinds:pack"]
[tools.executor]
executor_class = "artifacts_of_kinds:Executor"
"""


async def test_every_kind_of_tool_may_give_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    async def yields() -> Any:
        yield "begun"
        yield Result(ToolResult("done", artifacts=["of a generator"]))

    built = ToolBuilder("built").handler(lambda: ToolResult("done", artifacts=["of a builder"])).build()
    (tmp_path / "artifacts_of_kinds.py").write_text(MODULE)
    (tmp_path / "servers.toml").write_text(f'store.path = "{tmp_path / "store.db"}"\n{CONFIG}')
    monkeypatch.delitem(sys.modules, "artifacts_of_kinds", raising=False)
    file = tmp_path / "servers.toml"
    with anyio.fail_after(60):
        async with Bridge.open(file, tools=[yields, built], remember=False, environ={}) as bridge:
            assert await bridge.settled(30)
            assert list((await bridge.call(yields.call())).artifacts) == ["of a generator"]
            assert list((await bridge.call_tool("built")).artifacts) == ["of a builder"]
            assert list((await bridge.call_tool("executor", {"x": 1})).artifacts) == ["of an executor"]
            found = await bridge.call_tool("artifacts_of_kinds/shaped", {"x": 1})
            assert (found.text, list(found.artifacts)) == ("it is 1", ["of a pack"])


async def test_a_kept_result_still_leads_to_them(tmp_path: Path) -> None:
    ran: list[int] = []

    @tool(annotations={"readOnlyHint": True}, cache=60)
    def slow(x: int) -> ToolResult[str]:
        ran.append(x)
        return ToolResult("found", artifacts=[{"x": x}])

    async with bridge_with(tmp_path, slow) as bridge:
        first, again = await bridge.call(slow.call(1)), await bridge.call(slow.call(1))
    assert ran == [1]
    assert list(first.artifacts) == list(again.artifacts) == [{"x": 1}]


async def test_what_shortens_or_changes_a_result_leaves_them(tmp_path: Path) -> None:
    @tool
    def large() -> ToolResult[list[dict[str, int]]]:
        return ToolResult([{"n": n} for n in range(5000)], artifacts=[SECRET], meta={"example.com/x": 1})

    @after
    def changes(call: HookCall) -> Answer:
        return Answer({**(call.result or {}), "isError": False})

    results = {"threshold": 1000, "budget": 500}
    async with bridge_with(tmp_path, large, hooks=[changes], results=results) as bridge:
        raw = await bridge.request("tools/call", {"name": "large", "arguments": {}})
        assert len(json.dumps(raw)) < 5000
        assert raw["_meta"]["example.com/x"] == 1
        assert await read(bridge.store, "", raw["_meta"][ARTIFACTS]) == [SECRET]
        script = {"name": "large", "arguments": {"_transform": "result.length"}}
        transformed = await bridge.request("tools/call", script)
        assert await read(bridge.store, "", transformed["_meta"][ARTIFACTS]) == [SECRET]
        assert len((await bridge.call(large.call())).value) == 5000
        found = await bridge.call(large.call(), whole=False)
        assert list(found.artifacts) == [SECRET]
        assert SECRET not in json.dumps([raw, transformed])
        with pytest.raises(CallFailed, match=r"`Bridge\.recall` gives the whole"):
            _ = found.value


class Broken:
    """A store that cannot keep anything."""

    async def put(self, kind: str, body: bytes, **_: Any) -> str:
        raise StoreFailed("the disk is full")


@pytest.mark.parametrize("store", [None, Broken()], ids=["none", "broken"])
async def test_where_nothing_can_be_kept_the_result_stands_without_them(store: Any) -> None:
    call = Call("tools/call", "tools", "x", Body(), around=replace(BridgeContext(), store=store))
    assert await keep(call, [1]) == ""
    assert KIND == "artifact"


async def test_a_call_of_an_unknown_type_has_the_json_value(tmp_path: Path) -> None:
    @tool
    def rows() -> list[int]:
        return [1, 2]

    async with bridge_with(tmp_path, rows) as bridge:
        assert (await bridge.call(ToolCall("rows", {}))).value == {"result": [1, 2]}
        assert (await bridge.call(rows.parse(ToolCall("tools/rows", {})))).value == [1, 2]
