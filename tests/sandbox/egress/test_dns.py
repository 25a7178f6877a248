"""Answers to questions for names: by the rules of DNS, one address for each name, and nothing raised by rubbish."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.sandbox.egress.dns import MOST_NAMES, Names, answer_to, question_of


def query(name: str, kind: int = 1, flags: int = 0x0100) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", 4711, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def test_a_question_is_read() -> None:
    assert question_of(query("Api.Example.com")) == ("api.example.com", 1)
    assert question_of(query("a.b", 28)) == ("a.b", 28)
    assert question_of(query("a.b", flags=0x8100)) is None, "an answer is no question"


def test_an_allowed_name_has_an_address() -> None:
    answer = answer_to(query("api.example.com"), "127.64.0.1")
    assert struct.unpack("!6H", answer[:12]) == (4711, 0x8580, 1, 1, 0, 0)
    assert answer[-4:] == bytes([127, 64, 0, 1])
    assert answer[12 : 12 + 17] == query("api.example.com")[12:29]


def test_it_has_none_in_ipv6() -> None:
    assert struct.unpack("!6H", answer_to(query("a.b", 28), "127.64.0.1")[:12]) == (4711, 0x8580, 1, 0, 0, 0)


def test_another_name_does_not_exist() -> None:
    assert struct.unpack("!6H", answer_to(query("a.b"), None)[:12]) == (4711, 0x8583, 1, 0, 0, 0)


@given(st.binary(max_size=512))
def test_rubbish_is_no_error_of_ours(data: bytes) -> None:
    question_of(data)
    answer_to(data, None)
    answer_to(data, "127.64.0.1")


@given(st.integers(0, 40), st.integers(0, 255))
def test_a_spoiled_question_is_none_either(place: int, value: int) -> None:
    spoiled = bytearray(query("some.api.example.com"))
    spoiled[place % len(spoiled)] = value
    answer_to(bytes(spoiled), "127.64.0.1")


@given(st.lists(st.text(min_size=1)))
def test_each_name_has_one_address_and_each_address_one_name(asked: list[str]) -> None:
    names = Names()
    addresses = {name: names.address_of(name) for name in asked}
    assert len(set(addresses.values())) == len(set(asked))
    assert all(names.name_of(address) == name for name, address in addresses.items())
    assert all(names.address_of(name) == address for name, address in addresses.items())
    assert names.name_of("127.0.0.1") == ""


def test_a_program_cannot_have_names_without_end() -> None:
    names = Names()
    for number in range(MOST_NAMES):
        assert names.address_of(f"n{number}.example.com")
    assert names.address_of("one.more.example.com") == ""
    assert names.address_of("n0.example.com")
