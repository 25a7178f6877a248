"""Messages that come whole: what is one, what can be repaired, and what is told of the rest."""

import pytest

from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.reading.framing import read_message
from mcpbridge.protocol.reading.unreadable import Spoiled


def test_line_breaks_between_tokens_and_wrong_bytes_in_strings_do_no_harm() -> None:
    (frame,) = read_message(b'{\n"id": 1,\r\n"result": {"x":"\xff"}}\n')
    assert isinstance(frame, Frame)
    assert bytes(frame.result) == '{"x":"\ufffd"}'.encode()


def test_a_batch_is_its_members() -> None:
    found = read_message(b'[{"jsonrpc":"2.0","id":1,"result":{}},{"id":2,"method":5}]')
    assert [type(item) for item in found] == [Frame, Spoiled]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b" \n", []),
        (b"oops", [Spoiled([], "no JSON-RPC message: 'oops'")]),
        (b"42", [Spoiled([], "no JSON-RPC message: '42'")]),
        (b'{"jsonrpc":"2.0","id":7,"result":{"x":1', [Spoiled([b"7"], "cut off in the middle")]),
    ],
)
def test_what_is_no_message_is_spoiled(data: bytes, expected: list[Spoiled]) -> None:
    assert read_message(data) == expected
