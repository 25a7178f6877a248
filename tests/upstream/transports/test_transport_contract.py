"""What every upstream transport promises, over all four of them (`protocol/transport.py`)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcpbridge.base.errors import Overloaded, UpstreamGone
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.transport import Channel, Outgoing
from support.upstreams.scripted_http import Failed, Recorder, Spoiled, request
from support.upstreams.transport_peers import KINDS, FarEnd, far_end

pytestmark = pytest.mark.parametrize("kind", KINDS)

NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """The bridge runs on either loop, and their clocks and transports differ."""
    return "asyncio", {"use_uvloop": request.param}


class Bench:
    """An open channel, both of its ends."""

    def __init__(self, far: FarEnd, channel: Channel, got: Recorder) -> None:
        self.far, self.channel, self.got = far, channel, got

    async def ask(self, id_: int, result: bytes = b"{}") -> Frame:
        """One request and its answer."""
        self.channel.send(request(id_))
        await self.far.hears("tools/call", times=1)
        await self.far.answer(id_, result)
        outcome = await self.got.outcome(b"%d" % id_)
        assert isinstance(outcome, Frame), outcome
        return outcome


@asynccontextmanager
async def bench(kind: str, *, max_bytes: int = 64 << 20) -> AsyncIterator[Bench]:
    async with far_end(kind, max_bytes=max_bytes) as far:
        got = Recorder()
        assert far.transport.kind == kind
        async with far.transport.connect(got) as channel:
            yield Bench(far, channel, got)


async def test_a_request_is_answered(kind: str) -> None:
    async with bench(kind) as b:
        outcome = await b.ask(1, b'{"content":[]}')
        assert bytes(outcome.result) == b'{"content":[]}'
        assert b.far.messages == [json.loads(request(1).data)]
        assert not b.got.closings


async def test_a_channel_shows_its_state(kind: str) -> None:
    async with bench(kind) as b:
        await b.ask(1, b"{}")
        assert "'up' open" in repr(b.channel)
    assert "'up' closed" in repr(b.channel)


async def test_what_nobody_knows_crosses_byte_for_byte(kind: str) -> None:
    odd = b'{ "big" : 123456789012345678901234567890,"n":null, "\\u00fc":"\xc3\xbc", "x":[1.0,1e400 ] }'
    async with bench(kind) as b:
        outcome = await b.ask(1, odd)
        assert bytes(outcome.result) == odd


async def test_many_requests_are_in_flight_at_a_time_and_answered_in_any_order(kind: str) -> None:
    async with bench(kind) as b:
        for number in range(1, 101):
            b.channel.send(request(number))
        await b.far.hears("tools/call", times=100)
        for number in range(100, 0, -1):
            await b.far.answer(number, b'{"n":%d}' % number)
        for number in range(1, 101):
            outcome = await b.got.outcome(b"%d" % number)
            assert isinstance(outcome, Frame)
            assert bytes(outcome.result) == b'{"n":%d}' % number


async def test_twenty_megabytes_cross_both_ways(kind: str) -> None:
    text = "ü" * (10 << 20)
    async with bench(kind) as b:
        data = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"x": text}}, ensure_ascii=False
        )
        b.channel.send(Outgoing(data.encode(), "tools/call", b"1"))
        assert (await b.far.hears("tools/call"))["params"]["x"] == text
        await b.far.answer(1, b'{"x":"%b"}' % text.encode())
        outcome = await b.got.outcome(b"1")
        assert isinstance(outcome, Frame)
        assert bytes(outcome.result) == b'{"x":"%b"}' % text.encode()


async def test_notifications_cross_both_ways(kind: str) -> None:
    async with bench(kind) as b:
        b.channel.send(request(1))
        await b.far.hears("tools/call")
        b.channel.send(request(0, "notifications/progress"))
        await b.far.hears("notifications/progress")
        await b.far.say(NOTIFICATION, during=1)
        await b.got.until(lambda got: got.messages)
        ((frame, via),) = b.got.messages
        assert (frame.method, bytes(frame.params)) == ("notifications/message", b'{"level":"info","data":1}')
        assert via == (b"1" if kind == "streamable-http" else b"")


async def test_the_server_may_ask_too(kind: str) -> None:
    async with bench(kind) as b:
        b.channel.send(request(1))
        await b.far.hears("tools/call")
        await b.far.say(b'{"jsonrpc":"2.0","id":"q","method":"roots/list"}', during=1)
        await b.got.until(lambda got: got.messages)
        ((frame, _),) = b.got.messages
        assert (frame.method, bytes(frame.id)) == ("roots/list", b'"q"')
        b.channel.send(Outgoing(b'{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}'))
        assert (await b.far.hears("")) == {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}


async def test_the_members_of_a_batch_arrive_one_by_one(kind: str) -> None:
    """Revision 2025-03-26."""
    async with bench(kind) as b:
        b.channel.send(request(1))
        await b.far.hears("tools/call")
        await b.far.say(b'[%b, {"jsonrpc":"2.0","id":1,"result":{}}]' % NOTIFICATION, during=1, is_last=True)
        assert isinstance(await b.got.outcome(b"1"), Frame)
        assert [frame.method for frame, _ in b.got.messages] == ["notifications/message", ""]


@pytest.mark.parametrize(
    "spoiled",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{oops}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"x":"cut o',
        b'{"jsonrpc":"2.0","id":1,"method":5}',
    ],
)
async def test_a_spoiled_answer_fails_its_request_and_nothing_else(kind: str, spoiled: bytes) -> None:
    async with bench(kind) as b:
        b.channel.send(request(1))
        b.channel.send(request(2))
        await b.far.hears("tools/call", times=2)
        await b.far.say(spoiled, during=1, is_last=True)
        outcome = await b.got.outcome(b"1")
        assert isinstance(outcome, Spoiled)
        assert outcome.reason
        await b.far.answer(2)
        assert isinstance(await b.got.outcome(b"2"), Frame)
        assert not b.got.closings


async def test_what_can_be_repaired_is(kind: str) -> None:
    async with bench(kind) as b:
        b.channel.send(request(1))
        await b.far.hears("tools/call")
        await b.far.say(b'{"jsonrpc":"2.0","id":1,"result":{"x":NaN,"y":"\\ud800"}}', during=1, is_last=True)
        outcome = await b.got.outcome(b"1")
        assert isinstance(outcome, Frame)
        assert bytes(outcome.result) == b'{"x":null,"y":"\\ufffd"}'


async def test_an_answer_over_the_limit_fails_its_request_and_nothing_else(kind: str) -> None:
    async with bench(kind, max_bytes=1 << 20) as b:
        b.channel.send(request(1))
        b.channel.send(request(2))
        await b.far.hears("tools/call", times=2)
        await b.far.say(b'{"jsonrpc":"2.0","id":1,"result":{"x":"%b"}}' % (b"y" * (3 << 20)), during=1, is_last=True)
        outcome = await b.got.outcome(b"1")
        assert "limit of 1" in (outcome.reason if isinstance(outcome, Spoiled) else str(outcome.error))  # type: ignore[union-attr]
        await b.far.answer(2)
        assert isinstance(await b.got.outcome(b"2"), Frame)
        assert not b.got.closings


async def test_the_end_of_the_server_is_told(kind: str) -> None:
    async with bench(kind) as b:
        b.channel.send(request(1))
        await b.far.hears("tools/call")
        await b.far.end()
        if kind == "streamable-http":  # no connection of its own: each request fails alone
            outcome = await b.got.outcome(b"1")
            assert isinstance(outcome, Failed)
            assert isinstance(outcome.error, UpstreamGone)
            assert outcome.sent
            return
        await b.got.until(lambda got: got.closings)
        (reason,) = b.got.closings
        assert reason
        with pytest.raises(UpstreamGone):
            b.channel.send(request(2))
        await asyncio.sleep(0)
        assert len(b.got.closings) == 1


async def test_a_server_that_takes_nothing_is_sent_no_more_than_fits(kind: str) -> None:
    async with bench(kind) as b:
        b.far.stop_reading()
        filler = request(1).data[:-1] + b',"x":"%b"}' % (b"x" * (1 << 20))

        async def flood() -> None:
            for number in range(1, 400):
                b.channel.send(Outgoing(filler, "tools/call", b"%d" % number))
                await asyncio.sleep(0)

        with pytest.raises(Overloaded, match="'up'"):
            await flood()


HOSTILE = [
    b'{"jsonrpc":"2.0","method":"notifications/\xff"}',
    b'{"jsonrpc":"2.0","id":"q","method":"p\xc0\x80"}',
    b'{"jsonrpc":"2.0","id":1,"method":"\\ud800","result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\xed\xa0\x80"}}',
    b'{"jsonrpc":"2.0","\xff":1,"method":"notifications/message"}',
    b'{"jsonrpc":"2.0","method":7}',
    b'{"jsonrpc":"2.0","method":{"a":NaN}}',
    b'{"jsonrpc":"2.0","id":01,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":{"a":1},"method":"roots/list"}',
    b'{"jsonrpc":"2.0","method":"notifications/message","params":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"jsonrpc":"2.0","method":"notifications/message","params":"x"}',
    b'[{"jsonrpc":"2.0","method":"\xff"},7,[[]]]',
    b"[[[[",
    b"[]",
    b"null",
    b'"\xff"',
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
async def test_no_frame_of_a_server_ends_the_session(kind: str, number: int) -> None:
    """What is wrong with one message stays with that message: the next request is answered on the same channel."""
    frame = HOSTILE[number]
    if kind == "websocket":
        frame = frame.decode("utf-8", "replace").encode()  # else the library ends it, as RFC 6455 wants
    async with bench(kind) as b:
        b.channel.send(request(1))
        await b.far.hears("tools/call")
        await b.far.say(frame, during=1)
        b.channel.send(request(2))
        await b.far.hears("tools/call", times=2)
        await b.far.answer(2, b'{"ok":true}')
        outcome = await b.got.outcome(b"2")
        assert isinstance(outcome, Frame)
        assert bytes(outcome.result) == b'{"ok":true}'
        assert not b.got.closings
        for seen, _ in b.got.messages:
            bytes(seen.params).decode()
            seen.method.encode()


async def test_a_cancellation_follows_its_request(kind: str) -> None:
    async with bench(kind) as b:
        b.channel.negotiated("2025-06-18")
        b.channel.send(request(1))
        assert not b.channel.withdraw(b"1")
        b.channel.send(request(0, "notifications/cancelled", params={"requestId": 1}))
        await b.far.hears("notifications/cancelled")
        assert [message["method"] for message in b.far.messages][-2:] == ["tools/call", "notifications/cancelled"] or (
            kind == "streamable-http"  # the answer to a POST may be long in coming, so nothing can wait for it there
        )
        assert not b.got.closings


async def test_leaving_ends_it_and_leaves_nothing(kind: str) -> None:
    await open_and_leave(kind)  # what the event loop and the libraries keep for themselves they have from here on
    tasks, descriptors = asyncio.all_tasks(), open_descriptors()
    await open_and_leave(kind)
    with anyio.fail_after(30):
        while asyncio.all_tasks() - tasks or open_descriptors() > descriptors:
            await asyncio.sleep(0.01)


async def open_and_leave(kind: str) -> None:
    async with far_end(kind) as far:
        got = Recorder()
        async with far.transport.connect(got) as channel:
            channel.send(request(1))
            await far.hears("tools/call")
        await far.has_left.wait()
    assert got.closings == []
    with pytest.raises(UpstreamGone):
        channel.send(request(2))


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
