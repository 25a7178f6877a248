"""A batch is one turn of a model: on every front, and in what its calls say."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mcpbridge.downstream.sessions import make_one_turn
from mcpbridge.protocol.jsonrpc import Frame
from support.front_clients import FRONTS, OpenFront, open_front
from support.in_process_bridge import bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, ScriptedTransport

Message = dict[str, Any]


async def batched(kind: str, front: OpenFront, members: list[Message]) -> list[Message]:
    """The array of answers to a batch."""
    client = front.client
    if kind in ("http", "unix"):
        text = (await client.http.post(client.url, json=members, headers=client.headers({}))).text
        lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
        return json.loads(next((line for line in lines if line.startswith("[")), text))
    if kind == "stdio":
        await client.write(json.dumps(members).encode() + b"\n")
        return await client.batch()
    await client.send(json.dumps(members).encode())
    async with asyncio.timeout(30):
        return await client.batches.get()


@pytest.mark.parametrize("kind", FRONTS)
async def test_some_calls_of_a_batch_run_at_a_time_and_their_answers_keep_their_order(
    kind: str, tmp_path: Path
) -> None:
    up = ScriptedTransport({**LEGACY_SERVER, "tools/call": SILENCE})
    async with bridged({"up": up}, calls={"batch": 3}) as bridge, open_front(kind, bridge, tmp_path) as front:
        await front.client.initialize("2025-03-26")
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "up__echo", "arguments": {}}}
        members = [{**call, "id": f"c{number}"} for number in range(5)]
        members[2:2] = [{"jsonrpc": "2.0", "id": "p", "method": "ping"}, {"jsonrpc": "2.0", "id": "none"}]
        answers = asyncio.ensure_future(batched(kind, front, members))
        for answered, last in enumerate((2, 3, 4, 1, 0)):  # the third is answered first, and so on
            expected = min(5, 3 + answered)
            await up.hears("tools/call", expected)
            assert len(up.asked("tools/call")) == expected
            asked = up.asked("tools/call")[last]
            assert "_meta" not in asked["params"] or asked["params"]["_meta"] == {}
            text = {"type": "text", "text": f"answer {last}"}
            up.line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [text]}})
        got = await answers
    assert "error" in got.pop(3)  # the one that is no message
    assert [answer["id"] for answer in got] == ["c0", "c1", "p", "c2", "c3", "c4"]
    texts = [answer["result"]["content"][0]["text"] for answer in got if str(answer["id"]).startswith("c")]
    assert texts == [f"answer {number}" for number in range(5)]


def call_with(params: str) -> Frame:
    return Frame(id=Raw(b"1"), method="tools/call", params=Raw(params.encode()))


def turns_of(frames: list[Frame]) -> list[Any]:
    return [json.loads(bytes(frame.params))["_meta"].get("mcpbridge/turn") for frame in frames]


def test_the_calls_of_a_batch_get_the_name_of_one_turn_and_keep_what_they_say() -> None:
    frames = [call_with('{"name":"a"}'), call_with('{"_meta":{"progressToken":7},"name":"b"}')]
    make_one_turn(frames)
    first, second = turns_of(frames)
    assert first == second
    assert len(first) >= 16
    assert json.loads(bytes(frames[1].params))["_meta"]["progressToken"] == 7
    again = [call_with('{"name":"a"}'), call_with('{"name":"a"}')]
    make_one_turn(again)
    assert turns_of(again)[0] != first


def test_a_call_that_names_its_turn_keeps_it() -> None:
    frames = [call_with('{"_meta":{"mcpbridge/turn":"mine"}}'), call_with("{}"), call_with("{}")]
    make_one_turn(frames)
    own, other, same = turns_of(frames)
    assert own == "mine"
    assert other == same != "mine"


def test_what_is_no_call_of_a_tool_or_cannot_be_read_stays_as_it_is() -> None:
    params = ["[1]", "nonsense", '{"_meta":"text"}', "null", ""]
    frames = [*map(call_with, params), Frame(id=Raw(b"2"), method="ping", params=Raw(b"{}"))]
    make_one_turn(frames)
    assert [bytes(frame.params).decode() for frame in frames] == [*params, "{}"]


def test_one_call_alone_is_no_turn() -> None:
    frame = call_with("{}")
    make_one_turn([frame, Frame(id=Raw(b"2"), method="ping")])
    assert bytes(frame.params) == b"{}"
