"""What the shim makes out in messages, against what the bridge writes and what clients may write."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.stdio_proxy.connections import Lines
from mcpbridge.app.stdio_proxy.messages import (
    NAME,
    UNKNOWN_EFFECT,
    changed,
    id_of,
    ids_of_answers,
    look,
    lost_answer,
    members,
    parse,
)
from mcpbridge.downstream.errors import ERROR_NAME, failed_call
from mcpbridge.protocol.jsonrpc import encode, encode_error, encode_notification, encode_request, encode_response

ids = st.integers(-(2**70), 2**70) | st.text() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(ids, values, texts, st.booleans())
def test_whose_answer_it_is_is_seen_in_its_first_bytes(id_: Any, value: Any, method: str, ascii_: bool) -> None:
    raw, body = json.dumps(id_, ensure_ascii=ascii_).encode(errors="surrogatepass"), encode({"v": value})
    assert look(encode_response(raw, body)) == (id_, "result")
    assert look(encode_error(raw, 1, method)) == (id_, "error")
    assert look(encode_request(raw, method, body)) == (id_, "method")
    assert look(encode_notification(method, body)) is None
    assert look(encode_error(b"null", 1, method)) is None
    assert ids_of_answers(b"[%b,%b]" % (encode_response(raw, body), encode_notification(method))) == [id_]


@given(st.permutations(["jsonrpc", "id", "method", "params"]), ids, texts, values, st.sampled_from([None, 1]))
def test_what_a_client_writes_is_read_in_any_order(
    order: list[str], id_: Any, method: str, value: Any, indent: int | None
) -> None:
    message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": value}
    line = json.dumps({name: message[name] for name in order}, indent=indent).encode()
    read = members(parse(line))
    assert read == message
    assert id_of(read) == id_


@given(st.binary())
def test_anything_may_be_looked_at(line: bytes) -> None:
    """Only what Python reads as JSON is a message; what is none has no members, and answers nothing."""
    message = parse(line)
    if message is None:
        assert not members(message)
        assert look(line) is None
        assert not ids_of_answers(line)
    else:
        assert repr(parse(json.dumps(message).encode())) == repr(message)  # NaN equals nothing


def test_what_python_does_not_read_is_no_message() -> None:
    assert parse(b"[" * 100_000) is None
    assert parse(b'{"id":' + b"1" * 5000 + b"}") is None
    assert look(b'{"jsonrpc":"2.0","id":' + b"1" * 5000 + b',"result":{}}') is None
    assert parse(b'\xef\xbb\xbf{"id":1}') == {"id": 1}
    assert id_of({"id": True}) is None
    assert id_of({"id": None}) is None


@given(st.lists(st.binary(max_size=20), max_size=20), st.lists(st.integers(0, 30), max_size=20))
def test_lines_are_whole_wherever_the_stream_is_cut(pieces: list[bytes], cuts: list[int]) -> None:
    stream, lines, found = b"".join(pieces), Lines(), list[bytes]()
    rest = stream
    for cut in cuts:
        found += lines.feed(rest[:cut])
        rest = rest[cut:]
    found += lines.feed(rest)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in found)
    assert b"".join(found) + lines.end() == stream


@given(st.lists(st.sampled_from([b"\n", b"a", b"bcd", b"efghijkl", b"x\ny\n", b"z\n"]), max_size=30))
def test_a_line_over_the_limit_passes_in_pieces(pieces: list[bytes]) -> None:
    lines = Lines(longest=10)
    found = [line for piece in pieces for line in lines.feed(piece)]
    assert lines.held <= 10
    assert b"".join(found) + lines.end() == b"".join(pieces)


def test_the_rest_of_what_passed_in_pieces_can_be_left_out() -> None:
    lines = Lines(longest=3)
    assert lines.feed(b"abcdef") == [b"abcdef"]
    assert lines.is_passing
    lines.skip()
    assert lines.feed(b"ghi") == []
    assert lines.feed(b"jk\nl\nm") == [b"l\n"]
    assert lines.feed(b"\n") == [b"m\n"]


def test_a_lost_call_is_told_as_the_bridge_tells_failures() -> None:
    for modern in (False, True):
        expected = encode_response(b'"a"', failed_call(UNKNOWN_EFFECT, NAME, modern=modern))
        assert lost_answer("a", "tools/call", modern=modern) == expected
    error = json.loads(lost_answer(1, "x/y", modern=True))["error"]
    assert error["data"] == {ERROR_NAME: NAME}


def test_changes_are_told_as_the_bridge_tells_them() -> None:
    assert changed("tools") == encode_notification("notifications/tools/list_changed") + b"\n"
    stamped = json.loads(changed("prompts", 3))
    assert stamped["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 3}
