"""What is kept and how it is told; the rest is seen through the front (`features/calls/test_cache.py`)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from pydantic import ValidationError

from mcpbridge.core.call_options import NO_HINTS, CallOptions, Hints
from mcpbridge.core.call_settings import CallDefaults, CallSettings
from mcpbridge.core.context import Session
from mcpbridge.core.elicitation import ELICIT, Elicitor, Question
from mcpbridge.core.model import Call
from mcpbridge.core.settings_precedence import resolve
from mcpbridge.pipeline.result_cache import CACHE_META, CachedResult, CachedResults, is_final, opened
from mcpbridge.pipeline.settings import CacheSettings
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.stages import cache as cache_stage
from mcpbridge.pipeline.stages.cache import Cache
from mcpbridge.protocol.body import Body
from mcpbridge.upstream.settings import ServerSettings
from support.upstreams.scripted_upstream import Someone

values = (
    st.none() | st.integers() | st.text(max_size=8) | st.dictionaries(st.text(max_size=4), st.integers(), max_size=2)
)
results = st.dictionaries(st.text(max_size=6) | st.just("_meta"), values, max_size=5)


@given(results, st.booleans())
def test_a_kept_result_is_the_same_but_for_the_mark(result: dict[str, Any], is_pretty: bool) -> None:
    data = json.dumps(result, indent=1 if is_pretty else None).encode()
    kept = CachedResult("s", "s/t", opened(data), 100.0, 160.0)
    told = kept.marked(130.25).value()
    meta = told["_meta"]
    assert meta.pop(CACHE_META) == {"hit": True, "age": 30.25, "ttl": 60.0}
    before = result.get("_meta")
    assert meta == (before if isinstance(before, dict) else {})
    assert {**told, "_meta": 0} == {**result, "_meta": 0}


def test_a_mark_of_another_bridge_gives_way_to_this_ones() -> None:
    data = json.dumps({"content": [], "_meta": {CACHE_META: {"hit": True, "age": 9}, "other": 1}}).encode()
    told = CachedResult("s", "s/t", opened(data), 0.0, 5.0).marked(0.0, is_shared=True).value()
    assert told["_meta"] == {"other": 1, CACHE_META: {"hit": True, "age": 0.0, "ttl": 5.0, "shared": True}}


def test_bytes_inside_stay_as_they_came() -> None:
    data = b'{ "content" : [ {"n": 1.50, "big": 123456789012345678901234567890} ] , "isError" : false }'
    told = bytes(CachedResult("s", "t", opened(data), 0, 1).marked(0).data)
    assert b'[ {"n": 1.50, "big": 123456789012345678901234567890} ]' in told


def kept(tool: str, size: int = 1000, until: float = 100.0) -> CachedResult:
    server = tool.partition("/")[0]
    return CachedResult(server, tool, b"x" * size, 0.0, until)


def test_what_was_not_used_for_longest_goes_first_and_nothing_is_counted_twice() -> None:
    found = CachedResults(5000, 5000)
    for name in "abc":
        assert found.put((name,), kept("s/t"))
    assert found.get(("a",), 1)
    assert found.put(("d",), kept("s/t"))
    assert found.get(("b",), 1) is None
    assert found.get(("a",), 1)
    assert found.put(("a",), kept("s/t", 10))
    assert len(found) == 3
    assert found.bytes == sum(entry.size for entry in (kept("s/t"), kept("s/t"), kept("s/t", 10)))


def test_what_is_too_old_or_too_large_is_not_there() -> None:
    found = CachedResults(5000, 2000)
    assert not found.put(("a",), kept("s/t", 2001))
    assert found.put(("b",), kept("s/t", until=7))
    assert found.get(("b",), 6.9)
    assert found.get(("b",), 7) is None
    assert (len(found), found.bytes) == (0, 0)
    assert not CachedResults(0, 2000).put(("a",), kept("s/t", 1))


def test_a_server_is_forgotten_without_the_others() -> None:
    found = CachedResults(1 << 20, 1 << 20)
    for tool in ("s/a", "s/b", "t/a"):
        found.put((tool,), kept(tool))
    assert found.by_tool(1) == dict.fromkeys(("s/a", "s/b", "t/a"), (1, 1600))
    assert (found.drop_server("s"), found.drop_server("s")) == (2, 0)
    assert found.drop(lambda entry: entry.tool == "t/a") == 1
    assert (len(found), found.bytes) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3000), st.integers(0, 9)), max_size=40))
def test_the_bound_holds_whatever_comes(puts: list[tuple[str, int, int]]) -> None:
    found = CachedResults(6000, 2500)
    for number, (name, size, until) in enumerate(puts):
        found.put((name,), kept(f"{name}/t", size, until))
        found.get((name,), number % 10)
        assert found.bytes <= 6000
        assert found.bytes == sum(size for _, size in found.by_tool(-1).values())


@pytest.mark.parametrize(
    ("name", "trusted", "tool", "server", "seconds"),
    [
        ("x", True, None, 5, 5),
        ("x", False, None, 5, 0),
        ("get_x", False, None, 5, 0),
        ("get_x", False, 7, None, 7),
        ("guess", False, 7, None, 7),
        ("set_x", False, 7, 5, 0),
        ("x", True, 0, 5, 0),
        ("x", True, None, None, 0),
    ],
)
def test_only_what_reads_is_cached_unless_it_is_said_of_the_tool(
    name: str, trusted: bool, tool: float | None, server: float | None, seconds: float
) -> None:
    options = resolve(
        name,
        Hints(read_only=True if trusted else None),
        tool=CallSettings(cache=tool) if tool is not None else None,
        server=CallSettings(cache=server),
        calls=CallDefaults(),
        is_trusted=trusted,
    )
    assert options.cache == seconds


def test_sizes_are_read_as_people_write_them() -> None:
    assert CacheSettings.model_validate({"max_bytes": "1 MiB"}).max_bytes == 1024**2
    with pytest.raises(ValidationError):
        CacheSettings.model_validate({"size": 1})


# -- clients that can be asked something


@dataclass
class Caller:
    """A client with a session of its own."""

    principal: str = ""
    name: str = "test"
    version: str = "2025-11-25"
    session: Session = field(default_factory=Session)


class Tool:
    """A tool that is cached."""

    server, name, wire, id, definition, hints = "s", "t", "s__t", "s/t", b"{}", NO_HINTS
    headers: dict[tuple[str, ...], str] = {}  # noqa: RUF012


@asynccontextmanager
async def cached(**server: Any) -> AsyncIterator[tuple[Cache, Stage]]:
    """A cache, and the stage of a tool in it."""
    settings = ServerSettings.model_validate({"command": "x", "cache": 60, **server})
    cache = Cache(CacheSettings(), {"s": settings}, CallDefaults())
    stage = cache.stage(Tool(), CallOptions(cache=60, effect="read"))
    assert stage is not None
    with anyio.fail_after(30):
        async with cache.running():
            yield cache, stage


def call_of(caller: Caller, client: Elicitor | None = None, **members: Any) -> Call:
    call = Call("tools/call", "s", "t", Body(json.dumps({"name": "t", "arguments": {}, **members}).encode()))
    call.tool, call.caller = Tool(), caller
    if client is not None:
        call.client = client
    return call


class Server:
    """Counts what reaches it; each call ends when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.may_end = asyncio.Event()
        self.asks = False

    async def __call__(self, call: Call) -> Body:
        self.calls.append(call)
        await self.may_end.wait()
        if self.asks:
            await call.client.ask(Question("s", ELICIT, Raw(b'{"message":"?"}')))
        return Body(b'{"content":[],"number":%d}' % len(self.calls))


async def running(*calls: Any) -> list[asyncio.Task[Body]]:
    """Calls under way: each has come as far as it can."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_a_run_whose_client_is_asked_something_is_for_that_client_alone_and_not_kept() -> None:
    async with cached() as (cache, stage):
        server, caller, person = Server(), Caller(), Someone(form=True)
        person.answer.set_result({"action": "accept"})
        tasks = await running(*(stage(call_of(caller, person), server) for _ in range(3)))
        assert len(server.calls) == 1
        server.asks = True
        server.may_end.set()
        await asyncio.gather(*tasks)
        assert (len(server.calls), len(person.asked)) == (3, 3)
        assert len(cache.results) == 0
        elicitor = server.calls[0].client
        assert elicitor is not person
        assert (elicitor.owner, elicitor.home, elicitor.principal) == (person.owner, person.home, "")
        assert (elicitor.relays, elicitor.give_way("s"), await elicitor.project()) == (False, False, "")
        elicitor.finished(person.asked[0])


@pytest.mark.parametrize(("questions", "runs"), [("auto", 2), ("never", 1)])
async def test_clients_that_can_be_asked_share_nothing_with_others_where_the_server_may_ask(
    questions: str, runs: int
) -> None:
    async with cached(questions=questions) as (_, stage):
        server = Server()
        server.may_end.set()
        for caller in (Caller(), Caller()):
            for _ in range(2):
                await stage(call_of(caller, Someone(roots=True)), server)
        assert len(server.calls) == runs


async def test_later_rounds_tasks_and_other_members_are_calls_of_their_own() -> None:
    async with cached() as (cache, stage):
        server, caller = Server(), Caller()
        server.may_end.set()
        await stage(call_of(caller), server)
        await stage(call_of(caller, requestState="s"), server)
        await stage(call_of(caller, inputResponses={}), server)
        followed, later = call_of(caller), call_of(caller)
        followed.takes_task, later.continues = True, True
        await stage(followed, server)
        await stage(later, server)
        assert len(server.calls) == 5
        for number, members in enumerate(({"new": 1}, {"new": 2}, {"new": 1}, {}), 1):
            await stage(call_of(caller, **members), server)
            assert len(server.calls) == 5 + min(number, 2)
        assert len(cache.results) == 3


@pytest.mark.parametrize(
    "result",
    [
        b'{"resultType":"input_required","requestState":"s"}',
        b'{"resultType":"task","taskId":"1"}',
        b'{"task":{"taskId":"1","status":"working"}}',
        b"[1]",
    ],
)
async def test_what_is_no_result_yet_is_for_one_call_alone(result: bytes) -> None:
    async with cached() as (cache, stage):
        runs, may_end = list[Call](), asyncio.Event()

        async def server(call: Call) -> Body:
            runs.append(call)
            await may_end.wait()
            return Body(result)

        tasks = await running(*(stage(call_of(Caller()), server) for _ in range(2)))
        assert len(runs) == 1
        may_end.set()
        assert [bytes((await task).data) for task in tasks] == [result] * 2
        assert (len(runs), len(cache.results)) == (2, 0)


async def test_what_is_asked_about_a_task_may_tell_of_a_write() -> None:
    async with cached() as (cache, stage):
        server = Server()
        server.may_end.set()
        rest = cache.stage(None, CallOptions())
        assert rest is not None
        for method, kept_after in (("prompts/get", 1), ("tasks/get", 0)):
            await stage(call_of(Caller()), server)
            await rest(Call(method, "s", "x", Body()), server)
            assert len(cache.results) == kept_after


async def test_a_client_that_leaves_takes_its_own_signal_only() -> None:
    async with cached() as (_, stage):
        server, call = Server(), call_of(Caller())
        context = call.context
        first, second = await running(stage(call, server), stage(call_of(Caller()), server))
        call.cancelled()
        first.cancel()
        await asyncio.wait([first])
        assert context.cancelled
        assert not server.calls[0].context.cancelled
        assert server.calls[0].context.run == context.run
        second.cancel()
        await asyncio.wait([second])
        await asyncio.sleep(0)
        assert server.calls[0].context.cancelled


async def test_a_server_that_renames_its_tools_all_the_time_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the forgotten ones were used still counts in the sums."""
    monkeypatch.setattr(cache_stage, "MOST_TOOLS", 5)
    async with cached() as (cache, _):

        async def answer(call: Call) -> Body:
            return Body(b'{"content":[]}')

        for number in range(40):
            tool = Tool()
            tool.name = f"t{number}"
            tool.id = f"s/t{number}"
            stage = cache.stage(tool, CallOptions(cache=60, effect="read"))
            assert stage is not None
            for _ in range(2):
                call = call_of(Caller())
                call.tool = tool
                await stage(call, answer)
        status = cache.status()
        assert [tool["tool"] for tool in status["tools"]] == [f"s/t{number}" for number in range(35, 40)]
        assert (status["misses"], status["hits"]) == (40, 40)
        assert cache.clear(tool="t3") == 1, "its name is known by its id still"
        assert cache.clear(tool="s/t39") == 1


# -- what is kept, and what is forgotten


def test_a_kept_result_gives_back_the_bytes_that_came() -> None:
    """Also where its mark stands in their middle, and where they are written in another way than ours."""
    for data in (b'{"content":[]}', b'{ "content" : [ ] }', b'{"_meta":{"a":1},"content":[]}', b"{}", b"{ }"):
        found = CachedResult.of("s", "s/t", data, 0, 1)
        assert found.original == data


def test_what_is_too_old_is_not_counted() -> None:
    found = CachedResults(50_000, 5000)
    for name, until in (("a", 5.0), ("b", 10.0), ("c", 20.0)):
        found.put((name,), kept("s/t", until=until))
    assert found.by_tool(1)["s/t"][0] == 3
    assert found.by_tool(5)["s/t"][0] == 2
    assert found.by_tool(10)["s/t"][0] == 1
    assert len(found) == 1
    assert found.by_tool(20) == {}
    assert found.bytes == 0


@pytest.mark.parametrize(
    ("change", "kept_after"),
    [
        ({}, 1),
        ({"title": "another"}, 1),
        ({"tags": ["x"]}, 1),
        ({"tools": {"include": ["*"]}}, 1),
        ({"env": {"A": "b"}}, 0),
        ({"command": "y"}, 0),
        ({"cache": 30}, 0),
        ({"share": "session"}, 0),
    ],
)
async def test_other_settings_of_a_server_forget_what_is_kept_of_it(change: dict[str, Any], kept_after: int) -> None:
    """But for what only says how it is listed."""
    async with cached() as (cache, stage):
        server = Server()
        server.may_end.set()
        await stage(call_of(Caller()), server)
        settings = ServerSettings.model_validate({"command": "x", "cache": 60, **change})
        cache.configure(CacheSettings(), {"s": settings}, CallDefaults())
        assert len(cache.results) == kept_after


async def test_a_server_that_is_gone_and_other_calls_forget_what_is_kept() -> None:
    for servers, calls in (({}, CallDefaults()), (None, CallDefaults(cache=5))):
        async with cached() as (cache, stage):
            server = Server()
            server.may_end.set()
            await stage(call_of(Caller()), server)
            own = {"s": ServerSettings.model_validate({"command": "x", "cache": 60})}
            cache.configure(CacheSettings(), own if servers is None else servers, calls)
            assert len(cache.results) == 0


@pytest.mark.parametrize(("seconds", "is_cached"), [(0.5, True), (1, True), (60, True), (0, False)])
def test_any_time_is_a_time_to_keep_results(seconds: float, is_cached: bool) -> None:
    cache = Cache(CacheSettings(), {}, CallDefaults())
    assert (cache.stage(Tool(), CallOptions(cache=seconds, effect="read")) is not None) is is_cached


@pytest.mark.parametrize(
    ("data", "is_result"),
    [
        (b'{"content":[]}', True),
        (b'{"content":[],"resultType":"complete"}', True),
        (b'{"content":[],"resultType":"input_required"}', False),
        (b'{"content":[{"text":"resultType task"}]}', True),
        (b'{"content":[],"task":{}}', True),
        (b'{"task":{}}', False),
        (b"[1]", False),
        (b"1", False),
        (b'{"resultType":', False),
        (b'{"resultType":"complete","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", False),
    ],
)
def test_only_the_result_of_the_call_itself_is_for_others(data: bytes, is_result: bool) -> None:
    assert is_final(Body(data), data) is is_result
