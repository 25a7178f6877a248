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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import anyio
import structlog
from msgspec import Raw

from mcpbridge.errors import (
    BridgeError,
    SessionExpired,
    SignInNeeded,
    UpstreamAnswered,
    UpstreamError,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.interaction import NOTHING, Asker, Profile, encoded_capabilities
from mcpbridge.model import Call
from mcpbridge.upstream.auth_asking import ask_to_sign_in
from mcpbridge.upstream.era import ProbeKilled
from mcpbridge.upstream.gate import Gate, WaitingRoom
from mcpbridge.upstream.lifecycle import Breaker, Lifecycle
from mcpbridge.upstream.questions import Questions
from mcpbridge.upstream.session import UpstreamSession
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.tasks import TaskBook
from mcpbridge.upstream.tending import Tending, Wanted
from mcpbridge.upstream.turns import Turns
from mcpbridge.wire.body import Body
from mcpbridge.wire.codes import UNSUPPORTED_VERSION, code_of, supported_versions
from mcpbridge.wire.extensions import declared_up
from mcpbridge.wire.frame import encode
from mcpbridge.wire.http_fallback import HttpOrSse
from mcpbridge.wire.peer import Peer, Timeouts
from mcpbridge.wire.revisions import LATEST_LEGACY
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


_OWN_EXTENSIONS = encode(declared_up({}, tasks=True))


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

    def elicitation_completed(self, upstream: "Upstream", params: Raw) -> None:
        """What a URL question was about is done (2025-11-25)."""
        ...

    def beside(self, upstream: "Upstream") -> Asker | None:
        """The one client that this session can be about, to be asked outside of any call; None when it is not one."""
        ...

    def stepped(self, upstream: "Upstream") -> None:
        """Its state changed."""
        ...


class _OtherTransport(Exception):
    """The server does not speak this transport: begin anew over the other one."""


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
        is_base: bool = True,
        profile: Profile = NOTHING,
        home: object = None,
        is_spare: bool = False,
    ) -> None:
        """`is_base`: its lists are the ones that count; of a further instance of a server they are not asked for.

        `home`: the client or project whose own it is; None: everybody's.
        `profile`: what its sessions of the handshake era declare that can be asked; see `adopt`.
        `is_spare`: it is connected to, and opened only once it is told a profile by `assign`.
        """
        self._assigned = asyncio.Event()
        if not is_spare:
            self._assigned.set()
        self.name = name
        self.is_base, self.home = is_base, home
        self.profile = profile
        self.is_shared = settings.isolation == "shared"
        self.idle_since = asyncio.get_running_loop().time()
        """Loop time when its last call ended, or when it was made."""
        self.has_declared = False
        """The handshake of its session has begun, so what it declares is settled."""
        self.has_served = False
        """A client's call went to it: it may hold state that a new session would lose."""
        self.settings = settings
        self.transport = transport
        self.lists: Lists = {}
        self.restarts = 0
        self.modern = False
        """The last session was of the modern era."""
        self.version = ""
        """The revision of the last session; empty before the first."""
        self.capabilities: dict[str, Any] = {}
        """What it declared in its last session."""
        self.instructions = ""
        """What it told in its last session of how to use it."""
        self.list_ttl_ms: dict[str, int] = {}
        """Milliseconds that it says its lists stay fresh, by kind; of those that it says it of."""
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
        places = settings.max_concurrent + settings.max_queued
        self._waiting_room = WaitingRoom(f"Server '{name}' is starting", places=places)
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
        self._stray_home: object = None
        """Whose call was given up last."""
        self._is_renewing = False
        self._running: dict[Call, None] = {}
        self.tasks = TaskBook(self.over)
        """Tasks of a legacy server that somebody waits for."""
        self._turns = Turns(name, places=settings.max_queued, patience=settings.queue_timeout)
        self._questions: Questions | None = None

    # -- what others ask of it

    @property
    def has_settled(self) -> bool:
        """It is ready, or has failed at least once: waiting longer for it tells nothing new."""
        return self.status.state not in ("stopped", "starting")

    @property
    def running(self) -> Collection[Call]:
        """The calls that it works on now, oldest first."""
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
        # What concerns a task waits for nobody's calls: questions that belong to a task name it.
        takes_turns = self._takes_turns and not call.method.startswith("tasks/")
        try:
            if takes_turns:
                await self._turns.enter(call.client.owner, is_asked=self._asks)
        except BaseException:
            gate.leave()
            raise
        self._running[call] = None
        self.has_served = True
        try:
            session = self.session
            if session is None:
                session = await self._wait_for_session()
            try:
                return await self._send(session, call)
            except SignInNeeded as needed:
                await ask_to_sign_in(call, needed)
                return await self._send(session, call)
            except SessionExpired:
                pass
            except UpstreamAnswered as error:
                if not _speaks_another_revision(session, error.error):
                    raise
            # Not executed: the server forgot us, or has changed its revisions. One new session, one more try (spec,
            # streamable HTTP, 404; 2.13 of the project's notes).
            self._renew(session)
            return await self._send(await self._wait_for_session(), call)
        finally:
            self._running.pop(call, None)
            if not call.needs_task and not call.takes_task:
                self.over(call)
            self.idle_since = self._loop.time()
            if takes_turns:
                self._turns.leave()
            gate.leave()

    async def ready(self) -> None:
        """Return once it is ready and has listed what it offers. Only as many may wait as its queue takes later.

        Raises:
            UpstreamUnavailable: it will not be soon; says why.
            Overloaded: too many wait already.
        """
        if self.session is None:
            async with self._waiting_room:
                await self._wait_for_session()

    def serves(self, client: Asker) -> bool:
        """Calls of this client may go to this very instance; cheap. False: `Pool.serving` tells which one is right."""
        if self.modern or client.profile is not self.profile:
            return self.is_shared and (self.modern or self.settings.questions == "never")
        return self.is_shared and not (client.profile and self.is_held_from(client))

    def is_held_from(self, client: Asker) -> bool:
        """Calls of another client run on this session, whose questions could not be told from this client's."""
        owner = client.owner
        is_used = self._turns.blocks(owner) or bool(self.tasks and self.tasks.blocks(owner))
        return self._takes_turns and (is_used or self._is_strange_to(client))

    def _is_strange_to(self, client: Asker) -> bool:
        """The server may still be at a call that another client gave up: what it asks now may be of that one."""
        return self._loop.time() < self._stray_until and self._stray_home != client.home

    async def freed(self, seconds: float) -> None:
        """Return when a call on it is over; at the latest after so many seconds, or at once while it asks somebody."""
        if self._running and not self._asks:
            await self._turns.left(seconds)

    @property
    def may_ask_back(self) -> bool:
        """A result of it may be `input_required`: it is of the modern era, or that is not known yet."""
        return self.modern or self.session is None

    @property
    def runs_tasks(self) -> bool:
        """It takes calls of tools as tasks, as revision 2025-11-25 has them."""
        is_able = not self.modern and self.version >= LATEST_LEGACY
        return is_able and _has(self.capabilities, "tasks", "requests", "tools", "call")

    def over(self, call: Call) -> None:
        """Nothing more comes of a call, so what it asked is of no use any more. For those that may make a task."""
        if self._asks and self._questions is not None:
            self._questions.over(call)

    def cancel_task(self, id_: str) -> None:
        """Tell it that the outcome of a task is not wanted any more; if it cannot be told, the task ends by itself."""
        if self.session is not None:
            self.session.cancel_task(id_)

    async def listen_to_tasks(self, ids: Sequence[str], heard: Callable[[str, Raw], None]) -> None:
        """Modern: hear of the news of these tasks, after an acknowledgement; returns when the server ends that.

        Raises:
            UpstreamError: it is not there, or refuses.
        """
        session = self.session or await self._wait_for_session()
        await session.listen({}, [], heard, tasks=ids)

    async def list_again(self, kind: str) -> None:
        """Ask it now what it offers of this kind; what it answers is published before this returns."""
        if self.session is not None:
            await self._relist(self.session, [kind])

    def poke(self) -> None:
        """Try now to connect, whatever the wait."""
        self._dial_now.set()

    def adopt(self, profile: Profile) -> None:
        """Declare this profile from now on. An open session of another one, which nobody may use yet, is replaced."""
        if profile is self.profile:
            return
        self.profile = profile
        session = self.session
        if session is not None and not session.modern:
            self._renew(session)

    @property
    def has_missed_roots(self) -> bool:
        """It asked for roots, as many servers do first of all, when there was no client to ask."""
        return self._questions is not None and self._questions.has_missed_roots

    def assign(self, profile: Profile) -> None:
        """Open the spare for such clients."""
        self.profile = profile
        self.idle_since = self._loop.time()
        self._assigned.set()

    def roots_changed(self) -> None:
        """The roots of the clients behind it are others now, or can be asked for now."""
        if self._questions is not None:
            self._questions.has_missed_roots = False
        session = self.session
        if session is not None and not session.modern and session.profile.roots and not self.settings.roots:
            session.roots_changed()

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
        self.has_declared = False
        questions = Questions(
            self.name,
            running=self._askable,
            beside=lambda: self._observer.beside(self),
            roots=self.settings.roots_result,
            tasks=self.tasks,
            rest=self._gate.rest,
            is_shared=self.home is None,
        )
        peer = Peer(
            self.name,
            on_notification=self._notified,
            on_closed=self._closed,
            on_request=questions.asked,
            on_withdrawn=questions.withdrawn,
        )
        questions.attach(peer)
        self._peer, self._questions = peer, questions
        try:
            async with self.transport.connect(peer) as channel:
                peer.attach(channel)
                try:
                    # Catches its own errors: raised through the transport's task group they would come in groups.
                    return await self._converse(peer, channel)
                finally:
                    self.session = None
                    self._tending = None
                    questions.end()
                    peer.end(self._lost_reason or "it is being stopped")
        except UpstreamError as error:
            return self._explain(error.what)
        except BridgeError as error:  # a certificate, or the like
            return str(error)
        except Exception as error:  # noqa: BLE001 - the task boundary of one upstream: whatever happens here stays here
            return self._unexpected(error)

    async def _converse(self, peer: Peer, channel: Channel) -> str | None:
        session = UpstreamSession(
            self.name,
            peer,
            channel,
            is_plain=self.transport.kind in ("stdio", "websocket"),
            client_info=self._client_info,
            profile=self._declare,
        )
        try:
            reason = await self._open_and_serve(peer, session)
        except ProbeKilled:
            log.info("upstream does not bear the probe for its era; using the handshake", upstream=self.name)
            self._era = "legacy"
            return None
        except _OtherTransport:
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
        if not self._assigned.is_set():
            await self._until_assigned()
        async with asyncio.timeout(seconds):
            try:
                await session.open("legacy" if self.transport.kind == "sse" else self._era, seconds)
            except UpstreamHttpError as error:
                if isinstance(self.transport, HttpOrSse) and self.transport.refused(error):
                    raise _OtherTransport from error
                raise
        if session.modern and self._questions is not None:
            self._questions.declared = NOTHING  # that era has no requests of servers
        self.modern, self.version = session.modern, session.version
        self.capabilities, self.instructions = session.capabilities, session.instructions
        await self._list_first(session)
        if not session.modern and session.profile is not self._to_declare:
            self._is_renewing = True  # another profile was adopted after the handshake had begun
            return "opened anew for what its client can be asked"
        self.session = session
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
            ttl_ms=self.list_ttl_ms,
        )
        self._tending.mark_stale(*self._unlisted, *self._announced_early)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tending.run)
            await self._lost.wait()
            tasks.cancel_scope.cancel()
        return self._lost_reason

    async def _until_assigned(self) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._assigned, self._lost)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not self._assigned.is_set():
            raise UpstreamGone(self.name, self._lost_reason)

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
        if not self.is_base:
            return {}
        listings = await asyncio.gather(*(session.list_all(kind, Timeouts(seconds, seconds)) for kind in kinds))
        failed: dict[str, str] = {}
        lists = {kind: self.lists.get(kind, ()) for kind in session.lists}
        for kind, listing in zip(kinds, listings, strict=True):
            if listing.trouble:
                failed[kind] = listing.trouble
                log.warning("listing failed", upstream=self.name, kind=kind, reason=listing.trouble)
            if not listing.trouble or not lists[kind]:
                lists[kind] = listing.entries
            self.list_ttl_ms.pop(kind, None)
            if listing.ttl_ms is not None:
                self.list_ttl_ms[kind] = listing.ttl_ms
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
        if call.needs_task or call.takes_task:
            call.progress_token = session.next_id()
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
                capabilities=self._capabilities(call) if session.modern else b"",
                context=call,
                id_=call.progress_token,
            )
        except UpstreamHttpError as error:
            if error.status >= 500 or error.status == 408:
                breaker.failed(self._loop.time())
            else:
                breaker.withdrawn()
            raise
        except UpstreamTimeout:
            self._given_up(call)
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
                self._given_up(call)
            breaker.withdrawn()
            raise
        breaker.succeeded()
        return Body(result)

    def _given_up(self, call: Call) -> None:
        self._stray_until, self._stray_home = self._loop.time() + STRAY_SECONDS, call.client.home

    def _askable(self) -> list[Call]:
        """The calls that a question may be of which names none; none of a client that is strange to it."""
        calls = list(self._running)
        is_strange = self._takes_turns and any(self._is_strange_to(call.client) for call in calls)
        return [] if is_strange else calls

    def _capabilities(self, call: Call) -> bytes:
        """What a modern server is told that can be asked during this call: what its client declared, no more."""
        profile = call.client.profile
        profile = profile.with_roots() if self.settings.roots else profile
        return encoded_capabilities(profile, call.extensions or _OWN_EXTENSIONS)

    @property
    def _names_calls(self) -> bool:
        """A question comes on the stream of the call that it belongs to."""
        return self.transport.kind == "streamable-http"

    @property
    def _to_declare(self) -> Profile:
        """What a session of the handshake era declares: also what the configuration answers."""
        return self.profile.with_roots() if self.settings.roots else self.profile

    def _declare(self) -> Profile:
        self.has_declared = True
        if self._questions is not None:
            self._questions.declared = self._to_declare
        return self._to_declare

    @property
    def _takes_turns(self) -> bool:
        return self.home is None and self.profile is not NOTHING and not self._names_calls and not self.modern

    @property
    def _asks(self) -> bool:
        return self._questions is not None and self._questions.is_open

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
            case "notifications/tasks/status":
                self.tasks.changed(params)
            case "notifications/progress":
                self.tasks.progressed(params)
            case "notifications/elicitation/complete":
                self._observer.elicitation_completed(self, params)
            case "notifications/subscriptions/acknowledged":
                if self._tending is not None:
                    self._tending.acknowledged(params)
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
        if self._questions is not None:
            self._questions.end()  # first: who is being asked hears of it on the stream of a call
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
        if self.is_base:
            self._observer.stepped(self)


def _speaks_another_revision(session: UpstreamSession, error: bytes) -> bool:
    """Whether a server refuses the revision that was agreed on, and a new agreement may help."""
    return code_of(error) == UNSUPPORTED_VERSION and session.version not in supported_versions(error)


def _has(declared: object, *path: str) -> bool:
    """Whether capabilities have this member, at any depth."""
    for name in path:
        declared = cast("dict[str, object]", declared).get(name) if isinstance(declared, dict) else None
    return declared is not None
