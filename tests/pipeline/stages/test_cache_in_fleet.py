"""The caches of several bridges, which run equal calls once: whose result is for whom (issue 24)."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.base.errors import Overloaded
from mcpbridge.core.call_options import NO_HINTS, CallOptions
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.core.context import Session
from mcpbridge.core.elicitation import ELICIT, Elicitor, Question
from mcpbridge.core.model import Call
from mcpbridge.pipeline.result_cache import CACHE_META
from mcpbridge.pipeline.settings import CacheSettings
from mcpbridge.pipeline.stages.cache import Cache
from mcpbridge.protocol.body import Body
from mcpbridge.storage.redis.epochs import SharedEpochs
from mcpbridge.storage.redis.run_leases import RunLeases
from mcpbridge.storage.settings import redis_address
from mcpbridge.upstream.settings import ServerSettings
from support.redis_server import Server, needs_redis, shared_server
from support.upstreams.scripted_upstream import Someone

pytestmark = [needs_redis, pytest.mark.anyio]


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
    headers: dict[tuple[str, ...], str] = {}  # noqa: RUF012 - nobody changes it


class Bridge:
    """One bridge, and what reaches the server by way of it."""

    def __init__(self, redis: Server, prefix: str, settings: Mapping[str, Any]) -> None:
        self._redis, self._prefix = redis, prefix
        self.epochs = SharedEpochs(redis_address(redis.settings()), prefix)
        self.leases = RunLeases(self.epochs, prefix, "the key of these tests")
        servers = {"s": ServerSettings.model_validate({"command": "x", "cache": 60, **settings})}
        self.cache = Cache(CacheSettings(), servers, CallDefaults(), together=self.epochs, leases=self.leases)
        stage = self.cache.stage(Tool(), CallOptions(cache=60, effect="read"))
        assert stage is not None
        self._stage = stage
        self.runs: list[Call] = []
        self.has_run, self.may_end = asyncio.Event(), asyncio.Event()
        self.outcome: Callable[[Call], Awaitable[Body]] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with self.epochs.running(), self.leases.running(), self.cache.running():
            yield

    def call(self, client: Elicitor | None = None, caller: Caller | None = None, **members: Any) -> "asyncio.Task[Any]":
        """A call that comes to this bridge; its result."""
        call = Call("tools/call", "s", "t", Body(b'{"name":"t","arguments":{}}'), **members)
        call.tool, call.caller = Tool(), caller or Caller()
        if client is not None:
            call.client = client

        async def run() -> Any:
            result = json.loads(bytes((await self._stage(call, self._server)).data))
            call.note("result", result)
            return result

        return asyncio.create_task(run())

    async def lead(self, **members: Any) -> "asyncio.Task[Any]":
        """A call that has reached the server."""
        self.has_run.clear()
        task = self.call(**members)
        await self.has_run.wait()
        return task

    async def wait(self, **members: Any) -> "asyncio.Task[Any]":
        """A call that waits for another bridge."""
        before, count = self.wanted(), len(self.runs)
        task = self.call(**members)
        while self.wanted() == before:
            assert not task.done()
            await anyio.sleep(0.01)
        assert len(self.runs) == count
        return task

    def wanted(self) -> int:
        """How many bridges have waited for runs that last."""
        keys = self._redis.cli("KEYS", f"{self._prefix}:*:run:*").split()
        return sum(int(self._redis.cli("HGET", key, "wanted") or 0) for key in keys)

    async def _server(self, call: Call) -> Body:
        self.runs.append(call)
        self.has_run.set()
        if self.outcome is not None:
            return await self.outcome(call)
        await self.may_end.wait()
        return Body(b'{"content":[],"number":%d}' % len(self.runs))


@asynccontextmanager
async def bridges(*settings: Mapping[str, Any], redis: Server | None = None) -> AsyncGenerator[list[Bridge]]:
    """One for each of these settings of the server."""
    prefix = f"t{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        with anyio.fail_after(120):
            found = [Bridge(redis or shared_server(), prefix, one) for one in settings]
            for bridge in found:
                await stack.enter_async_context(bridge.running())
            yield found


def mark(result: Any) -> Any:
    return result.get("_meta", {}).get(CACHE_META)


async def test_what_another_bridge_ran_counts_as_shared_and_is_kept() -> None:
    async with bridges({}, {}) as (one, other):
        leader = await one.lead()
        waiters = [await other.wait(), other.call()]
        one.may_end.set()
        assert await leader == {"content": [], "number": 1}
        for waiter in waiters:
            result = await waiter
            assert result["number"] == 1
            assert mark(result) == {"hit": True, "age": 0.0, "ttl": 60.0, "shared": True}
        assert mark(await other.call())["hit"]
        assert "shared" not in mark(await other.call())
        status = other.cache.status()
        assert (status["misses"], status["shared"], status["hits"], status["entries"]) == (0, 2, 2, 1)
        assert not other.runs


async def test_a_run_that_turns_out_to_be_personal_keeps_no_other_bridge_waiting() -> None:
    """Its client is asked something, and takes its time."""
    async with bridges({"questions": "never"}, {"questions": "never"}) as (one, other):
        person, may_ask = Someone(form=True), asyncio.Event()

        async def ask(call: Call) -> Body:
            await may_ask.wait()
            answer = await call.client.ask(Question("s", ELICIT, Raw(b'{"message":"?"}')))
            return Body(b'{"content":[],"said":%b}' % answer)

        one.outcome = ask
        leader = await one.lead(client=person)
        waiter = await other.wait()
        other.may_end.set()
        may_ask.set()
        assert await waiter == {"content": [], "number": 1}
        assert not leader.done()
        person.answer.set_result({"action": "accept"})
        assert (await leader)["said"] == {"action": "accept"}
        assert "said" not in await one.call(client=person), "it was not kept"


async def refused(_call: Call) -> Body:
    raise Overloaded("This client has too many calls")


async def unfinished(_call: Call) -> Body:
    return Body(b'{"resultType":"input_required","requestState":"s"}')


async def failed(_call: Call) -> Body:
    return Body(b'{"content":[],"isError":true}')


@pytest.mark.parametrize("outcome", [refused, unfinished, failed])
async def test_what_is_no_result_for_others_is_none_for_other_bridges(
    outcome: Callable[[Call], Awaitable[Body]],
) -> None:
    async with bridges({}, {}) as (one, other):
        may_end = asyncio.Event()

        async def held(call: Call) -> Body:
            await may_end.wait()
            return await outcome(call)

        one.outcome = held
        leader = await one.lead()
        waiter = await other.wait()
        other.may_end.set()
        may_end.set()
        assert await waiter == {"content": [], "number": 1}
        await asyncio.gather(leader, return_exceptions=True)


async def test_when_nobody_wants_the_run_at_its_bridge_another_one_takes_over() -> None:
    async with bridges({}, {}) as (one, other):
        leader = await one.lead()
        waiter = await other.wait()
        other.may_end.set()
        leader.cancel()
        assert await waiter == {"content": [], "number": 1}


async def test_the_time_that_a_call_waited_for_another_bridge_is_part_of_the_time_that_it_has() -> None:
    async with bridges({"call_timeout": 40}, {"call_timeout": 40}) as (one, other):
        clock = asyncio.get_running_loop().time
        leader = await one.lead()
        assert one.runs[0].deadline == 0, "it has not waited"
        waiter = await other.wait()
        has_waited = clock()
        while clock() < has_waited + 0.2:
            await anyio.sleep(0.01)
        other.may_end.set()
        leader.cancel()
        await waiter
        assert has_waited + 30 < other.runs[0].deadline <= has_waited + 40


async def test_who_waits_can_leave_and_takes_nothing_from_the_others() -> None:
    async with bridges({}, {}) as (one, other):
        leader = await one.lead()
        first = await other.wait()
        second = other.call()
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        one.may_end.set()
        assert [(await task)["number"] for task in (leader, second)] == [1, 1]
        assert first.cancelled()


async def test_progress_of_the_run_reaches_who_waits_at_another_bridge() -> None:
    async with bridges({}, {}) as (one, other):
        heard, has_come = list[tuple[str, bytes]](), asyncio.Event()

        def update(method: str, params: Raw) -> None:
            heard.append((method, bytes(params)))
            has_come.set()

        leader = await one.lead()
        waiter = await other.wait(update=update)
        for method in ("notifications/message", "notifications/progress"):
            one.runs[0].update(method, Raw(b'{"progress":7}'))
        await has_come.wait()
        one.may_end.set()
        await asyncio.gather(leader, waiter)
        assert heard == [("notifications/progress", b'{"progress":7}')]


@pytest.mark.parametrize(
    ("settings", "members"),
    [
        (({}, {}), lambda number: {"caller": Caller(f"user {number}")}),
        (({}, {"env": {"A": "other"}}), lambda number: {}),
        (({"share": "session"}, {"share": "session"}), lambda number: {}),
        (({}, {}), lambda number: {"client": Someone(roots=True)}),
    ],
    ids=["other people", "a server that is configured otherwise", "sessions of their own", "clients that can be asked"],
)
async def test_calls_that_are_not_the_same_run_side_by_side(
    settings: tuple[Mapping[str, Any], ...], members: Callable[[int], Mapping[str, Any]]
) -> None:
    async with bridges(*settings) as (one, other):
        tasks = [await one.lead(**members(0)), await other.lead(**members(1))]
        assert one.wanted() == 0
        for bridge in (one, other):
            bridge.may_end.set()
        assert [(await task)["number"] for task in tasks] == [1, 1]


async def test_who_calls_after_the_cache_was_cleared_waits_for_nothing_that_began_before() -> None:
    async with bridges({}, {}) as (one, other):
        leader = await one.lead()
        before = await other.wait()
        other.cache.clear()
        after = await other.lead()
        one.may_end.set()
        assert [(await task)["number"] for task in (leader, before)] == [1, 1]
        assert other.cache.status()["entries"] == 0, "what was read before is not kept"
        other.may_end.set()
        assert mark(await after) is None


async def test_what_the_bridge_that_ran_it_may_not_keep_nobody_keeps() -> None:
    async with bridges({}, {}) as (one, other):
        leader = await one.lead()
        waiter = await other.wait()
        one.cache.forget("s")
        one.may_end.set()
        assert [(await task)["number"] for task in (leader, waiter)] == [1, 1]
        assert [bridge.cache.status()["entries"] for bridge in (one, other)] == [0, 0]


async def test_a_miss_asks_three_times_a_hit_once_and_calls_of_one_session_for_no_lease(tmp_path: Any) -> None:
    redis = Server(tmp_path / "redis").start()

    def asked() -> tuple[int, int]:
        lines = redis.cli("INFO", "commandstats").splitlines()

        def count(name: str) -> int:
            return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if line.startswith(name))

        return count("cmdstat_set:"), count("cmdstat_eval")

    try:
        async with bridges({}, redis=redis) as (one,):
            one.may_end.set()
            await one.call(caller=Caller("first"))  # makes the scripts known there
            costs: list[tuple[int, int]] = []
            for caller, client in ((Caller(), None), (Caller(), None), (Caller(), Someone(roots=True))):
                before = asked()
                await one.call(caller=caller, client=client)
                after = asked()
                costs.append((after[0] - before[0], after[1] - before[1]))
            assert costs == [(1, 2), (1, 0), (2, 0)]
    finally:
        redis.kill()
