"""What a stream keeps and what it lets go, and what its readers get; no connection is needed to see that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.downstream.http.event_streams import KEEP_ALIVE, Stream, Streams, deliver
from support.virtual_time import standing_time


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


def test_only_what_nobody_got_counts_as_lost() -> None:
    """Events that were sent stay for those who resume; that they go costs nobody anything."""
    stream = Stream(b"s", max_waiting=2)
    stream.put(b"1")
    stream.mark_sent(1)
    for number in range(2, 6):
        stream.put(b"%d" % number)
    assert stream.lost == 2
    assert stream.after(0) == event("s", 4, "4") + event("s", 5, "5")


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


# -- readers


class Connection:
    """What one reader wrote, and an event for each write."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self._news = asyncio.Event()

    async def write(self, data: bytes) -> None:
        self.written.append(data)
        self._news.set()

    async def wrote(self, count: int) -> list[bytes]:
        """The first so many writes."""
        with anyio.fail_after(30):
            while len(self.written) < count:
                self._news.clear()
                await self._news.wait()
        return self.written


@asynccontextmanager
async def reading(
    stream: Stream, *connections: Connection, position: int = 0
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Readers that wait for what comes; comments to keep a connection alive are a day away."""
    tasks = list[asyncio.Task[None]]()
    for connection in connections:
        tasks.append(asyncio.create_task(deliver(stream, position, connection.write, keep_alive=86400)))
        while stream.joined < len(tasks):
            await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize("name", [b"", b"s"])
async def test_the_end_of_a_stream_wakes_its_reader(name: bytes) -> None:
    """Else a finished response stays open until the next comment."""
    stream, connection = Stream(name), Connection()
    async with reading(stream, connection) as [reader]:
        assert not reader.done()
        stream.finish()
        with anyio.fail_after(30):
            await reader
    assert connection.written == []
    assert (stream.joined, Stream().joined) == (1, 0)


async def test_the_end_wakes_every_reader_the_older_ones_too() -> None:
    stream, connections = Stream(b"s"), [Connection() for _ in range(3)]
    async with reading(stream, *connections) as readers:
        stream.put(b"{}")
        await connections[-1].wrote(1)
        stream.finish()
        with anyio.fail_after(30):
            await asyncio.gather(*readers)
    assert [len(connection.written) for connection in connections] == [0, 0, 1]


async def test_what_came_just_before_the_end_is_written_first() -> None:
    stream, connection = Stream(b"s"), Connection()
    async with reading(stream, connection) as [reader]:
        stream.put(b"1")
        stream.put(b"2")
        stream.finish()
        with anyio.fail_after(30):
            await reader
    assert b"".join(connection.written) == event("s", 1, "1") + event("s", 2, "2")


async def test_a_message_wakes_the_reader_and_each_is_written_once() -> None:
    stream, connection = Stream(b"s"), Connection()
    async with reading(stream, connection):
        for number in range(1, 4):
            stream.put(b"%d" % number)
            assert (await connection.wrote(number))[-1] == event("s", number, str(number))
    assert stream.sent == 3


async def test_a_newer_reader_takes_over_and_the_older_one_goes_on_when_it_leaves() -> None:
    """No message may go to two connections (MCP 2025-11-25, transports)."""
    stream, older, newer = Stream(b"s"), Connection(), Connection()
    async with reading(stream, older):
        stream.put(b"1")
        await older.wrote(1)
        task = asyncio.create_task(deliver(stream, 1, newer.write, keep_alive=86400))
        while stream.joined < 2:
            await asyncio.sleep(0)
        stream.put(b"2")
        assert await newer.wrote(1) == [event("s", 2, "2")]
        task.cancel()
        await asyncio.wait([task])
        stream.put(b"3")
        assert (await older.wrote(2))[1:] == [event("s", 3, "3")]
    assert newer.written == [event("s", 2, "2")]


async def test_silence_is_broken_by_a_comment() -> None:
    stream, connection = Stream(b"s"), Connection()
    with standing_time() as go_on:
        task = asyncio.create_task(deliver(stream, 0, connection.write, keep_alive=15))
        for number in range(1, 4):
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(connection.written) == number - 1
            go_on(15.1)
            assert (await connection.wrote(number))[-1] == KEEP_ALIVE
    stream.finish()
    with anyio.fail_after(30):
        await task


async def test_all_streams_of_a_session_end_with_it_and_wake_their_readers() -> None:
    streams = Streams(keep=30)
    stream, connections = streams.open(), [Connection(), Connection()]
    async with reading(stream, connections[0]) as [of_a_response], reading(streams.channel, connections[1]) as [other]:
        streams.finish_all()
        with anyio.fail_after(30):
            await asyncio.gather(of_a_response, other)
    assert not stream.notify(b"{}")
    assert not streams.channel.notify(b"{}")
