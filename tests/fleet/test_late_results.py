"""A result that came too late for its call is found by the bridge that has the session next, once (issue 24)."""

import asyncio
import json
import signal
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client as DownstreamClient
from mcpbridge.pipeline.stages.abandoned_calls import LATE as LATE_KIND
from mcpbridge.pipeline.stages.abandoned_calls import AbandonedCalls
from mcpbridge.protocol.body import Body
from mcpbridge.results.kept_results import RESULTS
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.upstream.settings import ServerSettings
from support.fleet_clients import Client, message, read
from support.real_sign_in import local_server
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet
LATE = "mcpbridge/late"
WHOLE = "[results]\nthreshold = 1000000\n"
"""The journal of the server is not shortened."""


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, more=WHOLE, servers=local_server("up", "plain")) as found:
            yield found
    finally:
        redis.kill()


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=90) as found:
        yield found


@pytest.fixture
def threads() -> Generator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as found:
        yield found


def call(client: Client, at: Replica, tool: str, id_: int = 1) -> dict[str, Any]:
    """The result; it takes a moment until the next bridge has a session."""
    answers = list[httpx2.Response]()

    def comes() -> bool:
        answers.append(client.post(at, message("tools/call", id_, name=f"up__{tool}", arguments={})))
        return answers[-1].status_code == 200

    until(comes, "the bridge that is asked has the session")
    return read(answers[-1])["result"]


def held(client: Client, at: Replica) -> int:
    """Calls of `hold` that the server of this bridge has had."""
    journal = json.loads(call(client, at, "journal")["content"][0]["text"])
    return sum(one.get("params", {}).get("name") == "hold" for one in journal)


def expect_new_call(
    client: Client, at: Replica, helper: Client, threads: ThreadPoolExecutor, times: int
) -> "Future[dict[str, Any]]":
    """A call of `hold` that reaches the server, which is the call of this number there."""
    under_way = threads.submit(call, client, at, "hold", 7)
    until(lambda: held(helper, at) == times, "the server has the call")
    return under_way


def give_up(client: Client, at: Replica, helper: Client, threads: ThreadPoolExecutor) -> None:
    """Make a call, stop waiting for it, and let it end: its result is kept when this returns."""
    call_ = message("tools/call", 7, name="up__hold", arguments={})
    under_way = threads.submit(client.post, at, call_)
    until(lambda: held(helper, at) == 1, "the server has the call")
    gone = message("notifications/cancelled", None, requestId=7, reason="timed out after 1s")
    assert client.post(at, gone).status_code == 202
    call(helper, at, "release")
    under_way.result(90)


def leave(replica: Replica, how: str) -> None:
    if how == "drain":
        drained = replica.command("fleet", "drain")
        assert drained.returncode == 0, drained.stderr
    else:
        getattr(replica, how)()


@pytest.mark.parametrize("end", ["kill", "stop", "drain"])
def test_the_same_call_gets_it_at_the_next_bridge_once(
    pair: Fleet, http: httpx2.Client, threads: ThreadPoolExecutor, end: str
) -> None:
    first, second = pair.replicas
    client = Client(http).begin(first)
    give_up(client, first, Client(http).begin(first), threads)
    leave(first, end)

    other, helper = Client(http).begin(second), Client(http).begin(second)
    of_another = expect_new_call(other, second, helper, threads, 1)
    call(helper, second, "release")
    assert LATE not in of_another.result(90).get("_meta", {}), "a session of the same user, with the same call"

    late = call(client, second, "hold")
    assert late["content"][0]["text"] == "released"
    assert late["_meta"][LATE]["handle"]
    assert held(helper, second) == 1, "the server had the call once, at the former bridge"

    again = expect_new_call(client, second, helper, threads, 2)
    call(helper, second, "release")
    assert LATE not in again.result(90).get("_meta", {})


def test_what_was_given_before_the_session_moved_is_not_given_again(
    pair: Fleet, http: httpx2.Client, threads: ThreadPoolExecutor
) -> None:
    first, second = pair.replicas
    client = Client(http).begin(first)
    give_up(client, first, Client(http).begin(first), threads)
    assert LATE in call(client, first, "hold")["_meta"]
    first.kill()
    helper = Client(http).begin(second)
    again = expect_new_call(client, second, helper, threads, 1)
    call(helper, second, "release")
    assert LATE not in again.result(90).get("_meta", {})


def test_while_the_store_is_away_the_call_is_made_anew(
    pair: Fleet, http: httpx2.Client, threads: ThreadPoolExecutor
) -> None:
    first, _ = pair.replicas
    client, helper = Client(http).begin(first), Client(http).begin(first)
    give_up(client, first, helper, threads)
    pair.redis.kill()
    again = expect_new_call(client, first, helper, threads, 2)
    call(helper, first, "release")
    assert LATE not in again.result(90).get("_meta", {})


TOOL = ToolRef("up", "look", "up__look", "up/look", b"{}", b"{}", b"{}", {})


class Stopping(LazyStore):
    """The server stops when it has the result, before the entry is written."""

    def __init__(self, redis: Server) -> None:
        super().__init__(redis.settings())
        self._stopped = redis

    async def put(self, kind: str, *rest: Any, **more: Any) -> str:
        handle = await super().put(kind, *rest, **more)
        self._stopped.signal(signal.SIGSTOP)
        return handle


class Bridge:
    """What one bridge knows of late calls."""

    def __init__(self, store: LazyStore) -> None:
        self.store = store
        servers = {"up": ServerSettings.model_validate({"command": "x"})}
        self.late = AbandonedCalls(self.store, servers, lambda tool: CallOptions(), 60, together=self.store.shared)
        self.client = DownstreamClient("alice", conversation="the session")

    def call(self) -> Call:
        found = Call("tools/call", "up", "look", Body(b'{"name": "look", "arguments": {}}'))
        found.tool, found.caller = TOOL, self.client
        return found

    async def repeat(self) -> bool:
        """Whether the same call gets the late result."""

        async def run(call: Call) -> Body:
            return Body(b'{"fresh":true}')

        stage = self.late.stage(TOOL, CallOptions())
        assert stage is not None
        return "fresh" not in (await stage(self.call(), run)).value()


async def test_a_result_that_may_have_been_written_down_though_nothing_said_so_is_given_once(tmp_path: Path) -> None:
    """The bridge that kept it may not have a copy to give beside the one that the store has."""
    redis = Server(tmp_path / "redis").start()
    here, there = Bridge(Stopping(redis)), Bridge(LazyStore(redis.settings()))
    try:
        with anyio.fail_after(120):
            for kind in (LATE_KIND, RESULTS):  # so that the next one of the kind is one command
                await here.store.shared.put(kind, b"x", principal="bob", expires_in=60, handle="x")
            call = here.call()
            abandoned = here.late.begin(call)
            assert abandoned is not None
            kept = await here.late.finished(call, Body(b'{"content":[]}'))
            assert kept is not None, "it can be read by its handle"
            redis.signal(signal.SIGCONT)
            while not await there.store.shared.entries(LATE_KIND, principal="alice"):
                await asyncio.sleep(0.01)
            await there.late.came_over("alice", there.client.session)
            assert [await there.repeat(), await here.repeat()] == [True, False]
    finally:
        redis.signal(signal.SIGCONT)
        redis.kill()
        await here.store.close()
        await there.store.close()
