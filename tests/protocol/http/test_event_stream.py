"""The parser of server-sent events against the rules of the HTML standard, whatever the cuts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.protocol.http.event_stream import Event, EventStreamParser, EventTooLarge
from mcpbridge.protocol.reading.framing import LARGE_MESSAGE


def parse(*chunks: bytes, limit: int = 1 << 20) -> tuple[list[Event], EventStreamParser]:
    parser = EventStreamParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)], parser


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [Event(b"a")]),
        (b"data:a\r\n\r\n", [Event(b"a")]),
        (b"data: a\r\r", [Event(b"a")]),
        (b"data:  a\n\n", [Event(b" a")]),
        (b"data: a\ndata: b\n\n", [Event(b"a\nb")]),
        (b"data\n\n", [Event(b"")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
        (b"event: ping\ndata: a\n\ndata: b\n\n", [Event(b"a", b"ping"), Event(b"b")]),
        (b"event: ping\n\ndata: b\n\n", [Event(b"b")]),
        (b": comment\ndata: a\nunknown: x\n: again\n\n", [Event(b"a")]),
        (b"data: unfinished\n", []),
        (b"\n\n\n", []),
        ("data: é\n\n".encode(), [Event("é".encode())]),
    ],
)
def test_a_stream_gives_the_events_of_the_standard(stream: bytes, events: list[Event]) -> None:
    assert parse(stream)[0] == events


def test_an_id_counts_only_once_its_event_is_whole() -> None:
    """A stream cut within an event must be resumed before that event."""
    _, parser = parse(b"id: 1\ndata: a\n\n", b"id: 2\ndata: b\n")
    assert parser.last_event_id == b"1"
    parser.feed(b"\n")
    assert parser.last_event_id == b"2"


def test_an_id_with_a_nul_and_a_retry_that_is_no_number_are_ignored() -> None:
    _, parser = parse(b"id: a\0b\nretry: soon\nretry: 12345678901234567890\n\n")
    assert parser.last_event_id == b""
    assert parser.retry is None
    parser.feed(b"retry: 1500\n\n")
    assert parser.retry == 1.5


def test_an_event_that_only_carries_an_id_is_counted_and_not_delivered() -> None:
    """MCP 2025-11-25, Transports: a stream may open with an empty event, for its client to resume from."""
    events, parser = parse(b"id: 7\n\n: ping\n\n")
    assert events == []
    assert parser.count == 1
    assert parser.last_event_id == b"7"


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 100, b"data: x\n" * 40, b": " + b"x" * 100])
def test_an_event_over_the_limit_is_refused_while_it_grows(stream: bytes) -> None:
    with pytest.raises(EventTooLarge):
        parse(*[stream[at : at + 8] for at in range(0, len(stream), 8)], limit=50)


def test_the_limit_is_for_one_event_not_for_the_stream() -> None:
    assert len(parse(b"data: 1234567890\n\n" * 100, limit=50)[0]) == 100


LINES = st.lists(
    st.sampled_from(
        [
            b"data: one",
            b"data:two",
            b"data",
            b"id: 1",
            b"id:",
            b"event: x",
            b"retry: 10",
            b": c",
            b"",
            b"",
            b"other",
            b"\xef\xbb\xbf",
        ]
    ),
    max_size=30,
)


@given(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(1, 6), min_size=1, max_size=40))
def test_the_cuts_between_chunks_change_nothing(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = b"".join(line + end for line in lines) + b"data: last" + end + end
    pieces: list[bytes] = []
    at = 0
    while at < len(stream):
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(stream[at : at + size])
        at += size
    whole_events, whole = parse(stream)
    cut_events, cut = parse(*pieces)
    assert cut_events == whole_events
    assert (cut.last_event_id, cut.retry, cut.count) == (whole.last_event_id, whole.retry, whole.count)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_data_arrives_as_it_was_sent(payloads: list[str]) -> None:
    stream = b"".join(b"data: " + payload.encode() + b"\n\n" for payload in payloads)
    assert [event.data.decode() for event in parse(stream)[0]] == payloads


@given(st.data())
def test_an_event_over_the_limit_is_skipped_wherever_it_is_cut(data: st.DataObject) -> None:
    """The channel of HTTP+SSE is one stream: it must survive an answer that is too large for one request."""
    large = b'data: {"id":7,"x":"' + b"y" * 20_000 + b'",\ndata: "z":' + b"1" * 9000 + b"}\n"
    stream = b"data: one\n\n" + large + b"\nevent: other\ndata: two\n\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parser = EventStreamParser(1000, skips=True)
    events = [
        event
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for event in parser.feed(stream[start:end])
    ]
    first, skipped, last = events
    assert (first, last) == (Event(b"one"), Event(b"two", b"other"))
    assert not skipped.is_whole
    assert b'{"id":7,' in skipped.data[:4096]
    assert skipped.data.endswith(b"1}")
    assert len(skipped.data) <= 2 * 4096 + 1
    assert not parser.is_within_event


MB = 1 << 20
LARGE = {"rows": [{"id": number, "name": f"name {number}", "tags": ["a", None, True]} for number in range(60_000)]}
ANSWER = json.dumps({"jsonrpc": "2.0", "id": 7, "result": LARGE}).encode()


def parse_in_slices(stream: bytes, size: int) -> list[Event]:
    parser = EventStreamParser(8 * MB, slices=True)
    return [event for start in range(0, len(stream), size) for event in parser.feed(stream[start : start + size])]


@pytest.mark.parametrize("size", [5_000, 1 << 16])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("field", [b"data: ", b"data:"])
def test_a_large_message_is_read_while_it_arrives(field: bytes, end: bytes, size: int) -> None:
    """Others wait for no more than a slice of it (issue 18)."""
    small = b'{"jsonrpc":"2.0","id":8,"result":{}}'
    stream = end.join([b"id: 5", field + ANSWER, b"", field + small, b"", b""])
    assert len(ANSWER) > 2 * LARGE_MESSAGE
    large, after = parse_in_slices(stream, size)
    assert large.frame is not None
    assert bytes(large.frame.id) == b"7"
    assert json.loads(bytes(large.frame.result)) == LARGE
    assert after == Event(small)


@pytest.mark.parametrize("size", [7_001, 1 << 16])
def test_a_large_message_may_have_many_lines_of_data(size: int) -> None:
    pretty = json.dumps(json.loads(ANSWER), indent=1).encode().split(b"\n")
    middle = len(pretty) * 2 // 3
    lines = [b" ".join(pretty[:middle]), *pretty[middle:]]
    (event,) = parse_in_slices(b"".join(b"data: %b\n" % line for line in lines) + b"\n", size)
    assert event.frame is not None
    assert json.loads(bytes(event.frame.result)) == LARGE
    assert b"\n" not in bytes(event.frame.result)


@pytest.mark.parametrize("data", [b"x" * 3 * MB, b"[" + ANSWER + b"]", ANSWER[:-1], b"{" + ANSWER])
def test_large_data_that_is_no_message_comes_out_as_it_was_sent(data: bytes) -> None:
    assert parse_in_slices(b"event: odd\ndata: " + data + b"\n\n", 1 << 16) == [Event(data, b"odd")]


@pytest.mark.parametrize("skips", [True, False])
def test_a_large_message_over_the_limit_is_refused_while_it_arrives(skips: bool) -> None:
    parser = EventStreamParser(2 * MB, slices=True, skips=skips)
    stream = b"data: " + ANSWER + b"\n\ndata: x\n\n"
    pieces = [stream[start : start + 50_000] for start in range(0, len(stream), 50_000)]
    if not skips:
        with pytest.raises(EventTooLarge):
            list(map(parser.feed, pieces))
        return
    skipped, after = [event for piece in pieces for event in parser.feed(piece)]
    assert (skipped.is_whole, after) == (False, Event(b"x"))
    assert skipped.data.startswith(ANSWER[:1000])
    assert skipped.data.endswith(ANSWER[-1000:])
