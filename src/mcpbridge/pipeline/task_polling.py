"""Follow a task to its end, for a client that wants a result and knows nothing of tasks.

A modern server may answer a call with a task (extension `io.modelcontextprotocol/tasks`); a tool of a legacy server may
run as a task only (2025-11-25, `taskSupport: "required"`). Either way the bridge looks at the task until it has ended,
at the pace that the server asks for, and what comes of it is the result of the call. What the task wants to know
meanwhile is put to the client of the call: a modern task has its questions in it, a legacy one sends them as requests,
on the stream of `tasks/result`. When the call is given up, so is the task.

The dialects: revision 2025-11-25 wraps the new task (`task: {taskId, ttl, pollInterval}`) and keeps its outcome for
`tasks/result`; the extension is flat (`taskId`, `ttlMs`, `pollIntervalMs`) and has outcome and questions in the task.
"""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import (
    BridgeError,
    Overloaded,
    TaskLost,
    UpstreamAnswered,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.core.elicitation import Question
from mcpbridge.core.model import Call
from mcpbridge.pipeline.input_required import ask_all, read_questions
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.upstream.session.tasks import RELATED_TASK
from mcpbridge.upstream.supervisor import Upstream

WORKING, INPUT_REQUIRED = "working", "input_required"
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
ENDED = frozenset({COMPLETED, FAILED, CANCELLED})
"""States that a task stays in."""
_STATES = ENDED | {WORKING, INPUT_REQUIRED}


class TaskState(msgspec.Struct, frozen=True):
    """One look at a task."""

    id: str = msgspec.field(name="taskId")
    status: str
    message: Any = msgspec.field(default=None, name="statusMessage")
    ttl: Any = None
    ttl_ms: Any = msgspec.field(default=None, name="ttlMs")
    poll: Any = msgspec.field(default=None, name="pollInterval")
    poll_ms: Any = msgspec.field(default=None, name="pollIntervalMs")
    result: Raw = Raw()
    """The final result, where the dialect has it here."""
    error: Raw = Raw()
    """The JSON-RPC error that it failed with, where the dialect has it here."""

    @property
    def text(self) -> str:
        """What the server says of it for people; often nothing."""
        return self.message if isinstance(self.message, str) else ""

    @property
    def has_ended(self) -> bool:
        """It stays as it is."""
        return self.status in ENDED

    @property
    def seconds_to_live(self) -> float | None:
        """Since it was made; None: as long as the server likes."""
        return _seconds(self.ttl_ms if self.ttl_ms is not None else self.ttl)

    @property
    def seconds_between_looks(self) -> float | None:
        """As the server wants it; None when it does not say."""
        return _seconds(self.poll_ms if self.poll_ms is not None else self.poll)


_decode = msgspec.json.Decoder(TaskState).decode


def read_task(server: str, task: Body) -> TaskState:
    """What is said of a task.

    Raises:
        UpstreamGarbled: it is no task.
    """
    try:
        state = _decode(task.data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UpstreamGarbled(server, f"its task status cannot be read: {error}") from error
    if state.status not in _STATES:
        raise UpstreamGarbled(server, f"its task has the unknown status {state.status[:40]!r}")
    return state


def _seconds(milliseconds: object) -> float | None:
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    return max(0.0, milliseconds / 1000)


FIRST_LOOK, SLOWEST_LOOK = 0.1, 2.0
"""Seconds between looks at a task whose server names no pace: doubled each time, between these."""
LEAST_PAUSE, LONGEST_PAUSE = 0.05, 60.0
"""Seconds between looks, whatever the server says."""
MISSES, FIRST_RETRY = 5, 0.5
"""Looks in a row that may fail on the way, and seconds before the next: doubled each time."""
LONGEST_ASKING = 3600.0
"""Seconds that all waiting for answers may add to the time that a call has."""
ALIVE_EVERY = 5.0
"""Seconds after which a client that wants progress hears that the task still runs."""
TTL_GRACE = 5.0
"""Seconds after a task's time to live in which its server may still have it."""


async def follow(call: Call, task: Body, upstream: Upstream) -> Body:
    """The final result of a call that `upstream` made a task of.

    Raises:
        TaskLost: the task ended without a result.
        UpstreamAnswered: it failed; the error is the server's own.
        QuestionRefused: it wants an answer that its client does not give.
        UpstreamError, Overloaded: the server cannot be reached any more, or time is up.
    """
    call.begun = "task"
    state = read_task(call.upstream, task)
    following = (_Modern if upstream.modern else _Legacy)(call, state, upstream)
    try:
        return await following.to_the_end()
    finally:
        following.close()


class _Following:
    """One task and what is known of it; a subclass for each dialect."""

    def __init__(self, call: Call, state: TaskState, upstream: Upstream) -> None:
        self._call, self._state, self._upstream = call, state, upstream
        self._update = call.update
        call.update = self._on_update
        self._loop = asyncio.get_running_loop()
        self._began = self._progress_at = self._loop.time()
        self._total = (call.timeouts or upstream.settings.timeouts).total
        self._asking = 0.0
        self._pause = FIRST_LOOK
        self._progress = 0
        self._has_progress = False
        self._changed = asyncio.Event()
        self._looked = Body()
        """What the last look brought."""
        self._beside: asyncio.Task[Body | None] | None = None
        """What goes on besides looking: questions of the task. Returns the result if it happens to find out."""
        if not upstream.modern:
            upstream.tasks.follow(state.id, call, lambda _: self._changed.set())

    async def to_the_end(self) -> Body:
        """Look until it has ended."""
        while not self._state.has_ended:
            if self._state.status == INPUT_REQUIRED and self._beside is None:
                self._beside = self._wants_input()
            result = await self._wait()
            if result is not None:
                self._state = TaskState(self._state.id, COMPLETED)
                return result
            self._looked = await self._patiently("tasks/get")
            self._take_state(read_task(self._call.upstream, self._looked))
        return await self._outcome(self._state)

    def close(self) -> None:
        """Let go of the task; if it still runs, nobody wants it any more."""
        self._call.update = self._update
        if self._beside is not None:
            self._beside.cancel()
        if not self._state.has_ended:
            self._upstream.cancel_task(self._state.id)
        self._upstream.tasks.leave(self._state.id)

    def _wants_input(self) -> "asyncio.Task[Body | None] | None":
        """Begin to answer what the task asks; None when there is nothing new."""
        raise NotImplementedError

    async def _beside_failed(self, error: BridgeError) -> None:
        """What went on besides looking failed: raise what ends the call, or go on."""
        raise error

    async def _outcome(self, state: TaskState) -> Body:
        raise NotImplementedError

    # -- waiting

    async def _wait(self) -> Body | None:
        """Until the next look is due, or something has happened. Returns the result if that is known now."""
        began = self._loop.time()
        self._check_time(began)
        wanted = self._state.seconds_between_looks
        if wanted is None:
            wanted, self._pause = self._pause, min(SLOWEST_LOOK, self._pause * 2)
        pause = min(max(wanted, LEAST_PAUSE), LONGEST_PAUSE, self._left(began))
        news = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({news, self._beside} if self._beside else {news}, timeout=pause, return_when=_FIRST)
        finally:
            news.cancel()
        self._changed.clear()
        if self._state.status == INPUT_REQUIRED:
            self._asking = min(LONGEST_ASKING, self._asking + self._loop.time() - began)
        beside = self._beside
        if beside is None or not beside.done():
            return None
        self._beside, self._pause = None, FIRST_LOOK
        try:
            return beside.result()
        except BridgeError as error:
            await self._beside_failed(error)
            return None

    def _left(self, now: float) -> float:
        return self._began + self._total + self._asking - now

    def _check_time(self, now: float) -> None:
        if self._left(now) <= 0:
            raise UpstreamTimeout(self._call.upstream, self._total)
        lives = self._state.seconds_to_live
        if lives is not None and now > self._began + lives + TTL_GRACE:
            raise TaskLost(self._call.upstream, f"the task that ran the call did not end in its {lives:g} s to live")

    # -- asking the server

    async def _patiently(self, method: str, **params: object) -> Body:
        """Ask about the task; what fails on the way there is tried again, since the task is not lost by that."""
        wait, misses = FIRST_RETRY, 0
        while True:
            try:
                return await self._request(method, **params)
            except UpstreamAnswered as error:
                if method != "tasks/get":
                    raise
                self._state = TaskState(self._state.id, FAILED)
                said = _message_of(error)
                raise TaskLost(self._call.upstream, f"it lost the task that ran the call: {said}") from error
            except (UpstreamUnavailable, UpstreamGone, UpstreamTimeout, UpstreamHttpError, Overloaded) as error:
                misses += 1
                if misses >= MISSES or _is_final(error):
                    raise
            self._check_time(self._loop.time())
            await asyncio.sleep(wait)
            wait *= 2

    async def _request(self, method: str, **params: object) -> Body:
        call, id_ = self._call, self._state.id
        about = Call(method, call.upstream, id_, Body(encode({"taskId": id_, **params})), call.meta)
        about.client, about.extensions = call.client, call.extensions
        about.log_level, about.update = call.log_level, call.update
        return await self._upstream.request(about)

    # -- telling the client

    def _on_update(self, method: str, params: Raw) -> None:
        self._has_progress |= method == "notifications/progress"
        self._update(method, params)

    def _take_state(self, state: TaskState) -> None:
        """Take a new state; a client that wants progress, and gets none of the server's own, hears of it."""
        last, self._state = self._state, state
        if not self._call.wants_progress or self._has_progress or state.has_ended:
            return
        now = self._loop.time()
        if (state.status, state.text) != (last.status, last.text) or now - self._progress_at >= ALIVE_EVERY:
            self._progress, self._progress_at = self._progress + 1, now
            said = {"message": state.text} if state.text else {}
            self._update("notifications/progress", Raw(encode({"progress": self._progress, **said})))


class _Modern(_Following):
    """Questions and outcome stand in the task itself."""

    def __init__(self, call: Call, state: TaskState, upstream: Upstream) -> None:
        super().__init__(call, state, upstream)
        self._answered: set[str] = set()

    def _wants_input(self) -> "asyncio.Task[Body | None] | None":
        if "inputRequests" not in self._looked:
            return None  # the answer that made the task does not have them
        questions = read_questions(self._call.upstream, self._looked)
        new = {key: question for key, question in questions.items() if key not in self._answered}
        return self._loop.create_task(self._answer(new)) if new else None

    async def _answer(self, questions: dict[str, Question]) -> None:
        """Put what is new and hand the answers in. A key stands for one question all through the task."""
        self._upstream.declared.question_limits.admit(questions.values())
        answers = await ask_all(self._call, questions)
        self._answered |= questions.keys()
        await self._patiently("tasks/update", inputResponses=answers)

    async def _beside_failed(self, error: BridgeError) -> None:
        if not isinstance(error, UpstreamAnswered):
            raise error
        # It does not want the answers any more; the next look tells why.

    async def _outcome(self, state: TaskState) -> Body:
        server = self._call.upstream
        if state.status == COMPLETED:
            result = Body(state.result)
            if not bytes(state.result) or not result.is_object:
                raise UpstreamGarbled(server, "its completed task has no result")
            return result
        if state.status == FAILED:
            raise UpstreamAnswered(server, bytes(state.error) or _NO_ERROR)
        raise TaskLost(server, _cancelled(state))


class _Legacy(_Following):
    """The outcome is asked for; questions come as requests, on the stream of the one that asks for it."""

    def __init__(self, call: Call, state: TaskState, upstream: Upstream) -> None:
        super().__init__(call, state, upstream)
        self._may_ask_early = True

    def _wants_input(self) -> "asyncio.Task[Body | None] | None":
        return self._loop.create_task(self._result()) if self._may_ask_early else None

    async def _beside_failed(self, error: BridgeError) -> None:
        if isinstance(error, UpstreamAnswered):
            self._may_ask_early = False  # it wants to be asked at the end only, or that was the end: looking tells

    async def _outcome(self, state: TaskState) -> Body:
        if state.status not in (COMPLETED, FAILED):
            raise TaskLost(self._call.upstream, _cancelled(state))
        if self._beside is not None:
            with suppress(BridgeError):  # asked too early, perhaps; what it says now counts
                result = await self._beside
                if result is not None:
                    return result
        return await self._result(patiently=True)

    async def _result(self, *, patiently: bool = False) -> Body:
        result = await (self._patiently("tasks/result") if patiently else self._request("tasks/result"))
        meta = result.inner("_meta")
        if meta is not None and RELATED_TASK in meta:
            meta.drop(RELATED_TASK)
            if meta.fields:
                result.put("_meta", meta)
            else:
                result.drop("_meta")
        return result


_FIRST = asyncio.FIRST_COMPLETED
_NO_ERROR = b'{"code":-32603,"message":"The task failed"}'


def _cancelled(state: TaskState) -> str:
    return f"the task that ran the call was cancelled there: {state.text or 'it does not say why'}"


def _is_final(error: BridgeError) -> bool:
    """Trying again tells nothing new."""
    return isinstance(error, UpstreamHttpError) and error.status < 500 and error.status not in (408, 429)


def _message_of(error: UpstreamAnswered) -> str:
    try:
        return Body(error.error).text("message")[:300]
    except (ValueError, KeyError):
        return "it does not say why"
