"""Frames to messages: wherever the bytes are cut, the same messages come out, and what is too large leaves its ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.uri import WebSocketURI
from websockets.utils import accept_key

from mcpbridge.upstream.transports.websocket_protocol import Assembler, Message, WsProtocol, close_text

LIMIT = 1000


def opened() -> WsProtocol:
    protocol = WsProtocol(WebSocketURI(False, "localhost", 80, "/", "", None, None), LIMIT)
    protocol.send_request(protocol.connect())
    answer = (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept_key(protocol.key)}\r\n\r\n"
    )
    protocol.receive_data(answer.encode())
    assert protocol.handshake_exc is None
    protocol.events_received()
    protocol.data_to_send()
    return protocol


def messages_of(stream: bytes, cuts: list[int]) -> list[Message]:
    protocol, assembler = opened(), Assembler(LIMIT)
    found: list[Message] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        protocol.receive_data(stream[start:end])
        for event in protocol.events_received():
            assert isinstance(event, Frame)
            message = assembler.take(event)
            if message is not None:
                found.append(message)
    assert protocol.parser_exc is None
    return found


@given(
    st.lists(st.lists(st.binary(max_size=40) | st.sampled_from([b"x" * 999, b"y" * 1001, b"z" * 20_000]), min_size=1)),
    st.data(),
)
def test_messages_do_not_depend_on_where_the_bytes_are_cut(messages: list[list[bytes]], data: st.DataObject) -> None:
    stream = b""
    for parts in messages:
        for number, part in enumerate(parts):
            opcode = Opcode.TEXT if number == 0 else Opcode.CONT
            stream += Frame(opcode, part, fin=number == len(parts) - 1).serialize(mask=False)
            stream += Frame(Opcode.PING, b"p").serialize(mask=False)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    found = messages_of(stream, cuts)
    assert len(found) == len(messages)
    for message, parts in zip(found, messages, strict=True):
        whole = b"".join(parts)
        assert message.is_whole == (len(whole) <= LIMIT)
        if message.is_whole:
            assert message.data == whole
        else:
            assert len(message.data) <= 4 * 4096 + LIMIT
            assert message.data[:100] == whole[:100]
            assert message.data[-100:] == whole[-100:]


@pytest.mark.parametrize(
    ("code", "reason", "text"),
    [
        (1000, "", "1000 (normal closure)"),
        (1013, " later\n please ", "1013 (try again later): later please"),
        (4242, "why", "4242: why"),
        (4242, "", "4242"),
    ],
)
def test_a_close_code_is_put_into_words(code: int, reason: str, text: str) -> None:
    assert close_text(code, reason) == text
