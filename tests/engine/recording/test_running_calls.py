"""Calls under way: who looks sees them, and a person can cancel one (issue 20, Calls)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.storage.call_log.reader import Filter, read_calls, read_running
from mcpbridge.storage.call_log.timeline import read_events
from mcpbridge.storage.settings import RunMode
from support.harness import eventually
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport

ECHO = {"name": "old__echo", "arguments": {"text": "x"}}


def silent() -> ScriptedTransport:
    return ScriptedTransport({**LEGACY_SERVER, "tools/call": SILENCE})


async def asked(bridge: BridgeToScripts, transport: ScriptedTransport) -> "tuple[Ear, asyncio.Task[Any]]":
    """A call that its server has and does not answer."""
    ear = Ear(bridge.server)
    await ear.initialize()
    task = asyncio.create_task(ear.ask("tools/call", ECHO, b"2"))
    while not transport.asked("tools/call"):
        await asyncio.sleep(0.01)
    return ear, task


@pytest.mark.parametrize("mode", ["own", "embedded"])
async def test_a_person_sees_a_running_call_and_cancels_it(mode: RunMode, tmp_path: Path) -> None:
    """Also where nothing is recorded."""
    transport = silent()
    async with bridged({"old": transport}, mode=mode, store={"path": str(tmp_path / "s.db")}) as bridge:
        ear, task = await asked(bridge, transport)
        [running] = bridge.running_calls()
        assert (running.tool, running.server, running.client) == ("old/echo", "old", "ear")
        assert running.session == ear.client.session.id
        assert 0 <= running.seconds < 60
        assert running.stage == ("server" if mode == "own" else "")
        assert bridge.running_calls()[0].uid == running.uid
        assert bridge.cancel_call(running.uid, "ann")
        result = (await task)["result"]
        assert result["isError"]
        assert "a person cancelled this call" in result["content"][0]["text"]
        assert result["_meta"]["mcpbridge/error"] == "CallCancelled"
        assert bridge.running_calls() == []
        assert not bridge.cancel_call(running.uid)
        assert transport.asked("notifications/cancelled"), "its server was told"
        assert "result" in await ear.ask("tools/list", {}, b"3"), "its client goes on"
    if mode == "own":
        [row] = read_calls(tmp_path / "calls.db", Filter(), limit=9)
        assert (row["uid"], row["outcome"]) == (running.uid, "cancelled")
        [event] = read_events(tmp_path / "calls.db", Filter(), limit=9, kinds=["call.cancelled"])
        assert (event["who"], event["tool"], event["facts"]["uid"]) == ("ann", "old/echo", running.uid)


async def test_a_call_that_its_client_withdraws_is_not_one_that_a_person_cancelled(tmp_path: Path) -> None:
    transport = silent()
    async with bridged({"old": transport}, mode="own", store={"path": str(tmp_path / "s.db")}) as bridge:
        ear, task = await asked(bridge, transport)
        [running] = bridge.running_calls()
        ear.tell("notifications/cancelled", {"requestId": 2})
        assert not bridge.cancel_call(running.uid)
        assert await task == {}


async def test_of_several_calls_the_one_that_was_chosen_ends(tmp_path: Path) -> None:
    transport = silent()
    async with bridged({"old": transport}, mode="own", store={"path": str(tmp_path / "s.db")}) as bridge:
        ear, first = await asked(bridge, transport)
        second = asyncio.create_task(ear.ask("tools/call", ECHO, b"3"))
        while len(transport.asked("tools/call")) < 2:
            await asyncio.sleep(0.01)
        one, two = bridge.running_calls()
        assert one.uid < two.uid, "those that began first are first"
        assert bridge.cancel_call(two.uid)
        assert json.dumps(await second).count("CallCancelled") == 1
        assert not first.done()
        assert bridge.cancel_call(one.uid)
        await first


async def test_a_call_that_lasts_is_in_the_file_while_it_runs(tmp_path: Path) -> None:
    """Were the bridge killed, its file would say what was under way."""
    path, transport = tmp_path / "calls.db", silent()
    async with bridged({"old": transport}, mode="own", store={"path": str(tmp_path / "s.db")}) as bridge:
        _, task = await asked(bridge, transport)

        async def written() -> Any:
            return read_running(path, Filter(), limit=9, content=True) if path.exists() else []

        [row] = await eventually(written, bool)
        assert (row["outcome"], row["tool"]) == ("running", "old/echo")
        assert json.loads(row["arguments"]["content"]) == ECHO["arguments"]
        assert bridge.cancel_call(row["uid"])
        await task
        await eventually(written, lambda rows: not rows)
    assert [row["uid"] for row in read_calls(path, Filter(), limit=9)] == [row["uid"]]


async def test_beginnings_are_told_to_who_listens(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"old": transport}, mode="own", store={"path": str(tmp_path / "s.db")}) as bridge:
        with bridge.events() as events:
            ear = Ear(bridge.server)
            await ear.initialize()
            await ear.ask("tools/call", ECHO)
            names = []
            async for event in events:
                names.append(event.name)
                if event.name == "call.finished":
                    assert event.data.arguments == b"", "what waits for who listens has no content"
                    break
    assert names == ["session.began", "call.started", "call.finished"]
