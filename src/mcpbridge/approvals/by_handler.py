"""Asks a function of the program that the bridge runs in."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Literal

import anyio.to_thread
import structlog

from mcpbridge.approvals.request import ApprovalRequest, Verdict
from mcpbridge.model import Call

__all__ = ["ApprovalHandler", "HandlerApprover", "Said"]

log = structlog.get_logger("mcpbridge.approvals")

Said = bool | Literal["session"] | None
"""True: once. "session": the same call again in this session. None: it does not decide, ask the next."""

ApprovalHandler = Callable[[ApprovalRequest], Said | Awaitable[Said]]


class HandlerApprover:
    """Approver: a function. One that is not async runs in a thread of its own, so it may wait for a person."""

    name = "handler"

    def __init__(self, handler: ApprovalHandler) -> None:
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object whose `__call__` is async
        )

    def reaches(self, call: Call) -> bool:
        """It is there. See `Approver`."""
        return True

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        """Call the function. What it raises is a no. See `Approver`."""
        try:
            said = (
                self._handler(request)
                if self._is_async
                else await anyio.to_thread.run_sync(self._handler, request, abandon_on_cancel=True)
            )
            if inspect.isawaitable(said):
                said = await said
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
