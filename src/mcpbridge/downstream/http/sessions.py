"""The legacy era over HTTP (MCP 2025-03-26 to 2025-11-25, Transports): sessions, and streams that can be resumed.

`initialize` opens a session, and every later request names it. `Sessions` decides how many there may be, how long an
idle one lives, and the format of its id: 128 random bits. The id is never proof of who calls: a session answers only
the principal that opened it, by way of the same OAuth client, and to anyone else it does not exist (MCP, security
best practices).

A client that loses a stream comes back by GET with the id of the last event that it saw (`event_streams.py`). Its
call continues meanwhile: a broken connection is no cancellation (MCP 2025-11-25, transports). Only
`notifications/cancelled` and the end of the session cancel it.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from msgspec.structs import replace

from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.core.identity import Identity, application_of
from mcpbridge.downstream.client import Answer, Client, Notify
from mcpbridge.downstream.express_lane import ExpressCall, ExpressLane
from mcpbridge.downstream.http.event_streams import Request, Stream, Streams, carry
from mcpbridge.downstream.http.exchange import MERGED, NO_HEADERS, Admission, Endpoint, Exchange, Refused
from mcpbridge.downstream.http.express_replies import ExpressReplies, ExpressReply
from mcpbridge.downstream.http.http1_exchange import Http1Exchange
from mcpbridge.downstream.http.reply import OpenReplies, Reply, ReplyOptions
from mcpbridge.downstream.http.token_lifetime import is_open_by
from mcpbridge.downstream.services import Core
from mcpbridge.downstream.sessions import BRIDGE_STOPPED, make_one_turn
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.protocol.batches import MAX_MEMBERS, encode_batch
from mcpbridge.protocol.error_codes import INVALID_REQUEST
from mcpbridge.protocol.jsonrpc import Frame, encode_error
from mcpbridge.protocol.reading.client_messages import encode_refusal, read_client_member
from mcpbridge.protocol.reading.unreadable import Spoiled
from mcpbridge.protocol.revisions import BATCHING, LEGACY


class Session:
    """One legacy client, from `initialize` to its end."""

    __slots__ = (
        *(
            "also_ends",
            "application",
            "busy",
            "client",
            "endpoint",
            "id",
            "is_ended",
            "last_used",
            "reply_options",
            "streams",
            "why",
        ),
    )

    def __init__(
        self, id_: bytes, endpoint: Endpoint, client: Client, streams: Streams, now: float, application: str
    ) -> None:
        self.id = id_
        self.application = application
        """The OAuth client that opened it; see `application_of`."""
        self.endpoint = endpoint
        """Where it was opened; elsewhere it is unknown."""
        self.client = client
        self.streams = streams
        self.busy = 0
        """Requests and open streams; a busy session does not expire."""
        self.last_used = now
        self.is_ended, self.why = False, ""
        """Whether it is over, and why."""
        self.reply_options: ReplyOptions | None = None
        """How its requests are replied to; set once `initialize` has been answered."""
        self.also_ends: Callable[[], None] | None = None
        """What its end ends besides its streams."""


class Sessions:
    """All sessions, the longest unused first. `on_end` is called with each that ends, however it does."""

    def __init__(
        self,
        on_end: Callable[[Session], None],
        *,
        idle: float,
        limit: int,
        keep: float,
        max_event: int,
        projects: tuple[str, ...],
        clock: Callable[[], float],
    ) -> None:
        """`idle`: seconds after which an unused session ends; `keep`, `max_event`: see `Streams`.

        `projects`: see `Client`. `clock` counts in seconds.
        """
        self._on_end = on_end
        self._idle = idle
        self._limit = limit
        self._keep = keep
        self._max_event = max_event
        self._projects = projects
        self._clock = clock
        self._by_id: OrderedDict[bytes, Session] = OrderedDict()
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, principal: str, endpoint: Endpoint = MERGED, identity: Identity | None = None) -> Session | None:
        """A new session. At the limit the longest idle one ends for it; None when all are busy."""
        if len(self._by_id) >= self._limit:
            oldest = next((session for session in self._by_id.values() if not session.busy), None)
            if oldest is None:
                return None
            self.end(oldest, "others needed its place")
        streams = Streams(self._keep, max_event=self._max_event)
        client = Client(
            principal,
            endpoint.view,
            endpoint.profile,
            push=streams.channel.notify,
            projects=self._projects,
            front="http",
            identity=identity,
        )
        id_ = secrets.token_hex(16).encode()
        session = Session(id_, endpoint, client, streams, self._clock(), application_of(identity))
        self._by_id[session.id] = session
        if self._sweep is None:
            self._schedule(self._idle)
        return session

    def find(
        self, id_: bytes, principal: str, endpoint: Endpoint = MERGED, identity: Identity | None = None
    ) -> Session | None:
        """The session, unless it is unknown, over, somebody else's or another OAuth client's, or another endpoint's.

        It has this identity from now on.
        """
        session = self._by_id.get(id_)
        if session is None or session.client.principal != principal or session.endpoint != endpoint:
            return None
        if session.client.identity is not identity:
            if session.application != application_of(identity):
                return None
            session.client.identity = identity
        return session

    def enter(self, session: Session) -> None:
        """A request of the session begins. Each needs one `leave`."""
        session.busy += 1

    def touch(self, session: Session) -> None:
        """The session is in use, but only for this moment."""
        session.last_used = self._clock()
        self._by_id.move_to_end(session.id)

    def leave(self, session: Session) -> None:
        """A request of the session is over; its idle time begins anew."""
        session.busy -= 1
        if not session.is_ended:
            session.last_used = self._clock()  # `touch`, which every request would enter here
            self._by_id.move_to_end(session.id)

    def end(self, session: Session, why: str) -> None:
        """End a session: its id is unknown from now on, its streams are finished. `why`: in a few words."""
        if session.is_ended:
            return
        session.is_ended, session.why = True, why
        del self._by_id[session.id]
        session.streams.finish_all()
        if session.also_ends is not None:
            session.also_ends()
        self._on_end(session)

    def end_of_user(self, principal: str, client_id: str) -> None:
        """End the sessions of this principal, by way of this OAuth client; empty: of any."""
        for session in list(self._by_id.values()):
            if is_open_by(session.client.principal, session.client.identity, principal, client_id):
                self.end(session, "its access token was revoked")

    def hang_up(self) -> None:
        """End all channels for unsolicited messages; calls continue."""
        for session in self._by_id.values():
            session.streams.channel.finish()

    def close(self) -> None:
        """End all of them."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for session in list(self._by_id.values()):
            self.end(session, BRIDGE_STOPPED)

    def expire(self) -> None:
        """End those that were unused for too long, and come back when the next may be."""
        self._sweep = None
        now = self._clock()
        next_end = now + self._idle
        for session in list(self._by_id.values()):
            if session.busy:
                continue  # it goes to the end of the order when it is left
            if session.last_used + self._idle > now:
                next_end = session.last_used + self._idle
                break
            self.end(session, "unused for too long")
        if self._by_id:
            self._schedule(max(next_end - now, 0.01))

    def _schedule(self, seconds: float) -> None:
        self._sweep = asyncio.get_running_loop().call_later(seconds, self.expire)


_PRIMED = frozenset({"2025-11-25"})
"""Revisions that ask for a priming event; clients of older ones try to parse its empty data."""
_CANCELLED = -32800
"""The code of SDK servers (and of LSP) for a request that was cancelled; MCP itself names none."""
_RETRY_AFTER = (b"retry-after", b"10")

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
        if isinstance(message, list):
            session = self._session(exchange, b"")
            work = self._batch(session, message)
        else:
            if message.method == "initialize" and message.id:
                await self._initialize(exchange, message)
                return
            id_ = bytes(message.id) if message.method else b""
            session = self._session(exchange, id_)
            is_request = message.method and message.id
            work = partial(self._answer, session, message) if is_request else self._single(session, message)
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
            if not reply.is_outlived:
                self.sessions.leave(session)

    def take(self, exchange: Http1Exchange, frame: Frame, admission: Admission, lane: ExpressLane) -> bool:
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
            if found is None:
                raise Refused(400, "This Last-Event-ID is unknown or too old")
            stream, position = found
            if stream.is_finished and position >= stream.last:
                await exchange.send_empty(204)  # the code that tells an EventSource to stop asking
                return
        self.sessions.enter(session)
        try:
            await self._carry(exchange, stream, position)
        finally:
            self.sessions.leave(session)

    async def delete(self, exchange: Exchange) -> None:
        """End the session.

        Raises:
            Refused: there is no such session.
        """
        self.sessions.end(self._session(exchange, b""), "its client ended it")
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
        over = Refused(404, "This session is over")
        self._underway.withdraw(over, lambda _, owner: owner is session)
        self._core.close(session.client, session.why)

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
            # The session is not busy any more for it: if nobody comes back it expires, which cancels the call.
            outlived=partial(self.sessions.leave, session),
            unheard=partial(self._unheard, session),
            primes=session.client.version in _PRIMED,
            max_event=self._settings.max_event,
        )


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
