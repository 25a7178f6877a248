"""What a legacy server asks in the middle of a call: find whose call it is, put the question, send the answer.

Over HTTP a question comes on the stream of its call. On any other channel it names no call, so it belongs to the one
client whose calls run; the supervisor sees to it that there is only one. A question that belongs to nobody is refused,
never put to somebody else.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeGuard

from msgspec import Raw, Struct

from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import (
    LIST_ROOTS,
    NO_CAPABILITIES,
    QUESTIONS,
    Elicitor,
    Question,
    QuestionRefused,
    Unreachable,
    question_refusal,
)
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.error_codes import INTERNAL_ERROR, INVALID_REQUEST
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, Frame, encode_error, encode_response
from mcpbridge.protocol.peer import Peer
from mcpbridge.upstream.concurrency import takes_slot
from mcpbridge.upstream.session.tasks import RELATED_TASK, TaskBook, related_task

log = get_logger("mcpbridge.questions")

MAX_OPEN = 32
"""Questions of one server that may be open at a time; more are refused."""


class _Open(Struct, eq=False):
    """A question that waits for its answer."""

    task: asyncio.Task[None]
    calls: list[Call]
    """Those under way that it may belong to; empty when it belongs to none, or to the session."""
    method: str


class Questions:
    """The questions of one session. `asked` and `withdrawn` are its peer's `on_request` and `on_withdrawn`."""

    def __init__(
        self,
        name: str,
        *,
        running: Callable[..., list[Call]],
        beside: Callable[[], Elicitor | None],
        tasks: TaskBook,
        roots: bytes = b"",
        rest: Callable[[Call], AbstractContextManager[None]] = lambda call: nullcontext(),
        heard: Callable[[str], None] = lambda method: None,
        bounds: Callable[[Question], QuestionRefused | None] = lambda question: None,
    ) -> None:
        """Where to look for whom to ask.

        `running`: the calls under way, oldest first; given others, those, if they can be meant. `beside`: the one
        client that may be asked for its roots outside of any call, if there is exactly one. `roots`: the result of
        `roots/list` that the configuration gives.
        `tasks` are those that are followed here; what belongs to one names it.
        `rest` is entered while a call waits for an answer. `heard` is called with every question that is one for a
        client, also of those that are refused. `bounds` says why a question must not be put, whoever the client is.
        """
        self._tasks = tasks
        self._rest, self._heard, self._bounds = rest, heard, bounds
        self._name = name
        self._running, self._beside, self._roots = running, beside, roots
        self._peer: Peer | None = None
        self.open: dict[bytes, _Open] = {}
        """By id of the request: what somebody is being asked now."""
        self.declared = NO_CAPABILITIES
        """What this session told the server that can be asked: nothing before the handshake, or without one."""
        self.has_missed_roots = False
        """It asked for roots when there was nobody to ask; it may be told to ask again."""

    def __repr__(self) -> str:
        return f"<Questions {self._name!r} {len(self.open)} open>"

    def attach(self, peer: Peer) -> None:
        """The peer to answer through."""
        self._peer = peer

    def asked(self, frame: Frame, via: bytes, *, is_second_look: bool = False) -> bool:
        """Take a request of the server. False when it is no question at all."""
        if frame.method not in QUESTIONS:
            return False
        id_ = bytes(frame.id)
        if frame.method == LIST_ROOTS and self._roots:
            self._reply(encode_response(id_, self._roots))
            return True
        self._heard(frame.method)  # first: whoever comes from now on is to be kept apart
        params = frame.params if bytes(memoryview(frame.params)[:1]) else Raw(EMPTY_OBJECT)
        question = Question(self._name, frame.method, params)
        refused = None if is_second_look else self._bounds(question)
        if refused := refused or question_refusal(question, self.declared):
            self._refuse(id_, question, refused)
            return True
        if not is_second_look and self._is_of_new_task(params):
            # The answer that made the task came in the same read: whoever waited for it will know it in a moment.
            asyncio.get_running_loop().call_soon(partial(self.asked, frame, via, is_second_look=True))
            return True
        calls = self._calls_of(via, params)
        is_of_session = frame.method == LIST_ROOTS and not via
        elicitors = [call.client for call in reversed(calls)]
        beside = self._beside() if is_of_session else None
        if beside is not None and (not elicitors or beside.owner is elicitors[0].owner):
            elicitors.append(beside)
        if not elicitors:
            self.has_missed_roots |= frame.method == LIST_ROOTS
            text = f"{frame.method} belongs to no call of a client; it can be asked only while one runs"
            self._reply(encode_error(id_, INVALID_REQUEST, text))
        elif id_ in self.open:
            # An answer to the second would be taken for one to the first.
            log.warning("server uses an id twice; ignoring the second question", upstream=self._name)
        elif len(self.open) >= MAX_OPEN:
            self._reply(encode_error(id_, INTERNAL_ERROR, f"{MAX_OPEN} questions are open; more are not put"))
        else:
            task = asyncio.get_running_loop().create_task(self._put(id_, question, elicitors, calls))
            # Servers ask for roots when they begin, whatever runs then; the answer is of use after that call too. Only
            # a client that takes no requests gives it within its call or not at all.
            bound = [] if is_of_session and not elicitors[0].relays else list(calls)
            opened = self.open[id_] = _Open(task, bound, frame.method)
            task.add_done_callback(lambda _: self._forget(id_, opened))
        return True

    def withdrawn(self, id_: bytes) -> None:
        """The server does not want the answer any more."""
        opened = self.open.get(id_)
        if opened is not None:
            opened.task.cancel()

    def over(self, call: Call) -> None:
        """A call has ended: what only it can have asked is of no use any more, and whoever was asked is notified."""
        for id_, opened in list(self.open.items()):
            if call in opened.calls:
                opened.calls.remove(call)
                if not opened.calls and not opened.task.done():
                    opened.task.cancel()
                    self.has_missed_roots |= opened.method == LIST_ROOTS
                    self._reply(encode_error(id_, INVALID_REQUEST, "The call that this belongs to is over"))

    def end(self) -> None:
        """The session is over: nothing can be answered."""
        for opened in list(self.open.values()):
            opened.task.cancel()

    def _forget(self, id_: bytes, opened: _Open) -> None:
        if self.open.get(id_) is opened:
            del self.open[id_]

    def _is_of_new_task(self, params: Raw) -> bool:
        about = related_task(params)
        makes_tasks = any(call.needs_task or call.takes_task for call in self._running())
        return bool(about) and makes_tasks and self._tasks.get(about) is None

    def _calls_of(self, via: bytes, params: Raw) -> list[Call]:
        """The calls that a question may belong to, the likeliest last; none when that cannot be told."""
        peer = self._peer
        context = peer.context_of(via) if via and peer is not None else None
        about = related_task(params) or (context.target if _is_about_task(context) else "")
        if (task := self._tasks.get(about)) is not None:
            meanwhile = [call for call in self._running() if _is_about_task(call) and call.target == about]
            return [*meanwhile, task.call]
        if via and peer is not None:
            return [context] if isinstance(context, Call) else []
        if peer is None:
            return []
        # One that was answered a moment ago, in the same read, has nothing more to ask.
        waiting = [call for call in self._running() if peer.waits_for(call)]
        able = [call for call in waiting if call.client.capabilities]
        if about:  # of a task that is not followed: only who asks for it can be meant
            able = [call for call in able if _is_about_task(call) and call.target == about]
        elif not able:
            able = self._running([call for call in self._tasks.calls if call.client.capabilities])
        elif len(able) < len(waiting):
            return []  # calls of others run beside them, who cannot be asked: it may be of one of those
        owners = {id(call.client.owner) for call in able}
        # Among calls of one client the newest is the likely one; whichever it is, the same person answers.
        return able if len(owners) == 1 else []

    async def _put(self, id_: bytes, question: Question, elicitors: Sequence[Elicitor], calls: list[Call]) -> None:
        """`elicitors`: the one client, by each way that may lead to it; the likeliest first."""
        peer = self._peer
        try:
            if refused := question_refusal(question, elicitors[0].capabilities):
                raise refused
            if peer is not None and calls:
                # A task may ask while no request about it is under way: then no slot is taken.
                has_slot = calls[0] not in self._tasks.calls and takes_slot(calls[0])
                with peer.held(calls), self._rest(calls[0]) if has_slot else nullcontext():
                    result = await _ask_first(elicitors, question)
            else:
                result = await _ask_first(elicitors, question)
            self._reply(encode_response(id_, _of_task(result, question.params)))
        except QuestionRefused as refused:
            self.has_missed_roots |= question.method == LIST_ROOTS and isinstance(refused, Unreachable)
            self._refuse(id_, question, refused)
        except Exception:
            log.exception("question failed", upstream=self._name, method=question.method)
            text = "The bridge failed to put the question; its log has the details"
            self._reply(encode_error(id_, INTERNAL_ERROR, text))

    def _refuse(self, id_: bytes, question: Question, refused: QuestionRefused) -> None:
        log.info("question refused", upstream=self._name, method=question.method, reason=str(refused))
        self._reply(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, refused.error))

    def _reply(self, answer: bytes) -> None:
        if self._peer is not None:
            self._peer.reply(answer)


async def _ask_first(elicitors: Sequence[Elicitor], question: Question) -> Raw:
    """The answer by the first way that leads to the client (a call's stream may be broken, or not be read)."""
    *first, last = elicitors
    for elicitor in first:
        try:
            return await elicitor.ask(question)
        except Unreachable:
            continue
    return await last.ask(question)


def _is_about_task(call: object) -> TypeGuard[Call]:
    return isinstance(call, Call) and call.method.startswith("tasks/")


def _of_task(result: Raw, params: Raw) -> Raw:
    """The answer to a question: one that names a task must be answered with the same name (2025-11-25, tasks)."""
    if not related_task(params):
        return result
    answer, asked = Body(result), Body(params).inner("_meta")
    meta = answer.inner("_meta") or Body()
    meta.put(RELATED_TASK, asked.get(RELATED_TASK) if asked is not None else None)
    answer.put("_meta", meta)
    return Raw(bytes(answer.data))
