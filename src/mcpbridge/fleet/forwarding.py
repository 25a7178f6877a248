"""A request that came to one bridge and is answered by another.

A call whose answer is a plain one goes to the other bridge and back without a task (`PassedOn`), as on the express lane
of one's own. `answering.py` is the other end.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from mcpbridge.downstream.http.exchange import NO_HEADERS, DirectExchange, Exchange, Headers, Refused
from mcpbridge.downstream.http.readiness import SOON
from mcpbridge.fleet.counts import FleetCounts, Outcome
from mcpbridge.fleet.link.connections import Links, NotSent, OutcomeUnknown, Stream
from mcpbridge.fleet.link.frames import Ask, BadFrame, Kind, read_reply
from mcpbridge.fleet.records import Member
from mcpbridge.protocol.error_codes import INTERNAL_ERROR
from mcpbridge.protocol.jsonrpc import Frame, encode_error
from mcpbridge.protocol.reading.client_messages import read_client_message

if TYPE_CHECKING:  # few bridges trace
    from mcpbridge.fleet.hop_spans import HopSpan
    from mcpbridge.pipeline.observability.tracing import Otel

MOVED_STATUS = 421
"""What a bridge answers, to others of the fleet alone, for a session that it does not have any more."""
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"expect"})


class _Moved(Enum):
    MOVED = 0


_PLAIN = 1 << 16
"""Bytes of an answer that is sent on without a task, whether or not its client takes it."""
LOST = (
    "outcome unknown: the bridge that had this was lost before it answered; "
    "check whether the action took effect before you repeat it"
)
_WATCH_AFTER = 0.05
"""Seconds after which a client that leaves is noticed."""
JSON = (b"content-type", b"application/json")
_EVENTS = (b"content-type", b"text/event-stream")
_BETWEEN_EVENTS = b"\n\n"
MOVED: Final = _Moved.MOVED
"""The bridge does not have the session any more; it did nothing."""


Continue = Callable[["PassedOn"], Coroutine[Any, Any, None]]


def not_sent(owner: Member, why: str) -> Refused:
    """What a client is answered whose request could not be passed on, so that nothing was done."""
    text = f"not sent: the bridge {owner.name!r} that has this cannot be reached ({why}); it is safe to repeat"
    return Refused(503, text, headers=SOON)


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

    def pass_on(self, member: Member, exchange: DirectExchange, body: bytes, rest: Continue) -> bool:
        """Send a call to this member, and answer it without a task if it has a plain answer. False: nothing was done.

        `rest`: has the request answered in any other case.
        """
        if self.otel() is not None:
            return False  # its way there has a span
        stream = self._links.ask_now(member.id, _head_of(exchange, body), body)
        if stream is None:
            return False
        self.under_way += 1
        passed = exchange.express = PassedOn(self, member, exchange, stream, rest)
        stream.on_first = passed.answered
        return True

    def given_up(self) -> None:
        """A call that was passed on without a task is not waited for any more."""
        self.under_way -= 1
        self._counts.forwarded["left"] += 1

    def answered_at_once(self) -> None:
        """A call that was passed on without a task has been answered."""
        self.under_way -= 1
        self._counts.forwarded["answered"] += 1

    async def ask(
        self,
        member: Member,
        exchange: Exchange,
        body: bytes,
        guest: Iterable[bytes] = (),
        *,
        stream: Stream | None = None,
    ) -> _Moved | None:
        """Have a request answered by this member. `body`: its whole body. `guest`: see `Ask`.

        `stream`: of the answer, where the request was sent before.

        Raises:
            NotSent: the member cannot be reached.
            OutcomeUnknown: it was lost before it answered.
        """
        span = self._span(member, exchange, body) if stream is None else None
        if span is not None:
            body = span.body
        outcome: Outcome = "unknown"
        counted = exchange.method != "GET"
        self.under_way += counted and stream is None  # else it is counted already
        try:
            if stream is None:
                head = _head_of(exchange, body, guest)
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


class PassedOn:
    """A call that was sent to another bridge without a task, until it is answered so or continues in one."""

    __slots__ = ("_exchange", "_forwarding", "_is_taken", "_rest", "member", "stream")

    def __init__(
        self, forwarding: Forwarding, member: Member, exchange: DirectExchange, stream: Stream, rest: Continue
    ) -> None:
        self._forwarding, self._exchange, self._rest = forwarding, exchange, rest
        self.member, self.stream = member, stream
        self._is_taken = False

    def take_stream(self) -> Stream:
        """The stream of the answer, for `Forwarding.ask`, which ends it in any case."""
        self._is_taken = True
        return self.stream

    def close(self) -> None:
        """Nobody waits for the answer any more, unless somebody has taken its stream."""
        if not self._is_taken:
            self._is_taken = True
            self.stream.close()
            self._forwarding.given_up()

    def answered(self, kind: int, payload: bytes) -> None:
        """The first frame of the answer: if it is a plain answer and all of it, it is sent on."""
        exchange = self._exchange
        if kind == Kind.REPLY_WHOLE and len(payload) <= _PLAIN:
            try:
                reply, answer = read_reply(payload)
            except BadFrame:
                kind = Kind.BROKEN
            else:
                headers = reply.headers
                if reply.status == 200 and headers and headers[0] == JSON:
                    more = NO_HEADERS if len(headers) == 1 else _passed(headers[1:])
                    exchange.express = None
                    self._forwarding.answered_at_once()
                    try:
                        exchange.send_now(answer, more)
                    except BaseException:
                        exchange.break_off()
                        raise
                    return
        self.stream.take(kind, payload)
        self.continue_call()

    def continue_call(self) -> None:
        """Continue in a task; nothing happens where it does already."""
        exchange = self._exchange
        if exchange.express is not self:
            return
        exchange.express = self.stream.on_first = None
        exchange.run(self._rest(self))


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


def _passed(headers: Headers | list[tuple[bytes, bytes]]) -> Headers:
    return tuple(header for header in headers if header[0] not in HOP_BY_HOP)


def _head_of(exchange: Exchange, body: bytes, guest: Iterable[bytes] = ()) -> Ask:
    address, headers = exchange.address, list(exchange.raw_headers)
    return Ask(exchange.method, exchange.path, exchange.query, headers, address, len(body), list(guest))


async def _pass_on(exchange: Exchange, stream: Stream, body: bytes) -> _Moved | None:
    reply, answer, is_whole = await stream.head()
    if reply.status == MOVED_STATUS:
        return MOVED
    headers = _passed(reply.headers)
    if is_whole and reply.status == 200 and JSON in headers:  # nearly all: one write
        await exchange.send_json(answer, headers=tuple(one for one in headers if one != JSON))
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
