"""Asks a function of the program that the bridge runs in."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import Literal

from mcpbridge.approvals.request import ApprovalRequest, Verdict
from mcpbridge.errors import ApprovalUnavailable
from mcpbridge.logs import get_logger
from mcpbridge.model import Call

__all__ = ["ApprovalHandler", "HandlerApprover", "Said"]

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

    async def ask(self, request: ApprovalRequest, call: Call) -> Verdict | None:
        """Call the function. What it raises is a no; `ApprovalUnavailable` is told as it is. See `Approver`."""
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

    def settle(said: Said | Awaitable[Said], error: BaseException | None) -> None:
        if not outcome.done():
            outcome.set_result((said, error))

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
