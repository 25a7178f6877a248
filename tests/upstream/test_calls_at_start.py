"""Calls, lists and unknown methods while a server starts or keeps silent: each is bounded by its own time."""

from typing import Any

import pytest

from mcpbridge.upstream import startup_wait
from mcpbridge.upstream.session import session
from support.in_process_bridge import Ear, bridged
from support.upstreams.scripted_upstream import (
    LEGACY_SERVER,
    MODERN_SERVER,
    SILENCE,
    Refusal,
    ScriptedTransport,
    supervised,
)

HANGING: Any = {"server/discover": SILENCE, "initialize": SILENCE}


@pytest.mark.parametrize("questions", ["auto", "never"])
@pytest.mark.parametrize("share", ["shared", "session"])
async def test_a_call_to_a_server_that_starts_has_no_more_time_than_its_own(questions: str, share: str) -> None:
    """It is known, so its name is resolved at once; all else that could bound the wait is far away."""
    far = {"call_timeout": 0.05, "queue_timeout": 3600, "init_timeout": 3600, "questions": questions, "share": share}
    up = ScriptedTransport(LEGACY_SERVER, **HANGING)
    async with bridged({"up": up}, servers={"up": far}, settle=False, bridge={"startup_wait": 0.01}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        answer = (await ear.ask("tools/call", {"name": "up__echo"}))["result"]
        assert answer["isError"]
        assert "(the call waited 0.05 s for it)" in answer["content"][0]["text"]


async def test_a_list_waits_less_for_the_rest_where_one_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_wait, "STRAGGLER_SECONDS", 0.01)
    servers = {"ready": ScriptedTransport(LEGACY_SERVER), "silent": ScriptedTransport(LEGACY_SERVER, **HANGING)}
    async with bridged(servers, settle=False) as bridge:
        bridge.startup._ends = float("inf")
        ear = Ear(bridge.server)
        await ear.initialize()
        listed = (await ear.ask("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["ready__echo"]


@pytest.mark.parametrize(
    ("capabilities", "code"),
    [
        ({"tools": {}}, -32601),
        ({"tools": {}, "y": {}}, -32601),
        ({"x": None}, -32601),
        ({"extensions": {}, "experimental": {}}, -32601),
        ({"x": {}}, -32603),
        ({"extensions": {"com.example/x": {}}}, -32603),
        ({"experimental": {"z": {}}}, -32603),
    ],
)
@pytest.mark.parametrize("is_modern", [False, True])
async def test_an_unknown_method_goes_to_a_server_that_may_know_it_and_waits_as_a_call_does(
    capabilities: dict[str, Any], code: int, is_modern: bool
) -> None:
    script = MODERN_SERVER if is_modern else LEGACY_SERVER
    first = "server/discover" if is_modern else "initialize"
    up = ScriptedTransport(script, **{first: {**script[first], "capabilities": capabilities}, "x/y": SILENCE})
    async with bridged({"up": up}, servers={"up": {"call_timeout": 0.05}}) as bridge:
        ear = Ear(bridge.server)
        if not is_modern:
            await ear.initialize()
        answer = await (ear.ask_modern if is_modern else ear.ask)("x/y", {})
        assert answer["error"]["code"] == code
        assert bool(up.asked("x/y")) is (code == -32603)


@pytest.mark.parametrize("method", ["x", "x/y/z"])
async def test_a_silent_server_is_not_asked_for_what_it_never_announced(method: str) -> None:
    up = ScriptedTransport(LEGACY_SERVER, **{method: SILENCE})
    async with bridged({"up": up}) as bridge:
        ear = Ear(bridge.server)
        await ear.initialize()
        assert (await ear.ask(method, {}))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("initialize", "reason"),
    [
        ({**LEGACY_SERVER["initialize"], "protocolVersion": "2031-01-01"}, "it wants protocol revision '2031-01-01'"),
        ({**LEGACY_SERVER["initialize"], "protocolVersion": 7}, "is not valid"),
        ({}, "is not valid"),
        ({"protocolVersion": "2025-06-18", "capabilities": []}, "is not valid"),
        (Refusal(-32603, "out of order"), "it refused to begin: out of order"),
    ],
)
async def test_a_handshake_that_fails_behind_a_silent_probe_is_a_failed_start(
    initialize: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not stay `starting` until the time of a start is over: that is an hour here."""
    monkeypatch.setattr(session, "PROBE_SECONDS", 0.01)
    monkeypatch.setattr(session, "LATE_PROBE_SECONDS", 0.01)
    up = ScriptedTransport(LEGACY_SERVER, **{"server/discover": SILENCE, "initialize": initialize})
    async with supervised(up, init_timeout=3600) as (upstream, watcher):
        await watcher.reaches("retrying")
        assert reason in upstream.status.reason
