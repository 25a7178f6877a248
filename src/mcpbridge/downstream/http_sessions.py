"""Legacy sessions over HTTP: who they belong to, how long they live, how many there may be.

A session id is 128 random bits and is never proof of who calls: a session answers only the principal that
opened it, and to anyone else it does not exist (spec, security best practices).
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable

from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.http_exchange import MERGED, Endpoint
from mcpbridge.downstream.http_reply import Manner
from mcpbridge.downstream.http_streams import Streams

__all__ = ["Session", "Sessions"]


class Session:
    """One legacy client, from `initialize` to its end."""

    __slots__ = ("also_ends", "busy", "client", "endpoint", "id", "is_ended", "last_used", "manner", "streams")

    def __init__(self, id_: bytes, endpoint: Endpoint, client: Client, streams: Streams, now: float) -> None:
        self.id = id_
        self.endpoint = endpoint
        """Where it was opened; elsewhere it is unknown."""
        self.client = client
        self.streams = streams
        self.busy = 0
        """Requests and open streams; a busy session does not expire."""
        self.last_used = now
        self.is_ended = False
        self.manner: Manner | None = None
        """How its requests are replied to; set once `initialize` has been answered."""
        self.also_ends: Callable[[], None] | None = None
        """What its end ends besides its streams."""


class Sessions:
    """All sessions, the longest unused first. `on_end` is told of each that ends, however it does."""

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

    def open(self, principal: str, endpoint: Endpoint = MERGED) -> Session | None:
        """A new session. At the limit the longest idle one ends for it; None when all are busy."""
        if len(self._by_id) >= self._limit:
            oldest = next((session for session in self._by_id.values() if not session.busy), None)
            if oldest is None:
                return None
            self.end(oldest)
        streams = Streams(self._keep, max_event=self._max_event)
        client = Client(
            principal, endpoint.view, endpoint.profile, push=streams.channel.notify, projects=self._projects
        )
        session = Session(secrets.token_hex(16).encode(), endpoint, client, streams, self._clock())
        self._by_id[session.id] = session
        if self._sweep is None:
            self._schedule(self._idle)
        return session

    def find(self, id_: bytes, principal: str, endpoint: Endpoint = MERGED) -> Session | None:
        """The session, unless it is unknown, over, somebody else's, or another endpoint's."""
        session = self._by_id.get(id_)
        if session is None or session.client.principal != principal or session.endpoint != endpoint:
            return None
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
            self.touch(session)

    def end(self, session: Session) -> None:
        """End a session: its id is unknown from now on, its streams are finished."""
        if session.is_ended:
            return
        session.is_ended = True
        del self._by_id[session.id]
        session.streams.finish_all()
        if session.also_ends is not None:
            session.also_ends()
        self._on_end(session)

    def hang_up(self) -> None:
        """End all channels for unsolicited messages; calls go on."""
        for session in self._by_id.values():
            session.streams.channel.finish()

    def close(self) -> None:
        """End all of them."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for session in list(self._by_id.values()):
            self.end(session)

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
            self.end(session)
        if self._by_id:
            self._schedule(max(next_end - now, 0.01))

    def _schedule(self, seconds: float) -> None:
        self._sweep = asyncio.get_running_loop().call_later(seconds, self.expire)
