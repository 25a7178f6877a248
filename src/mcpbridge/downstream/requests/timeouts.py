"""Clients that stop waiting for a call before it is over.

Whoever cancels a call does not want it done, so it is cancelled at its server. But most clients also send
`notifications/cancelled` when their own timeout is over. The reason distinguishes the two:

1. A cancelled call is cancelled at its server.
2. A call that timed out at its client continues if it already runs at a server (`pipeline/stages/abandoned_calls.py`).
3. A call that timed out while it waited for its turn, for an approval or for an answer of that client is cancelled: it
   has done nothing yet, so nothing is lost.

A client over HTTP that closes the only response which could bring the answer counts as one that timed out. A legacy
client learns where the result is from a log message, the one thing that it can be sent unasked. Nobody is asked
anything about such a call any more.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from mcpbridge.base.units import show_seconds
from mcpbridge.core.elicitation import Elicitor, ElicitorWrapper, Question, QuestionRefused
from mcpbridge.core.model import Call
from mcpbridge.downstream.client import Client, Notify
from mcpbridge.downstream.progress import CallUpdates
from mcpbridge.pipeline.stages.abandoned_calls import AbandonedCall, AbandonedCalls
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode, encode_notification
from mcpbridge.protocol.log_levels import LEVELS
from mcpbridge.results.header_line import uri_of

_TIMEOUT = re.compile(r"time[ds]?[ _-]?out|deadline[ _-]?exceeded", re.IGNORECASE)
_LEVEL = "notice"


def says_timeout(reason: str) -> bool:
    """Whether this reason of a `notifications/cancelled` is a client's own deadline, not somebody's wish.

    What clients say: `timed out after 5s` (SDK for Python, FastMCP), `McpError: MCP error -32001: Request timed out`
    and `SdkError: Request timed out` (SDKs for TypeScript), `context deadline exceeded` (Go), `request timeout` (Rust).
    """
    return _TIMEOUT.search(reason) is not None


class CallAbandoned(Exception):
    """The call is over, and its result is kept: there is nobody to send it to."""


class CallTimeouts:
    """The calls that clients wait for, and what becomes of those that they stopped waiting for."""

    def __init__(self, abandoned: AbandonedCalls, is_running: Callable[[Call], bool]) -> None:
        """`is_running`: a server works on this call right now."""
        self._abandoned, self._is_running = abandoned, is_running
        self.calls: dict[asyncio.Task[Any], Call] = {}
        """Calls of tools by the task that answers them; not those that a hook makes in the same task."""
        self.given_up: dict[asyncio.Task[Any], tuple[Call, Client]] = {}
        """Those that go on without their clients, which are those that could cancel them."""

    def give_up(self, client: Client, task: asyncio.Task[Any]) -> bool:
        """Let the call that this task answers continue without its client. False: it is to be cancelled."""
        requested = self.calls.get(task)
        if requested is None:
            return False
        call = requested.resumes or requested
        is_asked = client.requests is not None and client.requests.is_open
        if is_asked or not self._is_running(call):
            return False
        abandoned = self._abandoned.begin(call)
        if abandoned is None:
            return False
        if task not in self.given_up:
            self.given_up[task] = call, client
            task.add_done_callback(self._ended)
            call.note("late", abandoned.id)
            call.client = _Gone(call.client)
            if isinstance(requested.update, CallUpdates):
                requested.update.go_to(lambda message: False)  # its progress token is not to be named any more
        return True

    async def came_over(self, client: Client) -> None:
        """The session of this client was another bridge's: what is kept for it there is known here from now on."""
        await self._abandoned.came_over(client.principal, client.session)

    async def finished(self, task: asyncio.Task[Any], client: Client, result: Body, notify: Notify) -> None:
        """The call that this task answers has a result: if nobody waits for it, it is kept, and its client is notified.

        Raises:
            CallAbandoned: that is so.
        """
        if task not in self.given_up:
            return
        call, _ = self.given_up[task]
        kept = await self._abandoned.finished(call, result)
        if kept is not None:
            _notify_of_outcome(client, call, _finished_text(call, kept, self._abandoned.lifetime), kept, notify)
        raise CallAbandoned

    def failed(self, task: asyncio.Task[Any], client: Client, error: Exception) -> bool:
        """Whether the call of this client that this task answers was given up, so that nobody is to be sent its error.

        A hook of that call may have made another one, in the same task but as another client.
        """
        call, whose = self.given_up.get(task, (None, None))
        if call is None or whose is not client:
            return False
        if not isinstance(error, CallAbandoned):
            self._abandoned.failed(call, error)
            _notify_of_outcome(
                client, call, f"{_name(call)}, which was not waited for any more, failed: {error}", None, client.push
            )
        return True

    def _ended(self, task: asyncio.Task[Any]) -> None:
        call, _ = self.given_up.pop(task)
        self._abandoned.failed(call)


class _Gone(ElicitorWrapper):
    """The client behind a call that it does not wait for: who it is, but nobody to ask."""

    __slots__ = ("_elicitor",)

    def __init__(self, elicitor: Elicitor) -> None:
        self._elicitor = elicitor

    @property
    def elicitor(self) -> Elicitor:
        return self._elicitor

    @property
    def relays(self) -> bool:
        return False

    async def ask(self, question: Question) -> Raw:
        raise QuestionRefused("The client that called does not wait for this call any more")

    def give_way(self, server: str) -> bool:
        return False


def _name(call: Call) -> str:
    return f"The call of {call.tool.wire if call.tool is not None else call.target}"


def _finished_text(call: Call, abandoned: AbandonedCall, lifetime: float) -> str:
    return (
        f"{_name(call)}, which was not waited for any more, has finished. Make the same call again to get its result, "
        f"or read the resource {uri_of(abandoned.id)}, within {show_seconds(lifetime)}."
    )


def _notify_of_outcome(client: Client, call: Call, text: str, abandoned: AbandonedCall | None, notify: Notify) -> None:
    """Tell a client what became of a call, where it can hear that. A modern one hears only of open requests."""
    if client.modern or (client.log_level and LEVELS.index(client.log_level) > LEVELS.index(_LEVEL)):
        return
    data: dict[str, object] = {"message": text, "tool": call.tool.wire if call.tool is not None else call.target}
    if abandoned is not None:
        data |= {"handle": abandoned.id, "uri": uri_of(abandoned.id)}
    params = encode({"level": _LEVEL, "logger": "mcpbridge", "data": data})
    message = encode_notification("notifications/message", params)
    if notify(message) is False:  # the stream of the call may be gone
        client.push(message)
