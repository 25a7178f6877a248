"""Contexts of tools of every kind of Python code, and against a model of what they should be."""

import asyncio
import tempfile
from collections.abc import Generator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypedDict

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Struct
from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.schema import Settings
from mcpbridge.core.context import CallContext
from mcpbridge.engine.wiring.tools import ProgramTool
from mcpbridge.library.agent.options import get_context
from mcpbridge.library.bridge import Bridge
from mcpbridge.tools.python.executor import ExecutorBackend
from mcpbridge.tools.python.function import FunctionBackend
from mcpbridge.tools.python.run_context.context import Context
from mcpbridge.tools.python.run_context.value_types import Misfit, Shape
from mcpbridge.tools.python.settings import ExecutorSettings, FunctionSettings


class Count(BaseModel):
    n: int = 0


PROJECT = """
from mcpbridge.tools.python.run_context.context import Context
from mcpbridge.tools.packs import Pack, PackTool
from pydantic import BaseModel


class Count(BaseModel):
    n: int = 0


def count(context: Context[Count]) -> int:
    context.update(n=context.value.n + 1)
    return context.value.n


def agent(message: str, context: Context[Count]) -> str:
    return f"{message} {count(context)}"


pack = Pack(name="pack", tools=[PackTool(function=count, context_init=lambda context: Count(n=10))])
"""


async def said(bridge: Bridge, tool: str, **arguments: Any) -> str:
    with anyio.fail_after(60):
        found = await bridge.request("tools/call", {"name": tool, "arguments": arguments}, run="r1")
    return found["content"][0]["text"]


async def test_packs_and_agents_of_the_configuration_keep_contexts(tmp_path: Path) -> None:
    (tmp_path / "kept_by_tools.py").write_text(PROJECT)
    tools = {
        "counting": {"function": "kept_by_tools:count"},
        "butler": {"agent": "kept_by_tools:agent"},
    }
    config = tmp_path / "servers.toml"
    config.write_text("")
    for turn in (1, 2):
        tables: dict[str, Any] = {"store": {"path": str(tmp_path / "s.db")}, "tools": tools}
        tables |= {"packs": ["kept_by_tools:pack"], "source": str(config)}
        async with Bridge(Settings.model_validate(tables)) as bridge:
            assert await bridge.settled(30)
            assert await said(bridge, "tools/counting") == f"{turn}"
            assert await said(bridge, "kept_by_tools/count") == f"{10 + turn}"
            assert await said(bridge, "tools/butler", message="hi") == f"hi {turn}"


class Executor:
    def init_context(self, context: CallContext) -> Count:
        """Called once a run."""
        return Count(n=100)

    def execute(self, context: Context[Count]) -> Generator[str, None, int]:
        """Count."""
        yield "counting"
        context.update(n=context.value.n + 1)
        return context.value.n


async def test_executors_and_generators_keep_contexts() -> None:
    backend = ExecutorBackend.of(Executor(), name="worker")
    tools = {"worker": ProgramTool(backend, ExecutorSettings())}
    async with Bridge(Settings.model_validate({"store": {"kind": "memory"}}), tools=tools) as bridge:
        assert [await said(bridge, "tools/worker") for _ in range(2)] == ["101", "102"]


def test_a_validation_has_no_context_to_keep() -> None:
    class Checked(Executor):
        def validate_inputs(self, context: Context[Count]) -> None: ...

    with pytest.raises(ConfigError, match="validate_inputs"):
        ExecutorBackend.of(Checked(), name="worker")


# -- against a model

texts = st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
steps = st.tuples(st.sampled_from(["set", "update", "in place", "look", "restart"]), st.booleans(), objects)
turns = st.lists(st.tuples(st.sampled_from(["r1", "r2"]), st.lists(steps, min_size=1, max_size=3)), max_size=5)


def do(step: str, value: Any, changes: dict[str, Any]) -> None:
    """One step of a handler."""
    if step == "set":
        value.set(changes)
    elif step == "update":
        value.update(**changes)
    elif step == "in place":
        value.value.update(changes)


@settings(max_examples=25, deadline=None)
@given(turns)
@example([("r1", [("update", False, {"self": 1, "changes": 2**80}), ("restart", False, {})]), ("r1", [])])
def test_what_is_kept_is_what_a_dict_would_hold(turns: list[tuple[str, list[tuple[str, bool, Any]]]]) -> None:
    """Whatever is set in whatever turns, over restarts: the last of it is what the next turn finds."""
    model: dict[tuple[str, bool], dict[str, Any]] = {}

    async def play(directory: str) -> None:
        now: list[tuple[str, bool, Any]] = []
        found: list[Any] = []

        def handle(context: Context) -> None:
            found[:] = [context.value.copy(), context.shared.value.copy()]
            for step, is_shared, changes in now:
                do(step, context.shared if is_shared else context, changes)

        async def opened(stack: AsyncExitStack) -> Bridge:
            tools = {"handle": ProgramTool(FunctionBackend.of(handle), FunctionSettings())}
            store = {"path": str(Path(directory) / "s.db")}
            return await stack.enter_async_context(Bridge(Settings.model_validate({"store": store}), tools=tools))

        async with AsyncExitStack() as stack:
            bridge = await opened(stack)
            for run, steps in turns:
                now[:] = steps
                assert await said_in(bridge, run) == ""
                assert found == [model.get((run, False), {}), model.get((run, True), {})]
                for step, is_shared, changes in steps:
                    before = {} if step == "set" else model.get((run, is_shared), {})
                    if step in ("set", "update", "in place"):
                        model[run, is_shared] = {**before, **changes}
                    elif step == "restart":
                        await stack.aclose()
                        bridge = await opened(stack)
            for (run, is_shared), value in model.items():
                kept = await get_context(bridge.contexts, run, "" if is_shared else "handle")
                assert (kept or {}) == value

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(play(directory))


async def said_in(bridge: Bridge, run: str) -> str:
    with anyio.fail_after(60):
        found = await bridge.request("tools/call", {"name": "tools/handle", "arguments": {}}, run=run)
    return found["content"][0]["text"]


# -- values of one type


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")
    first: int = Field(default=1, alias="theFirst")
    inner: Count = Count()


class Renamed(Struct, rename="camel"):
    the_first: int = 1
    inner: "Renamed | None" = None


class Plain(TypedDict):
    first: int


@pytest.mark.parametrize(
    ("kind", "value", "changes", "expected"),
    [
        (Aliased, Aliased(), {"first": 2, "inner": Count(n=3)}, Aliased(theFirst=2, inner=Count(n=3))),
        (Aliased, UNSET, {"inner": {"n": 3}}, Aliased(inner=Count(n=3))),
        (Aliased | None, None, {"first": 2}, Aliased(theFirst=2)),
        (Renamed, Renamed(), {"the_first": 2, "inner": Renamed(3)}, Renamed(2, Renamed(3))),
        (Plain, {"first": 1}, {"first": 2}, {"first": 2}),
        (Plain, UNSET, {"first": 2}, {"first": 2}),
        (dict, {"a": 1}, {"b": [2]}, {"a": 1, "b": [2]}),
    ],
    ids=["model", "unset model", "no model", "struct", "typed dict", "unset typed dict", "dict"],
)
def test_fields_are_changed_by_their_own_names(kind: Any, value: Any, changes: Any, expected: Any) -> None:
    shape = Shape(kind)
    assert shape.read(shape.written(shape.merged(value, changes))) == expected
    with pytest.raises(Misfit, match=r"no field|no schema"):
        shape.merged(value, {"frist": 1}) if kind is not dict else Shape(object())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(int, 0), (list[str], []), (dict, {}), (Count, Count()), (Count | None, None), (Renamed, Renamed())],
    ids=str,
)
def test_a_value_begins_with_the_defaults_of_its_type(kind: Any, expected: Any) -> None:
    assert Shape(kind).initial() == expected


def test_where_a_type_has_no_defaults_there_is_no_value() -> None:
    assert Shape(Plain).initial() is UNSET
    with pytest.raises(Misfit, match="int has no fields"):
        Shape(int).merged(1, {"a": 1})
