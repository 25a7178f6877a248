"""The envelope: what is spliced stays as it came, and what is written is one line of JSON."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.protocol.jsonrpc import (
    Frame,
    decode_array,
    decode_frame,
    encode,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
    one_line,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
IDS = st.one_of(st.integers().map(lambda n: b"%d" % n), TEXTS.map(lambda text: json.dumps(text).encode()))
ODD = b'{ "big":123456789012345678901234567890,"a":1.10,"n":null }'


@given(IDS, TEXTS)
def test_a_request_reads_back_as_it_was_written(id_: bytes, method: str) -> None:
    frame = decode_frame(encode_request(id_, method, ODD))
    assert (bytes(frame.id), frame.method, bytes(frame.params)) == (id_, method, ODD)


@given(TEXTS)
def test_a_method_of_any_letters_is_quoted_the_same_every_time(method: str) -> None:
    for _ in range(2):
        assert json.loads(encode_notification(method)) == {"jsonrpc": "2.0", "method": method}


def test_params_are_left_out_when_there_are_none() -> None:
    assert encode_request(b"1", "ping", b"") == b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert encode_notification("x", b"{}") == b'{"jsonrpc":"2.0","method":"x","params":{}}'


def test_an_answer_carries_the_very_spelling_of_the_id() -> None:
    """JSON-RPC 2.0, section 4: 1 and "1" are different ids."""
    for id_ in (b"1", b'"1"', b'"\\u0061"', b"1.0", b"123456789012345678901234567890"):
        frame = decode_frame(b'{"jsonrpc":"2.0","id":%b,"method":"x"}' % id_)
        assert encode_response(frame.id, Raw(ODD)) == b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_, ODD)


@given(TEXTS, st.integers(-(2**31), 2**31), st.none() | st.dictionaries(TEXTS, TEXTS))
def test_an_error_reads_back_as_it_was_written(message: str, code: int, data: Any) -> None:
    error = json.loads(encode_error(b"7", code, message, data))["error"]
    assert error == {"code": code, "message": message, **({} if data is None else {"data": data})}


def test_an_error_about_an_unreadable_id_has_a_null_id() -> None:
    """JSON-RPC 2.0, section 5."""
    assert json.loads(encode_error(b"", -32700, "no"))["id"] is None


@given(st.recursive(st.none() | TEXTS, lambda inner: st.dictionaries(TEXTS, inner, max_size=3), max_leaves=5))
def test_one_line_changes_nothing_but_line_breaks(value: object) -> None:
    for data in (json.dumps(value, indent=2).encode(), json.dumps(value).replace(" ", "\r\n ").encode()):
        try:
            before = json.loads(data)
        except ValueError:
            continue  # a blank of a string became a line break, which no JSON string holds
        line = one_line(data)
        assert b"\n" not in line
        assert b"\r" not in line
        assert json.loads(line) == before


def test_one_line_copies_nothing_that_is_one_line() -> None:
    data = b'{"a":"\\n"}'
    assert one_line(data) is data


def test_absent_members_are_empty() -> None:
    assert decode_frame(b"{}") == Frame()
    assert not bytes(decode_frame(b'{"jsonrpc":"2.0","method":"x"}').id)


def test_a_null_id_differs_from_none() -> None:
    assert bytes(decode_frame(b'{"id":null,"method":"x"}').id) == b"null"


def test_an_unknown_member_of_the_envelope_ends_here() -> None:
    frame = decode_frame(b'{"method":"x","id":1,"hop":{"a":1}}')
    assert b"hop" not in encode_request(bytes(frame.id), frame.method, frame.params)


def test_batches_keep_the_bytes_of_their_members() -> None:
    assert [bytes(member) for member in decode_array(b'[ {"a": 1} , 5,[ ]]')] == [b'{"a": 1}', b"5", b"[ ]"]


@pytest.mark.parametrize("data", [b"[]", b"5", b"", b'{"id":1', b'{"method":5}', b"{}}"])
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_frame(data)


def test_a_message_nested_too_deeply_is_an_error_and_no_crash() -> None:
    with pytest.raises(RecursionError):
        decode_frame(b'{"params":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_raw_members_are_spliced_into_what_is_encoded() -> None:
    assert encode({"x": Raw(ODD)}) == b'{"x":%b}' % ODD
