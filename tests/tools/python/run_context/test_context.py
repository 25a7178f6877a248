"""What handlers keep over the calls of a run, through a real bridge."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, cast

import anyio
import pytest
from msgspec import Struct
from pydantic import BaseModel, Field

from mcpbridge.base.errors import ConfigError, ContextRefused, StoreFailed
from mcpbridge.config.schema import Settings
from mcpbridge.core.context import CallContext
from mcpbridge.core.events import Event
from mcpbridge.engine.wiring.tools import ProgramTool
from mcpbridge.library.agent.options import get_context, set_context
from mcpbridge.library.bridge import Bridge
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.tools.python.function import FunctionBackend
from mcpbridge.tools.python.run_context import store as run_contexts
from mcpbridge.tools.python.run_context.context import Context
from mcpbridge.tools.python.run_context.store import UPDATED, RunContexts
from mcpbridge.tools.python.settings import FunctionSettings

Init = Callable[[CallContext], Any]


class Prefs(BaseModel):
    colour: str = "red"
    count: int = Field(default=0, ge=0)
    seen: list[str] = []


class Cart(BaseModel):
    items: list[str] = []
    total: int = 0


@dataclass
class PrefsData:
    colour: str = "red"
    count: int = 0
    seen: list[str] = field(default_factory=list[str])


class PrefsDict(TypedDict, total=False):
    colour: str
    count: int
    seen: list[str]


class PrefsStruct(Struct):
    colour: str = "red"
    count: int = 0
    seen: list[str] = []


class Needy(BaseModel):
    name: str


def given(function: Callable[..., Any], name: str = "", init: Init | None = None) -> dict[str, ProgramTool]:
    name, settings = name or function.__name__, FunctionSettings(max_concurrent=32)
    return {name: ProgramTool(FunctionBackend.of(function, name=name, settings=settings, context_init=init), settings)}


@asynccontextmanager
async def bridge_with(
    tools: Mapping[str, ProgramTool], path: Path | None = None, shared: Any = dict, init_shared: Init | None = None
) -> AsyncGenerator[Bridge]:
    store = {"path": str(path)} if path is not None else {"kind": "memory"}
    bridge = Bridge(Settings.model_validate({"store": store}), tools=tools)
    bridge.contexts.share(shared, init_shared)
    with anyio.fail_after(60):
        async with bridge:
            yield bridge


async def result(bridge: Bridge, tool: str, run: str = "r1", user: str = "", tenant: str = "", **given: Any) -> Any:
    """The text of a result, as JSON where it is; of an error with `!` before it."""
    params = {"name": f"tools/{tool}", "arguments": given}
    found = await bridge.request("tools/call", params, run=run, user=user, tenant=tenant)
    text = found["content"][0]["text"]
    if found.get("isError"):
        return f"!{text}"
    try:
        return json.loads(text)
    except ValueError:
        return text


def heard(bridge: Bridge) -> Callable[[], Awaitable[list[Event]]]:
    """Hear of changes from now on; what comes back gives those since it was last called, in order."""
    subscription = bridge.events.subscribe()

    async def told() -> list[Event]:
        bridge.events.publish("so far")
        found: list[Event] = []
        async for event in subscription:
            if event.name == "so far":
                break
            found += [event] if event.name == UPDATED else []
        return found

    return told


def data_of(event: Event) -> Any:
    """What an event says."""
    return event.data


# -- types


def counting(kind: Any) -> Callable[..., Any]:
    """A handler that counts its calls in a context of this type, and says what it has become."""

    def count(context: Any, colour: str = "") -> Any:
        value: Any = context.value
        kind: Any = type(cast("object", value))
        before: int = value.get("count", 0) if kind is dict else value.count
        context.update(count=before + 1, **({"colour": colour} if colour else {}))
        assert type(context.value) is kind
        return before + 1

    count.__annotations__["context"] = kind
    return count


KINDS = {
    "model": Context[Prefs],
    "dataclass": Context[PrefsData],
    "typed dict": Context[PrefsDict],
    "struct": Context[PrefsStruct],
    "dict": Context[dict[str, Any]],
    "bare": Context,
    "or none": Context[Prefs] | None,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_a_value_of_any_kind_lasts_over_the_turns_of_a_run(kind: Any, tmp_path: Path) -> None:
    """Issue 9: kept across turns; each run has its own, also after the process is another."""
    tools = given(counting(kind))
    async with bridge_with(tools, tmp_path / "s.db") as bridge:
        listed = (await bridge.request("tools/list", {}))["tools"]
        (schema,) = [one["inputSchema"] for one in listed if one["name"].endswith("count")]
        assert list(schema["properties"]) == ["colour"]
        assert [await result(bridge, "count"), await result(bridge, "count", colour="blue")] == [1, 2]
        assert await result(bridge, "count", run="r2") == 1
    async with bridge_with(given(counting(kind)), tmp_path / "s.db") as bridge:
        assert await result(bridge, "count") == 3
        kept = await get_context(bridge.contexts, "r1", "count")
        assert (kept["colour"], kept["count"]) == ("blue", 3)
        assert await result(bridge, "count", run="r2") == 2


async def test_calls_of_no_named_run_keep_theirs_for_themselves_and_write_nothing(tmp_path: Path) -> None:
    async with bridge_with(given(counting(Context[Prefs])), tmp_path / "s.db") as bridge:
        assert [await result(bridge, "count", run="") for _ in range(2)] == [1, 1]
        assert await bridge.store.entries("context", principal=None) == []


async def test_what_did_not_change_is_not_written(tmp_path: Path) -> None:
    async def look(context: Context[Prefs]) -> str:
        return context.value.colour

    async with bridge_with(given(look), tmp_path / "s.db") as bridge:
        assert await result(bridge, "look") == "red"
        assert await bridge.store.entries("context", principal=None) == []


async def test_another_principal_tenant_tool_or_run_sees_nothing_of_it(tmp_path: Path) -> None:
    count = counting(Context[Prefs])
    async with bridge_with({**given(count), **given(count, "other")}, tmp_path / "s.db") as bridge:
        assert await result(bridge, "count", user="ann", tenant="acme") == 1
        for tool, run, user, tenant in [
            ("count", "r1", "bob", "acme"),
            ("count", "r1", "ann", "umbra"),
            ("count", "r1", "ann", ""),
            ("count", "r1", "", "acme"),
            ("count", "r2", "ann", "acme"),
            ("other", "r1", "ann", "acme"),
        ]:
            assert await result(bridge, tool, run=run, user=user, tenant=tenant) == 1
        assert await result(bridge, "count", user="ann", tenant="acme") == 2
        assert await get_context(bridge.contexts, "r1", "count", user="bob", tenant="x") is None
        handles = {entry.handle for entry in await bridge.store.entries("context", principal=None)}
        assert all(len(handle) == 26 and "r1" not in handle for handle in handles)


async def test_a_context_has_all_that_a_call_has() -> None:
    async def look(context: Context[Prefs], call: CallContext) -> dict[str, Any]:
        assert isinstance(context, CallContext)
        assert call.run == context.run
        context.state["n"] = context.state.get("n", 0) + 1
        context.events.publish("own", 1)
        assert not context.cancelled
        return {"who": [context.run, context.user, context.tenant], "n": call.state["n"], **context.metadata}

    bridge = Bridge(Settings.model_validate({"store": {"kind": "memory"}}), tools=given(look))
    async with bridge:
        params: dict[str, Any] = {"name": "tools/look", "arguments": {}}
        for n in (1, 2):
            found = await bridge.request("tools/call", params, run="r", user="u", tenant="t", metadata={"m": 1})
            assert found["structuredContent"] == {"who": ["r", "u", "t"], "n": n, "m": 1}


# -- what fits


async def test_what_does_not_fit_is_refused_at_once_and_changes_nothing() -> None:
    told: list[str] = []

    async def spoil(context: Context[Prefs]) -> int:
        context.update(count=5)
        in_place = Prefs()
        in_place.count = "s3cret"  # pyright: ignore[reportAttributeAccessIssue] - as no model checks it
        for change in (
            lambda: context.update(count=-1),
            lambda: context.update(count="many s3cret"),
            lambda: context.update(colr="blue"),
            lambda: context.set({"count": []}),  # pyright: ignore[reportArgumentType] - what it is about
            lambda: context.set_context(None),  # pyright: ignore[reportArgumentType]
            lambda: context.update(colour="x" * 1024**2),
            lambda: context.set(in_place),
        ):
            with pytest.raises(ContextRefused) as caught:
                change()
            told.append(str(caught.value))
        context.set({"count": 7})  # pyright: ignore[reportArgumentType] - an object that fits
        assert isinstance(context.value, Prefs)
        return context.value.count

    async with bridge_with(given(spoil)) as bridge:
        assert await result(bridge, "spoil") == 7
    assert all(one.startswith("the context of tools/spoil: ") for one in told)
    assert "count: Input should be greater than or equal to 0" in told[0]
    assert "did you mean `colour`?" in told[2]
    assert "1,048,576" in told[5]
    assert "count: Input should be a valid integer" in told[6]
    assert "s3cret" not in "".join(told)


async def test_an_error_that_the_handler_lets_through_fails_the_call_and_keeps_what_was_before(tmp_path: Path) -> None:
    def spoil(context: Context[Prefs]) -> None:
        context.update(count=context.value.count + 1)
        context.update(count=-1)

    async with bridge_with(given(spoil), tmp_path / "s.db") as bridge:
        assert "count" in await result(bridge, "spoil")
        assert "greater than" in await result(bridge, "spoil")
        kept = await get_context(bridge.contexts, "r1", "spoil", kind=Prefs)
    assert kept is not None
    assert kept.count == 2


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_handler_that_fails_keeps_what_it_had_set(tmp_path: Path, *, is_async: bool) -> None:
    def fail(context: Context[Prefs]) -> None:
        context.value.seen.append("in place")
        context.update(count=context.value.count + 1)
        raise RuntimeError("no luck")

    async def fail_async(context: Context[Prefs]) -> None:
        fail(context)

    async with bridge_with(given(fail_async if is_async else fail, "fail"), tmp_path / "s.db") as bridge:
        assert [await result(bridge, "fail") for _ in range(2)] == ["!RuntimeError: no luck"] * 2
        assert await get_context(bridge.contexts, "r1", "fail", kind=Prefs) == Prefs(count=2, seen=["in place"] * 2)


async def test_a_cancelled_call_keeps_what_it_had_set(tmp_path: Path) -> None:
    is_set = asyncio.Event()

    async def hang(context: Context[Prefs]) -> None:
        context.update(count=3)
        is_set.set()
        await asyncio.Event().wait()

    async with bridge_with(given(hang), tmp_path / "s.db") as bridge:
        task = asyncio.create_task(result(bridge, "hang"))
        await is_set.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await get_context(bridge.contexts, "r1", "hang"))["count"] == 3


async def test_what_is_changed_in_place_is_kept_if_it_fits(tmp_path: Path) -> None:
    async def change(context: Context[Prefs], count: int) -> int:
        context.value.count += count
        return context.value.count

    async with bridge_with(given(change), tmp_path / "s.db") as bridge:
        told = heard(bridge)
        assert [await result(bridge, "change", count=n) for n in (1, 2)] == [1, 3]
        assert [data_of(event)["value"]["count"] for event in await told()] == [1, 3]
        assert (await result(bridge, "change", count=-9)).startswith("!")
        assert await result(bridge, "change", count=0) == 3


async def test_code_that_a_call_leaves_behind_changes_nothing_any_more() -> None:
    kept: list[Context[Prefs]] = []

    async def leave(context: Context[Prefs]) -> None:
        context.update(count=1)
        kept.append(context)

    async with bridge_with(given(leave)) as bridge:
        await result(bridge, "leave")
        with pytest.raises(ContextRefused, match="the call is over"):
            kept[0].update(count=2)
        with pytest.raises(ContextRefused, match="the call is over"):
            kept[0].shared.of(Cart).update(total=2)
        assert kept[0].value.count == 1


async def test_without_a_value_and_without_defaults_it_says_so() -> None:
    async def use(context: Context[Needy], name: str = "") -> str:
        if name:
            assert not context.is_set
            context.update(name=name)
        return context.value.name

    async def maybe(context: Context[Needy | None]) -> bool:
        return context.value is None

    async with bridge_with({**given(use), **given(maybe)}) as bridge:
        assert "there is no value yet" in await result(bridge, "use")
        assert [await result(bridge, "use", name="ann"), await result(bridge, "use")] == ["ann", "ann"]
        assert await result(bridge, "maybe") is True


async def test_a_value_that_fits_no_more_begins_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with bridge_with(given(counting(Context[Prefs])), tmp_path / "s.db") as bridge:
        assert [await result(bridge, "count") for _ in range(2)] == [1, 2]

    class Other(BaseModel):
        model_config = {"extra": "forbid"}
        count: int = 10

    async with bridge_with(given(counting(Context[Other])), tmp_path / "s.db") as bridge:
        assert [await result(bridge, "count") for _ in range(2)] == [11, 12]
    assert "a stored context does not match its type" in capsys.readouterr().out


def test_what_cannot_be_a_context_is_refused_where_the_tool_is_made() -> None:
    class Strange:
        pass

    def strange(context: Context[Strange]) -> None: ...
    def two(one: Context[Prefs], other: Context[Cart]) -> None: ...
    def none() -> None: ...

    with pytest.raises(ConfigError, match="Strange has no schema"):
        given(strange)
    with pytest.raises(ConfigError, match="two `Context"):
        given(two)
    with pytest.raises(ConfigError, match="has an initialiser, but no parameter"):
        given(none, init=lambda context: Prefs())
    with pytest.raises(ConfigError, match="what tools share"):
        RunContexts().share(Strange)


def test_a_handler_is_tried_without_a_bridge() -> None:
    context = Context.of(Prefs(count=1), shared=Cart(total=2), run="r", dependencies={"db": 1})

    def handle(context: Context[Prefs]) -> int:
        context.update(count=context.value.count + context.shared.of(Cart).value.total)
        return context.value.count

    assert handle(context) == 3
    assert (context.run, context.dependencies["db"], context.shared.value.total) == ("r", 1, 2)
    plain = Context.of({"a": 1})
    with pytest.raises(ContextRefused, match="Unable to serialize unknown type"):
        plain.update(b=object())
    assert plain.value == {"a": 1}


def test_a_view_of_what_is_shared_must_fit() -> None:
    shared = Context.of(1, shared=3).shared
    view = shared.of(Cart)
    for use in (lambda: view.value, lambda: view.set(Cart()), lambda: shared.of(type("Strange", (), {}))):
        with pytest.raises(ContextRefused, match="the shared context: "):
            use()
    assert shared.value == 3
    large = Context.of(1, shared={"big": 2**80, "total": 1}).shared
    large.of(Cart).update(total=2)
    assert large.value == {"big": 2**80, "total": 2, "items": []}


# -- initialisers


@pytest.mark.parametrize("is_async", [True, False])
async def test_initialisers_run_once_a_run_however_many_calls_begin_at_once(tmp_path: Path, *, is_async: bool) -> None:
    """Issue 9: an async initialiser once per run."""
    made: list[tuple[str, str]] = []

    async def init(context: CallContext) -> Prefs:
        made.append((context.run, "own"))
        await asyncio.sleep(0)
        return Prefs(count=len(context.run))

    def init_in_a_thread(context: CallContext) -> dict[str, Any]:
        made.append((context.run, "own"))
        return {"count": len(context.run)}

    async def init_shared(context: CallContext) -> Cart:
        made.append((context.run, "shared"))
        await asyncio.sleep(0)
        return Cart(total=100)

    async def add(context: Context[Prefs]) -> int:
        context.update(count=context.value.count + 1)
        return context.shared.value.total

    tools = given(add, init=init if is_async else init_in_a_thread)
    async with bridge_with(tools, tmp_path / "s.db", Cart, init_shared) as bridge:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(result(bridge, "add", run=f"run{n % 2}")) for n in range(20)]
        assert {call.result() for call in calls} == {100}
        assert sorted(made) == [(f"run{n}", what) for n in range(2) for what in ("own", "shared")]
        assert (await get_context(bridge.contexts, "run0", "add"))["count"] == 4 + 10
    async with bridge_with(given(add, init=init), tmp_path / "s.db", Cart, init_shared) as bridge:
        assert await result(bridge, "add", run="run0") == 100
    assert len(made) == 4


async def test_an_initialiser_that_fails_fails_the_calls_that_wait_for_it_and_is_tried_again() -> None:
    tries = 0
    may_fail = asyncio.Event()

    async def init(context: CallContext) -> Any:
        nonlocal tries
        tries += 1
        await may_fail.wait()
        if tries == 1:
            raise LookupError("no such profile")
        return {"count": "many"} if tries == 2 else Prefs(count=5)

    ran: list[int] = []

    async def look(context: Context[Prefs]) -> int:
        ran.append(context.value.count)
        return context.value.count

    async with bridge_with(given(look, init=init)) as bridge:
        calls = [asyncio.create_task(result(bridge, "look")) for _ in range(5)]
        waiting = bridge.contexts._slots._slots  # pyright: ignore[reportPrivateUsage] - nothing else tells of waiting
        while [slot.users for key, slot in waiting.items() if key[1]] != [5]:
            await asyncio.sleep(0)
        may_fail.set()
        assert [await call for call in calls] == ["!LookupError: no such profile"] * 5
        assert "valid integer" in await result(bridge, "look")
        assert [await result(bridge, "look") for _ in range(2)] == [5, 5]
    assert (tries, ran) == (3, [5, 5])


async def test_a_cancelled_call_leaves_the_initialiser_to_the_next() -> None:
    began = asyncio.Event()
    tries = 0

    async def init(context: CallContext) -> Prefs:
        nonlocal tries
        tries += 1
        if tries == 1:
            began.set()
            await asyncio.Event().wait()
        return Prefs(count=1)

    async def look(context: Context[Prefs]) -> int:
        return context.value.count

    async with bridge_with(given(look, init=init)) as bridge:
        first = asyncio.create_task(result(bridge, "look"))
        await began.wait()
        second = asyncio.create_task(result(bridge, "look"))
        first.cancel()
        assert await second == 1


# -- side by side


async def test_a_change_is_seen_by_a_call_under_way_and_told_as_it_happens() -> None:
    """Issue 9: updates observable as they happen."""
    goes_on, has_set = asyncio.Event(), asyncio.Event()

    async def watch(context: Context[Prefs]) -> list[str]:
        before = context.value.colour
        has_set.clear()
        goes_on.set()
        await has_set.wait()
        return [before, context.value.colour, context.shared.value["by"]]

    async def change(context: Context[Prefs], colour: str) -> None:
        context.update(colour=colour)
        context.shared.update(by="change")

    async def either(context: Context[Prefs], colour: str = "") -> list[str]:
        if colour:
            await change(context, colour)
            has_set.set()
            return []
        return await watch(context)

    async with bridge_with(given(either)) as bridge:
        told = heard(bridge)
        watching = asyncio.create_task(result(bridge, "either"))
        await goes_on.wait()
        assert await result(bridge, "either", colour="blue") == []
        assert [(event.data, event.run, event.tool) for event in await told()] == [
            ({"tool": "tools/either", "value": {"colour": "blue", "count": 0, "seen": []}}, "r1", "tools/either"),
            ({"tool": "", "value": {"by": "change"}}, "r1", "tools/either"),
        ]
        assert await watching == ["red", "blue", "change"]
        assert await told() == []


async def test_threads_change_fields_without_losing_any(tmp_path: Path) -> None:
    names = [f"f{n}" for n in range(16)]
    barrier = threading.Barrier(len(names))

    def mark(context: Context, name: str) -> None:
        barrier.wait(60)
        for n in range(20):
            context.update(**{name: n})
            context.shared.update(**{name: n})

    async with bridge_with(given(mark), tmp_path / "s.db") as bridge:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(result(bridge, "mark", name=name))
        assert await get_context(bridge.contexts, "r1", "mark") == dict.fromkeys(names, 19)
    async with bridge_with(given(mark), tmp_path / "s.db") as bridge:
        assert await get_context(bridge.contexts, "r1") == dict.fromkeys(names, 19)


async def test_tools_share_a_value_and_see_parts_of_it(tmp_path: Path) -> None:
    class Note(BaseModel):
        note: str = ""

    async def buy(context: Context, item: str) -> int:
        cart = context.shared.of(Cart)
        cart.update(items=[*cart.value.items, item], total=cart.value.total + 1)
        return cart.value.total

    async def note(context: Context, text: str) -> None:
        context.shared.of(Note).set(Note(note=text))

    async with bridge_with({**given(buy), **given(note)}, tmp_path / "s.db") as bridge:
        assert await result(bridge, "buy", item="apple") == 1
        await result(bridge, "note", text="hi")
        assert await result(bridge, "buy", item="pear") == 2
        assert await get_context(bridge.contexts, "r1") == {"items": ["apple", "pear"], "total": 2, "note": "hi"}
    async with bridge_with(given(note), tmp_path / "s.db", Cart) as bridge:
        assert "there is no field" not in str(await result(bridge, "note", text="unknown to a cart"))
        assert await get_context(bridge.contexts, "r1") == Cart(items=["apple", "pear"], total=2)


async def test_turns_may_go_from_one_process_to_another_and_back(tmp_path: Path) -> None:
    """What is in memory is of calls under way alone, so no bridge goes on with what another has changed."""

    async def add(context: Context, name: str) -> list[str]:
        context.update(**{name: 1})
        return sorted(context.value)

    async with bridge_with(given(add), tmp_path / "s.db") as one, bridge_with(given(add), tmp_path / "s.db") as other:
        names = list("abcd")
        for n, name in enumerate(names):
            assert await result((one, other)[n % 2], "add", name=name) == names[: n + 1]


async def test_a_tool_that_is_replaced_during_a_call_begins_with_what_was_kept(tmp_path: Path) -> None:
    goes_on, may_end = asyncio.Event(), asyncio.Event()

    async def wait(context: Context[Prefs]) -> str:
        context.update(count=5)
        goes_on.set()
        await may_end.wait()
        return context.value.colour

    def count(context: Context[PrefsData]) -> int:
        return context.value.count

    async with bridge_with(given(wait, "tool"), tmp_path / "s.db") as bridge:
        await set_context(bridge.contexts, "r1", {"count": 2}, "tool")
        first = asyncio.create_task(result(bridge, "tool"))
        await goes_on.wait()
        await bridge.set_backend("tool", given(count, "tool")["tool"])
        assert await result(bridge, "tool") == 2
        may_end.set()
        assert await first == "red"
        assert await result(bridge, "tool") == 5


class FullStore(MemoryStore):
    """Takes nothing, or does not say whether it does."""

    answers = True

    async def put(self, *_: Any, **__: Any) -> str:
        if not self.answers:
            await asyncio.Event().wait()
        raise StoreFailed("no room")


@pytest.mark.parametrize("answers", [True, False])
async def test_a_store_that_takes_nothing_costs_no_call_its_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, answers: bool
) -> None:
    """What the handler did is done: to say that it failed would have it done twice."""
    monkeypatch.setattr(run_contexts, "SAVING_SECONDS", 0.01)
    bridge = Bridge(Settings.model_validate({"store": {"kind": "memory"}}), tools=given(counting(Context[Prefs])))
    store = FullStore()
    store.answers = answers
    bridge.contexts._store = store  # pyright: ignore[reportPrivateUsage] - in the place of a disk that is full
    async with bridge:
        assert [await result(bridge, "count") for _ in range(2)] == [1, 1]
    assert capsys.readouterr().out.count("a context could not be stored") == 2


async def test_a_handler_that_fails_and_leaves_what_does_not_fit_is_told_of_its_failure() -> None:
    async def spoil(context: Context[Prefs], fail: bool) -> int:
        if fail:
            context.value.count = -1
            raise RuntimeError("no luck")
        return context.value.count

    async with bridge_with(given(spoil)) as bridge:
        assert await result(bridge, "spoil", fail=True) == "!RuntimeError: no luck"
        assert await result(bridge, "spoil", fail=False) == 0


# -- the program


async def test_the_program_gives_and_looks_at_what_is_kept(tmp_path: Path) -> None:
    goes_on, has_set = asyncio.Event(), asyncio.Event()

    async def look(context: Context[Prefs], wait: bool = False) -> list[Any]:
        if wait:
            goes_on.set()
            await has_set.wait()
        return [context.value.count, context.shared.value.total]

    async def never(context: CallContext) -> Any:
        raise AssertionError("the program gave it already")

    tools = given(look, init=never)
    async with bridge_with(tools, tmp_path / "s.db", Cart, never) as bridge:
        contexts = bridge.contexts
        assert await get_context(contexts, "r1") is None
        await set_context(contexts, "r1", Prefs(count=4), "look")
        await set_context(contexts, "r1", Cart(total=9))
        assert await result(bridge, "look") == [4, 9]
        with pytest.raises(ContextRefused, match="tools/look: count"):
            await set_context(contexts, "r1", {"count": -1}, "look")
        with pytest.raises(ContextRefused, match="the shared context: total"):
            await set_context(contexts, "r1", {"total": "x"})
        with pytest.raises(ConfigError, match="run"):
            await set_context(contexts, "", {})
        told = heard(bridge)
        looking = asyncio.create_task(result(bridge, "look", wait=True))
        await goes_on.wait()
        await set_context(contexts, "r1", {"count": 5}, "look")
        assert [(data_of(event)["value"]["count"], event.run) for event in await told()] == [(5, "r1")]
        assert (await get_context(contexts, "r1", "look"))["count"] == 5
        has_set.set()
        assert await looking == [5, 9]
        assert await get_context(contexts, "r1", "look", kind=Prefs) == Prefs(count=5)
        with pytest.raises(ContextRefused, match="look"):
            await get_context(contexts, "r1", "look", kind=Needy)
