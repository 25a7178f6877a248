"""What a legacy server asks in the middle of a call: find whose call it is, put the question, send the answer.

Over HTTP a question comes on the stream of its call. On any other channel it names no call, so it belongs to the one
client whose calls run; the supervisor sees to it that there is only one (spec 2.3 and 2.9 of the project's notes). A
question that belongs to nobody is refused, never put to somebody else.
"""

import asyncio
from collections.abc import Callable

import structlog
from msgspec import DecodeError, Raw

from mcpbridge.interaction import ELICIT, LIST_ROOTS, QUESTIONS, Asker, Question, QuestionRefused
from mcpbridge.model import Call
from mcpbridge.wire.body import Body
from mcpbridge.wire.codes import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from mcpbridge.wire.frame import EMPTY_OBJECT, Frame, encode_error, encode_response
from mcpbridge.wire.peer import Peer

__all__ = ["MAX_OPEN", "Questions"]

log = structlog.get_logger("mcpbridge.questions")

MAX_OPEN = 32
"""Questions of one server that may be open at a time; more are refused."""


class Questions:
    """The questions of one session. `asked` and `withdrawn` are its peer's `on_request` and `on_withdrawn`."""

    def __init__(
        self,
        name: str,
        *,
        running: Callable[[], list[Call]],
        beside: Callable[[], Asker | None],
        roots: bytes = b"",
    ) -> None:
        """Where to look for whom to ask.

        `running`: the calls under way, oldest first. `beside`: the one client that may be asked for its roots outside
        of any call, if there is exactly one. `roots`: the result of `roots/list` that the configuration gives.
        """
        self._name = name
        self._running, self._beside, self._roots = running, beside, roots
        self._peer: Peer | None = None
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

    @property
    def is_open(self) -> bool:
        """Somebody is being asked something."""
        return bool(self._tasks)

    def attach(self, peer: Peer) -> None:
        """The peer to answer through."""
        self._peer = peer

    def asked(self, frame: Frame, via: bytes) -> bool:
        """Take a request of the server. False when it is no question at all."""
        if frame.method not in QUESTIONS:
            return False
        id_ = bytes(frame.id)
        if frame.method == LIST_ROOTS and self._roots:
            self._reply(encode_response(id_, self._roots))
            return True
        call = self._call_of(via)
        asker = call.client if call is not None else self._beside() if frame.method == LIST_ROOTS else None
        if asker is None:
            text = f"{frame.method} belongs to no call of a client; it can be asked only while one runs"
            self._reply(encode_error(id_, INVALID_REQUEST, text))
        elif len(self._tasks) >= MAX_OPEN or id_ in self._tasks:
            self._reply(encode_error(id_, INTERNAL_ERROR, f"{MAX_OPEN} questions are open; more are not put"))
        else:
            params = frame.params if bytes(memoryview(frame.params)[:1]) else Raw(EMPTY_OBJECT)
            putting = self._put(id_, Question(self._name, frame.method, params), asker, call)
            self._tasks[id_] = asyncio.get_running_loop().create_task(putting)
        return True

    def withdrawn(self, id_: bytes) -> None:
        """The server does not want the answer any more."""
        task = self._tasks.get(id_)
        if task is not None:
            task.cancel()

    def end(self) -> None:
        """The session is over: nothing can be answered."""
        for task in list(self._tasks.values()):
            task.cancel()

    def _call_of(self, via: bytes) -> Call | None:
        """The call that a question belongs to; None when that cannot be told."""
        peer = self._peer
        if via and peer is not None:
            context = peer.context_of(via)
            return context if isinstance(context, Call) else None
        able = [call for call in self._running() if call.client.profile]
        owners = {id(call.client.owner) for call in able}
        # Among calls of one client the newest is the likely one; whichever it is, the same person answers.
        return able[-1] if len(owners) == 1 else None

    async def _put(self, id_: bytes, question: Question, asker: Asker, call: Call | None) -> None:
        peer = self._peer
        try:
            if reason := _refusal(question, asker):
                raise QuestionRefused(reason, METHOD_NOT_FOUND)
            if peer is not None and call is not None:
                with peer.held(call):
                    result = await asker.ask(question)
            else:
                result = await asker.ask(question)
            answer = encode_response(id_, result)
        except QuestionRefused as refused:
            log.info("question refused", upstream=self._name, method=question.method, reason=str(refused))
            answer = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, refused.error)
        except Exception:
            log.exception("question failed", upstream=self._name, method=question.method)
            answer = encode_error(id_, INTERNAL_ERROR, "The bridge failed to put the question; its log has the details")
        finally:
            self._tasks.pop(id_, None)
        self._reply(answer)

    def _reply(self, answer: bytes) -> None:
        if self._peer is not None:
            self._peer.reply(answer)


def _refusal(question: Question, asker: Asker) -> str:
    """Why the question must not be put; empty when it may."""
    try:
        params = Body(question.params)
        if question.method == ELICIT and "message" not in params:
            return "elicitation/create needs a message"
        return asker.profile.refusal(question.method, params)
    except DecodeError as error:
        return f"Invalid params: {error}"
