"""The connection to one instance as its users see it: its state, the session, and how to wait for one.

The owner task in `supervisor` moves it on. Everybody else reads it, waits for a session, or reports that one is gone:

    stopped -> starting -> ready -> (lost) -> retrying -> starting ...
                  ^               |              |
                  |               |              +-- failed: too many attempts in a short time; tried again rarely,
                  |               |                  or when a call asks for it
                  +----- idle <---+------ when nobody needs it: until somebody does
"""

import asyncio
import random
import time
import warnings
from collections.abc import Callable

import anyio
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.core.model import Call
from mcpbridge.protocol.peer import Peer
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.connection.backoff import SOON, RestartBackoff, Wait
from mcpbridge.upstream.projects import WAITS_FOR_PROJECT
from mcpbridge.upstream.session.elicitation import Questions
from mcpbridge.upstream.session.listings import LIST_SECONDS
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.settings import ServerSettings

log = get_logger("mcpbridge.upstream")

RENEW_LOOKS, RENEW_LOOK_SECONDS = 20, 0.05
"""How often and how long to look whether the calls on a forgotten session have ended."""


class Status(Struct, frozen=True):
    """The state of an upstream."""

    state: str
    """`starting`, `ready`, `idle`, `retrying`, `failed`, `stopped`; `waiting` for a project to start in; `unavailable`
    as it is configured."""
    reason: str = ""
    """Why, for people: `exit code 1: <last stderr line>`. While idle: why the last start failed, if it did."""
    next_at: float = 0.0
    """Loop time of the next attempt, while retrying or failed; while idle, of the earliest."""


class Connection:
    """One instance's connection, through all attempts; `peer` and `questions` are those of the present one."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        transport: Transport,
        *,
        stepped: Callable[[], None],
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`stepped` is called after each change of state. `redact` masks secrets in the reasons of failures."""
        self._redact = redact
        self._name, self._patience, self._last_words = name, settings.queue_timeout, transport.last_words
        self._start_patience = max(settings.queue_timeout, settings.init_timeout + LIST_SECONDS)
        self._on_step = stepped
        self._loop = asyncio.get_running_loop()
        self._backoff = RestartBackoff()
        self.status = _at_first(settings)
        self.since = time.monotonic()
        """When it came to be in this state, on `time.monotonic`."""
        self.session: UpstreamSession | None = None
        """The session, while it is ready for calls."""
        self.peer: Peer | None = None
        self.questions: Questions | None = None
        self.has_declared = False
        """In the present connection the handshake has begun."""
        self.lost = asyncio.Event()
        """Set when the present connection is to end."""
        self.lost_reason = ""
        self.session_over = asyncio.Event()
        """Set when the present session is to end: with the connection, or for another session on it."""
        self.can_begin_anew = False
        """The present connection bears another session after this one."""
        self.retry_after = 0.0
        """Seconds that the server, when it refused the present connection, wanted to be left alone."""
        self.refused_at = 0.0
        """When the server last refused the credentials that it got (HTTP 401), on `time.monotonic`; 0: never."""
        self.is_renewing = False
        """The present connection ends for a new one at once: nothing is wrong with the server."""
        self.waiting = 0
        """How many wait for a session."""
        self._was_ready = self._is_ending = False
        self._is_on_demand = False
        """The present start is one that somebody who needs it has caused."""
        self._stepped = asyncio.Event()
        self._dial_now = asyncio.Event()

    def note_status(self, status: int) -> None:
        """The server answered with this HTTP error status."""
        if status == 401:
            self.refused_at = time.monotonic()

    def __del__(self) -> None:
        if self.session is not None:
            warnings.warn(f"{self._name!r}: a connection was dropped while it was open", ResourceWarning, 2, self)

    def __repr__(self) -> str:
        return f"<Connection {self._name!r} {self.state_text}, {self.waiting} waiting>"

    # -- for whoever uses it

    @property
    def has_settled(self) -> bool:
        """It is ready or idle, or has failed at least once: waiting longer for it brings nothing new."""
        return self.status.state not in ("stopped", "starting") or self._is_ending

    @property
    def state_text(self) -> str:
        """The state and its reason in one line: `retrying in 4 s: exit code 1: <last stderr line>`."""
        status = self.status
        if status.state == "idle":
            text = f"idle: starts at its {'next' if self._was_ready or status.reason else 'first'} use"
            return f"{text}; it ended: {status.reason}" if status.reason else text
        text = "starting again" if status.state == "starting" and status.reason else status.state
        if status.state in ("retrying", "failed"):
            text = "retrying in" if status.state == "retrying" else "failed, next try in"
            text = f"{text} {max(0.0, status.next_at - self._loop.time()):.0f} s{self._or_at_a_call()}"
        return f"{text}: {status.reason}" if status.reason else text

    @property
    def is_asking(self) -> bool:
        """Somebody is being asked something by the server."""
        return self.questions is not None and bool(self.questions.open)

    @property
    def starts_on_demand(self) -> bool:
        """It is idle, or on its way to ready because somebody needs it: that is worth a longer wait than a place."""
        return self.status.state == "idle" or (self._is_on_demand and self.status.state != "ready")

    async def stepped(self) -> None:
        """Return at the next change of state."""
        await self._stepped.wait()

    def poke(self) -> None:
        """Try now to connect, whatever the wait; start it if it is idle."""
        self._dial_now.set()

    async def wait_for_session(self, patience: float = float("inf")) -> UpstreamSession:
        """The session, waiting for one that is about to come; `patience` in seconds, if it is less than usual.

        Raises:
            UpstreamUnavailable: none comes soon; says why.
        """
        self.waiting += 1
        try:
            return await self._session_within(patience)
        finally:
            self.waiting -= 1

    def over(self, call: Call) -> None:
        """Nothing more comes of a call, so what it asked is of no use any more."""
        if self.questions is not None:
            self.questions.over(call)

    def renew(self, session: UpstreamSession) -> None:
        """Replace a session, and the connection with it; the first of several that want it does it."""
        if self.session is session:
            self.session = None
            self.is_renewing = True
            self._end_when_idle(session, self.peer, RENEW_LOOKS)

    def forgotten(self, session: UpstreamSession) -> None:
        """The server forgot its session: begin another; the first of several calls that find out does it.

        Calls that the server still works on keep their streams, if the connection bears another session.
        """
        if self.session is session and self.can_begin_anew:
            self.session = None
            self.session_over.set()
        else:
            self.renew(session)

    def closed(self, reason: str) -> None:
        """End the present connection: what waits in it fails, and the owner task continues with the next."""
        self.session = None
        if self.questions is not None:
            self.questions.end()  # first: who is being asked hears of it on the stream of a call
        if self.peer is not None:
            self.peer.end(self.explain(reason))
        if not self.lost.is_set():
            self.lost_reason = reason
            self.lost.set()
            self.session_over.set()

    def explain(self, reason: str) -> str:
        """The reason, with the last thing that the server said before."""
        words = self._last_words()
        return self._redact(f"{reason}: {words}" if words and words not in reason else reason)

    # -- for the owner task

    def begin(self) -> None:
        """An attempt begins: it is dialled."""
        self._backoff.dialling(self._loop.time())
        before = self.status
        self._dial_now.clear()
        self._is_ending = False
        self.step(Status("starting", before.reason if before.state in ("retrying", "failed", "idle") else ""))
        self.lost, self.lost_reason, self.has_declared = asyncio.Event(), "", False
        self.session_over, self.can_begin_anew, self.retry_after = asyncio.Event(), False, 0.0

    def begin_anew(self) -> None:
        """Another session is begun on the present connection."""
        self.session_over = asyncio.Event()
        self.step(Status("starting"))

    def opened(self, session: UpstreamSession) -> None:
        """Calls may come."""
        self.session = session
        self._is_on_demand, self._was_ready = False, True
        self._backoff.ready(self._loop.time())
        self.step(Status("ready"))

    def failing(self, reason: str) -> None:
        """The attempt has failed, and its channel is being closed. That may take seconds, for which nobody waits."""
        if self.status.state == "starting" and not self._is_ending:
            self._is_ending = True
            self.step(Status("starting", reason))

    async def pause(self, reason: str) -> None:
        """The server is lost: wait with the next attempt, as long as it takes or until somebody needs it."""
        wait = self._lost(reason)
        self.step(Status("failed" if wait.given_up else "retrying", reason, self._loop.time() + wait.seconds))
        self._dial_now.clear()
        with anyio.move_on_after(wait.seconds):
            await self._dial_now.wait()

    def retire(self) -> None:
        """Nobody needs it: end the present connection in good order. It is idle from now on, and then to `rest`."""
        self.closed("it was not used for a while")
        self._turn_idle("", 0.0)

    def leave(self, reason: str = "") -> None:
        """It is idle: nobody needs it. `reason`: why it ended, if that was by itself; the next waits a while.

        Who was in a `pause` need not say why again.
        """
        if self.status.state in ("retrying", "failed"):
            self._turn_idle(self.status.reason, self.status.next_at)
        else:
            seconds = self._lost(reason).seconds if reason else 0.0
            self._turn_idle(reason, self._loop.time() + seconds)

    async def rest(self) -> None:
        """Stay idle until somebody needs it."""
        await self._dial_now.wait()
        self._is_on_demand = True
        await anyio.sleep(max(0.0, self._next_in()))

    def step(self, status: Status) -> None:
        """The state has changed; whoever waits for that is notified."""
        if status.state != self.status.state:
            self.since = time.monotonic()
        self.status = replace(status, reason=self._redact(status.reason)) if status.reason else status
        stepped, self._stepped = self._stepped, asyncio.Event()
        stepped.set()
        self._on_step()

    # -- internals

    async def _session_within(self, patience: float) -> UpstreamSession:
        if self.status.state == "idle":
            self._wake()
        elif not self._comes_soon() and self.status.state not in ("unavailable", "waiting"):
            await self._dial_on_demand()
        most = self._start_patience if self.starts_on_demand else self._patience
        patience = max(0.0, min(patience, most))
        try:
            async with asyncio.timeout(patience):
                while (session := self.session) is None:
                    if not self._comes_soon():
                        raise self._unavailable()
                    await self._stepped.wait()
        except TimeoutError:
            what = f"{self.state_text} (the call waited {patience:.3g} s for it)"
            raise UpstreamUnavailable(self._name, what) from None
        return session

    def _wake(self) -> None:
        """Somebody needs it. One that has just failed is not started for every call that comes.

        Raises:
            UpstreamUnavailable: that is so.
        """
        if self._next_in() > SOON:
            raise self._unavailable()
        self._dial_now.set()

    def _next_in(self) -> float:
        """Seconds until the next attempt may be made, if somebody needs it."""
        now = self._loop.time()
        return min(self.status.next_at - now, self._backoff.on_demand_in(now))

    def _or_at_a_call(self) -> str:
        """When a call makes the next attempt, if that is before its time."""
        now = self._loop.time()
        wait = self._backoff.on_demand_in(now)
        if wait >= self.status.next_at - now:
            return ""
        return f" or at a call after {wait:.0f} s" if wait > 0.5 else " or at the next call"

    def _unavailable(self) -> UpstreamUnavailable:
        """There is no session, and none comes soon: why, and when a call makes one come."""
        is_to_come = self.status.state in ("retrying", "failed", "idle")
        return UpstreamUnavailable(self._name, self._why_not(), start_in=self._next_in() if is_to_come else None)

    def _why_not(self) -> str:
        """Why there is no session, in one line."""
        status = self.status
        if not self.starts_on_demand or not status.reason:
            return self.state_text
        wait = max(1.0, self._next_in())
        return f"it could not be started: {status.reason} (not tried again for {wait:.0f} s)"

    def _lost(self, reason: str) -> Wait:
        wait = self._backoff.lost(self._loop.time(), random.random(), retry_after=self.retry_after)
        log.warning("upstream lost", upstream=self._name, reason=self._redact(reason), retry_in=round(wait.seconds, 2))
        return wait

    def _turn_idle(self, reason: str, next_at: float) -> None:
        self._dial_now.clear()
        if self.waiting:  # they were faster than the owner task
            self._dial_now.set()
        self.has_declared = self._is_on_demand = False
        self.step(Status("idle", reason, next_at))

    async def _dial_on_demand(self) -> None:
        """Let a call cause an attempt out of turn, if the last one is not too recent."""
        if self._backoff.may_dial_on_demand(self._loop.time()):
            self._dial_now.set()
            with anyio.move_on_after(1):  # the owner task takes it up in its next turn
                await self._stepped.wait()

    def _comes_soon(self) -> bool:
        status = self.status
        if status.state == "retrying":
            return status.next_at - self._loop.time() <= SOON
        if status.state == "idle":
            return self._dial_now.is_set()
        return status.state in ("starting", "ready")

    def _end_when_idle(self, session: UpstreamSession, peer: Peer | None, looks: int) -> None:
        """End the old session once the calls that are still on it have learned the same, or after a moment."""
        if peer is None or peer is not self.peer:
            return
        if looks and peer.in_flight > session.standing_requests:
            self._loop.call_later(RENEW_LOOK_SECONDS, self._end_when_idle, session, peer, looks - 1)
        else:
            self.closed("the server ended the session")


def _at_first(settings: ServerSettings) -> Status:
    """Where one stands that was never started."""
    if not settings.unavailable:
        return Status("stopped")
    return Status("waiting" if settings.unavailable == WAITS_FOR_PROJECT else "unavailable", settings.unavailable)
