"""The connection to one instance as its users see it: where it stands, the session, and how to wait for one.

The owner task in `supervisor` moves it on. Everybody else reads it, waits for a session, or reports that one is gone:

    stopped -> starting -> ready -> (lost) -> retrying -> starting ...
                  |                              ^
                  +-- failed: too many attempts in a short time; tried again rarely, or when a call asks for it
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from mcpbridge.errors import UpstreamUnavailable
from mcpbridge.logs import get_logger
from mcpbridge.model import Call
from mcpbridge.upstream.lifecycle import Lifecycle
from mcpbridge.upstream.questions import Questions
from mcpbridge.upstream.session import UpstreamSession
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.wire.peer import Peer
from mcpbridge.wire.transport import Transport

__all__ = ["Link", "Status"]

log = get_logger("mcpbridge.upstream")

RENEW_LOOKS, RENEW_LOOK_SECONDS = 20, 0.05
"""How often and how long to look whether the calls on a forgotten session have ended."""
SOON = 2.0
"""Seconds: a call waits for an attempt that begins so soon, else it is refused at once."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where an upstream stands."""

    state: str
    """`starting`, `ready`, `retrying`, `failed`, `stopped`, or `unavailable` as it is configured."""
    reason: str = ""
    """Why, for people: `exit code 1: <last stderr line>`."""
    next_at: float = 0.0
    """Loop time of the next attempt, while retrying or failed."""


class Link:
    """One instance's connection through all its lives; `peer` and `questions` are those of the present one."""

    def __init__(
        self, name: str, settings: ServerSettings, transport: Transport, *, stepped: Callable[[], None]
    ) -> None:
        """`stepped` is called after each change of state."""
        self._name, self._patience, self._last_words = name, settings.queue_timeout, transport.last_words
        self._on_step = stepped
        self._loop = asyncio.get_running_loop()
        self._lifecycle = Lifecycle()
        self.status = Status("unavailable", settings.unavailable) if settings.unavailable else Status("stopped")
        self.session: UpstreamSession | None = None
        """The session, while it is ready for calls."""
        self.peer: Peer | None = None
        self.questions: Questions | None = None
        self.has_declared = False
        """In the present life the handshake has begun."""
        self.lost = asyncio.Event()
        """Set when the present life is to end."""
        self.lost_reason = ""
        self.is_renewing = False
        """The present life ends for a new one at once: nothing is wrong with the server."""
        self._stepped = asyncio.Event()
        self._dial_now = asyncio.Event()

    # -- for whoever uses it

    @property
    def has_settled(self) -> bool:
        """It is ready, or has failed at least once: waiting longer for it tells nothing new."""
        return self.status.state not in ("stopped", "starting")

    @property
    def state_text(self) -> str:
        """The state and its reason in one line: `retrying in 4 s: exit code 1: <last stderr line>`."""
        status = self.status
        text = "starting again" if status.state == "starting" and status.reason else status.state
        if status.state in ("retrying", "failed"):
            wait = max(0.0, status.next_at - self._loop.time())
            text = f"retrying in {wait:.0f} s" if status.state == "retrying" else f"failed, next try in {wait:.0f} s"
        return f"{text}: {status.reason}" if status.reason else text

    @property
    def is_asking(self) -> bool:
        """Somebody is being asked something by the server."""
        return self.questions is not None and self.questions.is_open

    async def stepped(self) -> None:
        """Return at the next change of state."""
        await self._stepped.wait()

    def poke(self) -> None:
        """Try now to connect, whatever the wait."""
        self._dial_now.set()

    async def wait_for_session(self, patience: float = float("inf")) -> UpstreamSession:
        """The session, waiting for one that is about to come; `patience` in seconds, if it is less than usual.

        Raises:
            UpstreamUnavailable: none comes soon; says why.
        """
        if not self._comes_soon() and self.status.state != "unavailable":
            await self._dial_on_demand()
        patience = max(0.0, min(patience, self._patience))
        try:
            async with asyncio.timeout(patience):
                while (session := self.session) is None:
                    if not self._comes_soon():
                        raise UpstreamUnavailable(self._name, self.state_text)
                    await self._stepped.wait()
        except TimeoutError:
            what = f"{self.state_text} (the call waited {patience:.3g} s for it)"
            raise UpstreamUnavailable(self._name, what) from None
        return session

    def over(self, call: Call) -> None:
        """Nothing more comes of a call, so what it asked is of no use any more."""
        if self.questions is not None:
            self.questions.over(call)

    def renew(self, session: UpstreamSession) -> None:
        """Replace a session that the server forgot; the first of several calls that find out does it."""
        if self.session is session:
            self.session = None
            self.is_renewing = True
            self._end_when_idle(session, self.peer, RENEW_LOOKS)

    def closed(self, reason: str) -> None:
        """End the present life: what waits in it fails, and the owner task goes on to the next."""
        self.session = None
        if self.questions is not None:
            self.questions.end()  # first: who is being asked hears of it on the stream of a call
        if self.peer is not None:
            self.peer.end(self.explain(reason))
        if not self.lost.is_set():
            self.lost_reason = reason
            self.lost.set()

    def explain(self, reason: str) -> str:
        """The reason, with the last thing that the server said before."""
        words = self._last_words()
        return f"{reason}: {words}" if words and words not in reason else reason

    # -- for the owner task

    def begin(self) -> None:
        """A life begins: it is dialled."""
        self._lifecycle.dialling(self._loop.time())
        before = self.status
        self.step(Status("starting", before.reason if before.state in ("retrying", "failed") else ""))
        self.lost, self.lost_reason, self.has_declared = asyncio.Event(), "", False

    def opened(self, session: UpstreamSession) -> None:
        """Calls may come."""
        self.session = session
        self._lifecycle.ready(self._loop.time())
        self.step(Status("ready"))

    async def pause(self, reason: str) -> None:
        """The server is lost: wait with the next attempt, as long as it takes or until somebody needs it."""
        now = self._loop.time()
        wait = self._lifecycle.lost(now, random.random())
        self.step(Status("failed" if wait.given_up else "retrying", reason, now + wait.seconds))
        log.warning("upstream lost", upstream=self._name, reason=reason, retry_in=round(wait.seconds, 2))
        self._dial_now.clear()
        with anyio.move_on_after(wait.seconds):
            await self._dial_now.wait()

    def step(self, status: Status) -> None:
        """It stands elsewhere now; whoever waits for that is told."""
        self.status = status
        stepped, self._stepped = self._stepped, asyncio.Event()
        stepped.set()
        self._on_step()

    # -- internals

    async def _dial_on_demand(self) -> None:
        """Let a call cause an attempt out of turn, if the last one is not too recent."""
        if self._lifecycle.may_dial_on_demand(self._loop.time()):
            self._dial_now.set()
            with anyio.move_on_after(1):  # the owner task takes it up in its next turn
                await self._stepped.wait()

    def _comes_soon(self) -> bool:
        status = self.status
        if status.state == "retrying":
            return status.next_at - self._loop.time() <= SOON
        return status.state in ("starting", "ready")

    def _end_when_idle(self, session: UpstreamSession, peer: Peer | None, looks: int) -> None:
        """End the old session once the calls that are still on it have learned the same, or after a moment."""
        if peer is None or peer is not self.peer:
            return
        if looks and peer.in_flight > session.standing_requests:
            self._loop.call_later(RENEW_LOOK_SECONDS, self._end_when_idle, session, peer, looks - 1)
        else:
            self.closed("the server ended the session")
