"""Correlating requests and answers, without processes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest
from msgspec import Raw

from mcpbridge.base.errors import (
    Overloaded,
    UpstreamAnswered,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.jsonrpc import Frame, decode_frame
from mcpbridge.protocol.peer import ASKS_PER_SECOND, Peer
from mcpbridge.protocol.transport import Outgoing
from support.virtual_time import standing_time

pytestmark = pytest.mark.anyio

LONG = Timeouts(30, 60)


class Wire:
    """A channel that keeps what is sent, and lets a test answer."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.notices: list[tuple[str, bytes]] = []
        self.closed: list[str] = []
        self.refuse: Exception | None = None
        self.withdraw_tells = False
        self.peer = Peer(
            "up",
            on_notification=lambda method, params, via: self.notices.append((method, bytes(params))),
            on_closed=self.closed.append,
        )
        self.peer.attach(self)

    def send(self, message: Outgoing) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.sent.append(message)

    def withdraw(self, id_: bytes) -> bool:
        return self.withdraw_tells

    def negotiated(self, version: str) -> None:
        raise AssertionError("the peer does not negotiate")

    def says(self, line: bytes, via: bytes = b"") -> None:
        self.peer.frame(decode_frame(line), via)

    async def ask(self, method: str = "tools/call", timeouts: Timeouts = LONG, **more: object) -> Raw:
        return await self.peer.request(method, b"{}", timeouts, **more)  # type: ignore[arg-type]

    async def answered(self, say: Callable[[], None]) -> Raw:
        """The outcome of a request to which `say` is what happens after it was sent."""
        with anyio.fail_after(30):
            task = asyncio.ensure_future(self.ask())
            while not self.sent and not task.done():
                await asyncio.sleep(0)
            say()
            return await task


Passes = Callable[[float], Awaitable[None]]


@pytest.fixture
async def passes() -> AsyncIterator[Passes]:
    """The time of the loop stands still until this lets so many seconds pass, and what is due by then happen."""
    with standing_time() as go_on:

        async def pass_on(seconds: float) -> None:
            go_on(seconds)
            for _ in range(5):
                await asyncio.sleep(0)

        yield pass_on


async def test_answers_find_their_callers_whatever_their_order() -> None:
    wire = Wire()
    with anyio.fail_after(30):
        first, second = asyncio.ensure_future(wire.ask()), asyncio.ensure_future(wire.ask())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        wire.says(b'{"id":%b,"result":{"n":2}}' % wire.sent[1].id)
        wire.says(b'{"id":%b,"result":{"n":1}}' % wire.sent[0].id)
        assert (bytes(await first), bytes(await second)) == (b'{"n":1}', b'{"n":2}')
    assert wire.peer.in_flight == 0


async def test_an_id_is_never_used_twice() -> None:
    """MCP 2026-07-28, Base Protocol, Requests: no id twice while in flight; here never at all."""
    wire = Wire()
    for _ in range(3):
        await wire.answered(lambda: wire.says(b'{"id":%b,"result":{}}' % wire.sent[-1].id))
        ids = [message.id for message in wire.sent]
        assert len(set(ids)) == len(ids)
        wire.sent = wire.sent[-1:]
        wire.sent.clear()


async def test_an_answer_with_our_number_as_a_string_counts() -> None:
    wire = Wire()
    result = await wire.answered(lambda: wire.says(b'{"id":"%b","result":{}}' % wire.sent[0].id))
    assert bytes(result) == b"{}"


async def test_an_error_keeps_its_bytes() -> None:
    wire = Wire()
    error = b'{"code":-1,"message":"no","data":{"big":123456789012345678901234567890},"x":null}'
    with pytest.raises(UpstreamAnswered) as caught:
        await wire.answered(lambda: wire.says(b'{"id":%b,"error":%b}' % (wire.sent[0].id, error)))
    assert caught.value.error == error


@pytest.mark.parametrize("answer", [b'{"jsonrpc":"2.0","id":%b}', b'{"id":%b,"result":null}'], ids=["missing", "null"])
async def test_an_answer_without_a_result_fails_at_once(answer: bytes) -> None:
    """Issue 2: null or missing result."""
    wire = Wire()
    with pytest.raises(UpstreamGarbled, match="neither a result nor an error"):
        await wire.answered(lambda: wire.says(answer % wire.sent[0].id))


async def test_a_line_of_a_logger_with_an_id_is_no_answer() -> None:
    """Loggers that write JSON to standard output number their lines too."""
    wire = Wire()

    def says() -> None:
        wire.says(b'{"level":"info","id":%b}' % wire.sent[0].id)
        wire.says(b"{}")
        wire.says(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % wire.sent[0].id)

    assert bytes(await wire.answered(says)) == b"{}"


async def test_a_spoiled_answer_fails_its_call_by_id_or_by_being_the_only_one() -> None:
    wire = Wire()
    with pytest.raises(UpstreamGarbled, match="cannot be read: malformed"):
        await wire.answered(lambda: wire.peer.spoiled([b"999", wire.sent[0].id], "malformed", b""))
    wire.sent.clear()
    with pytest.raises(UpstreamGarbled):
        await wire.answered(lambda: wire.peer.spoiled([], "malformed", b""))


async def test_a_second_answer_and_one_to_nobody_are_ignored() -> None:
    wire = Wire()

    def twice() -> None:
        wire.says(b'{"id":77,"result":{"wrong":1}}')
        wire.says(b'{"id":%b,"result":{"n":1}}' % wire.sent[0].id)
        wire.says(b'{"id":%b,"result":{"n":2}}' % wire.sent[0].id)

    assert bytes(await wire.answered(twice)) == b'{"n":1}'


async def test_an_error_with_a_null_id_goes_to_the_only_caller() -> None:
    """JSON-RPC 2.0, section 5: the id is null when the request could not be read."""
    wire = Wire()
    with pytest.raises(UpstreamAnswered):
        await wire.answered(lambda: wire.says(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}'))


async def test_a_cancelled_caller_cancels_upstream() -> None:
    wire = Wire()
    with anyio.fail_after(30):
        task = asyncio.ensure_future(wire.ask())
        while not wire.sent:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert wire.sent[1].method == "notifications/cancelled"
    assert b'"requestId":%b' % wire.sent[0].id in wire.sent[1].data


async def test_where_closing_the_stream_cancels_no_notification_is_sent() -> None:
    """MCP 2026-07-28, Streamable HTTP, Cancellation: closing the request's stream is the cancellation."""
    wire = Wire()
    wire.withdraw_tells = True
    task = asyncio.ensure_future(wire.ask())
    while not wire.sent:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert len(wire.sent) == 1


async def test_silence_ends_a_call_and_tells_the_server() -> None:
    wire = Wire()
    with anyio.fail_after(30), pytest.raises(UpstreamTimeout, match=r"no answer within 0\.05 s"):
        await wire.ask(timeouts=Timeouts(0.05, 10))
    assert wire.sent[-1].method == "notifications/cancelled"


async def test_progress_extends_the_wait_but_not_beyond_the_total(passes: Passes) -> None:
    wire = Wire()
    heard: list[str] = []

    async def keep_going(id_: bytes) -> None:
        value = 0
        while wire.peer.in_flight:
            value += 1
            wire.says(b'{"method":"notifications/progress","params":{"progressToken":%b,"progress":%d}}' % (id_, value))
            await passes(1)

    with anyio.fail_after(100):
        task = asyncio.ensure_future(
            wire.ask(timeouts=Timeouts(10, 40), update=lambda method, params: heard.append(method))
        )
        await keep_going((await sent(wire)).id)
        with pytest.raises(UpstreamTimeout, match="within 40 s"):
            await task
    assert len(heard) > 10  # more than fit into the 10 s of silence


async def test_the_end_of_the_channel_fails_everything_and_refuses_more() -> None:
    wire = Wire()
    with pytest.raises(UpstreamGone, match="exit code 1"):
        await wire.answered(lambda: wire.peer.closed("exit code 1"))
    assert wire.closed == ["exit code 1"]
    with pytest.raises(UpstreamGone):
        await wire.ask()


async def test_a_refused_send_leaves_nothing_waiting() -> None:
    wire = Wire()
    wire.refuse = Overloaded("full")
    with pytest.raises(Overloaded):
        await wire.ask()
    assert wire.peer.in_flight == 0


async def test_a_failure_of_the_transport_reaches_its_caller() -> None:
    wire = Wire()
    with pytest.raises(UpstreamUnavailable):
        await wire.answered(lambda: wire.peer.failed(wire.sent[0].id, UpstreamUnavailable("up", "refused"), sent=False))


async def test_what_was_not_declared_is_answered_with_method_not_found() -> None:
    """Spec: no sampling without the capability; the upstream gets the right answer instead."""
    wire = Wire()
    wire.says(b'{"id":"a","method":"ping"}')
    wire.says(b'{"id":2,"method":"sampling/createMessage","params":{}}')
    assert wire.sent[0].data == b'{"jsonrpc":"2.0","id":"a","result":{}}'
    assert b'"id":2' in wire.sent[1].data
    assert b"-32601" in wire.sent[1].data


async def test_a_flood_of_pings_is_not_answered_in_full() -> None:
    """Measured: 20,000 pings cost the client of the official SDK (`mcp` 2.3.0) 8 s and 190 MB."""
    wire = Wire()
    for number in range(20_000):
        wire.says(b'{"id":%d,"method":"ping"}' % number)
    assert ASKS_PER_SECOND <= len(wire.sent) < 20_000


async def test_a_flood_of_questions_is_refused_and_leaves_none_unanswered() -> None:
    """A server may wait for the answer with a call of ours."""
    taken: list[bytes] = []
    wire = Wire()
    wire.peer = Peer(
        "up",
        on_notification=lambda method, params, via: None,
        on_closed=wire.closed.append,
        on_request=lambda frame, via: not taken.append(bytes(frame.id)),
    )
    wire.peer.attach(wire)
    for number in range(5000):
        wire.says(b'{"id":%d,"method":"roots/list"}' % number)
    assert ASKS_PER_SECOND <= len(taken) < 5000
    assert len(wire.sent) == 5000 - len(taken)
    assert b"-32603" in wire.sent[-1].data


async def test_notifications_go_to_the_call_on_whose_stream_they_came() -> None:
    wire = Wire()
    heard: list[bytes] = []
    task = asyncio.ensure_future(wire.ask(update=lambda method, params: heard.append(bytes(params))))
    while not wire.sent:
        await asyncio.sleep(0)
    wire.says(b'{"method":"notifications/message","params":{"a":1}}', via=wire.sent[0].id)
    wire.says(b'{"method":"notifications/message","params":{"a":2}}')
    wire.says(b'{"id":%b,"result":{}}' % wire.sent[0].id)
    await task
    assert (heard, wire.notices) == ([b'{"a":1}'], [("notifications/message", b'{"a":2}')])


async def test_an_error_with_a_null_id_is_nobodys_when_several_wait() -> None:
    wire = Wire()
    with anyio.fail_after(30):
        tasks = [asyncio.ensure_future(wire.ask()) for _ in range(2)]
        while len(wire.sent) < 2:
            await asyncio.sleep(0)
        wire.says(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}')
        for message in list(wire.sent):
            wire.says(b'{"id":%b,"result":{}}' % message.id)
        assert [bytes(result) for result in await asyncio.gather(*tasks)] == [b"{}", b"{}"]


@pytest.mark.parametrize("method", [b"notifications/progress", b"notifications/cancelled"])
@pytest.mark.parametrize("params", [b"{}", b"[]", b'{"progressToken":{},"requestId":[]}', b'{"requestId":1}', b"5"])
async def test_a_notification_of_an_odd_shape_concerns_nobody(method: bytes, params: bytes) -> None:
    wire = Wire()

    def says() -> None:
        wire.says(b'{"method":"%b","params":%b}' % (method, params))
        wire.says(b'{"method":"%b"}' % method)
        wire.says(b'{"id":%b,"result":{}}' % wire.sent[0].id)

    assert bytes(await wire.answered(says)) == b"{}"


async def test_what_goes_wrong_with_one_message_costs_no_other() -> None:
    wire = Wire()

    def breaks(method: str, params: Raw) -> None:
        raise RecursionError

    task = asyncio.ensure_future(wire.ask(update=breaks))
    with anyio.fail_after(30):
        while not wire.sent:
            await asyncio.sleep(0)
        wire.says(b'{"method":"notifications/message","params":{}}', via=wire.sent[0].id)
        wire.says(b'{"id":%b,"result":{}}' % wire.sent[0].id)
        assert bytes(await task) == b"{}"


async def test_a_request_without_a_deadline_outlasts_those_with_one() -> None:
    """A listen stream stays open by design."""
    wire = Wire()
    listening = asyncio.ensure_future(wire.ask("subscriptions/listen", Timeouts(0, 0)))
    with anyio.fail_after(30):
        with pytest.raises(UpstreamTimeout):
            await wire.ask(timeouts=Timeouts(0.02, 10))
        assert not listening.done()
        [listen] = [message.id for message in wire.sent if message.method == "subscriptions/listen"]
        wire.says(b'{"method":"notifications/cancelled","params":{"requestId":%b}}' % listen)
        with pytest.raises(UpstreamGone, match="it ended the stream"):
            await listening


async def test_an_answer_that_cannot_be_sent_harms_nobody() -> None:
    wire = Wire()
    wire.refuse = Overloaded("full")
    wire.says(b'{"id":1,"method":"ping"}')
    wire.peer.notify("notifications/initialized")
    wire.refuse = None
    wire.says(b'{"id":2,"method":"ping"}')
    assert [message.data for message in wire.sent] == [b'{"jsonrpc":"2.0","id":2,"result":{}}']


# -- questions of the other side


async def sent(wire: Wire, count: int = 1) -> Outgoing:
    """The message of this number, as soon as it was sent."""
    while len(wire.sent) < count:
        await asyncio.sleep(0)
    return wire.sent[count - 1]


async def test_the_clock_of_a_call_stands_still_while_its_server_waits_for_us(passes: Passes) -> None:
    """Issue 3: a person may think for longer than a server may be silent, and than a call may take in all."""
    wire = Wire()
    context = object()
    with anyio.fail_after(100):
        task = asyncio.ensure_future(wire.ask(timeouts=Timeouts(10, 20), context=context))
        await sent(wire)
        with wire.peer.held([context]):
            await passes(50)
            assert not task.done()
        await passes(2)
        assert not task.done()
        wire.says(b'{"id":%b,"result":{"n":1}}' % wire.sent[0].id)
        assert bytes(await task) == b'{"n":1}'


async def test_the_clock_goes_on_when_the_answer_is_given(passes: Passes) -> None:
    wire = Wire()
    context = object()
    with anyio.fail_after(100):
        task = asyncio.ensure_future(wire.ask(timeouts=Timeouts(5, 10), context=context))
        await sent(wire)
        with wire.peer.held([context]):
            await passes(20)
        assert not task.done()
        await passes(5.1)
        with pytest.raises(UpstreamTimeout):
            await task
    assert wire.sent[-1].method == "notifications/cancelled"


async def test_two_questions_that_overlap_hold_the_clock_from_the_first_to_the_last(passes: Passes) -> None:
    wire = Wire()
    context = object()
    with anyio.fail_after(200):
        task = asyncio.ensure_future(wire.ask(timeouts=Timeouts(100, 30), context=context))
        await sent(wire)
        with wire.peer.held([context]):
            await passes(50)
            second = wire.peer.held([context])
            second.__enter__()
        await passes(50)
        second.__exit__(None, None, None)
        other = asyncio.ensure_future(wire.ask(timeouts=Timeouts(100, 10)))
        await sent(wire, 2)
        await passes(11)
        with pytest.raises(UpstreamTimeout):
            await other
        assert not task.done()  # all of its time was left when the first question came
        await passes(20)
        with pytest.raises(UpstreamTimeout):
            await task


async def test_other_calls_are_not_held() -> None:
    wire = Wire()
    with anyio.fail_after(10):
        task = asyncio.ensure_future(wire.ask(timeouts=Timeouts(0.05, 1), context=object()))
        await sent(wire)
        with wire.peer.held([object(), None]), pytest.raises(UpstreamTimeout):
            await task


async def test_a_held_call_keeps_no_other_from_its_deadline_and_ends_with_the_channel(passes: Passes) -> None:
    wire = Wire()
    context = object()
    with anyio.fail_after(100):
        held = asyncio.ensure_future(wire.ask(timeouts=Timeouts(5, 5), context=context))
        await sent(wire)
        with wire.peer.held([context]):
            other = asyncio.ensure_future(wire.ask(timeouts=Timeouts(10, 60)))
            await sent(wire, 2)
            await passes(11)
            with pytest.raises(UpstreamTimeout):
                await other
            assert not held.done()
            wire.peer.closed("exit code 1")
            with pytest.raises(UpstreamGone):
                await held


async def test_the_context_of_a_call_is_found_by_its_id_while_it_waits() -> None:
    wire = Wire()
    context = object()
    with anyio.fail_after(30):
        task = asyncio.ensure_future(wire.ask(context=context))
        id_ = (await sent(wire)).id
        assert wire.peer.context_of(id_) is context
        assert wire.peer.waits_for(context)
        assert wire.peer.context_of(b"999") is None
        wire.says(b'{"id":%b,"result":{}}' % id_)
        assert not wire.peer.waits_for(context)  # answered, if nobody has taken note yet
        await task
    assert wire.peer.context_of(id_) is None


async def test_requests_of_the_server_go_to_whom_takes_them_with_the_call_that_they_came_for() -> None:
    taken: list[tuple[str, bytes]] = []
    wire = Wire()

    def take(frame: Frame, via: bytes) -> bool:
        taken.append((frame.method, via))
        return frame.method == "roots/list"

    wire.peer = Peer(
        "up",
        on_notification=lambda method, params, via: None,
        on_closed=wire.closed.append,
        on_request=take,
        on_withdrawn=lambda id_: taken.append(("withdrawn", id_)),
    )
    wire.peer.attach(wire)
    wire.says(b'{"id":"r","method":"roots/list"}', via=b"7")
    wire.says(b'{"id":2,"method":"tools/list"}')
    wire.says(b'{"id":3,"method":"ping"}')
    wire.says(b'{"method":"notifications/cancelled","params":{"requestId":"r"}}')
    assert taken == [("roots/list", b"7"), ("tools/list", b""), ("withdrawn", b'"r"')]
    assert b"-32601" in wire.sent[0].data
    wire.peer.reply(b'{"jsonrpc":"2.0","id":"r","result":{}}')
    assert wire.sent[-1].data == b'{"jsonrpc":"2.0","id":"r","result":{}}'


async def test_what_only_came_on_the_stream_of_a_call_does_not_belong_to_it() -> None:
    """A server may send a changed list, or the end of a page, wherever a stream is open."""
    wire = Wire()
    heard: list[str] = []
    task = asyncio.ensure_future(wire.ask(update=lambda method, params: heard.append(method)))
    with anyio.fail_after(30):
        id_ = (await sent(wire)).id
        for method in (b"notifications/tools/list_changed", b"notifications/elicitation/complete"):
            wire.says(b'{"method":"%b"}' % method, via=id_)
        wire.says(b'{"id":%b,"result":{}}' % id_)
        await task
    assert heard == []
    assert [method for method, _ in wire.notices] == [
        "notifications/tools/list_changed",
        "notifications/elicitation/complete",
    ]
