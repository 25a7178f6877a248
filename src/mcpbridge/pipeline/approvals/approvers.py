"""The ways to ask a person: the client's user with a form, or a function of the program that the bridge runs in.

The form is the same elicitation that servers use, in the bridge's own name: to the client all questions are the
bridge's, so each message begins with who asks. A server cannot ask in the bridge's name, since its questions begin with
its own, and no server's name has the colon and the blank that are used here, even if it is called as the bridge is.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Literal

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import ApprovalUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.core.elicitation import ELICIT, Question, QuestionRefused
from mcpbridge.core.model import Call
from mcpbridge.pipeline.approvals.request import ApprovalRequest, Verdict, readable_arguments
from mcpbridge.protocol.jsonrpc import encode

_DECISION = {
    "type": "string",
    "title": "Decision",
    "description": "Whether the bridge may make this call.",
    "oneOf": [
        {"const": "once", "title": "Yes, this once"},
        {"const": "session", "title": "Yes, and the same call again in this session"},
        {"const": "no", "title": "No"},
    ],
}
_FORM = {"type": "object", "properties": {"decision": _DECISION}, "required": ["decision"]}


class _Content(msgspec.Struct):
    decision: object = None


class _Answer(msgspec.Struct):
    action: str
    content: _Content | None = None


_decode = msgspec.json.Decoder(_Answer).decode


class ClientApprover:
    """Approver: whoever sits at the client that called."""

    name = "client"

    def __init__(self, bridge: str) -> None:
        """`bridge`: the name that the bridge goes by."""
        self._asker = f"{bridge}: approval"

    def reaches(self, call: Call) -> bool:
        """The client said that it shows forms. See `Approver`."""
        return call.client.capabilities.form

    def may_decide(self, request: ApprovalRequest) -> bool:
        """Not where others approve: whoever sits at the client makes the call. See `Approver`."""
        return request.approve_by is None

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        """Show the form. None: the client does not, after all. See `Approver`."""
        params = {"mode": "form", "message": _message(request), "requestedSchema": _FORM}
        try:
            answer = await call.client.ask(Question(self._asker, ELICIT, Raw(encode(params))))
        except QuestionRefused:
            return None  # nobody has seen it
        return _verdict(answer)

    async def keep(self, request: ApprovalRequest) -> str:
        """Nothing can be answered once the form is gone. See `Approver`."""
        return ""


def _message(request: ApprovalRequest) -> str:
    why = f"\nWhy you are asked: {request.reason}" if request.reason else ""
    who = f" for the client {request.client[:60]!r}" if request.client else ""
    name = request.tool.removeprefix(f"{request.server}/")
    return (
        f"The bridge itself asks: may it call the tool {name!r} of the server {request.server!r}{who}?{why}\n"
        f"Arguments:\n{readable_arguments(request.arguments_json, request.digest)}"
    )


def _verdict(answer: Raw) -> Verdict:
    """Only what is a yes without doubt is one."""
    try:
        said = _decode(answer)
    except (msgspec.DecodeError, RecursionError):
        return Verdict("", "client", "was not approved: the client's answer cannot be read")
    if said.action != "accept":
        return Verdict("", "client", "" if said.action == "decline" else "was not approved: the question was dismissed")
    decision = said.content.decision if said.content is not None else None
    if decision == "once":
        return Verdict("once", "client")
    if decision == "session":
        return Verdict("session", "client")
    return Verdict("", "client")


log = get_logger("mcpbridge.approvals")

Said = bool | Literal["session"] | None
"""True: once. "session": the same call again in this session. None: it does not decide, ask the next."""

ApprovalHandler = Callable[[ApprovalRequest], Said | Awaitable[Said]]


class HandlerApprover:
    """Approver: a function. One that is not async runs in a thread of its own, so it may wait for a person.

    It may wait for longer than the call and the bridge do: the thread keeps no process from ending.
    """

    name = "handler"

    def __init__(self, handler: ApprovalHandler) -> None:
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object whose `__call__` is async
        )

    def reaches(self, call: Call) -> bool:
        """It is there. See `Approver`."""
        return True

    def may_decide(self, request: ApprovalRequest) -> bool:
        """The program that the bridge runs in is its operator. See `Approver`."""
        if request.approve_by is None:
            return True
        from mcpbridge.pipeline.approvals.decider import OPERATOR, objection

        return not objection(request, OPERATOR, lambda principal, identity: ())

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        """Call the function. What it raises is a no; `ApprovalUnavailable` is reported as it is. See `Approver`."""
        try:
            said = self._handler(request) if self._is_async else await _in_thread(self._handler, request)
            if inspect.isawaitable(said):
                said = await said
        except ApprovalUnavailable:  # it knows why nobody can be asked
            raise
        except Exception:  # the handler's own fault, whatever it is; the call does not pass
            log.exception("the approval handler failed", tool=request.tool, id=request.id)
            return Verdict("", self.name, "was not approved: the program's approval handler failed")
        if said is None:
            return None
        if said is True:
            return Verdict("once", self.name)
        return Verdict("session" if said == "session" else "", self.name)

    async def keep(self, request: ApprovalRequest) -> str:
        """The function is not asked again. See `Approver`."""
        return ""


async def _in_thread(handler: ApprovalHandler, request: ApprovalRequest) -> Said | Awaitable[Said]:
    """Call it in a daemon thread: those of a pool are waited for at the end of the process. Raises what it raises."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[tuple[Said | Awaitable[Said], BaseException | None]] = loop.create_future()

    def settle(answer: Said | Awaitable[Said], error: BaseException | None) -> None:
        if not outcome.done():
            outcome.set_result((answer, error))

    def run() -> None:
        said, failed = None, None
        try:
            said = handler(request)
        except BaseException as error:  # noqa: BLE001 - it is the caller's to judge
            failed = error
        with suppress(RuntimeError):  # the loop has ended meanwhile, and with it whoever asked
            loop.call_soon_threadsafe(settle, said, failed)

    Thread(target=copy_context().run, args=(run,), name="approval handler", daemon=True).start()
    said, failed = await outcome
    if failed is not None:
        raise failed if isinstance(failed, Exception) else RuntimeError(f"it ended with {failed!r}")
    return said
