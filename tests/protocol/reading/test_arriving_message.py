"""Messages that come whole, in pieces: a large one is read on the way, and comes out as the decoder would give it."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.protocol.jsonrpc import LargeFrame
from mcpbridge.protocol.reading.arriving_message import PIECE, ArrivingMessage
from mcpbridge.protocol.reading.framing import LARGE_MESSAGE

RESULT = {"content": [{"type": "text", "text": "a line\n" * 400_000}], "isError": False}
LARGE = json.dumps({"jsonrpc": "2.0", "id": 1, "result": RESULT}).encode()


def arrived(data: bytes, size: int = PIECE) -> bytes | LargeFrame:
    message = ArrivingMessage(len(data))
    for start in range(0, len(data), size):
        message.add(data[start : start + size])
    assert message.size == len(data)
    return message.finish()


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200)))
@settings(max_examples=50)
def test_a_small_message_comes_out_as_its_bytes(data: bytes, cuts: list[int]) -> None:
    message = ArrivingMessage(1000)
    for start, end in pairwise(sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})):
        message.add(data[start:end])
    assert message.finish() == data


@pytest.mark.parametrize("size", [3_000, PIECE])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_large_message_comes_out_as_a_frame_on_one_line(indent: int | None, size: int) -> None:
    data = b" \r\n" + json.dumps(json.loads(LARGE), indent=indent).encode() + b"\n"
    frame = arrived(data, size)
    assert isinstance(frame, LargeFrame)
    assert json.loads(bytes(frame.result)) == RESULT
    assert list(frame.members) == list(RESULT)
    assert b"\n" not in bytes(frame.result)


@pytest.mark.parametrize("data", [b"[" + LARGE + b"]", LARGE[:-3], LARGE + b"}", b"no JSON" * 400_000])
def test_what_is_no_message_comes_out_as_its_bytes(data: bytes) -> None:
    assert arrived(data) == data


def test_one_that_is_hardly_large_comes_out_as_its_bytes() -> None:
    data = LARGE[: LARGE_MESSAGE + 10]
    assert arrived(data) == data


def test_its_beginning_is_known_while_it_arrives() -> None:
    message = ArrivingMessage(len(LARGE))
    for start in range(0, len(LARGE), PIECE):
        message.add(LARGE[start : start + PIECE])
        assert message.beginning(50) == LARGE[:50]
