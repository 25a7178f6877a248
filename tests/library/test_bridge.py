"""`Bridge`: what programs and commands get, with real servers behind it."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.config.schema import Settings
from mcpbridge.engine.requests import RequestFailed
from mcpbridge.library.bridge import Bridge
from support.harness import python_server
from support.in_process_bridge import bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, MODERN_SERVER, SILENCE, ScriptedTransport


def settings(servers: dict[str, Any], **sections: Any) -> Settings:
    return Settings.model_validate({"servers": servers, **sections})


async def test_a_program_lists_and_calls_through_the_bridge() -> None:
    servers = {"old": python_server("plain"), "new": python_server("modern")}
    with anyio.fail_after(60):
        async with Bridge(settings(servers)) as bridge:
            assert await bridge.settled(30)
            names = {tool["name"] for tool in (await bridge.request("tools/list", {}))["tools"]}
            assert {"old__echo", "new__echo"} <= names
            for server in servers:
                params = {"name": f"{server}__echo", "arguments": {"text": "hello"}}
                result = await bridge.request("tools/call", params)
                assert result == {"content": [{"type": "text", "text": "hello"}]}
            with pytest.raises(RequestFailed) as caught:
                await bridge.request("tools/call", {"name": "nobody"})
            assert caught.value.code == -32602


async def test_the_state_of_everything_is_told_as_json_values() -> None:
    bad = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('password=hunter2 is wrong')"]}
    servers = {
        "works": python_server("listings", "bad-tools"),
        "dies": bad,
        "off": {"command": "x", "disabled": True},
        "unset": {"command": "x", "unavailable": "missing variable ${TOKEN} in env.TOKEN"},
    }

    def redact(text: str) -> str:
        return text.replace("hunter2", "***")

    with anyio.fail_after(60):
        async with Bridge(settings(servers, bridge={"name": "mine"}), redact=redact) as bridge:
            assert await bridge.settled(30)
            told = json.loads(json.dumps(bridge.status()))
    assert (told["name"], told["clients"], told["config"]) == ("mine", 0, None)
    assert told["version"]
    assert told["uptime_s"] >= 0
    states = {server["name"]: server for server in told["servers"]}
    assert list(states) == ["dies", "off", "unset", "works"]
    works = states["works"]
    assert (works["state"], works["reason"], works["transport"], works["era"]) == ("ready", "", "stdio", "legacy")
    assert works["pid"]
    assert works["protocol"] == "2025-11-25"
    assert states["dies"]["state"] in ("retrying", "starting", "failed")
    assert "password=*** is wrong" in json.dumps(states["dies"])
    assert "hunter2" not in json.dumps(told)
    assert states["off"]["state"] == "disabled"
    assert states["unset"]["reason"].endswith("missing variable ${TOKEN} in env.TOKEN")
    assert {lost["server"] for lost in told["dropped"]} == {"works"}
    assert all(lost["reason"] for lost in told["dropped"])


async def test_waiting_for_servers_says_whether_all_had_their_answer() -> None:
    silent = ScriptedTransport({"server/discover": SILENCE, "initialize": SILENCE})
    transports = {"silent": silent, "good": ScriptedTransport(LEGACY_SERVER)}
    async with bridged(transports, settle=False, bridge={"startup_wait": 0.02}) as bridge:
        good = bridge.pool.upstreams["good"]
        while good.status.state != "ready":
            await good.connection.stepped()
        assert not await bridge.settled(0.02)
        listed = (await bridge.request("tools/list", {}))["tools"]
        assert [tool["name"] for tool in listed] == ["good__echo"], "what is there is listed at once"


async def test_a_server_that_came_back_modern_is_told_as_such() -> None:
    async with bridged({"up": ScriptedTransport(MODERN_SERVER)}) as bridge:
        [server] = bridge.status()["servers"]
        assert (server["era"], server["protocol"], server["tools"]) == ("modern", "2026-07-28", 1)


async def test_what_a_server_lost_stays_listed_and_says_why_it_is_away() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    async with bridged({"up": transport}) as bridge:
        transport.refuses = [UpstreamUnavailable("up", "connection refused")] * 20
        transport.line.ends("exit code 3")
        with anyio.fail_after(30):
            while "refused" not in bridge.status()["servers"][0]["reason"]:
                await bridge.pool.upstreams["up"].connection.stepped()
        assert (await bridge.request("tools/list", {}))["tools"]
        assert bridge.status()["servers"][0]["tools"] == 1


async def test_servers_over_http_are_made_with_their_settings() -> None:
    servers = {"up": {"url": "http://127.0.0.1:1/mcp", "headers": {"X": "y"}}}
    with anyio.fail_after(60):
        async with Bridge(settings(servers)) as bridge:
            assert await bridge.settled(30)
            [server] = bridge.status()["servers"]
    assert server["transport"] == "streamable-http"
    assert server["state"] in ("retrying", "starting")
    assert "pid" not in server


async def test_a_working_directory_that_does_not_exist_is_a_reason(tmp_path: Path) -> None:
    server = python_server("plain", cwd=str(tmp_path / "gone"))
    with anyio.fail_after(60):
        async with Bridge(settings({"up": server})) as bridge:
            assert await bridge.settled(30)
            assert "working directory does not exist" in json.dumps(bridge.status())


async def test_a_bridge_has_settled_once_every_server_was_ready_or_failed_and_stays_so() -> None:
    """Promise of `/readyz`: 503 before that, never after."""
    silent = {"initialize": SILENCE}
    servers = {"up": ScriptedTransport(LEGACY_SERVER), "slow": ScriptedTransport(silent)}
    how = {"slow": {"era": "legacy"}}
    async with bridged(servers, servers=how, settle=False, bridge={"startup_wait": 60}) as b:
        up = b.pool.upstreams["up"]
        while up.status.state != "ready":
            await up.connection.stepped()
        asked = await servers["slow"].hears("initialize")
        assert not b.has_settled
        servers["slow"].line.gives({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32603, "message": "no"}})
        assert await b.settled(30)
        assert b.has_settled
    async with bridged({"slow": ScriptedTransport(silent)}, settle=False, bridge={"startup_wait": 0}) as b:
        assert b.has_settled, "its time was over at once"
