"""What a stream keeps and what it lets go; no connection is needed to see that."""

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.downstream.http.event_streams import Stream, Streams


def event(name: str, number: int, data: str) -> bytes:
    return f"id: {name}-{number}\nevent: message\ndata: {data}\n\n".encode()


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 320))
def test_what_follows_an_event_is_told_as_far_as_it_is_kept(count: int, sent: int, after: int) -> None:
    """The last 100 events stay after they were sent; those not sent yet stay in any case."""
    stream = Stream(b"s")
    for number in range(1, count + 1):
        stream.put(b"%d" % number)
    sent = min(sent, count)
    stream.mark_sent(sent)
    oldest = min(sent + 1, max(1, count - 99))
    expected = [event("s", number, str(number)) for number in range(max(after + 1, oldest), count + 1)]
    assert stream.after(after) == b"".join(expected)
    assert stream.last == count


def test_an_event_is_one_line_whatever_the_message_looks_like() -> None:
    stream = Stream(b"s")
    stream.put(b'{\r\n"a": 1\n}')
    assert stream.after(0) == event("s", 1, '{  "a": 1 }')


def test_large_events_are_bounded_by_size_but_one_always_stays() -> None:
    stream = Stream(b"s")
    for _ in range(5):
        stream.put(b"x" * 3 * 1024**2)
    assert stream.lost == 3
    stream.mark_sent(5)
    assert stream.after(0).startswith(b"id: s-5\n")


def test_a_finished_stream_takes_nothing_more() -> None:
    stream = Stream(b"s")
    stream.finish()
    stream.put(b"{}")
    assert stream.last == 0


def test_finished_streams_are_forgotten_after_their_time_or_when_there_are_too_many() -> None:
    streams = Streams(keep=30)
    first = streams.open()
    streams.finish(first, now=100)
    assert streams.find("1-0") == (first, 0)
    streams.finish(streams.open(), now=131)
    assert streams.find("1-0") is None
    for _ in range(64):
        streams.finish(streams.open(), now=131)
    assert streams.find("2-0") is None
    assert streams.find("3-0") is not None


def test_finished_streams_are_bounded_by_size_together() -> None:
    streams = Streams(keep=30)
    for _ in range(3):
        stream = streams.open()
        stream.put(b"x" * 7 * 1024**2)
        streams.finish(stream, now=1)
    assert streams.find("1-0") is None
    assert streams.find("2-0") is not None


def test_a_change_that_was_not_read_yet_is_announced_once() -> None:
    """MCP 2026-07-28, subscriptions/listen: events are level triggers, so a slow client needs each only once."""
    stream = Stream(b"1")
    changed = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    progress = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
    for message in (changed, progress, changed, progress):
        assert stream.notify(message)
    assert stream.last == 3
    stream.mark_sent(stream.last)
    stream.notify(changed)
    assert stream.last == 4, "what was read is told again"
