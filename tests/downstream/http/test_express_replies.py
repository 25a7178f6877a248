"""Plain calls over HTTP take the express lane, and clients see no difference: status, form, order, ends."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.downstream.settings import HttpSettings
from support.http_talk import BOTH, HttpTalk, ModernHttpTalk
from support.in_process_bridge import BridgeToScripts, bridged
from support.lane_steps import RESULTS, STEPS, TEXT, Message, Step, Talk, outcome, server, turns, with_meta
from support.upstreams.scripted_upstream import ScriptedTransport

# -- both lanes


def waiting_id(talk: HttpTalk) -> str:
    """The id of the last request that waits."""
    return next((id_ for id_, wire in reversed(talk.of.items()) if wire.waits and not wire.is_closed), "")


async def leave(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """The connection of a call that waits is closed: in a session the call goes on."""
    assert isinstance(talk, HttpTalk)
    if id_ := waiting_id(talk):
        talk.of[id_].leave()
    await turns()


async def pipelined(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """Several requests on one connection, in one piece and in pieces."""
    assert isinstance(talk, HttpTalk)
    ids = [next(talk.numbers) for _ in range(6)]
    requests = [
        talk.request(talk.call(id_, what)) for id_, what in zip(ids, ("plain", "error", "more") * 2, strict=True)
    ]
    wire = talk.free()
    wire.waits += len(ids)
    wire.send(requests[0] + requests[1])
    wire.send(requests[2][:100])
    wire.send(requests[2][100:] + requests[3])
    for request in requests[4:]:
        wire.send(request)
    for id_ in ids:
        await talk.answer(id_)
    assert [one["id"] for one in talk.heard if one.get("id") in ids] == ids
    await turns()


async def end_session(talk: Talk, up: ScriptedTransport, bridge: BridgeToScripts) -> None:
    """The session ends while calls are under way; what follows is refused."""
    assert isinstance(talk, HttpTalk)
    wire = talk.free()
    wire.waits += 1
    wire.send(talk.request(None, "DELETE"))
    await turns()
    one, other = next(talk.numbers), next(talk.numbers)
    talk.say(talk.call(one), talk.call(other))
    await turns()


HTTP_STEPS: Mapping[str, Step] = {**STEPS, "leave": leave, "pipelined": pipelined}


async def over_http(
    steps: Sequence[str], versions: tuple[str, str], accept: str, kind: type[HttpTalk] = HttpTalk, **more: Any
) -> Message:
    talks: list[HttpTalk] = []

    def client(bridge: BridgeToScripts) -> HttpTalk:
        talks.append(kind(bridge, accept=accept))
        return talks[0]

    found = await outcome(steps, versions, client=client, known={**HTTP_STEPS, "end session": end_session}, **more)
    [talk] = talks
    # Who would rather have a stream gets one as soon as the call takes a moment: that is a matter of time.
    return found if accept == STREAM_FIRST else {**found, "responses": talk.responses}


VERSIONS = st.sampled_from(
    [
        *[("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-11-25"), ("2024-11-05", "2025-06-18")],
        *[("2025-11-25", "2026-07-28"), ("2025-06-18", "2026-07-28")],
    ]
)
STREAM_FIRST = "text/event-stream, application/json"
ACCEPT = st.sampled_from([BOTH, "*/*", "application/json", "text/event-stream", STREAM_FIRST])


@given(
    steps=st.lists(st.sampled_from(sorted(HTTP_STEPS)), min_size=1, max_size=8),
    versions=VERSIONS,
    accept=ACCEPT,
    asking=st.sampled_from(["", "http", "quiet"]),
    ends=st.booleans(),
)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_both_lanes_give_the_same(
    steps: list[str], versions: tuple[str, str], accept: str, asking: str, ends: bool
) -> None:
    steps = [*steps, "end session"] if ends else steps
    outcomes = partial(over_http, steps, versions, accept, asking=asking)
    express, full = asyncio.run(outcomes(is_express=True)), asyncio.run(outcomes(is_express=False))
    assert express["answers"] == full["answers"]
    assert express == full


@pytest.mark.parametrize("what", RESULTS)
async def test_each_kind_of_result_is_the_same_in_both_lanes(what: str) -> None:
    steps, versions = [what, "answer late", "pipelined", what], ("2025-06-18", "2025-11-25")
    express = await over_http(steps, versions, BOTH, is_express=True)
    assert express == await over_http(steps, versions, BOTH, is_express=False)
    assert express["left"][0] == express["left"][2] == 0


@pytest.mark.parametrize("end", ["leave", "end session", "cancel", "time out", "look", "answer late"])
async def test_each_end_of_a_call_is_the_same_in_both_lanes(end: str) -> None:
    steps, versions = ["later", "many later", end, "answer late", "plain"], ("2025-11-25", "2025-11-25")
    steps = steps if end != "end session" else steps[:3]
    express = await over_http(steps, versions, BOTH, is_express=True)
    assert express == await over_http(steps, versions, BOTH, is_express=False)


@given(
    steps=st.lists(st.sampled_from(sorted(HTTP_STEPS)), min_size=1, max_size=8),
    revision=st.sampled_from(["2026-07-28", "2025-11-25", "2025-06-18"]),
    accept=ACCEPT,
)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_both_lanes_give_modern_clients_the_same(steps: list[str], revision: str, accept: str) -> None:
    """Of those that can be asked all calls take the full lane."""
    outcomes = partial(over_http, steps, ("", revision), accept, ModernHttpTalk)
    express, full = asyncio.run(outcomes(is_express=True)), asyncio.run(outcomes(is_express=False))
    assert express["answers"] == full["answers"]
    assert express == full


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("what", RESULTS)
async def test_each_kind_of_result_is_the_same_for_modern_clients(what: str, revision: str) -> None:
    steps = [what, "progress", "answer late", "strange", what, "leave", "pipelined"]
    express = await over_http(steps, ("", revision), BOTH, ModernHttpTalk, is_express=True)
    assert express == await over_http(steps, ("", revision), BOTH, ModernHttpTalk, is_express=False)


# -- the lane itself


async def test_a_plain_call_takes_it_needs_no_task_and_is_answered_in_one_write() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = HttpTalk(bridge)
        await talk.begin()
        for id_ in (1, 2, 3):  # the first is parsed, the others have its head
            before = asyncio.all_tasks()
            talk.say(talk.call(id_, "later"))
            assert [*bridge.server.express.calls[talk.client]] == [b"%d" % id_]
            assert asyncio.all_tasks() == before
            wire = talk.of[str(id_)]
            writes = len(wire.written)
            up.line.gives({"jsonrpc": "2.0", "id": up.asked("tools/call")[-1]["id"], "result": TEXT})
            assert talk.heard[-1] == {"jsonrpc": "2.0", "id": id_, "result": TEXT}
            assert len(wire.written) == writes + 1
            assert asyncio.all_tasks() == before
        await talk.end()


async def test_a_call_of_a_modern_client_takes_it_and_leaving_cancels_it() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = ModernHttpTalk(bridge)
        await talk.begin()
        for id_ in (1, 2):
            before = asyncio.all_tasks()
            talk.say(talk.call(7, "later"))  # each request stands alone: ids may come again
            [calls] = bridge.server.express.calls.values()
            assert [*calls] == [b"7"]
            assert asyncio.all_tasks() == before
            wire, asked = talk.of["7"], up.asked("tools/call")[-1]
            assert asked["params"]["_meta"] == {}, "what it says of itself is for the bridge"
            up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": TEXT})
            result = talk.heard[-1]["result"]
            assert (result["resultType"], result["content"]) == ("complete", TEXT["content"])
            assert asyncio.all_tasks() == before
            assert not bridge.server.express.calls, id_
        talk.say(talk.call(8, "later"), talk.call(8, "later"))
        assert len(bridge.server.express.calls) == 2
        wire.leave()
        await up.hears("notifications/cancelled")
        assert len(bridge.server.express.calls) == 1
        await talk.end()


async def test_a_modern_request_that_says_another_thing_in_its_head_is_refused_behind_one_that_does_not() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = ModernHttpTalk(bridge)
        await talk.begin()
        for id_, (tool, other) in enumerate((("up__echo", "up__other"), ("up__other", "up__echo"))):
            talk.say(talk.call(id_, tool=tool))
            await talk.answer(id_)
            wire = talk.of[str(id_)]
            wire.waits += 1
            message = talk.call(f"lie {id_}", tool=other)
            lie = talk.request({**message, "params": {**message["params"], "name": tool}})
            head, _, body = lie.partition(b"\r\n\r\n")
            body = body.replace(tool.encode(), other.encode())
            lengths = b"content-length: %d" % len(body)
            lines = [lengths if line.startswith(b"content-length") else line for line in head.split(b"\r\n")]
            wire.send(b"\r\n".join([*lines, b"", b""]) + body)
            refused = await talk.answer(f"lie {id_}")
            assert refused["error"]["code"] == -32020
            assert wire.responses[-1][0] == 400
        await talk.end()


async def test_what_is_said_before_the_answer_opens_a_stream() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = HttpTalk(bridge)
        await talk.begin()
        talk.say(with_meta(talk.call(1, "later")))
        assert [*bridge.server.express.calls[talk.client]] == [b"1"]
        asked = up.asked("tools/call")[-1]
        up.line.says("notifications/progress", progressToken=asked["id"], progress=1)
        up.line.says("notifications/progress", progressToken=asked["id"], progress=2)
        up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": TEXT})
        assert (await talk.answer(1))["result"] == TEXT
        await turns()
        assert [one["params"]["progress"] for one in talk.heard if "method" in one] == [1, 2]
        assert talk.of["1"].responses[-1] == (200, "text/event-stream")
        await talk.end()


async def test_a_client_that_waits_long_is_shown_that_its_call_lives() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = HttpTalk(bridge, http=HttpSettings(keep_alive=0.05))
        await talk.begin()
        talk.say(talk.call(1, "later"))
        assert bridge.server.express.count(talk.client) == 1
        wire = talk.of["1"]
        with anyio.fail_after(30):
            while b": keep-alive\n\n" not in b"".join(wire.written):
                await anyio.sleep(0.01)
        up.line.gives({"jsonrpc": "2.0", "id": up.asked("tools/call")[-1]["id"], "result": TEXT})
        assert (await talk.answer(1))["result"] == TEXT
        await turns()
        assert wire.responses[-1] == (200, "text/event-stream")
        await talk.end()


async def test_a_bridge_that_stops_answers_what_is_under_way() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = HttpTalk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later"), talk.call(2, "later"))
        assert bridge.server.express.count(talk.client) == 2
        stopping = asyncio.create_task(talk.front.stop(0.2))
        await turns()
        up.line.gives({"jsonrpc": "2.0", "id": up.asked("tools/call")[-1]["id"], "result": TEXT})
        assert (await talk.answer(2))["result"] == TEXT
        await stopping
        await turns()
        assert talk.of["1"].responses[-1][0] == 502, "whether it took effect is unknown"
        await talk.end()


async def test_a_person_who_stops_a_call_leaves_its_client_an_answer() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = HttpTalk(bridge)
        await talk.begin()
        talk.say(talk.call(1, "later"))
        [call] = bridge.server.running_calls
        assert bridge.server.stop_call(call)
        assert "a person cancelled this call" in json.dumps(await talk.answer(1))
        await talk.end()


async def test_a_session_in_use_does_not_expire_and_one_that_was_used_lives_on() -> None:
    up = server()
    async with bridged({"up": up}) as bridge:
        talk = HttpTalk(bridge, http=HttpSettings(session_idle=0.3))
        await talk.begin()
        talk.say(talk.call(1, "later"))
        await anyio.sleep(0.5)
        assert bridge.server.express.count(talk.client) == 1
        up.line.gives({"jsonrpc": "2.0", "id": up.asked("tools/call")[-1]["id"], "result": TEXT})
        assert talk.of["1"].responses[-1][0] == 200
        with anyio.fail_after(30):
            while bridge.server.listeners.clients:
                await anyio.sleep(0.05)
        talk.say(talk.call(2))
        await turns()
        assert talk.of["2"].responses[-1][0] == 404
        await talk.end()
