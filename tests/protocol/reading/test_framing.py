"""Lines to messages: any chunking gives the same, and what is spoiled is saved or named."""

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.reading.framing import LineReader
from mcpbridge.protocol.reading.repair import Item
from mcpbridge.protocol.reading.unreadable import Noise, Spoiled

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


def read(data: bytes, *, max_bytes: int = 1 << 20) -> list[Item]:
    reader = LineReader(max_bytes)
    return reader.feed(data) + reader.end()


def only(items: list[Item]) -> Item:
    assert len(items) == 1, items
    return items[0]


def result_of(item: Item) -> bytes:
    assert isinstance(item, Frame), item
    return bytes(item.result)


@given(st.lists(json_values, min_size=1, max_size=5), st.booleans(), st.data())
def test_any_chunking_gives_the_same_messages_byte_for_byte(
    values: list[object], ascii_only: bool, data: st.DataObject
) -> None:
    """Promise of the reader (issue 2): payloads cross as they came."""
    payloads = [json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for value in values]
    payloads = [payload for payload in payloads if b"\xed" not in payload and b"\\ud" not in payload]
    payloads = [payload for payload in payloads if payload != b"null"]
    stream = b"".join(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % pair for pair in enumerate(payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = LineReader(1 << 20)
    items: list[Item] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        items += reader.feed(stream[begin:end])
    items += reader.end()
    assert [result_of(item) for item in items] == payloads


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    """Promise of the reader: whatever a peer sends, it returns items and never raises."""
    reader, by_byte = LineReader(200), LineReader(200)
    whole = reader.feed(data) + reader.end()
    pieces = [item for at in range(len(data)) for item in by_byte.feed(data[at : at + 1])] + by_byte.end()
    assert list(map(repr, whole)) == list(map(repr, pieces)), "how it is cut changes nothing"


def test_numbers_nulls_order_and_unknown_fields_stay_as_they_are() -> None:
    payload = b'{"z":1,"a":null,"big":123456789012345678901234567890,"e":1.0e500,"f":1.10,"\\u0061x":"\\/"}'
    assert result_of(only(read(b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % payload))) == payload


@pytest.mark.parametrize(
    ("line", "result"),
    [
        (b'\xef\xbb\xbf{"id":1,"result":{"a":1}}', b'{"a":1}'),
        (b'{"id":1,"result":{"a":"x\xffy"}}', '{"a":"x\ufffdy"}'.encode()),
        (rb'{"id":1,"result":{"a":"\ud83d!"}}', rb'{"a":"\ufffd!"}'),
        (rb'{"id":1,"result":{"a":"\\ud83d \ud83d\ude00 \ude00"}}', rb'{"a":"\\ud83d \ud83d\ude00 \ufffd"}'),
        (b'{"id":1,"result":{"a":NaN,"b":"NaN","c":-Infinity}}', b'{"a":null,"b":"NaN","c":null}'),
        (b'{"id":1,"result":{"a":1}}\r', b'{"a":1}'),
    ],
    ids=["BOM", "wrong UTF-8", "lone surrogate", "escaped backslash before u", "not a number", "CRLF"],
)
def test_a_repairable_line_is_repaired(line: bytes, result: bytes) -> None:
    """Issue 2: a spoiled reply is salvaged."""
    assert result_of(only(read(line + b"\n"))) == result


def test_pretty_printed_json_is_put_together() -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 7, "result": {"a": [1, {"b": "}{"}]}}, indent=2)
    frame = only(read(text.encode() + b"\n"))
    assert isinstance(frame, Frame)
    assert json.loads(bytes(frame.result)) == {"a": [1, {"b": "}{"}]}


def test_an_object_that_is_never_finished_is_given_up_with_its_id() -> None:
    reader = LineReader(1 << 20)
    assert reader.feed(b'{"jsonrpc":"2.0","id":5,\n') == []
    assert reader.unfinished
    assert only(reader.give_up()) == Spoiled([b"5"], "Input data was truncated")
    assert not reader.unfinished


def test_a_new_message_ends_the_wait_for_an_unfinished_one() -> None:
    items = read(b'{"jsonrpc":"2.0","id":5,\n{"jsonrpc":"2.0","id":6,"result":{}}\n')
    assert items[0] == Spoiled([b"5"], "Input data was truncated")
    assert result_of(items[1]) == b"{}"


def test_two_objects_on_a_line_are_two_messages() -> None:
    items = read(b'{"id":1,"result":{"a":1.10}}{"id":2,"result":{"b":2}}\n')
    assert [result_of(item) for item in items] == [b'{"a":1.10}', b'{"b":2}']


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":3,"result":{"a":1,}}',
        b'{"jsonrpc":"2.0","id":3,"result":{"a":"cut he',
        b'{"jsonrpc":"2.0","id":3,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"jsonrpc":"2.0","id":3,"method":5}',
    ],
    ids=["malformed", "cut in a string", "nested 100,000 deep", "wrong type"],
)
def test_a_line_beyond_repair_names_whose_it_was(line: bytes) -> None:
    """Issue 2: the call it belongs to fails at once instead of waiting for its deadline."""
    item = only(read(line + b"\n"))
    assert isinstance(item, Spoiled)
    assert item.ids == [b"3"]
    assert item.reason


def test_a_line_over_the_limit_is_skipped_and_names_its_id_at_either_end() -> None:
    big = b"x" * 5000
    for line in (b'{"id":4,"result":"%b"}' % big, b'{"result":"%b","id":4}' % big):
        reader = LineReader(1000)
        items: list[Item] = []
        for at in range(0, len(line), 100):
            items += reader.feed(line[at : at + 100])
        items += reader.feed(b'\n{"id":5,"result":{}}\n')
        assert isinstance(items[0], Spoiled)
        assert b"4" in items[0].ids
        assert result_of(items[1]) == b"{}"


def test_text_that_is_no_message_is_noise() -> None:
    assert read(b"Starting server...\n\n[INFO] ready\n") == [Noise("Starting server..."), Noise("[INFO] ready")]


def test_a_batch_keeps_its_members_in_order() -> None:
    item = only(read(b'[{"id":1,"result":{"a":1}},{"id":2,"method":5},{"method":"x"}]\n'))
    assert isinstance(item, Batch)
    first, second, third = item.members
    assert isinstance(first, Frame)
    assert isinstance(second, Spoiled)
    assert isinstance(third, Frame)
    assert (bytes(first.result), second.ids, third.method) == (b'{"a":1}', [b"2"], "x")


def test_a_line_costs_linear_time() -> None:
    """Issue 2: a line of 40 MB over stdio costs linear time: little more than to put its chunks together."""
    line = b'{"jsonrpc":"2.0","id":1,"result":{"text":"%b"}}\n' % (b"x" * 40_000_000)
    chunks = [line[at : at + 65536] for at in range(0, len(line), 65536)]

    def cost(work: Callable[[], int]) -> float:
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            assert work() == 1
            best = min(best, time.process_time() - began)
        return best

    def read() -> int:
        reader = LineReader(1 << 30)
        return len([item for chunk in chunks for item in reader.feed(chunk)])

    # Linear work is 1.3 to 1.7 times that, however long memory takes to be had. Quadratic buffering is 60 to 80 times,
    # as each chunk copies all that came before (SDK: 13 s for 40 MB).
    assert cost(read) < 12 * cost(lambda: b"".join(chunks).count(b"\n"))


@pytest.mark.parametrize(
    "start", [b'{"jsonrpc":"2.0","id":1,"result":"', b'{"jsonrpc":"2.0","id":1,"x":NaN,"result":"']
)
def test_a_cut_line_full_of_quotes_costs_linear_time_too(start: bytes) -> None:
    """A server that dies while it sends JSON as text: a quadratic look for the string's end froze the bridge."""
    line = start + rb"\"a\": 1, " * 400_000
    reader = LineReader(1 << 30)
    began = time.process_time()
    [item] = reader.feed(line + b"\n")
    assert isinstance(item, Spoiled)
    assert item.ids == [b"1"]
    assert time.process_time() - began < 60  # linear: about 0.1 s; quadratic: hours
