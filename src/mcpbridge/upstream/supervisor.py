"""Keep one upstream connected. The only place that dials, reconnects and gives up.

One owner task an upstream opens its channel, holds the session and closes both in the same task (cancel scopes
must be left by the task that entered them; python-sdk issues 79, 577, 922). Everybody else talks to the
`Upstream` object, which refuses, waits or passes the call on by the state it is in:

    stopped -> starting -> ready -> (lost) -> retrying -> starting ...
                  |                              ^
                  +-- failed: too many attempts in a short time; tried again rarely, or when a call asks for it

A dead or slow upstream costs nobody else anything: no lock and no queue is shared between upstreams.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Protocol

import anyio
import structlog
from msgspec import Raw

from mcpbridge.errors import (
    BridgeError,
    SessionExpired,
    UpstreamAnswered,
    UpstreamError,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.model import Call
from mcpbridge.upstream.era import ProbeKilled
from mcpbridge.upstream.gate import Gate
from mcpbridge.upstream.lifecycle import Breaker, Lifecycle
from mcpbridge.upstream.session import UpstreamSession
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.tending import Tending, Wanted
from mcpbridge.wire.body import Body
from mcpbridge.wire.peer import Peer, Timeouts
from mcpbridge.wire.transport import Channel, Transport

__all__ = ["Lists", "Observer", "Status", "Upstream"]

log = structlog.get_logger("mcpbridge.upstream")

Lists = dict[str, tuple[bytes, ...]]
"""What an upstream offers: kind (a key of `LIST_METHODS`) to its definitions, each as it came."""

FIRST_LIST_SECONDS = 10.0
"""Seconds that each first list may take; one that takes longer is fetched while the server is already in use."""
RENEW_LOOKS, RENEW_LOOK_SECONDS = 20, 0.05
"""How often and how long to look whether the calls on a forgotten session have ended."""
STRAY_SECONDS = 10.0
"""Seconds after a call was given up during which a log message may still be of that call."""
SOON = 2.0
"""Seconds: a call waits for an attempt that begins so soon, else it is refused at once."""


class Observer(Protocol):
    """Who wants to know what happens at an upstream. Called on the event loop; returns at once."""

    def offered(self, upstream: "Upstream", lists: Lists) -> None:
        """It listed anew; `lists` is everything it offers now."""
        ...

    def resource_updated(self, upstream: "Upstream", params: Raw) -> None:
        """A resource that somebody subscribed to has changed."""
        ...

    def logged(self, upstream: "Upstream", params: Raw) -> None:
        """A log message that belongs to no call we know of."""
        ...

    def stepped(self, upstream: "Upstream") -> None:
        """Its state changed."""
        ...


@dataclass(frozen=True, slots=True)
class Status:
    """Where an upstream stands."""

    state: str
    """`starting`, `ready`, `retrying`, `failed`, `stopped`, or `unavailable` as it is configured."""
    reason: str = ""
    """Why, for people: `exit code 1: <last stderr line>`."""
    next_at: float = 0.0
    """Loop time of the next attempt, while retrying or failed."""


class Upstream:
    """One server behind the bridge."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        transport: Transport,
        observer: Observer,
        *,
        client_info: dict[str, str],
    ) -> None:
        self.name = name
        self.settings = settings
        self.transport = transport
        self.lists: Lists = {}
        self.restarts = 0
        self.modern = False
        """The last session was of the modern era."""
        self.status = Status("unavailable", settings.unavailable) if settings.unavailable else Status("stopped")
        self.session: UpstreamSession | None = None
        self._peer: Peer | None = None
        self._observer = observer
        self._client_info = client_info
        self._loop = asyncio.get_running_loop()
        self._lifecycle = Lifecycle()
        self._breaker = Breaker()
        self._gate = Gate(
            name, slots=settings.max_concurrent, places=settings.max_queued, patience=settings.queue_timeout
        )
        self._timeouts = Timeouts(settings.call_timeout, max(settings.max_call_timeout, settings.call_timeout))
        self._stepped = asyncio.Event()
        self._dial_now = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost_reason = ""
        self._tending: Tending | None = None
        self._unlisted: list[str] = []
        self._announced_early: set[str] = set()
        self._era = settings.era
        self.wanted = Wanted()
        """What the clients want of it besides calls."""
        self._stray_until = float("-inf")
        self._is_renewing = False
        self._running: set[Call] = set()

    # -- what others ask of it

    @property
    def has_settled(self) -> bool:
        """It is ready, or has failed at least once: waiting longer for it tells nothing new."""
        return self.status.state not in ("stopped", "starting")

    @property
    def running(self) -> set[Call]:
        """The calls that it works on now."""
        return self._running

    async def stepped(self) -> None:
        """Return at its next change of state."""
        await self._stepped.wait()

    async def request(self, call: Call) -> Body:
        """Pass a call on and wait for its result.

        Raises:
            UpstreamError, Overloaded: by what went wrong; the classes say whether the server may have acted.
        """
        gate = self._gate
        if not gate.try_enter():
            await gate.enter()
        self._running.add(call)
        try:
            session = self.session
            if session is None:
                session = await self._wait_for_session()
            try:
                return await self._send(session, call)
            except SessionExpired:
                # Not executed: the server forgot us. One new session, one more try (spec, streamable HTTP, 404).
                self._renew(session)
                return await self._send(await self._wait_for_session(), call)
        finally:
            self._running.discard(call)
            gate.leave()

    async def ready(self) -> None:
        """Return once it is ready and has listed what it offers.

        Raises:
            UpstreamUnavailable: it will not be soon; says why.
        """
        await self._wait_for_session()

    def poke(self) -> None:
        """Try now to connect, whatever the wait."""
        self._dial_now.set()

    # -- the owner task

    async def run(self) -> None:
        """Own the connection until cancelled."""
        if self.settings.unavailable:
            return
        try:
            while True:
                reason = await self._live_once()
                if reason is None or self._is_renewing:
                    # Another try at once, not counted: the server is well, it did not bear the probe of its era or
                    # forgot our session.
                    self._is_renewing = False
                    continue
                self._era = self.settings.era if self.status.state == "starting" else self._era
                wait = self._lifecycle.lost(self._loop.time(), random.random())
                self.restarts += 1
                state = "failed" if wait.given_up else "retrying"
                self._step(Status(state, reason, self._loop.time() + wait.seconds))
                log.warning("upstream lost", upstream=self.name, reason=reason, retry_in=round(wait.seconds, 2))
                self._dial_now.clear()
                with anyio.move_on_after(wait.seconds):
                    await self._dial_now.wait()
        finally:
            self._step(Status("stopped"))

    async def _live_once(self) -> str | None:
        """One life of the connection. Returns why it ended; None to begin another at once."""
        self._lifecycle.dialling(self._loop.time())
        self._step(Status("starting"))
        self._lost, self._lost_reason = asyncio.Event(), ""
        self._tending = None
        self._announced_early.clear()
        peer = Peer(self.name, on_notification=self._notified, on_closed=self._closed, declared=_answer_to_server)
        self._peer = peer
        try:
            async with self.transport.connect(peer) as channel:
                peer.attach(channel)
                try:
                    # Catches its own errors: raised through the transport's task group they would come in groups.
                    return await self._converse(peer, channel)
                finally:
                    self.session = None
                    self._tending = None
                    peer.end(self._lost_reason or "it is being stopped")
        except UpstreamError as error:
            return self._explain(error.what)
        except Exception as error:  # noqa: BLE001 - the task boundary of one upstream: whatever happens here stays here
            return self._unexpected(error)

    async def _converse(self, peer: Peer, channel: Channel) -> str | None:
        is_stdio = self.settings.command is not None
        session = UpstreamSession(self.name, peer, channel, is_stdio=is_stdio, client_info=self._client_info)
        try:
            reason = await self._open_and_serve(peer, session)
        except ProbeKilled:
            log.info("upstream does not bear the probe for its era; using the handshake", upstream=self.name)
            self._era = "legacy"
            return None
        except UpstreamGone as error:
            reason = self._lost_reason or error.what
        except UpstreamError as error:
            reason = error.what
        except TimeoutError:
            reason = f"not ready within {self.settings.init_timeout:g} s"
        except BridgeError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - as above: one upstream's fault is no one else's
            reason = self._unexpected(error)
        return self._explain(reason)

    def _unexpected(self, error: Exception) -> str:
        log.exception("upstream failed in an unexpected way", upstream=self.name)
        return f"{type(error).__name__} in the bridge; see the log"

    async def _open_and_serve(self, peer: Peer, session: UpstreamSession) -> str:
        seconds = self.settings.init_timeout
        async with asyncio.timeout(seconds):
            await session.open(self._era, seconds)
        await self._list_first(session)
        self.session = session
        self.modern = session.modern
        self._breaker = Breaker()
        self._lifecycle.ready(self._loop.time())
        self._step(Status("ready"))
        log.info(
            "upstream ready",
            upstream=self.name,
            revision=session.version,
            tools=len(self.lists.get("tools", ())),
        )
        self._tending = Tending(
            self.name,
            self.settings,
            session,
            peer,
            self.wanted,
            relist=lambda kinds: self._relist(session, kinds),
            lost=self._closed,
            expired=lambda: self._renew(session),
            heard=self._notified,
        )
        self._tending.mark_stale(*self._unlisted, *self._announced_early)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tending.run)
            await self._lost.wait()
            tasks.cancel_scope.cancel()
        return self._lost_reason

    async def _list_first(self, session: UpstreamSession) -> None:
        """List everything for the first time in this session. What fails is left for later; all of it may not."""
        seconds = min(self.settings.init_timeout, FIRST_LIST_SECONDS)
        troubles = await self._list(session, session.lists, seconds)
        if troubles and len(troubles) == len(session.lists):
            raise UpstreamUnavailable(self.name, "; ".join(troubles.values()))
        self._unlisted = list(troubles)

    async def _relist(self, session: UpstreamSession, kinds: list[str]) -> list[str]:
        return list(await self._list(session, kinds, self.settings.call_timeout))

    async def _list(self, session: UpstreamSession, kinds: list[str], seconds: float) -> dict[str, str]:
        """List these kinds and publish what came. Returns what failed, and why; of those the last list stays."""
        listings = await asyncio.gather(*(session.list_all(kind, Timeouts(seconds, seconds)) for kind in kinds))
        failed: dict[str, str] = {}
        lists = {kind: self.lists.get(kind, ()) for kind in session.lists}
        for kind, listing in zip(kinds, listings, strict=True):
            if listing.trouble:
                failed[kind] = listing.trouble
                log.warning("listing failed", upstream=self.name, kind=kind, reason=listing.trouble)
            if not listing.trouble or not lists[kind]:
                lists[kind] = listing.entries
        self.lists = lists
        self._observer.offered(self, lists)
        return failed

    # -- calls

    async def _send(self, session: UpstreamSession, call: Call) -> Body:
        breaker = self._breaker
        wait = breaker.retry_in(self._loop.time())
        if wait:
            raise UpstreamUnavailable(
                self.name, f"it failed many calls in a row and is left alone for {max(1, round(wait))} s more"
            )
        began = self._loop.time()
        try:
            result = await session.request(
                call.method,
                call.params,
                self._timeouts,
                client_meta=call.meta,
                name=call.target,
                headers=call.headers,
                update=call.update,
                wants_progress=call.wants_progress,
                log_level=call.log_level,
            )
        except UpstreamHttpError as error:
            if error.status >= 500 or error.status == 408:
                breaker.failed(self._loop.time())
            else:
                breaker.withdrawn()
            raise
        except UpstreamTimeout:
            self._stray_until = self._loop.time() + STRAY_SECONDS
            if self._peer is not None and self._peer.last_heard >= began:
                breaker.withdrawn()  # a slow tool of a server that answers others
            else:
                breaker.failed(self._loop.time())
            raise
        except (UpstreamUnavailable, UpstreamGone) as error:
            breaker.failed(self._loop.time())
            raise self._with_reason(error) from error
        except UpstreamAnswered:
            breaker.succeeded()  # an error of the server's own making is an answer
            raise
        except BaseException as error:
            # Cancelled, refused by the channel, garbled: tells nothing, but must not pass for a call under way.
            if isinstance(error, asyncio.CancelledError):
                self._stray_until = self._loop.time() + STRAY_SECONDS
            breaker.withdrawn()
            raise
        breaker.succeeded()
        return Body(result)

    def _with_reason(self, error: UpstreamError) -> UpstreamError:
        words = self.transport.last_words()
        if isinstance(error, UpstreamGone) and words and words not in error.what:
            return UpstreamGone(self.name, f"{error.what}: {words}")
        return error

    async def _wait_for_session(self) -> UpstreamSession:
        """The session, waiting for one that is about to come.

        Raises:
            UpstreamUnavailable: none comes soon; says why.
        """
        if not self._comes_soon() and self.status.state != "unavailable":
            await self._dial_on_demand()
        try:
            async with asyncio.timeout(self.settings.queue_timeout):
                while (session := self.session) is None:
                    if not self._comes_soon():
                        raise UpstreamUnavailable(self.name, self.state_text)
                    await self._stepped.wait()
        except TimeoutError:
            raise UpstreamUnavailable(self.name, self.state_text) from None
        return session

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

    def _renew(self, session: UpstreamSession) -> None:
        """Replace a session that the server forgot; the first of several calls that find out does it."""
        if self.session is session:
            self.session = None
            self._is_renewing = True
            self._end_when_idle(session, self._peer, RENEW_LOOKS)

    def _end_when_idle(self, session: UpstreamSession, peer: Peer | None, looks: int) -> None:
        """End the old session once the calls that are still on it have learned the same, or after a moment."""
        if peer is None or peer is not self._peer:
            return
        if looks and peer.in_flight > session.standing_requests:
            self._loop.call_later(RENEW_LOOK_SECONDS, self._end_when_idle, session, peer, looks - 1)
        else:
            self._closed("the server ended the session")

    # -- notices of the session

    @property
    def state_text(self) -> str:
        """The state and its reason in one line: `retrying in 4 s: exit code 1: <last stderr line>`."""
        status = self.status
        text = status.state
        if status.state in ("retrying", "failed"):
            wait = max(0.0, status.next_at - self._loop.time())
            text = f"retrying in {wait:.0f} s" if status.state == "retrying" else f"failed, next try in {wait:.0f} s"
        return f"{text}: {status.reason}" if status.reason else text

    def _notified(self, method: str, params: Raw, via: bytes) -> None:
        match method:
            case "notifications/tools/list_changed":
                self._mark_stale("tools")
            case "notifications/prompts/list_changed":
                self._mark_stale("prompts")
            case "notifications/resources/list_changed":
                self._mark_stale("resources", "templates")
            case "notifications/resources/updated":
                self._observer.resource_updated(self, params)
            case "notifications/message":
                self._logged(params)
            case "notifications/subscriptions/acknowledged":
                if self._tending is not None:
                    self._tending.acknowledged()
            case _:
                log.debug("notification ignored", upstream=self.name, method=method[:100])

    def _logged(self, params: Raw) -> None:
        """Find the call that a message without an address belongs to: the only one, if no other can have caused it."""
        if len(self._running) == 1 and self._loop.time() >= self._stray_until:
            (call,) = self._running
            call.update("notifications/message", params)
        elif self._loop.time() >= self._stray_until:
            self._observer.logged(self, params)

    def _mark_stale(self, *kinds: str) -> None:
        if self._tending is not None:
            self._tending.mark_stale(*kinds)
        else:
            self._announced_early.update(kinds)

    def _closed(self, reason: str) -> None:
        self.session = None
        if self._peer is not None:
            self._peer.end(self._explain(reason))
        if not self._lost.is_set():
            self._lost_reason = reason
            self._lost.set()

    def _explain(self, reason: str) -> str:
        words = self.transport.last_words()
        return f"{reason}: {words}" if words and words not in reason else reason

    def _step(self, status: Status) -> None:
        self.status = status
        stepped, self._stepped = self._stepped, asyncio.Event()
        stepped.set()
        self._observer.stepped(self)


def _answer_to_server(method: str) -> bytes | None:
    """What the bridge answers to a server's own request: it lives. Everything else it has not declared."""
    return b"{}" if method == "ping" else None
