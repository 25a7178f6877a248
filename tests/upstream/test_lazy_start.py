"""Servers that a manifest knows: listed before they run, started at their first use."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.base.errors import UpstreamGone, UpstreamUnavailable
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.upstream import start_progress
from mcpbridge.upstream.connection import backoff as lifecycle
from mcpbridge.upstream.manifest import Manifest
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports.factory import TransportMaker
from mcpbridge.upstream.transports.stdio import StdioTransport
from support.in_process_bridge import Ear
from support.upstreams.manifest_servers import learned, remembering, remembering_bridge
from support.upstreams.scripted_upstream import (
    LEGACY_SERVER,
    MODERN_SERVER,
    SILENCE,
    ScriptedTransport,
    Someone,
    Watcher,
    call_of,
)
from support.virtual_time import pass_time, turns

SILENT = {"server/discover": SILENCE, "initialize": SILENCE}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other without a wait worth noticing, and calls may always cause one."""
    monkeypatch.setattr(lifecycle, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(lifecycle, "LONGEST_DELAY", 0.01)
    monkeypatch.setattr(lifecycle, "ON_DEMAND_AFTER", 0.0)


@pytest.fixture
def much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt is far away."""
    monkeypatch.setattr(lifecycle, "FIRST_DELAY", 3600.0)
    monkeypatch.setattr(lifecycle, "LONGEST_DELAY", 3600.0)
    monkeypatch.setattr("mcpbridge.upstream.connection.connection.random.random", lambda: 0.999)


def text(result: Any) -> str:
    return result.value()["content"][0]["text"]


# -- what is known before the start


async def test_a_server_that_is_known_is_listed_and_not_started(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    async with remembering(tmp_path, transport) as running:
        up = running.up
        assert (up.version, up.modern, up.instructions, up.title) == ("2025-06-18", False, "be kind", "scripted")
        assert await running.pool.settled(30)
        assert [json.loads(tool)["name"] for tool in up.lists["tools"]] == ["echo"]
        assert running.watcher.offers == [up.lists]
        assert up.status.state == "idle"
        assert up.connection.state_text == "idle: starts at its first use"
        assert up.has_settled
        assert up.session is None
    assert transport.attempts == 0
    assert running.watcher.states == ["idle", "stopped"]


async def test_a_server_that_nobody_knows_is_started_at_once(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with remembering(tmp_path, transport) as running:
        assert not running.up.has_settled
        await running.watcher.reaches("ready")
    assert "idle" not in running.watcher.states


async def test_another_way_of_starting_it_is_another_server(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    async with remembering(tmp_path, transport, env={"TOKEN": "another"}) as running:
        await running.watcher.reaches("ready")
        assert transport.attempts == 1


async def test_an_eager_server_is_listed_from_memory_and_started_all_the_same(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    transport.script |= SILENT
    async with remembering(tmp_path, transport, start="eager") as running:
        assert await running.pool.settled(30)
        assert len(running.watcher.offers) == 1
        await transport.tries(1)
        assert running.up.status.state == "starting"
    assert "idle" not in running.watcher.states


async def test_what_a_modern_server_is_stays_known(tmp_path: Path) -> None:
    transport = ScriptedTransport(MODERN_SERVER)
    await learned(tmp_path, transport)
    async with remembering(tmp_path, transport) as running:
        up = running.up
        assert up.modern
        assert not up.runs_tasks
        assert not up.lacks("resources", "subscribe")
        assert up.lacks("completions")
        client = Someone(form=True)
        assert up.serves(client)
        assert text(await up.request(call_of(client=client))) == "done"
        assert running.pool.instances("up") == 1


async def test_a_server_that_does_not_bear_the_probe_is_not_probed_again(tmp_path: Path) -> None:
    """Else each of its starts would cost one more process."""
    transport = ScriptedTransport(LEGACY_SERVER)

    def dies(_: Any) -> str:
        transport.line.ends("exit code 1")
        return SILENCE

    transport.script["server/discover"] = dies
    await learned(tmp_path, transport)
    async with remembering(tmp_path, transport) as running:
        await running.up.request(call_of())
        assert transport.attempts == 1
        assert not transport.asked("server/discover")


# -- the first use


async def test_a_call_starts_it_and_calls_side_by_side_start_it_once(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    async with remembering(tmp_path, transport) as running:
        results = await asyncio.gather(*(running.up.request(call_of()) for _ in range(5)))
        assert [text(result) for result in results] == ["done"] * 5
        assert transport.attempts == 1
        assert running.up.connection.state_text == "ready"
    assert running.watcher.states == ["idle", "starting", "ready", "stopped"]


async def test_a_start_may_take_longer_than_a_place_may_be_waited_for(tmp_path: Path) -> None:
    """Neither the time for a place nor the number of places counts while it starts."""
    transport = ScriptedTransport(LEGACY_SERVER)
    how = {"queue_timeout": 1, "max_concurrent": 1, "max_queued": 9}
    await learned(tmp_path, transport, **how)
    transport.script |= SILENT
    async with remembering(tmp_path, transport, **how) as running:
        calls = [asyncio.ensure_future(running.up.request(call_of())) for _ in range(5)]
        await transport.hears("server/discover")
        pass_time(1.2)  # more than they would have for a place
        await turns()
        assert not any(call.done() for call in calls)
        transport.line.gives({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "?"}})
        handshake = await transport.hears("initialize")
        transport.line.gives({"jsonrpc": "2.0", "id": handshake["id"], "result": LEGACY_SERVER["initialize"]})
        assert [text(await call) for call in calls] == ["done"] * 5


async def test_a_call_waits_for_a_start_only_as_long_as_it_has_time_and_the_start_goes_on(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    transport.script |= SILENT
    async with remembering(tmp_path, transport) as running:
        call = call_of()
        call.timeouts = Timeouts(0.05, 60)
        with pytest.raises(UpstreamUnavailable, match=r"starting \(the call waited 0.05 s for it\)"):
            await running.up.request(call)
        assert running.up.status.state == "starting"


async def test_a_client_that_asked_for_progress_hears_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spec: progress must increase. What the server says of the call comes after, whatever it begins with."""
    monkeypatch.setattr(start_progress, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(start_progress, "EVERY_SECONDS", 0.001)
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    answers = transport.script["initialize"]
    transport.script["initialize"] = SILENCE

    def works(params: dict[str, Any]) -> Any:
        token = params["_meta"]["progressToken"]
        transport.line.says("notifications/progress", progressToken=token, progress=0, message="at work")
        return LEGACY_SERVER["tools/call"]

    transport.script["tools/call"] = works
    async with remembering_bridge(tmp_path, {"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        asked = {"name": "up__echo", "arguments": {}, "_meta": {"progressToken": "t"}}
        answer = asyncio.ensure_future(ear.ask("tools/call", asked))
        handshake = await transport.hears("initialize")
        await ear.hears("notifications/progress", times=3)
        transport.line.gives({"jsonrpc": "2.0", "id": handshake["id"], "result": answers})
        assert (await answer)["result"]["content"][0]["text"] == "done"
    told = [message["params"] for message in ear.meanwhile if message["method"] == "notifications/progress"]
    assert {one["progressToken"] for one in told} == {"t"}
    values = [one["progress"] for one in told]
    assert values == sorted(set(values)), "each is more than the one before"
    assert told[0]["message"].startswith("Starting server 'up' … ")
    assert (told[-1]["progress"], told[-1]["message"]) == (0, "at work")


async def test_who_subscribes_starts_it(tmp_path: Path) -> None:
    capabilities = {"tools": {}, "resources": {"subscribe": True}}
    script = {**LEGACY_SERVER, "initialize": {**LEGACY_SERVER["initialize"], "capabilities": capabilities}}
    script |= {"resources/list": {"resources": [{"uri": "a:b", "name": "b"}]}, "resources/subscribe": {}}
    transport = ScriptedTransport(script, **{"resources/templates/list": {"resourceTemplates": []}})
    await learned(tmp_path, transport)
    async with remembering_bridge(tmp_path, {"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        [resource] = (await ear.ask("resources/list"))["result"]["resources"]
        assert transport.attempts == 0
        assert (await ear.ask("resources/subscribe", {"uri": resource["uri"]}))["result"] == {}
        assert (await transport.hears("resources/subscribe"))["params"]["uri"] == "a:b"


async def test_a_completion_that_it_does_not_give_does_not_start_it(tmp_path: Path) -> None:
    prompts = {"prompts/list": {"prompts": [{"name": "p"}]}}
    opened = {**LEGACY_SERVER["initialize"], "capabilities": {"tools": {}, "prompts": {}}}
    transport = ScriptedTransport({**LEGACY_SERVER, **prompts, "initialize": opened})
    await learned(tmp_path, transport)
    async with remembering_bridge(tmp_path, {"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        asked = {"ref": {"type": "ref/prompt", "name": "up__p"}, "argument": {"name": "a", "value": ""}}
        assert (await ear.ask("completion/complete", asked))["result"]["completion"]["values"] == []
        assert transport.attempts == 0


async def test_clients_that_can_be_asked_different_things_need_not_wait_to_know_which_session_is_theirs(
    tmp_path: Path,
) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    async with remembering(tmp_path, transport) as running:
        forms, samples = Someone(form=True), Someone(sampling=True)
        running.pool.expect(forms.capabilities)
        assert running.up.serves(forms)
        await running.up.request(call_of(client=forms))
        other = await running.pool.serving(running.up, samples)
        assert other is not running.up
        assert text(await other.request(call_of(client=samples))) == "done"
        await transport.tries(2)  # one each; a server that was never seen to ask needs no spare one


async def test_the_instance_that_lists_is_not_started_where_each_client_has_its_own(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport, share="session")
    async with remembering(tmp_path, transport, share="session") as running:
        client = Someone()
        own = await running.pool.serving(running.up, client)
        assert text(await own.request(call_of(client=client))) == "done"
        assert running.up.status.state == "idle"
        assert transport.attempts == 1


# -- when it is not as it was


async def test_lists_that_are_as_they_were_are_announced_to_nobody(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    async with remembering_bridge(tmp_path, {"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        listed = (await ear.ask("tools/list"))["result"]["tools"]
        assert "up__echo" in [tool["name"] for tool in listed]
        assert transport.attempts == 0
        digest = bridge.catalog.snapshot.digest
        await ear.ask("tools/call", {"name": "up__echo", "arguments": {}})
        assert bridge.catalog.flush().digest == digest
        assert ear.told == []


async def test_lists_that_are_others_are_announced_once(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    schema = {"type": "object"}
    transport.script["tools/list"] = {"tools": [{"name": name, "inputSchema": schema} for name in ("new", "newer")]}
    async with remembering_bridge(tmp_path, {"up": transport}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        await ear.ask("tools/list")
        refused = await ear.ask("tools/call", {"name": "up__echo", "arguments": {}})
        assert "result" in refused, "it was listed, so its server has the last word"
        await ear.hears("notifications/tools/list_changed")
        names = [tool["name"] for tool in (await ear.ask("tools/list"))["result"]["tools"]]
        assert {"up__new", "up__newer"} <= set(names)
        unknown = await ear.ask("tools/call", {"name": "up__echo", "arguments": {}})
        assert "up__echo" in json.dumps(unknown["error"])
        assert [message["method"] for message in ear.told] == ["notifications/tools/list_changed"]
    async with remembering(tmp_path, transport) as running:
        assert [json.loads(tool)["name"] for tool in running.up.lists["tools"]] == ["new", "newer"]


@pytest.mark.usefixtures("much_later")
async def test_a_list_that_could_not_be_had_is_not_remembered(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    transport.script["tools/list"] = {"tools": "none"}
    async with remembering(tmp_path, transport) as running:
        with pytest.raises(UpstreamUnavailable):
            await running.up.request(call_of())
    async with remembering(tmp_path, transport) as running:
        assert len(running.up.lists["tools"]) == 1


# -- when it cannot be started


@pytest.mark.usefixtures("much_later")
async def test_a_call_is_told_why_it_could_not_be_started(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    transport.refuses = [UpstreamUnavailable("up", "exit code 127: uvx: not found")]
    async with remembering(tmp_path, transport) as running:
        why = r"Server 'up': it could not be started: exit code 127: uvx: not found \(not tried again for \d+ s\)"
        for _ in range(3):
            with pytest.raises(UpstreamUnavailable, match=why):
                await running.up.request(call_of())
        assert transport.attempts == 1, "not one for every call"
        assert running.up.lists["tools"]


@pytest.mark.usefixtures("at_once")
async def test_one_that_could_not_be_started_is_tried_again_when_it_is_needed(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    transport.refuses = [UpstreamUnavailable("up", "busy")]
    async with remembering(tmp_path, transport) as running:
        assert text(await running.up.request(call_of())) == "done"
        assert running.up.restarts == 1


@pytest.mark.usefixtures("at_once")
async def test_one_that_nobody_needs_any_more_is_not_tried_for_ever(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    transport.refuses = [UpstreamUnavailable("up", f"refused {number}") for number in range(100)]
    async with remembering(tmp_path, transport) as running:
        with pytest.raises(UpstreamUnavailable, match="could not be started: refused"):
            await running.up.request(call_of())
        running.up.connection.poke()  # the wait of a server that failed too often is long
        await running.watcher.reaches("idle", times=2)
        tries = transport.attempts
        await turns()
        assert transport.attempts == tries
        assert running.up.connection.state_text.startswith("idle: starts at its next use; it ended: refused")


@pytest.mark.usefixtures("at_once")
async def test_one_that_ends_while_nobody_uses_it_stays_down_until_somebody_does(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    async with remembering(tmp_path, transport) as running:
        await running.up.request(call_of())
        transport.line.ends("exit code 0")
        await running.watcher.reaches("idle", times=2)
        await turns()
        assert transport.attempts == 1
        assert running.up.connection.state_text == "idle: starts at its next use; it ended: exit code 0"
        assert text(await running.up.request(call_of())) == "done"
        assert transport.attempts == 2


@pytest.mark.usefixtures("at_once")
async def test_one_that_crashes_under_a_call_is_there_for_the_next(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    await learned(tmp_path, transport)
    async with remembering(tmp_path, transport) as running:
        call = asyncio.ensure_future(running.up.request(call_of()))
        await transport.hears("tools/call")
        transport.line.ends("exit code 11")
        with pytest.raises(UpstreamGone):
            await call
        transport.script["tools/call"] = LEGACY_SERVER["tools/call"]
        assert text(await running.up.request(call_of())) == "done"


async def test_progress_is_told_to_those_alone_who_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_progress, "FIRST_SECONDS", 0.001)
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    transport.script["initialize"] = SILENCE
    told: list[str] = []

    def hear(method: str, params: Raw) -> None:
        told.append(method)

    async with remembering(tmp_path, transport) as running:
        call = asyncio.ensure_future(running.up.request(call_of(update=hear)))
        asked = asyncio.ensure_future(running.up.request(call_of(update=hear, wants_progress=True)))
        await transport.hears("initialize")
        with anyio.fail_after(30):
            while not told:
                await anyio.sleep(0.001)
        assert told == ["notifications/progress"]
        call.cancel()
        asked.cancel()
        await asyncio.wait([call, asked])


# -- with a process


PLAIN = Path(__file__).parents[1] / "servers" / "plain.py"


async def test_a_process_that_is_killed_while_nobody_uses_it_is_replaced_at_the_next_call(tmp_path: Path) -> None:
    settings = {"up": ServerSettings.model_validate({"command": sys.executable, "args": ["-ES", str(PLAIN)]})}
    make = TransportMaker(max_bytes=1 << 20, redact=str)

    def pool(watcher: Watcher) -> Pool:
        return Pool(
            settings, make, watcher, client_info={"name": "b", "version": "1"}, manifest=Manifest(tmp_path), warm_up=0
        )

    with anyio.fail_after(20):
        first = pool(Watcher())
        async with first.running():
            await first.settled(10)
        watcher = Watcher()
        second = pool(watcher)
        async with second.running():
            up = second.upstreams["up"]
            await watcher.reaches("idle")
            assert isinstance(up.transport, StdioTransport)
            assert up.transport.pid is None
            await up.request(call_of())
            pid = up.transport.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await watcher.reaches("idle", times=2)
            assert up.connection.state_text.startswith("idle: starts at its next use; it ended: ")
            assert len(up.lists["tools"]) == len(first.upstreams["up"].lists["tools"])
            await up.request(call_of())
            assert up.transport.pid not in (None, pid)
    assert watcher.offers[0] == watcher.offers[-1]
