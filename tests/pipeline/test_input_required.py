"""Answering a modern server that asks back, for a client that cannot come back itself."""

import asyncio
import json
from typing import Any

import pytest

from mcpbridge.core.model import Call
from mcpbridge.pipeline.input_required import drive
from mcpbridge.protocol.body import Body


def put_off(number: int) -> Body:
    return Body(json.dumps({"resultType": "input_required", "requestState": f"s{number}"}).encode())


async def test_a_call_that_is_only_put_off_is_sent_again_soon_and_as_often_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that says "later" is left alone for 50 to 250 ms; only questions are counted as rounds."""
    waits: list[float] = []
    states: list[Any] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def send(call: Call) -> Body:
        states.append(json.loads(bytes(call.params.data)))
        return put_off(len(states)) if len(states) < 15 else Body(b'{"content":[]}')

    monkeypatch.setattr(asyncio, "sleep", sleep)
    call = Call("tools/call", "up", "echo", Body(b'{"name":"echo"}'))
    result = await drive(call, put_off(0), send)
    assert result.value() == {"content": []}
    assert states == [{"name": "echo", "requestState": f"s{number}"} for number in range(15)]
    assert waits == [0.05, 0.1, 0.2, *[0.25] * 12]
