"""Servers that start late, oddly or not at all keep nobody else waiting (issue 2, Supervision)."""

import json
import socket
import sys
from typing import Any

from support.harness import Place, eventually, python_server, undisturbed

HEALTHY = {"healthy": python_server("plain")}


async def test_a_server_that_fails_at_start_is_reported_with_its_last_words(place: Place) -> None:
    servers = {"bad": python_server("stubborn", "fails-at-start"), **HEALTHY}
    finished = await place.run("check", "--config", str(place.config(servers)))
    assert finished.code == 4
    report = finished.out + finished.err
    [line] = [line for line in report.splitlines() if " bad " in line]
    assert "database is locked" in line
    assert "exit code 7" in line
    assert any("healthy" in line and "6 tools" in line for line in report.splitlines())


async def test_a_server_that_fails_at_start_disturbs_no_other(place: Place) -> None:
    servers = {"bad": python_server("stubborn", "fails-at-start"), **HEALTHY}
    async with place.bridge(servers, bridge={"startup_wait": 0.5}) as client:
        await client.initialize()
        assert "healthy__echo" in await client.tools_with("healthy__echo")

        async def states() -> dict[str, Any]:
            status = await place.run("status", "--json")
            [running] = json.loads(status.out)["bridges"]
            return {server["name"]: server for server in running["servers"]}

        async with undisturbed(client):  # between two tries: of one that has just begun nothing is known yet
            told = await eventually(states, lambda found: "database is locked" in json.dumps(found["bad"]))
    assert told["healthy"]["state"] == "ready"
    assert told["bad"]["state"] in ("starting", "retrying", "failed")


async def test_a_server_that_never_answers_is_given_up_after_its_time(place: Place) -> None:
    servers = {"bad": python_server("stubborn", "mute", init_timeout=3), **HEALTHY}
    async with place.bridge(servers, bridge={"startup_wait": 0.5}) as client:
        await client.initialize()
        assert "healthy__echo" in await client.tools_with("healthy__echo")
        async with undisturbed(client):
            finished = await place.run("check", "--config", str(place.folder / "servers.toml"))
    assert finished.code == 4
    [line] = [line for line in finished.out.splitlines() if " bad " in line]
    assert "3 s" in line
    assert "still loading the model" in line


async def test_a_command_that_does_not_exist_is_named(place: Place) -> None:
    servers = {"bad": {"command": "no-such-command-anywhere"}, **HEALTHY}
    async with place.bridge(servers, bridge={"startup_wait": 0.5}) as client:
        await client.initialize()
        assert "healthy__echo" in await client.tools_with("healthy__echo")
    finished = await place.run("check", "--config", str(place.config(servers)))
    assert finished.code == 4
    assert "no-such-command-anywhere" in finished.out + finished.err


async def test_a_command_that_may_not_be_run_is_named(place: Place) -> None:
    script = place.folder / "not-executable"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    finished = await place.run("check", "--config", str(place.config({"bad": {"command": str(script)}, **HEALTHY})))
    assert finished.code == 4
    assert "not-executable" in finished.out + finished.err
    assert "not executable" in finished.out + finished.err


async def test_a_server_that_ends_at_the_era_probe_is_reached_all_the_same(place: Place) -> None:
    """Servers built on rmcp exit on any request before `initialize` (go-sdk issue 1177, typescript-sdk issue 2514)."""
    servers = {"rmcp": python_server("stubborn", "leaves-on-probe"), **HEALTHY}
    async with place.bridge(servers) as client:
        await client.initialize()
        assert "rmcp__echo" in await client.tools_with("rmcp__echo")
        assert (await client.call("rmcp__echo", text="here")).text == "here"


async def test_a_server_that_is_silent_to_unknown_methods_is_reached_soon(place: Place) -> None:
    async with place.bridge({"silent": python_server("stubborn", "silent"), **HEALTHY}) as client:
        await client.initialize()
        assert "silent__echo" in await client.tools_with("silent__echo", within=20)
        assert (await client.call("silent__echo", text="here")).text == "here"


async def test_a_slow_server_joins_later_and_the_others_list_at_once(place: Place) -> None:
    marker = place.folder / "told"
    servers = {"slow": python_server("stubborn", "starts-when-told", str(marker)), **HEALTHY}
    async with place.bridge(servers, bridge={"startup_wait": 0.5}) as client:
        await client.initialize()
        first = await client.tools_with("healthy__echo")
        assert "slow__echo" not in first
        async with undisturbed(client):
            marker.touch()
            assert "slow__echo" in await client.tools_with("slow__echo")
            assert (await client.call("slow__echo", text="here")).text == "here"


async def test_a_call_to_a_server_that_never_listed_says_what_is_wrong_with_it(place: Place) -> None:
    """Promise of the bridge: a name with the prefix of a configured server is not just "unknown"."""
    async with place.bridge({"bad": python_server("stubborn", "fails-at-start"), **HEALTHY}) as client:
        await client.initialize()
        await client.tools_with("healthy__echo")
        reply = await client.call("bad__anything", within=15)
        assert reply.failed
        assert "Server 'bad'" in reply.text


async def test_a_program_that_prints_its_usage_and_ends_is_told_by_what_it_printed(place: Place) -> None:
    """Issue 2: the reason says what happened, also where the program thinks that nothing went wrong."""
    usage = {"command": sys.executable, "args": ["-c", "print('usage: foo [options]')"]}
    finished = await place.run("check", "--config", str(place.config({"usage": usage})))
    assert "ended without answering `initialize` (exit code 0): usage: foo [options]" in finished.out + finished.err


async def test_a_port_in_use_is_told_before_any_server_is_started(place: Place) -> None:
    mark = place.folder / "started"
    server = {"command": sys.executable, "args": ["-c", f"open({str(mark)!r}, 'w')"]}
    config = place.config({"up": server})
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        finished = await place.run("serve", "--config", str(config), "--http", address)
    assert finished.code == 2
    assert f"cannot listen on {address}: the port is in use" in finished.err
    assert not mark.exists()
