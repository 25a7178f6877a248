"""The sessions of the legacy era over HTTP (MCP 2025-03-26 to 2025-11-25, Transports); `legacy.py` answers in them.

How many there may be, how long an idle one lives, and the format of an id: 128 random bits. The id is never proof of
who calls: a session answers only the principal that opened it, by way of the same OAuth client, and to anyone else it
does not exist (MCP, security best practices). In a fleet of bridges the sessions of the others are `Elsewhere`.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol

from mcpbridge.core.identity import Identity, application_of
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.http.event_streams import Request, Streams
from mcpbridge.downstream.http.exchange import MERGED, DirectExchange, Endpoint, Exchange
from mcpbridge.downstream.http.reply import ReplyOptions
from mcpbridge.downstream.http.token_lifetime import is_open_by
from mcpbridge.downstream.sessions import BRIDGE_STOPPED
from mcpbridge.protocol.jsonrpc import Frame


class Session:
    """One legacy client, from `initialize` to its end."""

    __slots__ = (
        *(
            "also_ends",
            "application",
            "busy",
            "client",
            "came_over",
            "endpoint",
            "id",
            "is_ended",
            "last_used",
            "outliving",
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
        self.outliving = 0
        """Calls that continue though their client has lost its connection."""
        self.last_used = now
        self.came_over = False
        """Another bridge of the fleet had it before, with the streams of that time."""
        self.is_ended, self.why = False, ""
        """Whether it is over, and why."""
        self.reply_options: ReplyOptions | None = None
        """How its requests are replied to; set once `initialize` has been answered."""
        self.also_ends: Callable[[], None] | None = None
        """What its end ends besides its streams."""

    @property
    def is_in_use(self) -> bool:
        """Whether something would end with it: a call continues though its client has lost its connection."""
        return bool(self.busy or self.outliving)


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
        self._came_over = 0
        """Sessions of other bridges that have begun anew here."""
        self._coming = set[Session]()
        """Those of other bridges that begin anew here; no request finds them yet."""
        self.unsure = set[bytes]()
        """Those that another bridge of the fleet may have by now: `in` says that they are not here."""
        self._sweep: asyncio.TimerHandle | None = None
        self.new_id: Callable[[], bytes] = _new_id
        self.tag = b""
        """See `Streams`."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, id_: bytes) -> bool:
        return id_ in self._by_id and id_ not in self.unsure

    def get(self, id_: bytes) -> Session | None:
        """The session of this id, whoever asks; see `find` for requests."""
        return self._by_id.get(id_)

    def all(self) -> list[Session]:
        """Those of now."""
        return list(self._by_id.values())

    def open(
        self, principal: str, endpoint: Endpoint = MERGED, identity: Identity | None = None, *, id_: bytes = b""
    ) -> Session | None:
        """A new session. At the limit the longest idle one ends for it; None when all are busy.

        `id_`: it has this id, since it was another bridge's before. It is found from `admit` on.
        """
        if len(self._by_id) >= self._limit:
            oldest = next((session for session in self._by_id.values() if not session.busy), None)
            if oldest is None:
                return None
            self.end(oldest, "others needed its place")
        tag, came_over, id_ = self.tag, bool(id_), id_ or self.new_id()
        if came_over:  # perhaps it was here before: its streams of then are others
            self._came_over += 1
            tag = b"%b%d." % (tag, self._came_over)
        streams = Streams(self._keep, max_event=self._max_event, tag=tag)
        client = Client(
            principal,
            endpoint.view,
            endpoint.profile,
            push=streams.channel.notify,
            projects=self._projects,
            front="http",
            identity=identity,
            conversation=id_.decode("latin-1"),
        )
        session = Session(id_, endpoint, client, streams, self._clock(), application_of(identity))
        if came_over:
            self._coming.add(session)
        else:
            self._by_id[session.id] = session
        client.hang_up = partial(self.end, session)
        if self._sweep is None:
            self._schedule(self._idle)
        return session

    def admit(self, session: Session) -> bool:
        """Let requests find a session that came from another bridge. False: it has ended meanwhile."""
        self._coming.discard(session)
        if not session.is_ended:
            self._by_id[session.id] = session
        return not session.is_ended

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

    def outlive(self, session: Session) -> None:
        """The client of a request has left, whose work continues. Each needs one `leave_outlived`.

        The session is not busy any more for it: if nobody comes back it expires, which cancels the call.
        """
        session.outliving += 1
        self.leave(session)

    def leave_outlived(self, session: Session) -> None:
        """Such work has ended."""
        session.outliving -= 1

    def end(self, session: Session, why: str) -> None:
        """End a session: its id is unknown from now on, its streams are finished. `why`: in a few words."""
        if session.is_ended:
            return
        session.is_ended, session.why = True, why
        self._coming.discard(session)
        self.unsure.discard(session.id)
        if self._by_id.get(session.id) is session:
            del self._by_id[session.id]
        self._on_end(session)  # first: its calls have a last word on their streams
        session.streams.finish_all()
        if session.also_ends is not None:
            session.also_ends()

    def end_of_user(self, principal: str, client_id: str) -> None:
        """End the sessions of this principal, by way of this OAuth client; empty: of any."""
        for session in [*self._by_id.values(), *self._coming]:
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
        for session in [*self._by_id.values(), *self._coming]:
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


class SessionFront(Protocol):
    """Who has the sessions of this bridge; `mcpbridge.downstream.http.legacy.LegacyFront` does."""

    @property
    def sessions(self) -> Sessions:
        """Those of now."""
        ...

    async def take_over(self, exchange: Exchange, id_: bytes, messages: Iterable[Frame]) -> bool:
        """Have a session that another bridge had. False: there is no room for it."""
        ...


class Elsewhere(Protocol):
    """The other bridges of a fleet, as the front of one sees them."""

    @property
    def me(self) -> str:
        """The name of this bridge."""
        ...

    def serve_by(self, front: "SessionFront") -> None:
        """Where this bridge's own sessions are."""
        ...

    def new_id(self) -> bytes:
        """An id for a session of this bridge's, which names it."""
        ...

    def pass_on(
        self, exchange: DirectExchange, session: bytes, rest: Callable[[object], Coroutine[Any, Any, None]]
    ) -> bool:
        """Have a whole POST of the session of this id answered by the bridge that has it, without a task.

        `rest`: what has the request answered in a task (by `serve`) if that cannot be; it gets what `serve` needs to
        know. False: nothing was done.
        """
        ...

    async def serve(self, exchange: Exchange, session: bytes, sent: object = None) -> bool:
        """Have a request answered by the bridge that has its session, which has this id.

        `sent`: the request was sent before, by `pass_on`. False: nothing was done, and the session is this bridge's by
        now, or nobody's.

        Raises:
            Refused: that bridge cannot be reached, or was lost before it answered.
        """
        ...

    @property
    def is_draining(self) -> bool:
        """This bridge takes nothing new."""
        ...

    async def open_elsewhere(self, exchange: Exchange) -> bool:
        """Have a session opened by another bridge, since this one takes nothing new. The body was read.

        False: nothing was done, and this bridge opens it.

        Raises:
            Refused: that bridge was lost before it answered.
        """
        ...

    async def is_there(self, bridge: str) -> bool:
        """Whether this names another bridge of the fleet; anybody may have made it up."""
        ...

    async def serve_at(self, bridge: str, exchange: Exchange, session: Session | None = None) -> bool:
        """Have a request, whose body was read, answered by the bridge of this name.

        `session`: of this bridge's, whose request it is. False: nothing was done; there is no such bridge, or not any
        more, or it is this one.

        Raises:
            Refused: that bridge cannot be reached, or was lost before it answered.
        """
        ...

    async def is_first_use(self, seal: bytes, seconds: float) -> bool:
        """See `SharedSeals`."""
        ...

    async def opened(self, session: Session, frame: Frame) -> None:
        """A session begins with this `initialize`, whose answer is about to be sent."""
        ...

    async def heard(self, session: Session, frame: Frame) -> None:
        """A message that changes what the session is, such as a subscription, was taken."""
        ...

    def stream_opened(self, session: Session, stream: bytes, request: Request) -> None:
        """The response to this request of a session became a stream of this name, which its client can resume."""
        ...

    async def stream_answered(
        self, session: Session, stream: bytes, request: Request, answer: bytes, number: int
    ) -> None:
        """The answer is about to be put into such a stream, as the event of this number. Returns when it may be."""
        ...

    async def lost_answer(self, session: Session, stream: bytes) -> tuple[int, bytes] | None:
        """What a client is answered that resumes a stream of another bridge, and as the event of which number.

        0: that is not known, since the answer was not there yet. None: nothing is known of the stream.

        Raises:
            Refused: the records cannot be reached.
        """
        ...

    def ended(self, session: Session) -> None:
        """A session of this bridge's is over."""
        ...

    async def drain(self, seconds: float) -> None:
        """This bridge is about to stop: hand its sessions on. Calls under way have so many seconds."""
        ...


def _new_id() -> bytes:
    return secrets.token_hex(16).encode()
