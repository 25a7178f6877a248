"""Rules, hooks and tables of tools that match nothing are told of: a deny rule with a typo denies nothing (issue 4)."""

import json
from typing import Any

import pytest

from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from mcpbridge.pipeline.hooks.call import before
from support.harness import Place, python_server
from support.in_process_bridge import bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

pytestmark = pytest.mark.anyio

DEEDS = {"deeds": python_server("deeds", tool={"payy": {"permission": "deny"}})}
RULES: Any = [{"tools": "deeds/delete_nots", "permission": "deny"}, {"tools": "deeds/pay", "permission": "deny"}]
HOOKS: Any = [{"event": "tool_call.before", "command": ["true"], "tools": ["pek"]}]
TOLD = [
    "servers.deeds.tool: there is no tool `payy` (did you mean `pay`?)",
    "rule 1 of `permissions`: there is no tool `deeds/delete_nots` (did you mean `deeds/delete_note`?)",
    "hook 1 of `hooks`: there is no tool `pek` (did you mean `deeds/peek`?)",
]


async def test_check_tells_of_settings_that_match_nothing(place: Place) -> None:
    config = str(place.config(DEEDS, permissions=RULES, hooks=HOOKS))
    finished = await place.run("check", "--config", config)
    assert finished.code == 0
    assert [line.removeprefix("mcpbridge: ") for line in finished.err.splitlines()] == TOLD
    document = json.loads((await place.run("check", "--json", "--config", config)).out)
    assert document["warnings"] == TOLD


async def test_check_tells_of_hooks_whose_program_there_is_not(place: Place) -> None:
    (place.folder / "own.sh").write_text("#!/bin/sh\n")
    (place.folder / "own.sh").chmod(0o755)
    commands: Any = [["/nope/hook"], ["./own.sh"], ["nope-hook", "x"], ["sh"]]
    hooks: Any = [{"event": "tool_call.before", "command": command} for command in commands]
    finished = await place.run("check", "--config", str(place.config({}, hooks=hooks)))
    assert [line for line in finished.err.splitlines() if "program" in line] == [
        "mcpbridge: hook 1 of `hooks`: there is no program '/nope/hook' that can be run",
        "mcpbridge: hook 3 of `hooks`: there is no program 'nope-hook' that can be run",
    ]


async def test_check_tells_of_unknown_servers_without_starting_any(place: Place) -> None:
    rules: Any = [{"tools": "x/y", "permission": "deny"}]
    finished = await place.run("check", "--config", str(place.config(DEEDS, permissions=rules)))
    assert finished.code == 2
    assert "permissions.0.tools: no server is called 'x' (found 'x/y')" in finished.err


async def test_a_running_bridge_logs_and_shows_them(place: Place) -> None:
    config = place.config(DEEDS, permissions=RULES, hooks=HOOKS, log={"format": "json"})
    async with place.started("serve", "--http", "127.0.0.1:0", "--config", str(config)) as command:
        await command.logged("pek.*settings match no tool")
        [bridge] = json.loads((await place.run("status", "--json")).out)["bridges"]
        assert bridge["warnings"] == TOLD
        assert f"warning: {TOLD[1]}" in (await place.run("status")).out.splitlines()
    logged = [json.loads(line) for line in command.log if "settings match no tool" in line]
    assert [line["note"] for line in logged] == TOLD
    assert {line["level"] for line in logged} == {"warning"}


async def test_a_bridge_of_one_server_does_not_miss_what_is_said_of_others(place: Place) -> None:
    rules: Any = [{"tools": "wepe", "permission": "deny"}]
    config = place.config({**DEEDS, "other": python_server("plain")}, permissions=rules, log={"format": "json"})
    async with place.started("serve", "--server", "deeds", "--config", str(config)) as command:
        await command.logged("payy.*settings match no tool")
    assert not [line for line in command.log if "wepe" in line]


async def test_hooks_of_the_program_count_and_what_matches_is_not_told() -> None:
    transports = {"up": ScriptedTransport(LEGACY_SERVER)}
    async with bridged(transports, permissions=[{"tools": "up/echo", "permission": "allow"}]) as bridge:
        assert bridge.status()["warnings"] == []

    @before(tools="up/ecko")
    def guard(_: object) -> None:
        """Sees nothing."""

    bridge = Bridge(Settings(), hooks=[guard])
    async with bridge:
        assert bridge.status()["warnings"] == []
