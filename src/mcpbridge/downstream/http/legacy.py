"""The legacy era over HTTP (MCP 2025-03-26 to 2025-11-25, Transports): requests in sessions, and streams that resume.

`initialize` opens a session, and every later request names it (`sessions.py`).

A client that loses a stream comes back by GET with the id of the last event that it saw (`event_streams.py`). Its
call continues meanwhile: a broken connection is no cancellation (MCP 2025-11-25, transports). Only
`notifications/cancelled` and the end of the session cancel it.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from msgspec.structs import replace

from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.downstream.client import Answer, Client, Notify
from mcpbridge.downstream.express_lane import ExpressCall, ExpressLane
from mcpbridge.downstream.http.event_streams import Request, Stream, carry, decoded, is_channel, named_event
from mcpbridge.downstream.http.exchange import (
    MERGED,
    NO_HEADERS,
    Admission,
    DirectExchange,
    Exchange,
    Refused,
)
from mcpbridge.downstream.http.express_replies import ExpressReplies, ExpressReply
from mcpbridge.downstream.http.reply import ABOUT_TASKS, OpenReplies, Reply, ReplyOptions, bridge_named
from mcpbridge.downstream.http.sessions import Elsewhere, Session, Sessions
from mcpbridge.downstream.services import Core
from mcpbridge.downstream.sessions import make_one_turn
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.protocol.batches import MAX_MEMBERS, encode_batch
from mcpbridge.protocol.error_codes import INVALID_REQUEST
from mcpbridge.protocol.jsonrpc import Frame, encode_error
from mcpbridge.protocol.reading.client_messages import encode_refusal, read_client_member
from mcpbridge.protocol.reading.unreadable import Spoiled
from mcpbridge.protocol.revisions import BATCHING, LEGACY

_REMEMBERED = frozenset(
    {"notifications/initialized", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
"""Messages that change what a session is, so that a bridge that takes it over must know them."""
_PRIMED = frozenset({"2025-11-25"})
"""Revisions that ask for a priming event; clients of older ones try to parse its empty data."""
_CANCELLED = -32800
"""The code of SDK servers (and of LSP) for a request that was cancelled; MCP itself names none."""
_RETRY_AFTER = (b"retry-after", b"10")

_NO_STREAM = (
    "This Last-Event-ID names no stream, or one that ended too long ago. Outcome unknown: if a call waits for its "
    "answer there, check whether the action took effect before you repeat it"
)
_BY_CLIENT = "its client ended it"
_LEFT_EARLY = "its client left before it had begun"

Work = Callable[[Notify], Awaitable[Answer]]


class LegacyFront:
    """Answers requests of the handshake era and keeps their sessions."""

    def __init__(self, core: Core, settings: HttpSettings, underway: OpenReplies, clock: Callable[[], float]) -> None:
        """`clock` counts in seconds."""
        self._core = core
        self.express = _ExpressReplies(self, settings.keep_alive)
        """Replies that need no task."""
        self._settings = settings
        self._underway = underway
        self._clock = clock
        self.elsewhere: Elsewhere | None = None
        """The other bridges of a fleet; None: there is none."""
        self.sessions = Sessions(
            self._session_ended,
            idle=settings.session_idle,
            limit=settings.max_sessions,
            keep=settings.resume_grace,
            max_event=settings.max_event,
            projects=tuple(settings.projects),
            clock=clock,
        )

    async def post(self, exchange: Exchange, message: Frame | list[bytes]) -> None:
        """Answer one message, or a batch.

        Raises:
            Refused: there is no such session, or the message breaks a rule of the era.
        """
        if exchange.guest and isinstance(message, Frame) and message.method in ABOUT_TASKS:
            await self._serve_guest(exchange, message)
            return
        if isinstance(message, list):
            session = self._session(exchange, b"")
            work = self._batch(session, message)
        else:
            if message.method == "initialize" and message.id:
                await self._initialize(exchange, message)
                return
            id_ = bytes(message.id) if message.method else b""
            session = self._session(exchange, id_)
            if self.elsewhere is not None and message.method in ABOUT_TASKS:
                bridge = bridge_named(message)
                if bridge and await self.elsewhere.serve_at(bridge, exchange, session):
                    self.sessions.touch(session)
                    return
            is_request = message.method and message.id
            work = partial(self._answer, session, message) if is_request else self._single(session, message)
        if self.elsewhere is not None:
            for frame in [message] if isinstance(message, Frame) else decoded(message):
                if frame.method in _REMEMBERED and not frame.id:
                    await self.elsewhere.heard(session, frame)
        if work is None:
            self.sessions.touch(session)
            await exchange.send_empty(202)
            return
        self.sessions.enter(session)
        reply = Reply(exchange, message, session.reply_options or self._options(session), session)
        await self._run(reply, session, work)

    async def _run(self, reply: Reply, session: Session, work: Work) -> None:
        try:
            await reply.run(work)
        finally:
            if reply.is_outlived:
                self.sessions.leave_outlived(session)
            else:
                self.sessions.leave(session)

    def take(self, exchange: DirectExchange, frame: Frame, admission: Admission, lane: ExpressLane) -> bool:
        """Send a call on the express lane, if it is plain and has a session. False: nothing was done."""
        session = self.sessions.find(admission.session, admission.principal, MERGED, admission.identity)
        if session is None or (options := session.reply_options) is None:
            return False
        if options.primes and exchange.accepts.prefers_events:
            return False  # it has a stream as soon as it takes a moment
        exchange.extra = admission.extra
        session.busy += 1
        if self.express.take(exchange, frame, session.client, session, lane):
            return True
        session.busy -= 1
        return False

    def answer_sent(self, reply: Reply, session: Session, frame: Frame, sent: ExpressCall) -> Coroutine[Any, Any, None]:
        """Let the reply to a call that was sent on the express lane run to its end."""
        return self._run(reply, session, partial(self._answer, session, frame, sent=sent))

    async def get(self, exchange: Exchange) -> None:
        """Carry the session's unsolicited messages, or continue a stream that broke.

        Raises:
            Refused: there is no such session or stream.
        """
        if not exchange.accepts.events:
            raise Refused(406, "A GET is answered with a stream: accept text/event-stream")
        session = self._session(exchange, b"")
        stream = session.streams.channel
        position = stream.sent
        last_event_id = exchange.header(b"last-event-id")
        if last_event_id:
            found = session.streams.find(last_event_id)
            if found is None and session.came_over:
                found = await self._lost(session, last_event_id)
            if found is None:
                raise Refused(400, _NO_STREAM)
            stream, position = found
            if stream.is_finished and position >= stream.last:
                await exchange.send_empty(204)  # the code that tells an EventSource to stop asking
                return
        self.sessions.enter(session)
        try:
            await self._carry(exchange, stream, position)
        finally:
            self.sessions.leave(session)

    async def _lost(self, session: Session, last_event_id: str) -> tuple[Stream, int] | None:
        """The end of a stream that another bridge had; None: nothing is known of it."""
        name, position = named_event(last_event_id)
        if is_channel(name):  # what was said there is lost
            return session.streams.channel, session.streams.channel.sent
        kept = await self.elsewhere.lost_answer(session, name) if self.elsewhere is not None else None
        if kept is None:
            return None
        number, answer = kept
        stream = Stream(name, first=number or position + 1)
        stream.put(answer)
        stream.finish()
        return stream, position

    async def delete(self, exchange: Exchange) -> None:
        """End the session.

        Raises:
            Refused: there is no such session.
        """
        self.sessions.end(self._session(exchange, b""), _BY_CLIENT)
        await exchange.send_empty(204)

    async def _initialize(self, exchange: Exchange, frame: Frame) -> None:
        session = self.sessions.open(exchange.principal, exchange.endpoint, exchange.identity)
        if session is None:
            text = f"All {self._settings.max_sessions} sessions are busy (`http.max_sessions`)"
            raise Refused(503, text, id_=bytes(frame.id), headers=(_RETRY_AFTER,))
        session.client.address = exchange.address
        self._core.open(session.client)
        self.sessions.enter(session)
        # A client that left before it knew its session cannot come back to it.
        reply = Reply(exchange, frame, replace(self._options(session), outlived=None), session)
        reply.headers = ((b"mcp-session-id", session.id),)

        async def work(notify: Notify) -> Answer:
            answer = await self._core.answer(session.client, frame, notify)
            if answer.code:
                reply.headers = NO_HEADERS
            elif self.elsewhere is not None:
                await self.elsewhere.opened(session, frame)
            return answer

        try:
            answer = await reply.run(work)
        except BaseException:
            self.sessions.end(session, _LEFT_EARLY)
            raise
        finally:
            self.sessions.leave(session)
        if answer is None or answer.code:
            self.sessions.end(session, _LEFT_EARLY)
        else:
            session.reply_options = self._options(session)

    async def _serve_guest(self, exchange: Exchange, frame: Frame) -> None:
        """Answer a request about a task of this bridge's whose session is at another one: it is asked nothing."""
        session = self.sessions.open(exchange.principal, exchange.endpoint, exchange.identity)
        if session is None:
            text = f"All {self._settings.max_sessions} sessions are busy (`http.max_sessions`)"
            raise Refused(503, text, id_=bytes(frame.id), headers=(_RETRY_AFTER,))
        client = session.client
        client.is_guest, client.address = True, exchange.address
        self.sessions.enter(session)
        try:
            await self._begin_again(client, exchange.guest)
            client.requests = None
            options = replace(self._options(session), outlived=None, opened=None, answered=None)
            await Reply(exchange, frame, options, session).run(partial(self._answer, session, frame))
        finally:
            self.sessions.leave(session)
            self.sessions.end(session, "its request was answered")

    async def _begin_again(self, client: Client, messages: Iterable[Frame]) -> None:
        for frame in messages:
            if frame.id:
                await self._core.answer(client, frame, _say_nothing)
            else:
                self._core.notification(client, frame)

    async def take_over(self, exchange: Exchange, id_: bytes, messages: Iterable[Frame]) -> bool:
        """Have a session that another bridge had: it begins anew with these messages of its client's.

        No request finds it before it is whole; cancelling leaves nothing of it. False: there is no room for it.

        Raises:
            Refused: it ended while it began.
        """
        session = self.sessions.open(exchange.principal, exchange.endpoint, exchange.identity, id_=id_)
        if session is None:
            return False
        session.came_over, session.client.address = True, exchange.address
        self._core.open(session.client)
        try:
            await self._begin_again(session.client, messages)
            await self._core.came_over(session.client)
        except BaseException:
            self.sessions.end(session, "it could not begin anew")
            raise
        session.reply_options = self._options(session)
        if not self.sessions.admit(session):
            raise Refused(404, "This session is over")
        return True

    def _single(self, session: Session, frame: Frame) -> Work | None:
        """What there is to do for one message; None when it asks for no answer."""
        if not frame.method:
            self._core.answered(session.client, frame)
            return None
        if not frame.id:
            self._core.notification(session.client, frame)
            return None
        return partial(self._answer, session, frame)

    async def _answer(self, session: Session, frame: Frame, notify: Notify, sent: ExpressCall | None = None) -> Answer:
        """The answer to a request. One that its client cancelled has one too: without, its stream would look broken."""
        answer = await self._core.answer(session.client, frame, notify, sent=sent)
        if self.elsewhere is not None and frame.method in _REMEMBERED and answer.data and not answer.code:
            await self.elsewhere.heard(session, frame)  # before its client knows that it counts
        return answer if answer.data else Answer(encode_error(frame.id, _CANCELLED, "Request cancelled"), _CANCELLED)

    def _batch(self, session: Session, members: list[bytes]) -> Work | None:
        """Members are served side by side; their answers leave together, in the order of the requests."""
        if session.client.version != BATCHING:
            raise Refused(400, f"Batches exist in revision {BATCHING} only, which this session did not negotiate")
        if not 1 <= len(members) <= MAX_MEMBERS:
            raise Refused(400, f"A batch must have 1 to {MAX_MEMBERS} members; this one has {len(members)}")
        frames = [_decoded(member) for member in members]
        make_one_turn(frame for frame in frames if isinstance(frame, Frame))
        works = [frame if isinstance(frame, bytes) else self._single(session, frame) for frame in frames]
        if not any(works):
            return None

        async def together(notify: Notify) -> Answer:
            async def one(work: bytes | Work) -> bytes:
                return work if isinstance(work, bytes) else bytes((await work(notify)).data)

            async with TaskGroup() as group:
                answers = [group.create_task(one(work)) for work in works if work]
            return Answer(encode_batch(answer.result() for answer in answers))

        return together

    async def _carry(self, exchange: Exchange, stream: Stream, position: int) -> None:
        await exchange.start_stream()
        await carry(exchange, stream, position, keep_alive=self._settings.keep_alive)

    def _session_ended(self, session: Session) -> None:
        if self._core.express is not None:
            self._core.express.continue_all(session.client)
        if self.elsewhere is not None:
            self.elsewhere.ended(session)
        over = Refused(404, "This session is over")
        is_repeated = session.why != _BY_CLIENT  # who finds its session gone opens another one, and asks there again
        self._underway.withdraw(over, lambda _, owner: owner is session, is_repeated=is_repeated)
        self._core.close(session.client, session.why)

    def _stream_opened(self, session: Session, stream: Stream, request: Request) -> None:
        if self.elsewhere is not None:
            self.elsewhere.stream_opened(session, stream.name, request)

    async def _stream_answered(self, session: Session, stream: Stream, request: Request, answer: bytes) -> None:
        if self.elsewhere is not None:
            await self.elsewhere.stream_answered(session, stream.name, request, answer, stream.last + 1)

    def _unheard(self, session: Session, request: Request) -> None:
        if isinstance(request, Frame):
            self._core.unheard(session.client, request)

    def _session(self, exchange: Exchange, id_: bytes) -> Session:
        session_id = exchange.headers.get(b"mcp-session-id")
        if session_id is None:
            raise Refused(400, "The header Mcp-Session-Id is missing; `initialize` returns it", id_=id_)
        session = self.sessions.find(session_id.strip(), exchange.principal, exchange.endpoint, exchange.identity)
        if session is None:
            raise Refused(404, "This session is unknown or over; initialize a new one", id_=id_)
        version = exchange.version
        if version is not None and version not in LEGACY:
            raise Refused(400, f"Unsupported protocol version; this session speaks {', '.join(LEGACY)}", id_=id_)
        return session

    def _options(self, session: Session) -> ReplyOptions:
        streams = session.streams

        def close(stream: Stream) -> None:
            streams.finish(stream, self._clock())

        return ReplyOptions(
            self._underway,
            keep_alive=self._settings.keep_alive,
            open_stream=streams.open,
            close_stream=close,
            outlived=partial(self.sessions.outlive, session),
            unheard=partial(self._unheard, session),
            opened=partial(self._stream_opened, session) if self.elsewhere is not None else None,
            answered=partial(self._stream_answered, session) if self.elsewhere is not None else None,
            primes=session.client.version in _PRIMED,
            max_event=self._settings.max_event,
        )


def _say_nothing(_: bytes) -> bool:
    """What reaches a client of requests that are made again: it has had their answers."""
    return False


class _ExpressReplies(ExpressReplies[Session]):
    """Replies to plain calls in sessions."""

    def __init__(self, front: LegacyFront, patience: float) -> None:
        super().__init__(patience)
        self._front = front

    def over(self, reply: ExpressReply[Session]) -> None:
        del self._open[reply]
        self._front.sessions.leave(reply.owner)

    def become(self, reply: ExpressReply[Session]) -> Reply:
        session = reply.owner
        assert session.reply_options is not None
        return Reply(reply.exchange, reply.frame, session.reply_options, session)

    def run(
        self, reply: Reply, frame: Frame, owner: Session, client: Client, sent: ExpressCall
    ) -> Coroutine[Any, Any, None]:
        return self._front.answer_sent(reply, owner, frame, sent)


def _decoded(member: bytes) -> Frame | bytes:
    """One member of a batch, or the answer to one that is refused as it is."""
    item = read_client_member(member)
    if isinstance(item, Frame) and item.method == "initialize":
        item = Spoiled([bytes(item.id)], "initialize must not be part of a batch", INVALID_REQUEST)
    return encode_refusal(item) if isinstance(item, Spoiled) else item
