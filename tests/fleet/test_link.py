"""The link between bridges: many requests on one connection, none of which holds up another (issue 24)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import anyio
import pytest

from mcpbridge.fleet.link import connections
from mcpbridge.fleet.link.certificates import link_contexts
from mcpbridge.fleet.link.connections import Links, NotSent, OutcomeUnknown, Stream
from mcpbridge.fleet.link.frames import WINDOW, Ask, Kind, Reply, frame
from mcpbridge.fleet.link.serving import LinkServer, Served
from support.ports import free_port

KEY = "the key of the fleet of these tests"
ME, OTHER = "aaaaaaaaaa", "bbbbbbbbbb"


@asynccontextmanager
async def linked(answer: Callable[[Served], Awaitable[None]]) -> AsyncGenerator[tuple[Links, str]]:
    """Connections of one member to another, which answers so."""
    links = Links(link_contexts(KEY, ME))
    with anyio.fail_after(60):
        async with LinkServer(link_contexts(KEY, OTHER), answer).running("127.0.0.1", 0) as port:
            try:
                yield links, f"127.0.0.1:{port}"
            finally:
                links.close()


async def ask(links: Links, address: str, body: bytes = b"", path: str = "/mcp") -> Stream:
    return await links.ask(OTHER, address, Ask("POST", path, b"", [(b"host", b"x")], "10.0.0.1", len(body)), body)


async def rest(stream: Stream) -> bytes:
    """The body of an answer; each part is made room for once it is read."""
    found = b""
    while True:
        kind, part = await stream.next()
        if kind == Kind.REPLY_END:
            return found
        found += part
        stream.grant(len(part))


async def echo(served: Served) -> None:
    body = await served.body()
    assert body is not None
    served.reply(Reply(200, [(b"x-path", served.head.path.encode())]))
    await served.write(body)
    served.end()


@pytest.mark.parametrize("size", [0, 1, WINDOW - 1, WINDOW + 1, 5 * WINDOW])
async def test_bodies_of_any_size_travel_both_ways(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    async with linked(echo) as (links, address):
        stream = await ask(links, address, body)
        reply, first, is_whole = await stream.head()
        assert (reply, first, is_whole) == (Reply(200, [(b"x-path", b"/mcp")]), b"", False)
        assert await rest(stream) == body


async def test_many_requests_share_a_connection_and_get_their_own_answers() -> None:
    async with linked(echo) as (links, address):
        answers: dict[int, bytes] = {}

        async def one(number: int) -> None:
            stream = await ask(links, address, b"%d" % number * 1000, f"/{number}")
            reply, *_ = await stream.head()
            assert reply.headers == [(b"x-path", b"/%d" % number)]
            answers[number] = await rest(stream)

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number)
        assert answers == {number: b"%d" % number * 1000 for number in range(100)}


async def test_a_client_that_reads_nothing_holds_up_nobody_else() -> None:
    """An answer that nobody reads stops at its window; others pass it."""
    written = 0

    async def answer(served: Served) -> None:
        nonlocal written
        if served.head.path != "/slow":
            await echo(served)
            return
        served.reply(Reply(200, []))
        while not served.has_left:
            await served.write(b"x" * 65536)
            written += 65536

    async with linked(answer) as (links, address):
        slow = await ask(links, address, path="/slow")
        await slow.head()
        for _ in range(20):
            stream = await ask(links, address, b"y" * (WINDOW // 2))
            await stream.head()
            assert len(await rest(stream)) == WINDOW // 2
        assert written <= 2 * WINDOW
        slow.close()


async def test_who_leaves_is_missed_on_the_other_side_and_waits_no_more() -> None:
    left, began = asyncio.Event(), asyncio.Event()

    async def answer(served: Served) -> None:
        began.set()
        await served.until_left()
        left.set()

    async with linked(answer) as (links, address):
        stream = await ask(links, address)
        await began.wait()
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                with pytest.raises(OutcomeUnknown):
                    await stream.head()

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            stream.close()
        await left.wait()


async def test_a_lost_member_leaves_the_outcome_unknown_and_the_next_request_not_sent() -> None:
    began = asyncio.Event()

    async def answer(served: Served) -> None:
        began.set()
        await served.until_left()

    async with linked(answer) as (links, address):
        stream = await ask(links, address)
        await began.wait()
    with anyio.fail_after(60):
        with pytest.raises(OutcomeUnknown):
            await stream.head()
        with pytest.raises(NotSent):
            await ask(links, address)


async def test_a_failure_of_the_other_side_is_no_answer() -> None:
    async def answer(served: Served) -> None:
        raise ZeroDivisionError

    async with linked(answer) as (links, address):
        with pytest.raises(OutcomeUnknown):
            await (await ask(links, address)).head()


async def test_another_member_at_the_address_is_not_asked() -> None:
    """An address that another bridge has by now: its certificate names it, so nothing is sent there."""
    async with linked(echo) as (links, address):
        head = Ask("POST", "/mcp", b"", [], "", 0)
        with pytest.raises(NotSent, match=r"(?i)mismatch|certificate"):
            await links.ask("cccccccccc", address, head, b"")
        with pytest.raises(NotSent):
            await links.ask(OTHER, f"127.0.0.1:{free_port()}", head, b"")


async def test_a_member_that_reads_nothing_is_sent_nothing_more() -> None:
    """The next request is not sent, as to a member that cannot be reached."""
    is_over, has_ended = asyncio.Event(), asyncio.Event()

    async def hang(_: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        await is_over.wait()
        writing.transport.abort()
        await asyncio.sleep(0)
        has_ended.set()

    links = Links(link_contexts(KEY, ME))

    async def fill(address: str) -> None:
        while True:
            await ask(links, address, b"x" * 1_000_000)
            await asyncio.sleep(0)

    server = await asyncio.start_server(hang, "127.0.0.1", 0, ssl=link_contexts(KEY, OTHER).listening)
    with anyio.fail_after(60):
        with pytest.raises(NotSent, match="takes nothing"):
            await fill(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        links.close()
        is_over.set()
        await has_ended.wait()
        server.close()
        await server.wait_closed()


async def test_frames_of_kinds_that_are_not_known_are_ignored() -> None:
    """A later version may send some, on either side: they are no part of an answer, and end nothing."""
    unknown = cast("Kind", 99)

    async def answer(served: Served) -> None:
        served._connection.send(unknown, served._number, b"what this is nobody knows")
        await echo(served)

    async with linked(answer) as (links, address):
        for _ in range(2):
            stream = await ask(links, address, b"body")
            links._links[OTHER].connection.send(unknown, stream._number, b"neither here")
            reply, *_ = await stream.head()
            assert reply.status == 200
            assert await rest(stream) == b"body"


async def test_requests_have_numbers_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_NUMBERS", 3)
    async with linked(echo) as (links, address):
        for number in range(10):
            stream = await ask(links, address, b"%d" % number)
            await stream.head()
            assert await rest(stream) == b"%d" % number


async def test_a_request_that_cannot_be_taken_harms_no_other() -> None:
    """Nor does an answer that cannot be passed on: both came in one piece with those of others."""

    def take(served: Served) -> bool:
        if served.head.path == "/bad":
            raise RuntimeError("a fault of the bridge")
        return False

    def harmful(kind: int, payload: bytes) -> None:
        raise RuntimeError("a fault of the bridge")

    links = Links(link_contexts(KEY, ME))
    with anyio.fail_after(60):
        async with LinkServer(link_contexts(KEY, OTHER), echo, take).running("127.0.0.1", 0) as port:
            address = f"127.0.0.1:{port}"
            (await ask(links, address)).close()
            streams = [
                await ask(links, address, b"%d" % number, path) for number, path in enumerate(["/", "/bad", "/"])
            ]
            streams[0].on_first = harmful
            with pytest.raises(OutcomeUnknown):
                await streams[1].head()
            await streams[2].head()
            assert await rest(streams[2]) == b"2"
            links.close()


async def test_a_connection_to_a_bridge_that_has_left_meanwhile_is_not_kept() -> None:
    async with linked(echo) as (links, address):
        asking = asyncio.create_task(ask(links, address, b"x"))
        await asyncio.sleep(0)  # it has begun to connect
        links.forget(OTHER)
        with pytest.raises(NotSent):
            await asking
        assert links.open() == []


@asynccontextmanager
async def hanging(*, has_tls: bool) -> AsyncGenerator[tuple[Links, str, list[asyncio.StreamWriter]]]:
    """Connections to a member that takes them, and does nothing else."""
    accepted = list[asyncio.StreamWriter]()

    async def hang(reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        accepted.append(writing)
        with suppress(OSError):
            while await reading.read(65536):
                pass
        writing.transport.abort()

    links = Links(link_contexts(KEY, ME))
    context = link_contexts(KEY, OTHER).listening if has_tls else None
    server = await asyncio.start_server(hang, "127.0.0.1", 0, ssl=context)
    with anyio.fail_after(120):
        try:
            yield links, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", accepted
        finally:
            links.close()
            server.close()
            await server.wait_closed()


async def test_all_who_need_a_member_that_cannot_be_reached_learn_it_from_one_attempt() -> None:
    """Else the last of them would wait for as many timeouts as there are others."""
    async with hanging(has_tls=False) as (links, address, accepted):
        answers = await asyncio.gather(*(ask(links, address) for _ in range(20)), return_exceptions=True)
        assert [type(one) for one in answers] == [NotSent] * 20
        assert len(accepted) == 1
        assert list(links.problems) == [OTHER]


async def test_whoever_stops_waiting_for_a_connection_does_not_end_it_for_others() -> None:
    async with linked(echo) as (links, address):
        asking = [asyncio.create_task(ask(links, address, b"x")) for _ in range(3)]
        await asyncio.sleep(0)  # they have begun to connect
        asking[0].cancel()
        for one in asking[1:]:
            assert (await (await one).head())[0].status == 200
        assert asking[0].cancelled()


async def test_a_member_without_signs_of_life_is_sent_nothing_new_until_there_is_one() -> None:
    """What it has been sent stays with it: it may only be slow."""
    async with hanging(has_tls=True) as (links, address, accepted):
        first = await ask(links, address)
        connection = links._links[OTHER].connection
        while not connection.is_silent:
            await asyncio.sleep(0.01)
        with pytest.raises(NotSent, match="no sign of life"):
            await ask(links, address)
        assert links.ask_now(OTHER, Ask("POST", "/mcp", b"", [], "", 0), b"") is None
        assert not first.is_over
        accepted[0].write(frame(Kind.PULSE, 0))
        while connection.is_silent:
            await asyncio.sleep(0.01)
        second = await ask(links, address)
        while not connection.is_silent:
            await asyncio.sleep(0.01)
        first.close()
        second.close()
        await ask(links, address)  # finds out whether it still is


async def test_a_request_of_a_kind_that_is_not_known_is_answered_at_once_as_not_sent() -> None:
    async with linked(echo) as (links, address):
        head = Ask("POST", "/mcp", b"", [], "", 4)
        stream = await links.ask(OTHER, address, head, b"body", cast("Kind", 99))
        with pytest.raises(NotSent, match="another version"):
            await stream.head()
        assert links._links[OTHER].streams == {}


async def test_a_request_whose_head_cannot_be_read_harms_no_other() -> None:
    async with linked(echo) as (links, address):
        other = await ask(links, address, b"body")
        unread = await ask(links, address)
        links._links[OTHER].connection.send(Kind.ASK, unread._number + 1, b"\0\0\0\1x")
        for stream in (other, unread):
            assert (await stream.head())[0].status == 200
        again = await ask(links, address)
        assert (await again.head())[0].status == 200
