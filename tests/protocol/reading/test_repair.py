"""One line that does not decode: mended where that leaves no doubt, else named by the ids in it."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.jsonrpc import Frame, decode_frame
from mcpbridge.protocol.reading.repair import Unfinished, salvage
from mcpbridge.protocol.reading.unreadable import Noise, Spoiled, clean_utf8, find_ids

DEEP = b"[" * 100_000 + b"]" * 100_000


def only(line: bytes) -> object:
    items = salvage(line)
    assert isinstance(items, list)
    [item] = items
    return item


@given(st.binary(max_size=200))
def test_cleaned_bytes_are_utf8_and_clean_ones_stay_themselves(data: bytes) -> None:
    cleaned = clean_utf8(data)
    text = cleaned.decode()
    try:
        assert data.decode() == text
        assert cleaned is data
    except UnicodeDecodeError:
        assert "\ufffd" in text


@given(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.integers(0xD800, 0xDFFF), max_size=4), st.data())
def test_only_halves_of_surrogate_pairs_are_replaced(text: str, halves: list[int], data: st.DataObject) -> None:
    """What stays whole keeps its very spelling; the rest becomes what every peer can read."""
    parts = [json.dumps(letter)[1:-1] for letter in text]
    for half in halves:
        parts.insert(data.draw(st.integers(0, len(parts))), f"\\u{half:04x}")
    line = b'{"id":1,"result":{"a":"%b"},"bad":NaN}' % "".join(parts).encode()
    item = only(line)
    assert isinstance(item, Frame)
    read = msgspec.json.decode(item.result)["a"]
    read.encode()  # every half is gone: it would not encode
    assert len(read.replace("\ufffd", "")) >= len(text.replace("\ufffd", ""))


def test_what_stands_in_a_string_is_not_taken_for_a_number() -> None:
    item = only(rb'{"id":1,"result":{"a":"NaN, \"Infinity\"","b":[NaN,-Infinity,Infinity]}}')
    assert isinstance(item, Frame)
    assert bytes(item.result) == rb'{"a":"NaN, \"Infinity\"","b":[null,null,null]}'


@pytest.mark.parametrize(
    ("message", "ids"),
    [
        (b'{"id":7,', [b"7"]),
        (b'{"id" : "a\\"b",', [b'"a\\"b"']),
        (b'{"id":1.5,"x":{"id":-3}', [b"-3"]),
        (b'{"id":1e5', []),
        (b'{"id":1,"a":{"id":2,"b":{"id":1', [b"1", b"2"]),
        (b'{"id":null,"id":true', []),
        (b'{"id":1,"x":"' + b"y" * 100_000 + b'","id":3,"z":{"id":2', [b"1", b"2", b"3"]),
    ],
)
def test_ids_are_found_at_either_end_most_likely_first(message: bytes, ids: list[bytes]) -> None:
    assert find_ids(message) == ids


@pytest.mark.parametrize("line", [b"", b"   ", b"\xef\xbb\xbf", b"\r", b"\xef\xbb\xbf \t"])
def test_a_blank_line_is_nothing(line: bytes) -> None:
    assert salvage(line) == []


@pytest.mark.parametrize(
    "line", [b"null", b"42", b'"id"', b"ready {", b"}{", b"\x1b[32m{ok}", b"{ready}", b"{'id': 1}"]
)
def test_text_that_only_looks_a_little_like_a_message_is_noise(line: bytes) -> None:
    assert only(line) == Noise(line.decode())


def test_noise_is_kept_short() -> None:
    item = only(b"x" * 10_000)
    assert isinstance(item, Noise)
    assert len(item.text) == 4096


@pytest.mark.parametrize(
    "line", [b"[1, 2", b"[INFO] started", b"[\xff]" * 3], ids=["cut", "log line", "wrong bytes in brackets"]
)
def test_brackets_that_are_no_batch_are_noise(line: bytes) -> None:
    assert isinstance(only(line), Noise)


def test_a_batch_that_cannot_be_read_is_spoiled_with_the_ids_of_its_members() -> None:
    assert only(b'[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,') == Spoiled(
        [b"1", b"2"], "Input data was truncated"
    )
    deep = only(b'[{"id":9,"x":' + DEEP + b"}]")
    assert isinstance(deep, Spoiled)
    assert deep.ids == [b"9"]
    assert "nested deeper" in deep.reason


def test_the_members_of_a_batch_are_mended_together_and_spoiled_one_by_one() -> None:
    batch = only(b'[{"id":1,"result":{"a":"\xff"}},5,{"id":2,"method":{}}]')
    assert isinstance(batch, Batch)
    first, second, third = batch.members
    assert isinstance(first, Frame)
    assert bytes(first.result) == '{"a":"\ufffd"}'.encode()
    assert isinstance(second, Spoiled)
    assert isinstance(third, Spoiled)
    assert third.ids == [b"2"]


def test_an_object_that_goes_on_in_the_next_line_is_told_from_one_that_was_cut() -> None:
    assert salvage(b'{"id":1,"result":{') == Unfinished(b'{"id":1,"result":{')
    cut = only(b'{"id":1,"result":{"a":"cut he')
    assert isinstance(cut, Spoiled)
    assert cut.ids == [b"1"]


def test_text_after_a_message_does_not_spoil_it() -> None:
    frame, noise = list_of(b'{"id":1,"result":{"a":1.10}} done in 5 ms')
    assert isinstance(frame, Frame)
    assert bytes(frame.result) == b'{"a":1.10}'
    assert noise == Noise("done in 5 ms")


def test_a_broken_message_after_a_good_one_is_named() -> None:
    frame, spoiled = list_of(b'{"id":1,"result":{}},{"id":2,"result":{oops}')
    assert isinstance(frame, Frame)
    assert isinstance(spoiled, Spoiled)
    assert spoiled.ids == [b"2"]


def test_a_value_that_is_no_message_after_a_good_one_is_spoiled_alone() -> None:
    frame, spoiled = list_of(b'{"id":1,"result":{}} [1]')
    assert isinstance(frame, Frame)
    assert isinstance(spoiled, Spoiled)
    assert spoiled.ids == []


def test_a_number_that_python_refuses_to_read_after_a_message_is_named() -> None:
    frame, spoiled = list_of(b'{"id":1,"result":{}}{"id":2,"result":{"n":' + b"7" * 20_000 + b"}}")
    assert isinstance(frame, Frame)
    assert isinstance(spoiled, Spoiled)
    assert spoiled.ids == [b"2"]


def test_a_mended_line_that_is_nested_too_deeply_is_named() -> None:
    item = only(b'\xef\xbb\xbf{"id":3,"result":' + DEEP + b"}")
    assert isinstance(item, Spoiled)
    assert item.ids == [b"3"]
    assert "nested deeper" in item.reason


@given(st.binary(max_size=120) | st.text(max_size=60).map(lambda text: ('{"id":1,' + text).encode("utf-8", "replace")))
def test_whatever_it_is_given_it_returns(line: bytes) -> None:
    """Promise of the reader, issue 2: a spoiled line never raises. What comes out as a frame is one."""
    items = salvage(line)
    if isinstance(items, list):
        for item in items:
            if isinstance(item, Frame) and item.method:
                assert decode_frame(msgspec.json.encode(item)).method == item.method


def list_of(line: bytes) -> list[object]:
    items = salvage(line)
    assert isinstance(items, list)
    return [*items]
