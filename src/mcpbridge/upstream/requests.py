"""The way of one call through one instance: a slot, a turn, a session, and what its outcome says of the server.

It decides what may be sent again (only what the server certainly did not run) and when a server is left alone. How
the session comes about is the business of `connection` and the owner task in `supervisor`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from itertools import islice
from time import perf_counter

from msgspec import DecodeError, Raw, Struct, field
from msgspec.json import Decoder

from mcpbridge.base.errors import (
    BridgeError,
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
from mcpbridge.core.elicitation import Elicitor, encoded_capabilities
from mcpbridge.core.failure_masking import FAILED, WHOLE, masked_error, masked_result, without_secrets_if_failed
from mcpbridge.core.model import Call, Instance
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.error_codes import (
    UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED,
    code_of,
    supported_versions,
)
from mcpbridge.protocol.extensions import declared_to_servers
from mcpbridge.protocol.jsonrpc import OBJECT_START, Frame, encode, first_byte
from mcpbridge.protocol.peer import Sent
from mcpbridge.upstream.concurrency import ConcurrencyLimiter, WaitingRoom, takes_slot
from mcpbridge.upstream.connection.circuit_breaker import BreakerState, CircuitBreaker
from mcpbridge.upstream.connection.connection import Connection
from mcpbridge.upstream.connection.idle_stop import Usage
from mcpbridge.upstream.session.capabilities import DeclaredProfile
from mcpbridge.upstream.session.listings import Attribution
from mcpbridge.upstream.session.relisting import Relisting
from mcpbridge.upstream.session.session import UpstreamSession
from mcpbridge.upstream.session.tasks import TaskBook
from mcpbridge.upstream.session_lock import SessionLock
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.start_progress import StartProgress

_NOTICEABLE = 0.001
"""Seconds of waiting that count against the time of a call; less is not worth new deadlines."""
_OWN_EXTENSIONS = encode(declared_to_servers({}, tasks=True))


class UpstreamRequests:
    """The calls of one instance, over all its sessions."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        connection: Connection,
        attribution: Attribution,
        tasks: TaskBook,
        declared: DeclaredProfile,
        usage: Usage,
        relisting: Relisting,
        redact: Callable[[str], str],
    ) -> None:
        """`redact` masks secrets in what failed calls are answered with."""
        self._name, self._connection, self._attribution, self._tasks = name, connection, attribution, tasks
        self._declared, self._usage, self._relisting, self._redact = declared, usage, relisting, redact
        self._has_roots, self._question_limits = bool(settings.roots), declared.question_limits
        self.limiter = ConcurrencyLimiter(
            f"Server '{name}'",
            slots=settings.max_concurrent,
            places=settings.max_queued,
            patience=settings.queue_timeout,
        )
        places = self.limiter.slots + settings.max_queued
        self._waiting_room = WaitingRoom(f"Server '{name}' is starting", places=places)
        self._queue_timeout = settings.queue_timeout
        self._is_apart = not settings.is_shared
        self._lock = SessionLock(name, places=settings.max_queued, patience=settings.queue_timeout)
        self._running = attribution.running
        self.adopt(settings.timeouts)
        self._breaker_settings = settings.breaker
        self.breaker = CircuitBreaker(settings.breaker)
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<UpstreamRequests {self._name!r} {len(self._running)} running, {self.breaker_state}>"

    def adopt(self, timeouts: Timeouts) -> None:
        """Have these deadlines from now on; calls that were sent keep theirs."""
        self._timeouts = timeouts
        # Where clients are kept apart there is no other instance to go to: a turn is worth as much time as a call.
        self._turn_timeout = timeouts.idle if self._is_apart else self._queue_timeout

    async def request(self, call: Call) -> Body:
        """Pass a call on and wait for its result. Cancelling it notifies the server, which may have acted already.

        Raises:
            UpstreamError, Overloaded: by what went wrong; the classes say whether the server may have acted.
        """
        limiter, connection, declared, usage = self.limiter, self._connection, self._declared, self._usage
        sent, takes_turns, has_slot = call.sent, False, True
        call.sent = None
        if sent is None:
            if connection.session is None and connection.starts_on_demand:
                await self._started(call)
            # What concerns a task waits for nobody's calls: questions that belong to a task name it.
            takes_turns = declared.takes_turns and not call.method.startswith("tasks/")
            if takes_turns:  # first, since who waits for a turn must not hold a slot that the one who has it may need
                client = call.client
                home = client.home if self._is_apart else None
                if not self._lock.try_enter(client.owner, is_asked=connection.is_asking, home=home):
                    await self._wait_for_turn(call, home)
            has_slot = call.tool is not None or takes_slot(call)
            try:
                if has_slot:
                    if limiter.free > 0 and not limiter.queue:  # `try_enter`, which every call would enter here
                        limiter.free -= 1
                    else:
                        await self._wait_for_slot(call)
            except BaseException:
                if takes_turns:
                    self._lock.leave()
                raise
            self._running[call] = None
            usage.has_served = True
        sent_at, is_answered, is_probe = 0.0, False, False
        try:
            breaker = self.breaker
            if isinstance(sent, SentCall) and sent.session is not None:
                session, sent_at = sent.session, sent.sent_at
            else:
                session = connection.session
                if session is None:
                    session = await self._wait_for_session(call)
                    breaker = self.breaker
                is_probe = breaker.is_troubled and self._ask_breaker(breaker)
                sent_at = perf_counter()
            try:
                if isinstance(sent, SentCall):
                    result = await session.answer_to(sent, self._timeouts)
                else:
                    # Not a coroutine of our own around it: every call would pay for one more.
                    result = await session.relay(
                        call,
                        self._rest_of(call) if call.deadline else call.timeouts or self._timeouts,
                        self._capabilities(call) if session.modern else b"",
                    )
            except BaseException as error:
                self._judge(breaker, error, call, is_probe)
                if self._relisting.is_due and isinstance(error, UpstreamAnswered):
                    await self._relisting.in_force(is_of_call=True)
                if not self._may_go_again(session, error):
                    if (explained := self._with_reason(error, call)) is not error:
                        raise explained from error
                    raise  # not from itself: nothing that follows the causes would come to an end
                failed = error
            else:
                is_answered = True
                if breaker.is_troubled:
                    breaker.succeeded()
                if declared.learns_of is not None and call.method == "tools/call":
                    declared.history.passed(declared.learns_of)
                if self._relisting.is_due:
                    await self._relisting.in_force(is_of_call=True)
                # Looked at here, and in no function of our own: every call would pay for one more.
                if len(result) > WHOLE:
                    return without_secrets_if_failed(session.body_of(result), self._redact)
                if FAILED.search(result):
                    result = masked_result(result, self._redact)
                return Body(result)
            return await self._again(session, call, failed)
        finally:
            seconds = perf_counter() - sent_at if sent_at else 0.0
            call.upstream_seconds += seconds
            if has_slot:
                if not limiter.queue:
                    limiter.free += 1
                elif is_answered:
                    self._learn(call, seconds)
                else:
                    limiter.leave()
            self._running.pop(call, None)
            questions = connection.questions
            if questions is not None and questions.open and not call.needs_task and not call.takes_task:
                questions.over(call)
            usage.idle_since = self._loop.time()
            if takes_turns:
                self._lock.leave()
            if usage.quiet is not None:
                usage.recheck()

    def send(self, sent: "SentCall") -> bool:
        """Send a call of a tool in this very turn. False: something has to be waited for or decided; nothing was sent.

        See `downstream/express_lane.py`.
        """
        limiter, session = self.limiter, self._connection.session
        if session is None or self._declared.takes_turns or self.breaker.is_troubled:
            return False
        if limiter.free <= 0 or limiter.queue:
            return False
        call = sent.call
        if session.modern:
            sent.is_to_modern = True
            params = session.named_in_meta(sent, call, self._capabilities(call))
        else:
            params = call.params.data if call.meta is None else session.named_in_meta(sent, call)
        sent.session, sent.sent_at = session, perf_counter()
        try:
            session.send(sent, params, call.timeouts or self._timeouts, call.target)
        except BridgeError:
            return False  # `request` finds the same, and says so
        limiter.free -= 1
        self._running[call] = None
        self._usage.has_served = True
        return True

    def plain_result(self, sent: "SentCall", frame: Frame) -> Raw | None:
        """The result of a call that `send` sent, if nothing is to be done about it: then `finish` ends the call.

        None: it continues as a request (`SentCall.request`).
        """
        result = frame.result
        if (
            frame.error
            or not result
            or len(result) > WHOLE
            or first_byte(result) != OBJECT_START
            or FAILED.search(result)
            or self.limiter.queue
            or self.breaker.is_troubled
            or self._declared.learns_of is not None
            or self._relisting.is_due
        ):
            return None
        if sent.is_to_modern:
            try:  # a question or a task has to be followed, another kind refused
                if bytes(_decode_kind(result).kind) not in _FINAL:
                    return None
            except (DecodeError, RecursionError):
                return None
        sent.call.upstream_seconds = perf_counter() - sent.sent_at
        return result

    def finish(self, sent: "SentCall") -> None:
        """A call that `send` sent is over."""
        usage, questions = self._usage, self._connection.questions
        sent.among.pop(sent.id_, None)  # `over`, which every call would enter here
        if self.limiter.queue:
            self.limiter.leave()
        else:
            self.limiter.free += 1
        self._running.pop(sent.call, None)
        if questions is not None and questions.open:
            questions.over(sent.call)
        usage.idle_since = self._loop.time()
        if usage.quiet is not None:
            usage.recheck()

    def withdraw(self, sent: "SentCall") -> None:
        """Nobody waits any more for a call that `send` sent, and that did not continue as a request."""
        if sent.session is not None:
            sent.session.withdraw(sent)
        self._judge(self.breaker, asyncio.CancelledError(), sent.call, is_probe=False)
        self.finish(sent)

    async def ready(self) -> None:
        """Return once it is ready and has listed what it offers. Only as many may wait as its queue takes later.

        Nobody waits for longer than a call may take. Cancelling is safe.

        Raises:
            UpstreamUnavailable: it will not be soon; says why.
            Overloaded: too many wait already.
        """
        if self._connection.session is None:
            async with self._waiting_room:
                await self._connection.wait_for_session(self._timeouts.idle)

    def begin_anew(self) -> None:
        """There is a new session: what failed on the last one says nothing of it."""
        self.breaker = CircuitBreaker(self._breaker_settings)

    @property
    def breaker_state(self) -> BreakerState:
        """Whether calls pass: `closed`, `open` while it is left alone, `half-open` while one call finds out."""
        return self.breaker.state(self._loop.time())

    def is_held_from(self, client: Elicitor) -> bool:
        """Another client has calls on this session, whose questions could be confused with those of this client."""
        owner = client.owner
        is_used = self._lock.blocks(owner) or bool(self._tasks and self._tasks.blocks(owner))
        return self._declared.takes_turns and (is_used or self._attribution.is_strange_to(client))

    async def freed(self, seconds: float) -> bool:
        """Return when a call is over. False: none was within so many seconds, or somebody is being asked."""
        return bool(self._running) and not self._connection.is_asking and await self.call_ended(seconds)

    async def call_ended(self, seconds: float) -> bool:
        """Return when a call that takes turns is over. False: none was within so many seconds."""
        return await self._lock.left(seconds)

    # -- waiting

    async def _wait_for_slot(self, call: Call) -> None:
        """Wait for a slot, not beyond the deadline of the call."""
        with self._waiting(call) as left:
            await self.limiter.enter(min(left, self._queue_timeout))

    async def _wait_for_turn(self, call: Call, home: object) -> None:
        """Wait until other clients' calls are over, not beyond the deadline of the call."""
        with self._waiting(call) as left:
            patience, is_asked = min(left, self._turn_timeout), self._connection.is_asking
            await self._lock.enter(call.client.owner, is_asked=is_asked, home=home, patience=patience)

    async def _started(self, call: Call) -> None:
        """Start the server for this call. Before it takes a slot or a turn: a start may take longer than these last."""
        self._usage.has_served = True  # from now on the session is to be what this client needs
        async with self._waiting_room:
            await self._wait_for_session(call)

    async def _wait_for_session(self, call: Call) -> UpstreamSession:
        """Wait for the server to start, not beyond the deadline of the call."""
        with self._waiting(call) as left, StartProgress(self._name, call, left):
            return await self._connection.wait_for_session(left)

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

    def _rest_of(self, call: Call) -> Timeouts:
        """The deadlines of a call that may have waited somewhere.

        Raises:
            Overloaded: it has no time left.
        """
        timeouts = call.timeouts or self._timeouts
        used = timeouts.idle - (call.deadline - self._loop.time())
        if used >= timeouts.idle:
            raise Overloaded(
                f"The call has {timeouts.idle:g} s, which it waited to be sent to server '{self._name}': for its turn, "
                "for a next try, or for a start"
            )
        return Timeouts(timeouts.idle, timeouts.total, used) if used > _NOTICEABLE else timeouts

    def _learn(self, call: Call, seconds: float) -> None:
        """Give back the slot of a call that was answered while others wait for one."""
        earlier = islice(self._running, 1 + len(self._running) // 4)
        kind = call.method if call.tool is None else call.tool.name
        self.limiter.answered(kind, seconds, overtook=call not in earlier)

    # -- outcomes

    def _ask_breaker(self, breaker: CircuitBreaker) -> bool:
        """Whether a call that may pass is the one that finds out.

        Raises:
            UpstreamResting: it may not: it is too soon, or another one finds out.
        """
        now = self._loop.time()
        wait, state = breaker.retry_in(now), breaker.state(now)
        if wait:
            raise UpstreamResting(self._name, wait, is_probed=state == "half-open")
        return state == "half-open"

    def _judge(self, breaker: CircuitBreaker, error: BaseException, call: Call, is_probe: bool) -> None:
        """What a failure says of the server."""
        now = self._loop.time()
        if isinstance(error, UpstreamHttpError):
            self._connection.note_status(error.status)
        if isinstance(error, UpstreamTimeout):
            self._attribution.given_up(call)
            peer = self._connection.peer
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
            from mcpbridge.upstream.auth.browser import ask_to_sign_in  # few servers need that

            await ask_to_sign_in(call, failed)
            call.deadline = 0.0  # the time that a person takes is not the call's
        else:
            self._connection.forgotten(session)
            session = await self._wait_for_session(call)
        breaker = self.breaker
        is_probe = breaker.is_troubled and self._ask_breaker(breaker)
        try:
            result = await session.relay(
                call,
                self._rest_of(call) if call.deadline else call.timeouts or self._timeouts,
                self._capabilities(call) if session.modern else b"",
            )
        except BaseException as error:
            self._judge(breaker, error, call, is_probe)
            if (explained := self._with_reason(error, call)) is not error:
                raise explained from error
            raise
        breaker.succeeded()
        return without_secrets_if_failed(session.body_of(result), self._redact)

    def _capabilities(self, call: Call) -> bytes:
        """What a modern server is told that can be asked during this call: what its client declared, and it may ask."""
        profile, limits = call.client.capabilities, self._question_limits
        if not limits.is_open:
            profile = limits.bounded(profile)
        profile = profile.with_roots() if self._has_roots else profile
        return encoded_capabilities(profile, call.extensions or _OWN_EXTENSIONS)

    def _with_reason(self, error: BaseException, call: Call) -> BaseException:
        """The error, with the last thing that the server said before it went; without secrets.

        Instead of pages to visit first that the server may not ask for, the reason why nobody visits them.
        """
        if isinstance(error, UpstreamAnswered) and code_of(error.error) == URL_ELICITATION_REQUIRED:
            refused = self._question_limits.refusal_of_pages(can_open=call.client.capabilities.url)
            if refused is not None:
                return refused
        if isinstance(error, UpstreamGone) and (what := self._connection.explain(error.what)) != error.what:
            return UpstreamGone(self._name, what, is_restarted=error.is_restarted)
        return masked_error(error, self._redact) if isinstance(error, UpstreamAnswered) else error


class SentCall(Sent, eq=False, kw_only=True):
    """A call that `UpstreamRequests.send` sent; `context` is the call as well."""

    call: Call
    requests: UpstreamRequests
    instance: Instance
    """Whose requests these are."""
    session: UpstreamSession | None = None
    sent_at: float = 0.0
    """Of `time.perf_counter`."""
    is_to_modern: bool = False
    """That session is of the modern era."""

    def request(self, call: Call) -> Awaitable[Body]:
        """Continue with the call as `UpstreamRequests.request` does with others, from where it has been sent."""
        return self.requests.request(call)


class _Kind(Struct):
    kind: Raw = field(name="resultType", default_factory=Raw)


_decode_kind = Decoder(_Kind).decode
_FINAL = frozenset({b"", b'"complete"'})


def _speaks_another_revision(session: UpstreamSession, error: bytes) -> bool:
    """Whether a server refuses the revision that was agreed on, and a new agreement may help."""
    return code_of(error) == UNSUPPORTED_VERSION and session.version not in supported_versions(error)
