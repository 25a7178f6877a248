"""Servers that nobody uses for a while are stopped; they stay listed, and start again at their next use."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.protocol.transport import Receiver
from mcpbridge.upstream import start_progress, supervisor
from mcpbridge.upstream.connection import idle_stop as repose
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports.factory import TransportMaker
from mcpbridge.upstream.transports.stdio import StdioTransport
from support.upstreams.manifest_servers import learned, remembering
from support.upstreams.scripted_upstream import (
    LEGACY_SERVER,
    SILENCE,
    Line,
    ScriptedTransport,
    Watcher,
    call_of,
    supervised,
)
from support.virtual_time import pass_time, standing_time, turns

PLAIN = Path(__file__).parents[2] / "servers" / "plain.py"
SOON = 0.03
"""Seconds without use that are enough here."""
STAY = 5.0
"""Seconds without use that are not over before a test says so."""


def text(result: Any) -> str:
    return result.value()["content"][0]["text"]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_server_that_nobody_uses_is_stopped_and_stays_listed(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with remembering(tmp_path, transport, idle_stop=SOON) as running:
        await running.watcher.reaches("idle")
        assert running.up.connection.state_text == "idle: starts at its next use"
        assert len(running.up.lists["tools"]) == 1
        assert len(running.watcher.offers) == 1, "that it stops is no news of what it offers"
        assert running.up.restarts == 0
        while transport.line.is_open:
            await anyio.sleep(0.001)
    assert running.watcher.states == ["starting", "ready", "idle", "stopped"]
    assert running.watcher.reasons == [""] * 4


async def test_it_starts_again_at_its_next_use_as_often_as_need_be(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with remembering(tmp_path, transport, idle_stop=SOON) as running:
        for times in (1, 2, 3):
            await running.watcher.reaches("idle", times=times)
            assert text(await running.up.request(call_of())) == "done"
    assert transport.attempts == 4


async def test_a_call_keeps_it_up_however_long_it_takes(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    async with remembering(tmp_path, transport, idle_stop=STAY) as running:
        call = asyncio.ensure_future(running.up.request(call_of()))
        asked = await transport.hears("tools/call")
        pass_time(3 * STAY)
        await turns()
        assert running.up.status.state == "ready"
        transport.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": LEGACY_SERVER["tools/call"]})
        assert text(await call) == "done"
        pass_time(STAY)
        await running.watcher.reaches("idle")


@pytest.mark.parametrize("use", ["held", "subscribed", "expected", "task"])
async def test_whoever_may_come_back_to_it_keeps_it_up(tmp_path: Path, use: str) -> None:
    """Between the rounds of a call that asks back, while a task runs there, and as long as somebody is subscribed."""
    transport = ScriptedTransport(LEGACY_SERVER)
    async with remembering(tmp_path, transport, idle_stop=STAY) as running:
        up = running.up
        await running.watcher.reaches("ready")
        held = up.usage.held()
        match use:
            case "held":
                held.__enter__()
            case "subscribed":
                up.wanted.subscribe("a:b")
            case "expected":
                up.usage.expect_back(2.5 * STAY)
            case _:
                up.tasks.follow("t", call_of())
        pass_time(2 * STAY)
        await turns()
        assert up.status.state == "ready"
        match use:
            case "held":
                held.__exit__(None, None, None)
            case "subscribed":
                up.wanted.unsubscribe("a:b")
            case "task":
                up.tasks.leave("t")
            case _:
                pass
        pass_time(STAY)
        await running.watcher.reaches("idle")


async def test_a_subscription_to_a_server_that_was_stopped_starts_it(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with remembering(tmp_path, transport, idle_stop=SOON) as running:
        await running.watcher.reaches("idle")
        running.up.wanted.subscribe("a:b")
        await running.watcher.reaches("ready", times=2)


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({"command": "x"}, repose.IDLE_STOP),
        ({"command": "x", "idle_stop": 0}, 0),
        ({"command": "x", "idle_stop": "5 min"}, 300),
        ({"command": "x", "start": "eager"}, 0),
        ({"command": "x", "start": "eager", "idle_stop": 60}, 60),
        ({"url": "http://localhost/"}, 0),
        ({"url": "http://localhost/", "idle_stop": 60}, 60),
    ],
)
async def test_who_is_stopped_is_configured(tmp_path: Path, settings: dict[str, Any], seconds: float) -> None:
    """Unless it is, programs alone that start at their first use."""
    how = ServerSettings.model_validate(settings)
    memory = Manifest(tmp_path).of("up", how)
    upstream = supervisor.Upstream("up", how, ScriptedTransport({}), Watcher(), client_info={}, memory=memory)
    assert upstream.idle_stop.seconds == seconds


async def test_without_a_manifest_nobody_is_stopped_unless_it_is_configured() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with supervised(transport) as (upstream, _):
        assert upstream.idle_stop.seconds == 0
    async with supervised(transport, idle_stop=SOON) as (upstream, watcher):
        await watcher.reaches("idle")
        assert text(await upstream.request(call_of())) == "done"


class SlowToEnd(ScriptedTransport):
    """Takes its time to end."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        self.may_end = asyncio.Event()

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncIterator[Line]:
        async with super().connect(receiver) as line:
            try:
                yield line
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                    await self.may_end.wait()


async def test_a_call_that_comes_while_it_ends_gets_the_next_one(tmp_path: Path) -> None:
    """Never two processes of one server at a time."""
    transport = SlowToEnd(LEGACY_SERVER)
    async with remembering(tmp_path, transport, idle_stop=SOON) as running:
        await running.watcher.reaches("idle")
        call = asyncio.ensure_future(running.up.request(call_of()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (transport.attempts, call.done()) == (1, False)
        transport.may_end.set()
        assert text(await call) == "done"
        assert transport.attempts == 2


async def test_another_client_may_be_the_one_that_the_next_session_is_opened_for(tmp_path: Path) -> None:
    """What the last session held is gone with its process."""
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    async with remembering(tmp_path, transport, idle_stop=SOON) as running:
        await running.up.request(call_of())
        assert running.up.usage.has_served
        await running.watcher.reaches("idle", times=2)
        assert not running.up.usage.has_served
        assert not running.up.connection.has_declared


GATED = """
import pathlib, runpy, sys, time
gate, program = map(pathlib.Path, sys.argv[1:])
while not gate.exists():
    time.sleep(0.01)
sys.argv = [str(program)]
runpy.run_path(str(program), run_name="__main__")
"""
"""A server that starts once a file is there."""


async def test_the_process_ends_and_another_one_serves_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who calls hears of the start, if it takes a while."""
    monkeypatch.setattr(start_progress, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(start_progress, "EVERY_SECONDS", 0.01)
    gate = tmp_path / "gate"
    gate.touch()
    how = {"command": sys.executable, "args": ["-ES", "-c", GATED, str(gate), str(PLAIN)], "idle_stop": 0.2}
    servers = {"up": ServerSettings.model_validate(how)}
    watcher, make = Watcher(), TransportMaker(max_bytes=1 << 20, redact=str)
    pool = Pool(servers, make, watcher, client_info={"name": "b", "version": "1"}, manifest=Manifest(tmp_path / "m"))
    told: list[dict[str, Any]] = []

    def hear(method: str, params: Raw) -> None:
        told.append(json.loads(bytes(params)))
        if len(told) == 3:
            gate.touch()

    with anyio.fail_after(60):
        async with pool.running():
            up = pool.upstreams["up"]
            await watcher.reaches("ready")
            assert isinstance(up.transport, StdioTransport)
            first = up.transport.pid
            assert first is not None
            gate.unlink()
            await watcher.reaches("idle")
            while is_there(first):
                await anyio.sleep(0.01)
            call = call_of("echo", wants_progress=True, update=hear)
            call.params.put("arguments", {"text": "again"})
            assert text(await up.request(call)) == "again"
            second = up.transport.pid
            assert second not in (None, first)
            assert second is not None
            assert is_there(second)
    assert not is_there(second)
    values = [one["progress"] for one in told]
    assert len(values) >= 3
    assert values == sorted(set(values))
    assert values[-1] < 0


# -- who uses it, without a server


class Book(list[str]):
    """The tasks that somebody waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = asyncio.Event()

    async def emptied(self) -> None:
        await self.empty.wait()


async def idle_after(usage: repose.Usage, seconds: float) -> "asyncio.Task[None]":
    task = asyncio.create_task(usage.idle(seconds))
    await turns()
    return task


async def test_time_without_use_counts_from_when_it_was_made() -> None:
    with standing_time() as go_on:
        usage = repose.Usage([], Book())  # type: ignore[arg-type]
        assert usage.idle_since == asyncio.get_running_loop().time()
        idle = await idle_after(usage, 10)
        go_on(9.9)
        await turns()
        assert not idle.done()
        go_on(0.2)
        await idle


@pytest.mark.parametrize("counts", [None, True, False])
async def test_a_use_counts_from_its_end_unless_it_was_only_a_look(counts: bool | None) -> None:
    with standing_time() as go_on:
        usage = repose.Usage([], Book())  # type: ignore[arg-type]
        go_on(100)
        with usage.held() if counts is None else usage.held(counts=counts):
            go_on(50)
            assert not usage.is_idle
            assert usage.is_needed
        assert usage.is_idle
        idle = await idle_after(usage, 10)
        assert idle.done() is (counts is False)
        go_on(10.1)
        await turns()
        assert idle.done()
        usage.touch()
        assert usage.idle_since == asyncio.get_running_loop().time()


async def test_calls_tasks_and_holders_are_use() -> None:
    running, book = list[Any](), Book()
    usage = repose.Usage(running, book)  # type: ignore[arg-type]
    assert usage.is_idle
    for one in (running, book):
        one.append("x")
        assert not usage.is_idle
        assert usage.is_needed
        one.clear()
    usage.hold()
    assert repr(usage) == "<Usage 0 running, 1 holding>"
    assert not usage.is_idle
    usage.release()
    assert usage.is_idle
    assert not usage.is_needed


async def test_whoever_waits_for_its_end_waits_for_calls_and_for_tasks() -> None:
    with standing_time() as go_on:
        running, book = ["call"], Book()
        usage = repose.Usage(running, book)  # type: ignore[arg-type]
        go_on(100)
        idle = await idle_after(usage, 10)
        assert not idle.done()
        book.append("task")
        running.clear()
        usage.recheck()
        await turns()
        assert not idle.done(), "a task still runs"
        book.clear()
        book.empty.set()
        await turns()
        assert idle.done()


async def test_who_is_expected_back_is_waited_for_until_then() -> None:
    with standing_time() as go_on:
        usage = repose.Usage([], Book())  # type: ignore[arg-type]
        usage.expect_back(100)
        usage.expect_back(5)
        idle = await idle_after(usage, 10)
        go_on(99)
        await turns()
        assert (idle.done(), usage.is_idle, usage.is_needed) == (False, True, True)
        go_on(1.1)
        await turns()
        assert (idle.done(), usage.is_needed) == (True, False)


class Ended:
    """A connection that notes when it is let go."""

    def __init__(self) -> None:
        self.is_asking = False
        self.waiting = 0
        self.retired = 0

    def retire(self) -> None:
        self.retired += 1


def idle_stop_of(connection: Ended, usage: repose.Usage, **settings: Any) -> repose.IdleStop:
    how = ServerSettings.model_validate({"command": "x", **settings})
    return repose.IdleStop("up", how, connection, usage, is_primary=True, is_remembered=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["is_asking", "waiting"])
async def test_nothing_ends_while_it_is_asked_something_or_waited_for(what: str) -> None:
    with standing_time() as go_on:
        connection, usage = Ended(), repose.Usage([], Book())  # type: ignore[arg-type]
        usage.has_served = True
        setattr(connection, what, 1)
        ending = asyncio.create_task(idle_stop_of(connection, usage, idle_stop=10).run())
        await turns()
        for _ in range(20):
            go_on(1.1)
            await turns()
        assert connection.retired == 0
        setattr(connection, what, 0)
        usage.touch()
        go_on(9)
        await turns()
        assert connection.retired == 0, "the answer was a use of it"
        go_on(1.1)
        await turns()
        assert (connection.retired, usage.has_served, ending.done()) == (1, False, True)


async def test_where_nothing_is_to_end_it_it_does_not_end() -> None:
    with standing_time() as go_on:
        connection, usage = Ended(), repose.Usage([], Book())  # type: ignore[arg-type]
        stop = idle_stop_of(connection, usage, idle_stop=0)
        await stop.run()
        go_on(10**6)
        assert (stop.is_due, connection.retired) == (False, 0)


@pytest.mark.parametrize(("used_after", "ends_after"), [(None, 60), (30, 930), (59, 959)])
async def test_one_that_was_started_for_a_look_stays_a_minute_unless_it_is_used(
    used_after: float | None, ends_after: float
) -> None:
    with standing_time() as go_on:
        connection, usage = Ended(), repose.Usage([], Book())  # type: ignore[arg-type]
        stop = idle_stop_of(connection, usage)
        stop.is_looked_at = True
        ending = asyncio.create_task(stop.run())
        await turns()
        passed = 0.0
        if used_after is not None:
            go_on(used_after)
            await turns()
            usage.touch()
            passed = used_after
        while passed < ends_after - 1:
            go_on(1)
            await turns(10)
            passed += 1
        assert connection.retired == 0
        go_on(1.1)
        await turns()
        assert connection.retired == 1
        await ending


async def test_nothing_was_served_and_nobody_is_expected_at_first() -> None:
    with standing_time():
        usage = repose.Usage([], Book())  # type: ignore[arg-type]
        assert not usage.has_served
        usage.expect_back(0)
        assert not usage.is_needed, "that time is over"


async def test_whoever_waits_for_its_end_waits_for_those_who_hold_it() -> None:
    with standing_time() as go_on:
        usage = repose.Usage([], Book())  # type: ignore[arg-type]
        usage.hold()
        go_on(100)
        idle = await idle_after(usage, 10)
        assert not idle.done()
        usage.release(counts=False)
        await turns()
        assert idle.done()


@pytest.mark.parametrize(("waiting", "held", "seconds"), [(0, False, 10), (1, False, 10), (0, True, 10), (0, False, 0)])
async def test_one_that_is_lost_is_due_to_end_if_nobody_wants_it(waiting: int, held: bool, seconds: float) -> None:
    with standing_time():
        connection, usage = Ended(), repose.Usage([], Book())  # type: ignore[arg-type]
        connection.waiting = waiting
        if held:
            usage.hold()
        stop = idle_stop_of(connection, usage, idle_stop=seconds)
        assert stop.is_due is (not waiting and not held and bool(seconds))
