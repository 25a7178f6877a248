"""The HTTP+SSE front of revision 2024-11-05: messages come in by POST and leave on an event stream.

`GET /sse` opens the stream. Its first event says where to POST, with a session id that nobody can guess and that is
bound to who opened it, principal and OAuth client. A POST is answered 202; its answer comes on the stream. The session
ends with the stream. In a fleet a POST may come to another bridge than the one that has the stream.
"""

import asyncio
from functools import partial
from urllib.parse import parse_qs, quote

from mcpbridge.base.log import get_logger
from mcpbridge.downstream.conversation import READ_LIMIT, Conversation
from mcpbridge.downstream.http.body_deadline import Deadline
from mcpbridge.downstream.http.event_streams import Stream, carry, fits, fitting
from mcpbridge.downstream.http.exchange import Exchange, Refused, is_json
from mcpbridge.downstream.http.reply import decode_body
from mcpbridge.downstream.http.sessions import Elsewhere, Session, Sessions
from mcpbridge.downstream.services import Core
from mcpbridge.downstream.settings import HttpSettings
from mcpbridge.protocol.batches import Batch
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.reading.client_messages import read_client_member

log = get_logger("mcpbridge.http")

_NO_LIMIT = 1 << 62
"""The conversation bounds what waits: answers must not be dropped here."""


class SseFront:
    """Answers requests of revision 2024-11-05."""

    def __init__(self, core: Core, settings: HttpSettings, sessions: Sessions, body_deadline: Deadline) -> None:
        self._core = core
        self._settings = settings
        self._sessions = sessions
        self._body_deadline = body_deadline
        self.elsewhere: Elsewhere | None = None
        """The other bridges of a fleet; None: there is none."""
        self._open: dict[Session, tuple[Conversation, Stream]] = {}

    async def get(self, exchange: Exchange) -> None:
        """Open a session and carry what the bridge says to it, until either side ends it.

        Raises:
            Refused: the client reads no streams, or there are too many sessions.
        """
        if not exchange.accepts.events:
            raise Refused(406, "A GET is answered with a stream: accept text/event-stream")
        session = self._sessions.open(exchange.principal, exchange.endpoint, exchange.identity)
        if session is None:
            text = f"All {self._settings.max_sessions} sessions are busy (`http.max_sessions`)"
            raise Refused(503, text, headers=((b"retry-after", b"10"),))
        client = session.client
        client.front, client.address = "sse", exchange.address
        self._sessions.enter(session)  # the stream: a session that has it does not expire
        stream = Stream(max_waiting=_NO_LIMIT, max_waiting_bytes=_NO_LIMIT)
        session.also_ends = stream.finish
        conversation = Conversation(
            self._core,
            session.client,
            send=partial(self._send, stream),
            pending=lambda: stream.size,
            fit=self._fit,
        )
        self._open[session] = conversation, stream
        try:
            await self._carry(exchange, session, stream)
        finally:
            del self._open[session]
            conversation.cancel()
            self._sessions.leave(session)
            self._sessions.end(session, "its stream ended")

    async def post(self, exchange: Exchange) -> None:
        """Take one message, or a batch, of a session.

        Raises:
            Refused: there is no such session, or the body is no message; in a fleet, its bridge cannot be reached.
        """
        session_id = parse_qs(exchange.query).get(b"session", [b""])[0]
        if not session_id:
            raise Refused(405, "Open a stream with GET first; it says where to POST", headers=((b"allow", b"GET"),))
        is_ours = self.elsewhere is None or exchange.is_forwarded or session_id in self._sessions
        if is_ours or self.elsewhere is None or not await self.elsewhere.serve(exchange, session_id):
            await self._post(exchange, session_id)

    async def _post(self, exchange: Exchange, session_id: bytes) -> None:
        session = self._sessions.find(session_id, exchange.principal, exchange.endpoint, exchange.identity)
        found = None if session is None else self._open.get(session)
        if session is None or found is None:
            raise _over()
        if not is_json(exchange.headers.get(b"content-type", b"")):
            raise Refused(415, "The Content-Type must be application/json")
        conversation, stream = found
        if stream.size > READ_LIMIT:
            raise Refused(503, "Read the answers that wait on the stream first", headers=((b"retry-after", b"5"),))
        message = decode_body(await exchange.body(self._settings.max_body, self._body_deadline))
        if session.is_ended:  # while the body came
            raise _over()
        conversation.take(
            [message if isinstance(message, Frame) else Batch([read_client_member(part) for part in message])]
        )
        await exchange.send_empty(202)

    async def stop(self, seconds: float) -> None:
        """Let open requests finish for that long; then end every stream."""
        await asyncio.gather(*(self._finish(*one, seconds) for one in list(self._open.values())))

    async def _finish(self, conversation: Conversation, stream: Stream, seconds: float) -> None:
        await conversation.finish(seconds)
        stream.finish()

    async def _carry(self, exchange: Exchange, session: Session, stream: Stream) -> None:
        await exchange.start_stream()
        where = f"{quote(exchange.path)}?session={session.id.decode()}"
        await exchange.write(b"event: endpoint\ndata: %b\n\n" % where.encode())
        await carry(exchange, stream, 0, keep_alive=self._settings.keep_alive)

    def _send(self, stream: Stream, message: bytes) -> bool:
        if stream.is_finished:
            return False
        if not fits(message, self._settings.max_event):
            log.warning("message dropped: larger than http.max_event", size=len(message))
            return False
        stream.put(message)
        return True

    def _fit(self, answer: bytes, request: Frame) -> bytes:
        return fitting(answer, request, limit=self._settings.max_event, modern=False)


def _over() -> Refused:
    return Refused(404, "This session is unknown or over; open a new stream")
