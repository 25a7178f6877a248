"""What a client hears while its call waits for the server to start: progress, if it asked for that.

Progress must increase, and what the server says of the call once it runs comes after this. So ours counts up to zero,
in seconds, from the longest time that the call may wait: below whatever a server begins with.

The way of one call through one instance: a slot, a turn, a session, and what its outcome says of the server.

It decides what may be sent again (only what the server certainly did not run) and when a server is left alone. How
the session comes about is the business of `link` and the owner task.
"""

import asyncio
import random
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from math import ceil
from time import perf_counter
from typing import Self

import anyio
from msgspec import Raw

from mcpbridge.base.errors import (
    Overloaded,
    SessionExpired,
    SignInNeeded,
    UpstreamAnswered,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamResting,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities, Elicitor, encoded_capabilities
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.jsonrpc import UNSUPPORTED_VERSION, code_of, encode, supported_versions
from mcpbridge.protocol.revisions import declared_up
from mcpbridge.upstream.auth.browser import ask_to_sign_in
from mcpbridge.upstream.concurrency import Gate, Habits, Turns, WaitingRoom, takes_slot
from mcpbridge.upstream.connection.backoff import Breaker, BreakerState
from mcpbridge.upstream.connection.connection import Link
from mcpbridge.upstream.session.listings import Attribution
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.session.tasks import TaskBook
from mcpbridge.upstream.settings import ServerSettings

FIRST_SECONDS = 1.0
"""Seconds of waiting before the client is told; most starts need less."""
EVERY_SECONDS = 1.0


class StartProgress:
    """Tells the client of one call meanwhile: `with StartProgress(...):` around the wait."""

    def __init__(self, server: str, call: Call, seconds: float) -> None:
        """`seconds`: how long the call may wait."""
        self._server, self._call, self._most = server, call, ceil(seconds)
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if self._call.wants_progress:
            self._timer = self._loop.call_later(FIRST_SECONDS, self._tell)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        waited = self._loop.time() - self._began
        message = f"Starting server '{self._server}' … {waited:.0f} s"
        params = {"progress": min(-0.001, round(waited - self._most, 3)), "message": message}
        self._call.update("notifications/progress", Raw(encode(params)))
        self._timer = self._loop.call_later(EVERY_SECONDS, self._tell)


_NOTICEABLE = 0.001
"""Seconds of waiting that count against the time of a call; less is not worth new deadlines."""
_OWN_EXTENSIONS = encode(declared_up({}, tasks=True))


class Traffic:
    """The calls of one instance, over all its sessions."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        link: Link,
        attribution: Attribution,
        tasks: TaskBook,
        habits: Habits,
    ) -> None:
        self._habits = habits
        self._name, self._link, self._attribution, self._tasks = name, link, attribution, tasks
        self.takes_turns = False
        """Calls of one client at a time, since questions of the server would name no call."""
        self.learns_of: ClientCapabilities | None = None
        """What its session declared, while calls that pass without a question of the server tell something new."""
        self._has_roots, self._may_ask = bool(settings.roots), settings.questions != "never"
        places = settings.max_concurrent + settings.max_queued
        self._waiting_room = WaitingRoom(f"Server '{name}' is starting", places=places)
        self.gate = Gate(
            f"Server '{name}'",
            slots=settings.max_concurrent,
            places=settings.max_queued,
            patience=settings.queue_timeout,
        )
        self._queue_timeout = settings.queue_timeout
        self._is_apart = settings.share != "shared"
        self._turns = Turns(name, places=settings.max_queued, patience=settings.queue_timeout)
        self._running = attribution.running
        self.adopt(settings.timeouts)
        self._breaker_settings = settings.breaker
        self._breaker = Breaker(settings.breaker)
        self._loop = asyncio.get_running_loop()
        self._quiet: asyncio.Event | None = None
        """Set when a call is over; made only while somebody waits for the last one to be."""
        self._users = 0
        self._expected_until = float("-inf")
        self.idle_since = self._loop.time()
        """Loop time when the last call ended, or when this was made."""
        self.has_served = False
        """A client's call went to the server: it may hold state that a new session would lose."""

    def adopt(self, timeouts: Timeouts) -> None:
        """Have these deadlines from now on; calls that were sent keep theirs."""
        self._timeouts = timeouts
        # Where clients are kept apart there is no other instance to go to: a turn is worth as much time as a call.
        self._turn_timeout = timeouts.idle if self._is_apart else self._queue_timeout

    async def request(self, call: Call) -> Body:
        """Pass a call on and wait for its result; see `Upstream.request`."""
        gate, link = self.gate, self._link
        if link.session is None and link.starts_on_demand:
            await self._started(call)
        # What concerns a task waits for nobody's calls: questions that belong to a task name it.
        takes_turns = self.takes_turns and not call.method.startswith("tasks/")
        if takes_turns:  # first, since who waits for a turn must not hold a slot that the one who has it may need
            client = call.client
            home = client.home if self._is_apart else None
            if not self._turns.try_enter(client.owner, is_asked=link.is_asking, home=home):
                await self._wait_for_turn(call, home)
        has_slot = call.tool is not None or takes_slot(call)
        try:
            if has_slot and not gate.try_enter():
                await self._wait(call)
        except BaseException:
            if takes_turns:
                self._turns.leave()
            raise
        self._running[call] = None
        self.has_served = True
        sent_at = 0.0
        try:
            session = link.session
            if session is None:
                session = await self._wait_for_session(call)
            breaker = self._breaker
            is_probe = breaker.is_troubled and self._ask_breaker(breaker)
            sent_at = perf_counter()
            try:
                result = await self._send(session, call)
            except BaseException as error:
                self._judge(breaker, error, call, is_probe)
                if not self._may_go_again(session, error):
                    if (told := self._with_reason(error)) is not error:
                        raise told from error
                    raise  # not from itself: nothing that follows the causes would come to an end
                failed = error
            else:
                if breaker.is_troubled:
                    breaker.succeeded()
                if self.learns_of is not None and call.method == "tools/call":
                    self._habits.passed(self.learns_of)
                return Body(result)
            return await self._again(session, call, failed)
        finally:
            if sent_at:
                call.upstream_seconds += perf_counter() - sent_at
            self._running.pop(call, None)
            questions = link.questions
            if questions is not None and questions.is_open and not call.needs_task and not call.takes_task:
                questions.over(call)
            self.idle_since = self._loop.time()
            if takes_turns:
                self._turns.leave()
            if has_slot:
                gate.leave()
            if self._quiet is not None:
                self._look_up()

    async def _wait(self, call: Call) -> None:
        """Wait for a slot, not beyond the deadline of the call."""
        with self._waiting(call) as left:
            await self.gate.enter(min(left, self._queue_timeout))

    async def _wait_for_turn(self, call: Call, home: object) -> None:
        """Wait until other clients' calls are over, not beyond the deadline of the call."""
        with self._waiting(call) as left:
            patience, is_asked = min(left, self._turn_timeout), self._link.is_asking
            await self._turns.enter(call.client.owner, is_asked=is_asked, home=home, patience=patience)

    async def _started(self, call: Call) -> None:
        """Start the server for this call. Before it takes a slot or a turn: a start may take longer than these last."""
        self.has_served = True  # from now on the session is to be what this client needs
        async with self._waiting_room:
            await self._wait_for_session(call)

    async def _wait_for_session(self, call: Call) -> UpstreamSession:
        """Wait for the server to start, not beyond the deadline of the call."""
        with self._waiting(call) as left, StartProgress(self._name, call, left):
            return await self._link.wait_for_session(left)

    @contextmanager
    def _waiting(self, call: Call) -> Generator[float]:
        """The call waits meanwhile; gives the seconds that it may. If nothing counted its time so far, that begins."""
        began = self._loop.time()
        if not call.deadline:
            call.deadline = began + (call.timeouts or self._timeouts).idle
        try:
            yield call.deadline - began
        finally:
            call.waited(self._loop.time() - began)

    async def ready(self) -> None:
        """Return once there is a session. Only as many may wait as the queue takes later; see `Upstream.ready`."""
        if self._link.session is None:
            async with self._waiting_room:
                await self._link.wait_for_session()

    def begin_anew(self) -> None:
        """There is a new session: what failed on the last one says nothing of it."""
        self._breaker = Breaker(self._breaker_settings)

    @property
    def breaker_state(self) -> BreakerState:
        """Whether calls pass; see `Breaker`."""
        return self._breaker.state(self._loop.time())

    def is_held_from(self, client: Elicitor) -> bool:
        """Calls of another client run on this session, whose questions could not be told from this client's."""
        owner = client.owner
        is_used = self._turns.blocks(owner) or bool(self._tasks and self._tasks.blocks(owner))
        return self.takes_turns and (is_used or self._attribution.is_strange_to(client))

    async def freed(self, seconds: float) -> bool:
        """Return when a call is over. False: none was within so many seconds, or somebody is being asked."""
        return bool(self._running) and not self._link.is_asking and await self._turns.left(seconds)

    @property
    def is_idle(self) -> bool:
        """No call, no task that somebody waits for, nobody else who holds it."""
        return not (self._running or self._users or self._tasks)

    @property
    def is_needed(self) -> bool:
        """It is used, or somebody is expected back."""
        return not self.is_idle or self._expected_until > self._loop.time()

    @contextmanager
    def used(self, *, counts: bool = True) -> Generator[None]:
        """It is needed meanwhile, also while none of its calls runs: between the rounds of one that asks back.

        `counts`: it has been idle from the end of that on. A look at how it is takes nothing from the time that it was.
        """
        self.hold()
        try:
            yield
        finally:
            self.release(counts=counts)

    def hold(self) -> None:
        """It is needed until `release`."""
        self._users += 1

    def release(self, *, counts: bool = True) -> None:
        """The end of one `hold`; see `used`."""
        self._users -= 1
        if counts:
            self.idle_since = self._loop.time()
        self._look_up()

    def expect_back(self, seconds: float) -> None:
        """A client was asked something: it may come back to this very instance, for so many seconds."""
        self._expected_until = max(self._expected_until, self._loop.time() + seconds)

    async def idle(self, seconds: float) -> None:
        """Return when it has had nothing to do for so long: no call, and no task that somebody waits for."""
        while True:
            if (left := max(self.idle_since + seconds, self._expected_until) - self._loop.time()) > 0:
                await anyio.sleep(left)  # first: where calls come and go, the end of each is not worth a look
            elif self._running or self._users:
                quiet = self._quiet = self._quiet or asyncio.Event()
                await quiet.wait()
            elif self._tasks:
                await self._tasks.emptied()
            else:
                return

    def _look_up(self) -> None:
        """Let whoever waits for `idle` look again."""
        if self._quiet is not None:
            self._quiet.set()
            self._quiet = None

    def _ask_breaker(self, breaker: Breaker) -> bool:
        """Whether a call that may pass is the one that finds out.

        Raises:
            UpstreamResting: it may not: it is too soon, or another one finds out.
        """
        now = self._loop.time()
        wait, state = breaker.retry_in(now), breaker.state(now)
        if wait:
            raise UpstreamResting(self._name, wait, is_probed=state == "half-open")
        return state == "half-open"

    def _rest_of(self, timeouts: Timeouts, call: Call) -> Timeouts:
        """The deadlines of a call that may have waited somewhere.

        Raises:
            Overloaded: it has no time left.
        """
        used = timeouts.idle - (call.deadline - self._loop.time())
        if used >= timeouts.idle:
            raise Overloaded(
                f"The call has {timeouts.idle:g} s, which it waited to be sent to server '{self._name}': for its turn, "
                "for a next try, or for a start"
            )
        return Timeouts(timeouts.idle, timeouts.total, used) if used > _NOTICEABLE else timeouts

    def _send(self, session: UpstreamSession, call: Call) -> Awaitable[Raw]:
        """Send it once. No coroutine of its own: every call would pay for one more."""
        if call.needs_task or call.takes_task:
            call.progress_token = session.next_id()
        timeouts = call.timeouts or self._timeouts
        return session.request(
            call.method,
            call.params,
            self._rest_of(timeouts, call) if call.deadline else timeouts,
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

    def _judge(self, breaker: Breaker, error: BaseException, call: Call, is_probe: bool) -> None:
        """What a failure says of the server."""
        now = self._loop.time()
        if isinstance(error, UpstreamTimeout):
            self._attribution.given_up(call)
            peer = self._link.peer
            if peer is None or peer.last_heard < now - error.seconds:
                breaker.failed(now, random.random())
            elif is_probe:
                breaker.withdrawn()  # a slow tool of a server that answers others
        elif isinstance(error, UpstreamAnswered):
            breaker.succeeded()  # an error of the server's own making is an answer
        elif isinstance(error, UpstreamUnavailable | UpstreamGone) or (
            isinstance(error, UpstreamHttpError) and (error.status >= 500 or error.status == 408)
        ):
            breaker.failed(now, random.random())
        else:
            # Cancelled, refused by the channel, garbled: tells nothing, but must not pass for a call under way.
            if isinstance(error, asyncio.CancelledError):
                self._attribution.given_up(call)
            if is_probe:
                breaker.withdrawn()

    def _may_go_again(self, session: UpstreamSession, error: BaseException) -> bool:
        """The server certainly did not run the call, and there is something to do about it."""
        if isinstance(error, UpstreamAnswered):
            return session.modern and _speaks_another_revision(session, error.error)
        return isinstance(error, SignInNeeded | SessionExpired)

    async def _again(self, session: UpstreamSession, call: Call, failed: BaseException) -> Body:
        """One more try: signed in, or on a new session (MCP 2025-11-25, Transports, Session Management)."""
        if isinstance(failed, SignInNeeded):
            await ask_to_sign_in(call, failed)
            call.deadline = 0.0  # the time that a person takes is not the call's
        else:
            self._link.renew(session)
            session = await self._wait_for_session(call)
        breaker = self._breaker
        is_probe = breaker.is_troubled and self._ask_breaker(breaker)
        try:
            result = await self._send(session, call)
        except BaseException as error:
            self._judge(breaker, error, call, is_probe)
            if (told := self._with_reason(error)) is not error:
                raise told from error
            raise
        breaker.succeeded()
        return Body(result)

    def _capabilities(self, call: Call) -> bytes:
        """What a modern server is told that can be asked during this call: what its client declared, no more."""
        profile = call.client.profile if self._may_ask else NO_CAPABILITIES
        profile = profile.with_roots() if self._has_roots else profile
        return encoded_capabilities(profile, call.extensions or _OWN_EXTENSIONS)

    def _with_reason(self, error: BaseException) -> BaseException:
        """The error, with the last thing that the server said before it went."""
        if isinstance(error, UpstreamGone) and (told := self._link.explain(error.what)) != error.what:
            return UpstreamGone(self._name, told)
        return error


def _speaks_another_revision(session: UpstreamSession, error: bytes) -> bool:
    """Whether a server refuses the revision that was agreed on, and a new agreement may help."""
    return code_of(error) == UNSUPPORTED_VERSION and session.version not in supported_versions(error)
