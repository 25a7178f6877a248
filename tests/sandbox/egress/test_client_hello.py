"""The name in the first message of TLS: as a real client writes it, in pieces, in several records, and spoiled."""

import ssl

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.sandbox.egress.client_hello import Hello, Reading, read_hello


def first_message(name: str | None) -> bytes:
    """What a client of the standard library sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


HELLO = first_message("api.example.com")


def in_records(message: bytes, size: int) -> bytes:
    """The same handshake message in records of `size` bytes."""
    body = message[5:]
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def test_a_real_client_names_its_server() -> None:
    assert read_hello(HELLO) == Hello(Reading.WHOLE, "api.example.com")
    assert read_hello(first_message("API.Example.com")).name == "api.example.com"
    assert read_hello(first_message(None)) == Hello(Reading.WHOLE, "")
    assert read_hello(HELLO + b"\x14\x03\x03\x00\x01\x01") == Hello(Reading.WHOLE, "api.example.com")


@given(st.integers(0, len(HELLO) - 1))
def test_a_beginning_is_not_judged(length: int) -> None:
    assert read_hello(HELLO[:length]) == Hello(Reading.MORE)


@given(st.integers(1, len(HELLO)))
def test_the_name_is_found_however_the_message_is_cut_into_records(size: int) -> None:
    assert read_hello(in_records(HELLO, size)) == Hello(Reading.WHOLE, "api.example.com")


@given(st.binary(min_size=1))
def test_other_protocols_are_not_taken_for_tls(data: bytes) -> None:
    if data[0] != 0x16:
        assert read_hello(data) == Hello(Reading.NOT_TLS)


@given(st.integers(0, len(HELLO) - 1), st.integers(0, 255))
def test_a_spoiled_message_is_never_an_error_of_ours(place: int, value: int) -> None:
    spoiled = bytearray(HELLO)
    spoiled[place] = value
    assert isinstance(read_hello(bytes(spoiled)), Hello)


@given(st.binary())
def test_neither_is_rubbish(data: bytes) -> None:
    assert isinstance(read_hello(b"\x16\x03\x01" + data), Hello)


def test_two_names_are_none() -> None:
    """Two parsers would choose different ones."""
    place = HELLO.index(b"api.example.com") - 9
    extension = HELLO[place : place + 9 + 15]
    assert extension[:2] == b"\0\0"
    body = bytearray(HELLO[9:])
    inside = place - 9
    body[inside:inside] = extension
    start = 34 + 1 + body[34]
    start += 2 + int.from_bytes(body[start : start + 2], "big")
    start += 1 + body[start]
    body[start : start + 2] = (int.from_bytes(body[start : start + 2], "big") + len(extension)).to_bytes(2, "big")
    message = b"\x01" + len(body).to_bytes(3, "big") + bytes(body)
    assert read_hello(b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message).reading is Reading.BROKEN
