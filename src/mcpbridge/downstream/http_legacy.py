"""The legacy era over HTTP (MCP 2025-03-26 to 2025-11-25, Transports): sessions, streams that resume, a channel by GET.

`initialize` opens a session; every later request names it. A client that loses a stream comes back by GET with
the id of the last event it saw. Its call goes on meanwhile: a broken connection is no cancellation (MCP 2025-11-25,
transports), only `notifications/cancelled` and the end of the session are.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from mcpbridge.downstream.batches import make_one_turn
from mcpbridge.downstream.channel import Answer, Notify
from mcpbridge.downstream.core import Core
from mcpbridge.downstream.http_carry import carry
from mcpbridge.downstream.http_exchange import NO_HEADERS, Exchange, Refused
from mcpbridge.downstream.http_fit import Request
from mcpbridge.downstream.http_message import decode_message
from mcpbridge.downstream.http_reply import Manner, Reply, Underway
from mcpbridge.downstream.http_sessions import Session, Sessions
from mcpbridge.downstream.http_streams import Stream
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.wire.frame import Frame, encode_error
from mcpbridge.wire.revisions import BATCHING, LEGACY

__all__ = ["LegacyFront"]

_PRIMED = frozenset({"2025-11-25"})
"""Revisions that ask for a priming event; clients of older ones try to parse its empty data."""
_MAX_BATCH = 100
_CANCELLED = -32800
"""The code of SDK servers (and of LSP) for a request that was cancelled; MCP itself names none."""
_RETRY_AFTER = (b"retry-after", b"10")

Work = Callable[[Notify], Awaitable[Answer]]


class LegacyFront:
    """Answers requests of the handshake era and keeps their sessions."""

    def __init__(self, core: Core, settings: HttpSettings, underway: Underway, clock: Callable[[], float]) -> None:
        """`clock` counts in seconds."""
        self._core = core
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
            work = self._single(session, message)
        if work is None:
            self.sessions.touch(session)
            await exchange.send_empty(202)
            return
        self.sessions.enter(session)
        reply = Reply(exchange, message, session.manner or self._manner(session), session)
        try:
            await reply.run(work)
        finally:
            if not reply.is_outlived:
                self.sessions.leave(session)

    async def get(self, exchange: Exchange) -> None:
        """Carry the session's unsolicited messages, or go on with a stream that broke.

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
        self.sessions.end(self._session(exchange, b""))
        await exchange.send_empty(204)

    async def _initialize(self, exchange: Exchange, frame: Frame) -> None:
        session = self.sessions.open(exchange.principal, exchange.endpoint)
        if session is None:
            text = f"All {self._settings.max_sessions} sessions are busy (`http.max_sessions`)"
            raise Refused(503, text, id_=bytes(frame.id), headers=(_RETRY_AFTER,))
        self._core.open(session.client)
        self.sessions.enter(session)
        # A client that left before it knew its session cannot come back to it.
        reply = Reply(exchange, frame, replace(self._manner(session), outlived=None), session)
        reply.headers = ((b"mcp-session-id", session.id),)

        async def work(notify: Notify) -> Answer:
            answer = await self._core.answer(session.client, frame, notify)
            if answer.code:
                reply.headers = NO_HEADERS
            return answer

        try:
            answer = await reply.run(work)
        except BaseException:
            self.sessions.end(session)
            raise
        finally:
            self.sessions.leave(session)
        if answer is None or answer.code:
            self.sessions.end(session)
        else:
            session.manner = self._manner(session)

    def _single(self, session: Session, frame: Frame) -> Work | None:
        """What there is to do for one message; None when it asks for no answer."""
        if not frame.method:
            self._core.answered(session.client, frame)
            return None
        if not frame.id:
            self._core.notification(session.client, frame)
            return None
        return partial(self._answer, session, frame)

    async def _answer(self, session: Session, frame: Frame, notify: Notify) -> Answer:
        """The answer to a request. One that its client cancelled has one too: without, its stream would look broken."""
        answer = await self._core.answer(session.client, frame, notify)
        return answer if answer.data else Answer(encode_error(frame.id, _CANCELLED, "Request cancelled"), _CANCELLED)

    def _batch(self, session: Session, members: list[bytes]) -> Work | None:
        """Members are served side by side; their answers leave together, in the order of the requests."""
        if session.client.version != BATCHING:
            raise Refused(400, f"Batches exist in revision {BATCHING} only, which this session did not negotiate")
        if not 1 <= len(members) <= _MAX_BATCH:
            raise Refused(400, f"A batch must have 1 to {_MAX_BATCH} members; this one has {len(members)}")
        frames = [_decoded(member) for member in members]
        make_one_turn(frame for frame in frames if isinstance(frame, Frame))
        works = [frame if isinstance(frame, bytes) else self._single(session, frame) for frame in frames]
        if not any(works):
            return None

        async def together(notify: Notify) -> Answer:
            async def one(work: bytes | Work) -> bytes:
                return work if isinstance(work, bytes) else (await work(notify)).data

            async with asyncio.TaskGroup() as group:
                answers = [group.create_task(one(work)) for work in works if work]
            return Answer(b"[%b]" % b",".join(answer.result() for answer in answers))

        return together

    async def _carry(self, exchange: Exchange, stream: Stream, position: int) -> None:
        await exchange.start_stream()
        await carry(exchange, stream, position, keep_alive=self._settings.keep_alive)

    def _session_ended(self, session: Session) -> None:
        over = Refused(404, "This session is over")
        self._underway.withdraw(over, lambda _, owner: owner is session)
        self._core.close(session.client)

    def _unheard(self, session: Session, request: Request) -> None:
        if isinstance(request, Frame):
            self._core.unheard(session.client, request)

    def _session(self, exchange: Exchange, id_: bytes) -> Session:
        session_id = exchange.headers.get(b"mcp-session-id")
        if session_id is None:
            raise Refused(400, "The header Mcp-Session-Id is missing; `initialize` returns it", id_=id_)
        session = self.sessions.find(session_id.strip(), exchange.principal, exchange.endpoint)
        if session is None:
            raise Refused(404, "This session is unknown or over; initialize a new one", id_=id_)
        version = exchange.header(b"mcp-protocol-version")
        if version is not None and version not in LEGACY:
            raise Refused(400, f"Unsupported protocol version; this session speaks {', '.join(LEGACY)}", id_=id_)
        return session

    def _manner(self, session: Session) -> Manner:
        streams = session.streams

        def close(stream: Stream) -> None:
            streams.finish(stream, self._clock())

        return Manner(
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


def _decoded(member: bytes) -> Frame | bytes:
    """One member of a batch, or the answer to one that is refused as it is."""
    try:
        frame = decode_message(member)
        if frame.method == "initialize":
            raise Refused(400, "initialize must not be part of a batch", id_=bytes(frame.id))
    except Refused as refused:
        return encode_error(refused.id, refused.code, str(refused))
    return frame
