"""What is idle is looked at in the background, a few at a time, and nobody waits for that."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.upstream import warm_up as warming
from mcpbridge.upstream.connection import idle_stop as repose
from support.upstreams.manifest_servers import Remembering, learned, remembering
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport, call_of
from support.virtual_time import pass_time, turns

SILENT = {"server/discover": SILENCE, "initialize": SILENCE}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins at once and looks again often."""
    monkeypatch.setattr(warming, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(warming, "AGAIN_SECONDS", 0.01)


def servers(*names: str) -> dict[str, ScriptedTransport]:
    return {name: ScriptedTransport(LEGACY_SERVER) for name in names}


def states(running: Remembering) -> dict[str, str]:
    return {name: upstream.status.state for name, upstream in running.pool.upstreams.items()}


def made_old(directory: Path) -> None:
    """Everything was seen a long time ago."""
    for file in directory.glob("*.server"):
        os.utime(file, (1.0, 1.0))


async def test_what_has_an_address_is_connected_and_what_is_known_well_is_not(tmp_path: Path) -> None:
    transports = servers("program", "remote")
    how = {"remote": {"url": "http://localhost/"}}
    await learned(tmp_path, transports, **how)
    async with remembering(tmp_path, transports, warm_up=2, **how) as running:
        await running.watcher.reaches("ready")
        await anyio.sleep(0.05)
        assert states(running) == {"program": "idle", "remote": "ready"}


async def test_a_program_of_which_little_is_known_any_more_is_looked_at(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    made_old(tmp_path)
    transport.script["tools/list"] = {"tools": [{"name": "new", "inputSchema": {"type": "object"}}]}
    async with remembering(tmp_path, transport, warm_up=1) as running:
        await running.watcher.reaches("ready")
        assert [json.loads(tool)["name"] for tool in running.up.lists["tools"]] == ["new"]
        assert len(running.watcher.offers) == 2
    async with remembering(tmp_path, transport, warm_up=1) as running:
        await anyio.sleep(0.05)
        assert running.up.status.state == "idle", "it was seen just now"


async def test_no_more_are_starting_at_a_time_than_may(tmp_path: Path) -> None:
    transports = servers("a", "b", "c", "d")
    await learned(tmp_path, transports)
    made_old(tmp_path)
    for transport in transports.values():
        transport.script |= SILENT
    async with remembering(tmp_path, transports, warm_up=2) as running:
        await running.watcher.reaches("starting", times=2)
        await anyio.sleep(0.05)
        starting = [name for name, state in states(running).items() if state == "starting"]
        assert len(starting) == 2
        for name in starting:
            transports[name].line.ends("exit code 1")
        await running.watcher.reaches("starting", times=4)
        assert len([name for name, state in states(running).items() if state == "starting"]) == 2


async def test_a_call_does_not_wait_behind_it(tmp_path: Path) -> None:
    transports = servers("a", "up")
    await learned(tmp_path, transports)
    made_old(tmp_path)
    transports["a"].script |= SILENT
    async with remembering(tmp_path, transports, warm_up=1) as running:
        await running.watcher.reaches("starting")
        assert states(running) == {"a": "starting", "up": "idle"}
        await running.up.request(call_of())
        assert states(running) == {"a": "starting", "up": "ready"}


@pytest.mark.parametrize("is_used", [False, True])
async def test_what_was_only_looked_at_ends_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_used: bool
) -> None:
    monkeypatch.setattr(repose, "LOOK_SECONDS", 10.0)
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    made_old(tmp_path)
    async with remembering(tmp_path, transport, warm_up=1) as running:
        await running.watcher.reaches("ready")
        if is_used:
            await running.up.request(call_of())
            pass_time(20)
            await turns()
            assert running.up.status.state == "ready"
        else:
            pass_time(5)
            await turns()
            assert running.up.status.state == "ready", "a client is there just now"
            pass_time(5.1)
            await running.watcher.reaches("idle", times=2)
    assert transport.attempts == 1


async def test_what_does_not_come_up_is_not_tried_all_the_time(tmp_path: Path) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    await learned(tmp_path, transport)
    made_old(tmp_path)
    transport.refuses = [UpstreamUnavailable("up", "no such program")] * 50
    async with remembering(tmp_path, transport, warm_up=1) as running:
        await running.watcher.reaches("idle", times=2)
        await anyio.sleep(0.05)
        assert transport.attempts == 1
        assert running.up.connection.state_text == "idle: starts at its next use; it ended: no such program"


async def test_none_is_looked_at_where_none_may_be(tmp_path: Path) -> None:
    transports = servers("a", "remote")
    how: dict[str, Any] = {"remote": {"url": "http://localhost/"}}
    await learned(tmp_path, transports, **how)
    made_old(tmp_path)
    async with remembering(tmp_path, transports, warm_up=0, **how) as running:
        await asyncio.sleep(0.05)
        assert states(running) == {"a": "idle", "remote": "idle"}
