"""The express lane gives what the full lane gives: the same answers, the same messages to servers, the same counts."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.protocol.meta import PREFIX
from mcpbridge.storage.call_log.reader import Filter, read_call, read_calls
from support.in_process_bridge import bridged
from support.lane_records import MODERN_CLIENTS, VERSIONS, recorded, talk_of
from support.lane_steps import (
    QUESTION,
    RESULTS,
    STAGES,
    STEPS,
    TEXT,
    Message,
    ModernTalk,
    Talk,
    becomes_quiet,
    outcome,
    server,
    together,
    turns,
    with_meta,
)

ASKING = st.sampled_from(["", "http", "quiet"])


@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=8), versions=VERSIONS, asking=ASKING)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_both_lanes_give_the_same(steps: list[str], versions: tuple[str, str], asking: str) -> None:
    express = asyncio.run(outcome(steps, versions, is_express=True, asking=asking))
    full = asyncio.run(outcome(steps, versions, is_express=False, asking=asking))
    assert express["answers"] == full["answers"]
    assert express == full


@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=8),
    versions=st.sampled_from(MODERN_CLIENTS),
    asking=st.booleans(),
)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_both_lanes_give_modern_clients_the_same(steps: list[str], versions: tuple[str, str], asking: bool) -> None:
    """Of those that can be asked all calls take the full lane."""
    steps = [step for step in steps if step != "ask back" or not asking]  # the client would have to come back itself
    outcomes = partial(outcome, steps, versions, asking="http" if asking else "", client=ModernTalk)
    express, full = asyncio.run(outcomes(is_express=True)), asyncio.run(outcomes(is_express=False))
    assert express["answers"] == full["answers"]
    assert express == full


@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=8),
    stages=st.lists(st.sampled_from(sorted(STAGES)), min_size=1, max_size=4, unique=True),
    asking=ASKING,
    versions=st.sampled_from([("2025-06-18", "2025-11-25"), ("2025-06-18", "2026-07-28"), *MODERN_CLIENTS]),
)
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_both_lanes_give_the_same_whatever_is_configured(
    steps: list[str], stages: list[str], asking: str, versions: tuple[str, str]
) -> None:
    """Limits count once and are given back once, refusals are the same, and what is tried again is sent as often."""
    sections, server_settings = together(*stages)
    asking = asking if versions not in MODERN_CLIENTS else ""
    if "calls in a row" in stages:  # how many calls of a crowd begin before the first ends is left to the loop
        steps = [step for step in steps if step in RESULTS]
    outcomes = partial(outcome, steps, versions, asking=asking, client=talk_of(versions), settings=server_settings)
    express, full = (asyncio.run(outcomes(is_express=is_express, **sections)) for is_express in (True, False))
    assert express["answers"] == full["answers"]
    assert express == full


@pytest.mark.parametrize("stage", STAGES)
async def test_a_tool_with_each_stage_takes_the_express_lane(stage: str) -> None:
    """Promise of the bridge: each configured stage adds only its own cost."""
    sections, server_settings = STAGES[stage]
    async with bridged({"up": server()}, servers={"up": server_settings}, **sections) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later", "up__echo"))
        assert bridge.server.express.count(talk.client) == 1
        talk.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
        await turns()
        await talk.end()


FEW = sorted({*STEPS} - {"many"})
"""So few calls that all are recorded: of more, how many the history takes depends on the time."""


@given(
    steps=st.lists(st.sampled_from(FEW), min_size=1, max_size=6),
    versions=VERSIONS | st.sampled_from(MODERN_CLIENTS),
)
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_both_lanes_record_the_same(steps: list[str], versions: tuple[str, str]) -> None:
    """Issue 20: each call's arguments, stages, results and outcome; recorded calls take the express lane too."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        express = asyncio.run(recorded(steps, versions, Path(one), is_express=True))
        full = asyncio.run(recorded(steps, versions, Path(other), is_express=False))
    assert express["records"] == full["records"]
    assert express == full


@pytest.mark.parametrize(("is_read", "content"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("what", RESULTS)
async def test_calls_are_logged_the_same_in_both_lanes(what: str, is_read: bool, content: bool, tmp_path: Path) -> None:
    """Each is written down before it is sent, and nobody waits for that if nothing of its content is."""
    steps, versions = [what, "answer late", "later", "cancel", "plain"], ("2025-06-18", "2025-11-25")
    reads = {"trusted": True, "tool": {"echo": {"read_only": is_read}}, "rate_limit": "100/s", "log_content": content}
    found: list[Message] = []
    for name in ("express", "full"):
        (tmp_path / name).mkdir()
        of_lane = await recorded(
            steps, versions, tmp_path / name, is_express=name == "express", enabled=True, settings=reads
        )
        found.append(of_lane)
    assert found[0] == found[1]
    assert len(found[0]["records"]) >= 5


@pytest.mark.parametrize("what", RESULTS)
async def test_each_kind_of_result_is_recorded_the_same(what: str, tmp_path: Path) -> None:
    steps, versions = [what, "answer late", "cancel", "plain"], ("2025-06-18", "2025-11-25")
    for name in ("express", "full"):
        (tmp_path / name).mkdir()
    express = await recorded(steps, versions, tmp_path / "express", is_express=True)
    assert express == await recorded(steps, versions, tmp_path / "full", is_express=False)
    assert len(express["records"]) >= 4


@pytest.mark.parametrize(
    "versions", [("2025-06-18", "2025-11-25"), ("2025-06-18", "2026-07-28"), *MODERN_CLIENTS[:2]], ids="-".join
)
@pytest.mark.parametrize("what", [*RESULTS, "ask back"])
async def test_each_kind_of_result_is_the_same_in_both_lanes(what: str, versions: tuple[str, str]) -> None:
    steps = [what, "answer late", "plain"]
    express = await outcome(steps, versions, is_express=True, client=talk_of(versions))
    assert express == await outcome(steps, versions, is_express=False, client=talk_of(versions))
    assert express["left"][0] == express["left"][2] == 0


@pytest.mark.parametrize("versions", [("2025-06-18", "2026-07-28"), *MODERN_CLIENTS], ids="-".join)
async def test_a_call_of_a_modern_client_or_to_a_modern_server_takes_it_and_can_be_cancelled(
    versions: tuple[str, str],
) -> None:
    up = server(versions[1])
    async with bridged({"up": up}) as bridge:
        talk = talk_of(versions)(bridge)
        await talk.begin(versions[0])
        before = asyncio.all_tasks()
        talk.say(talk.call(1, "later"), talk.call(2, "later"))
        assert [*bridge.server.express.calls[talk.client]] == [b"1", b"2"]
        assert asyncio.all_tasks() == before
        first, second = up.asked("tools/call")[-2:]
        assert (f"{PREFIX}clientCapabilities" in first["params"].get("_meta", {})) == (versions[1] >= "2026-07-28")
        up.line.gives({"jsonrpc": "2.0", "id": first["id"], "result": {**TEXT, "resultType": "complete"}})
        result = talk.heard[-1]["result"]
        assert (result["content"], "resultType" in result) == (TEXT["content"], versions[0] >= "2026-07-28")
        assert asyncio.all_tasks() == before
        talk.say({"method": "notifications/cancelled", "params": {"requestId": 2}})
        await up.hears("notifications/cancelled")
        assert up.asked("notifications/cancelled")[-1]["params"]["requestId"] == second["id"]
        assert bridge.server.express.count(talk.client) == 0
        talk.conversation.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"result": "a text"},
        {"result": None},
        {"result": [1]},
        {},
        {"result": TEXT, "error": None},
        {"result": TEXT, "error": {"code": 1, "message": "x"}},
        {"error": {"code": 1, "message": "x"}},
        {"error": "x"},
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize("spelled", [int, str, float])
async def test_each_shape_of_answer_is_the_same_in_both_lanes(answer: Message, spelled: Callable[[Any], Any]) -> None:
    async def answer_in(*, is_express: bool) -> Message:
        up = server()
        async with bridged({"up": up}) as bridge:
            bridge.server.express.is_open = is_express
            talk = Talk(bridge)
            await talk.begin()
            talk.say(talk.call(1, "later"))
            await turns()
            up.line.gives({"jsonrpc": "2.0", "id": spelled(up.asked("tools/call")[-1]["id"]), **answer})
            up.line.gives(
                {"jsonrpc": "2.0", "id": up.asked("tools/call")[-1]["id"], "result": {**TEXT, "second": True}}
            )
            found = await talk.answer(1)
            await turns()
            talk.conversation.close()
            assert len(up.lines) == 1
            return found

    assert await answer_in(is_express=True) == await answer_in(is_express=False)


# -- the lane itself


async def test_a_plain_call_takes_it_and_needs_no_task() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        before = asyncio.all_tasks()
        talk.say(talk.call(1, "later"))
        assert [*bridge.server.express.calls[talk.client]] == [b"1"]
        assert asyncio.all_tasks() == before
        assert talk.conversation.running == 1
        asked = up.asked("tools/call")[-1]
        up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": TEXT})
        assert talk.heard[-1] == {"jsonrpc": "2.0", "id": 1, "result": TEXT}
        assert talk.conversation.running == 0
        talk.conversation.close()


async def test_a_recorded_call_takes_it_too(tmp_path: Path) -> None:
    files: dict[str, Any] = {
        "store": {"path": str(tmp_path / "store.db")},
        "call_log": {"path": str(tmp_path / "calls.db")},
    }
    up = server()
    async with bridged({"up": up}, mode="own", **files) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        before = asyncio.all_tasks()
        talk.say(talk.call(1, "later"))
        assert [*bridge.server.express.calls[talk.client]] == [b"1"]
        assert asyncio.all_tasks() == before
        [call] = bridge.recorder.running()
        assert call.recorded is not None
        assert (call.recorded.stage, call.recorded.sent_at >= call.recorded.began) == ("server", True)
        up.line.gives({"jsonrpc": "2.0", "id": up.asked("tools/call")[-1]["id"], "result": TEXT})
        assert talk.heard[-1]["result"] == TEXT
        assert not bridge.recorder.running()
        talk.conversation.close()
    [newest] = read_calls(tmp_path / "calls.db", Filter(), limit=1)
    whole = read_call(tmp_path / "calls.db", newest["uid"])
    assert whole
    assert whole["stages"][-1][0] == "server"


async def test_progress_of_a_call_on_it_comes_before_the_answer() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(with_meta(talk.call(1, "later")))
        assert [*bridge.server.express.calls[talk.client]] == [b"1"]
        asked = up.asked("tools/call")[-1]
        assert asked["params"]["_meta"] == {"progressToken": asked["id"], "vendor/x": [1.5]}
        heard = len(talk.heard)
        for number in range(40):
            up.line.says("notifications/progress", progressToken=asked["id"], progress=number)
        assert bridge.server.express.count(talk.client) == 1
        up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": TEXT})
        *news, answer = talk.heard[heard:]
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": TEXT}
        assert {one["params"]["progressToken"] for one in news} == {"of 1"}
        assert [one["params"]["progress"] for one in news][-1] == 39, "the last word is not held back"
        talk.conversation.close()


@pytest.mark.parametrize("way", ["http", "quiet"])
@pytest.mark.parametrize("end", ["answer", "cancel", "close"])
async def test_a_client_that_can_be_asked_has_it_and_is_asked_during_a_call(way: str, end: str) -> None:
    up = server()
    up.kind = "streamable-http" if way == "http" else "stdio"
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin(capabilities={"elicitation": {}})
        if way == "quiet":
            becomes_quiet(bridge)
        talk.say(talk.call(1, "later"), talk.call(2, "later"))
        assert [*bridge.server.express.calls[talk.client]] == [b"1", b"2"]
        first, second = up.asked("tools/call")[-2:]
        up.line.gives({"jsonrpc": "2.0", "id": second["id"], "result": TEXT})
        up.line.gives({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": QUESTION})
        await turns()
        assert talk.heard[-2]["id"] == 2
        asked = talk.heard[-1]
        assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", "[up] How many?")
        if end == "answer":
            talk.say({"id": asked["id"], "result": {"action": "accept", "content": {"n": 3}}})
            assert (await up.answer("q"))["result"] == {"action": "accept", "content": {"n": 3}}
            up.line.gives({"jsonrpc": "2.0", "id": first["id"], "result": TEXT})
            assert (await talk.answer(1))["result"] == TEXT
        elif end == "cancel":
            talk.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
            assert "over" in (await up.answer("q"))["error"]["message"]
            await up.hears("notifications/cancelled")
        else:
            talk.conversation.close()
            assert "error" in await up.answer("q")
        await turns()
        upstream = bridge.pool.upstreams["up"]
        assert not upstream.running
        assert upstream.requests.limiter.free == upstream.requests.limiter.slots
        talk.conversation.close()


async def test_a_call_that_waits_for_an_answer_of_its_client_has_its_time_stopped() -> None:
    up = server()
    up.kind = "streamable-http"
    async with bridged({"up": up}, servers={"up": {"call_timeout": 0.3}}) as bridge:
        talk = Talk(bridge)
        await talk.begin(capabilities={"elicitation": {}})
        talk.say(talk.call(1, "later"))
        assert bridge.server.express.count(talk.client) == 1
        up.line.gives({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": QUESTION})
        await turns()
        with anyio.move_on_after(0.6):
            await talk.answer(1)
            raise AssertionError(talk.heard)
        talk.say({"id": talk.heard[-1]["id"], "result": {"action": "decline"}})
        assert (await up.answer("q"))["result"] == {"action": "decline"}
        assert "no answer within" in json.dumps(await talk.answer(1)), "from now on it counts again"
        talk.conversation.close()


async def test_a_person_who_stops_a_call_on_it_leaves_its_client_an_answer() -> None:
    """The call continues in a task, which is cancelled before its first step."""
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later"))
        [call] = bridge.server.running_calls
        assert bridge.server.stop_call(call)
        assert "a person cancelled this call" in json.dumps(await talk.answer(1))
        await up.hears("notifications/cancelled")
        talk.conversation.close()


async def test_it_is_not_overtaken_by_what_came_later() -> None:
    """A call that is not plain begins in the next turn of the loop: plain ones behind it wait for that."""
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        first = talk.call(1, n=1)
        first["params"]["_meta"] = {"mcpbridge/run": "one"}
        talk.say(first, talk.call(2, n=2), talk.call(3, n=3))
        await talk.answer(3)
        assert [one["params"]["arguments"]["n"] for one in up.asked("tools/call")[-3:]] == [1, 2, 3]
        talk.conversation.close()


async def test_an_id_that_is_still_being_answered_is_refused_in_either_lane() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(7, "later"))
        talk.say(talk.call(7))
        refused = await talk.answer(7)
        assert "still being answered" in refused["error"]["message"]
        bridge.running_calls()  # now it continues in a task
        await turns()
        talk.say(talk.call(7))
        await turns()
        assert [one for one in talk.heard if one.get("id") == 7][1]["error"] == refused["error"]
        talk.conversation.close()


@pytest.mark.parametrize("way", ["close", "cancel", "finish"])
async def test_the_server_hears_of_calls_that_nobody_waits_for(way: str) -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later"), talk.call(2, "later"))
        asked = [one["id"] for one in up.asked("tools/call")[-2:]]
        if way == "close":
            talk.conversation.close()
        elif way == "cancel":
            talk.conversation.cancel()
        else:
            await talk.conversation.finish(0)
        await up.hears("notifications/cancelled", 2)
        assert [one["params"]["requestId"] for one in up.asked("notifications/cancelled")] == asked
        await turns()
        upstream = bridge.pool.upstreams["up"]
        assert not upstream.running
        assert not bridge.server.running_calls
        assert upstream.requests.limiter.free == upstream.requests.limiter.slots
        talk.conversation.close()


async def test_a_server_that_dies_fails_the_call_at_once() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later"))
        up.line.ends("it crashed")
        assert "it crashed" in json.dumps(await talk.answer(1))
        talk.conversation.close()


async def test_its_deadline_is_that_of_the_server() -> None:
    up = server()
    async with bridged({"up": up}, servers={"up": {"call_timeout": 0.2}}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later"))
        assert "0.2 s" in json.dumps(await talk.answer(1))
        await up.hears("notifications/cancelled")
        talk.conversation.close()


async def test_calls_at_once_beyond_the_slots_wait_in_order() -> None:
    up = server()
    async with bridged({"up": up}, servers={"up": {"max_concurrent": 2}}) as bridge:
        talk = Talk(bridge)
        await talk.begin()
        talk.say(*[talk.call(number, "later") for number in range(1, 6)])
        await turns()
        assert len(up.asked("tools/call")) == 2 + 2  # two at the beginning
        for number in range(5):
            asked = up.asked("tools/call")[2 + number]
            up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {**TEXT, "n": number}})
            await turns()
        assert [(await talk.answer(number + 1))["result"]["n"] for number in range(5)] == [*range(5)]
        talk.conversation.close()


@pytest.mark.parametrize(
    ("sections", "capabilities"),
    [
        ({}, {"elicitation": {}}),
        ({"call_log": {"enabled": True}, "calls": {"log_content": True}}, {}),
        ({}, {"sampling": {}, "roots": {}}),
    ],
)
async def test_content_in_the_call_log_or_one_who_can_be_asked_keeps_calls_in_the_full_lane(
    sections: Message, capabilities: Message, tmp_path: Any
) -> None:
    up = server()
    if "call_log" in sections:
        sections = {**sections, "call_log": {**sections["call_log"], "path": str(tmp_path / "calls.db")}}
    async with bridged({"up": up}, **sections) as bridge:
        talk = Talk(bridge)
        await talk.begin(capabilities=capabilities)
        talk.say(talk.call(1, "later"))
        assert bridge.server.express.count(talk.client) == 0
        talk.conversation.close()
