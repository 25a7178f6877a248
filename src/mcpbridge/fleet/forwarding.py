"""A request that came to one bridge and is answered by another.

The bridge that has it asks who calls once more, with the same token: nothing that the other one says is believed, but
for the address of the client, and that `Host` and `Origin` are right.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from mcpbridge.downstream.http.exchange import NO_HEADERS, DirectExchange, Exchange, Headers
from mcpbridge.fleet.counts import FleetCounts, Outcome
from mcpbridge.fleet.link.connections import Links, NotSent, OutcomeUnknown, Served, Stream
from mcpbridge.fleet.link.frames import PART, Ask, Kind, Reply
from mcpbridge.fleet.records import Member
from mcpbridge.protocol.error_codes import INTERNAL_ERROR
from mcpbridge.protocol.jsonrpc import Frame, decode_frame, encode_error
from mcpbridge.protocol.reading.client_messages import read_client_message

if TYPE_CHECKING:  # few bridges trace
    from mcpbridge.fleet.hop_spans import HopSpan
    from mcpbridge.pipeline.observability.tracing import Otel

MOVED_STATUS = 421
"""What a bridge answers, to others of the fleet alone, for a session that it does not have any more."""
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"expect"})


class _Moved(Enum):
    MOVED = 0


LOST = (
    "outcome unknown: the bridge that had this was lost before it answered; "
    "check whether the action took effect before you repeat it"
)
_WATCH_AFTER = 0.05
"""Seconds after which a client that leaves is noticed."""
_JSON = (b"content-type", b"application/json")
_EVENTS = (b"content-type", b"text/event-stream")
_BETWEEN_EVENTS = b"\n\n"
MOVED: Final = _Moved.MOVED
"""The bridge does not have the session any more; it did nothing."""


class Forwarding:
    """Asks other members."""

    def __init__(self, links: Links, counts: FleetCounts) -> None:
        self._links, self._counts = links, counts
        self.under_way = 0
        """Requests that other members answer now. Not those by GET: such a stream is opened again elsewhere."""
        self.otel: Callable[[], Otel | None] = _no_otel
        """What traces calls now; None: nothing does."""

    def forget(self, member: str) -> None:
        """It is none any more."""
        self._links.forget(member)

    async def ask(self, member: Member, exchange: Exchange, body: bytes, guest: Iterable[bytes] = ()) -> _Moved | None:
        """Have a request answered by this member. `body`: its whole body. `guest`: see `Ask`.

        Raises:
            NotSent: the member cannot be reached.
            OutcomeUnknown: it was lost before it answered.
        """
        if (span := self._span(member, exchange, body)) is not None:
            body = span.body
        head = Ask(
            exchange.method,
            exchange.path,
            exchange.query,
            list(exchange.raw_headers),
            exchange.address,
            len(body),
            list(guest),
        )
        outcome: Outcome = "unknown"
        counted = exchange.method != "GET"
        self.under_way += counted
        try:
            stream = await self._links.ask(member.id, member.address, head, body)
            watch = _Watch(exchange, stream)
            try:
                found = await _pass_on(exchange, stream, body)
                outcome = "moved" if found is MOVED else "answered" if stream.is_whole else "unknown"
                return found
            finally:
                watch.cancel()
                outcome = "left" if stream.is_closed and outcome == "unknown" else outcome
                stream.close()
        except NotSent:
            outcome = "not_sent"
            raise
        finally:
            self.under_way -= counted
            self._counts.forwarded[outcome] += 1
            if span is not None:
                span.finish(outcome)

    def _span(self, member: Member, exchange: Exchange, body: bytes) -> "HopSpan | None":
        otel = self.otel()
        if otel is None or exchange.method != "POST":
            return None
        from mcpbridge.fleet.hop_spans import begin_hop

        return begin_hop(otel, member, body)


def _no_otel() -> None:
    pass


class _Watch:
    """Closes the stream when the client has left. Most answers come before that is worth a task."""

    def __init__(self, exchange: Exchange, stream: Stream) -> None:
        self._exchange, self._stream = exchange, stream
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER, self._begin)

    def cancel(self) -> None:
        """The answer has been passed on."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._until_left())

    async def _until_left(self) -> None:
        await self._exchange.until_client_leaves()
        self._stream.close()


async def _pass_on(exchange: Exchange, stream: Stream, body: bytes) -> _Moved | None:
    reply, answer, is_whole = await stream.head()
    if reply.status == MOVED_STATUS:
        return MOVED
    headers = tuple((name, value) for name, value in reply.headers if name not in _HOP_BY_HOP)
    if is_whole and reply.status == 200 and _JSON in headers:  # nearly all: one write
        await exchange.send_json(answer, headers=tuple(one for one in headers if one != _JSON))
        return None
    if is_whole:
        length = () if reply.status == 204 else ((b"content-length", b"%d" % len(answer)),)
        await exchange.start(reply.status, (*headers, *length, *exchange.extra))
        await exchange.finish(answer)
        return None
    await exchange.start(reply.status, (*headers, *exchange.extra))
    await _pass_parts_on(exchange, stream, body if _EVENTS in headers else None)
    return None


async def _pass_parts_on(exchange: Exchange, stream: Stream, body: bytes | None) -> None:
    """The rest of an answer. `body`: what was asked, where the answer is a stream of events."""
    ending = _BETWEEN_EVENTS
    while True:
        try:
            kind, part = await stream.next()
        except OutcomeUnknown:
            if stream.is_closed:
                return  # its client has left
            if body is None or ending != _BETWEEN_EVENTS:
                exchange.break_off()  # with a proper end it would look whole
                return
            await exchange.write(_last_words(body))
            break
        if kind == Kind.REPLY_PART:
            await exchange.write(part)
            ending = (ending + part)[-2:]
            stream.grant(len(part))
        elif kind == Kind.REPLY_END:
            break
    await exchange.finish()


def _last_words(body: bytes) -> bytes:
    """An event for each request of the body: its answer is lost."""
    found = read_client_message(body)
    ids = [bytes(one.id) for one in found if isinstance(one, Frame) and one.method and one.id]
    return b"".join(b"event: message\ndata: %b\n\n" % encode_error(id_, INTERNAL_ERROR, LOST) for id_ in ids)


class Answering:
    """Answers requests that other members send."""

    def __init__(
        self,
        answer: Callable[[Exchange], Awaitable[None]],
        gives_up: Callable[[bytes], bool],
        hand_on: Callable[[bytes], Awaitable[None]],
        order: Callable[[Served, bytes], Awaitable[None]],
        take: Callable[[DirectExchange], bool],
    ) -> None:
        """`answer`: the front. `gives_up`: whether a session is for somebody else now; `hand_on`: let it go.

        `order` answers what other members ask of the bridge itself. `take`: the front's way of plain calls.
        """
        self._take = take
        self._answer, self._gives_up, self._hand_on, self._order = answer, gives_up, hand_on, order

    async def serve(self, served: Served) -> None:
        """Answer one request."""
        body = await served.body()
        if body is None:
            return
        if served.is_order:
            await self._order(served, body)
            return
        head = served.head
        id_ = dict(head.headers).get(b"mcp-session-id", b"").strip()
        if id_ and not head.guest and self._gives_up(id_):
            await self._hand_on(id_)
            served.reply_whole(Reply(MOVED_STATUS, []), b"")
            return
        exchange = _exchange_of(served, body)
        await self._answer(exchange)
        exchange.end()

    def take(self, served: Served) -> bool:
        """Answer a plain call without a task. False: nothing was done."""
        body = served.body_now
        if body is None or served.is_order or served.head.guest or served.head.method != "POST":
            return False
        exchange = _exchange_of(served, body)
        if self._gives_up(exchange.headers.get(b"mcp-session-id", b"").strip()):
            return False
        served.on_left = exchange.client_left
        if self._take(exchange):
            return True
        served.on_left = _nothing
        return False


def _nothing() -> None:
    pass


class _LinkExchange(DirectExchange):
    """A request that came by way of another bridge."""

    __slots__ = ("_sending", "_served", "_whole")

    def __init__(self, scope: MutableMapping[str, Any], served: Served, body: bytes) -> None:
        self._sending = _Sending(served)
        super().__init__(scope, _Receiving(served, body).receive, self._sending.send)
        self._served, self._whole = served, body
        self.admission = self.express = None
        self.is_forwarded = True

    @property
    def whole_body(self) -> bytes:
        """See `DirectExchange`."""
        return self._whole

    def client_left(self) -> None:
        """The client is gone, or the bridge that asked."""
        if self.express is not None:
            self.express.continue_call()

    def send_now(self, data: bytes, headers: Headers = NO_HEADERS) -> None:
        """See `DirectExchange`."""
        if len(data) > PART:
            self.run(self.send_json(data, headers=headers))
            return
        self._served.reply_whole(Reply(200, [_JSON, *headers, *self.extra]), data)
        self._served.over()

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """See `DirectExchange`."""
        return self._served.run(self._to_its_end(work))

    def end(self) -> None:
        """Nothing more comes."""
        self._sending.end()

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            self._sending.end()
        except BaseException:
            self._served.fail()
            raise
        finally:
            work.close()
            self._served.over()


def _exchange_of(served: Served, body: bytes) -> _LinkExchange:
    head = served.head
    scope: MutableMapping[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": head.method,
        "root_path": "",
        "path": head.path,
        "raw_path": head.path.encode(),
        "query_string": head.query,
        "headers": [
            *(one for one in head.headers if one[0] not in _HOP_BY_HOP),
            (b"content-length", b"%d" % len(body)),
        ],
        "client": (head.peer, 0) if head.peer else None,
        "server": None,
        "state": {},
    }
    exchange = _LinkExchange(scope, served, body)
    exchange.guest = [decode_frame(message) for message in head.guest]
    return exchange


class _Receiving:
    def __init__(self, served: Served, body: bytes) -> None:
        self._served, self._body, self._is_told = served, body, False

    async def receive(self) -> MutableMapping[str, Any]:
        if not self._is_told:
            self._is_told = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._served.until_left()
        return {"type": "http.disconnect"}


class _Sending:
    """The head waits until the first part of the body is there, or the loop's next turn: most answers are one frame."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._head: Reply | None = None
        self._timer: asyncio.Handle | None = None
        self._is_over = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
            self._head = Reply(message["status"], headers)
            self._timer = asyncio.get_running_loop().call_soon(self._begin)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._head is not None and not more:
            self._is_over = True
            head, self._head = self._head, None
            if len(body) <= PART:
                self._served.reply_whole(head, body)
                return
            self._served.reply(head)
        else:
            self._begin()
        if body:
            await self._served.write(body)
        if not more:
            self._is_over = True
            self._served.end()

    def end(self) -> None:
        """Nothing more comes."""
        if not self._is_over:
            self._begin()
            self._served.end()

    def _begin(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self._served.reply(head)
