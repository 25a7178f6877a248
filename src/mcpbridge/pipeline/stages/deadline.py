"""The time that a call has: deadlines of its own where its tool has such, and from when on they count.

They are enforced where the call is sent (`protocol/deadlines.py`): no answer and no progress for so long, or so long in
all. What a call waits before that is part of it: whoever makes it wait for the first time notes by when it must be done
(`Call.deadline`), and what is left then goes with it. Only a call that may be tried again has its time counted from the
beginning. A tool with nothing of that has no stage.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Raw

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts


class Deadline:
    """Makes the stages: the deadlines of calls."""

    def __init__(self, idle_of: Callable[[str], float]) -> None:
        """`idle_of`: seconds for a call to a server, where its tool has no time of its own."""
        self._idle_of = idle_of

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """One for tools that have their own times, or are tried again."""
        if tool is None or (options.timeouts is None and options.retry.tries <= 1):
            return None
        idle = options.timeouts.idle if options.timeouts is not None else self._idle_of(tool.server)
        return _Timed(options.timeouts, idle if options.retry.tries > 1 else 0.0)


class _Timed:
    """Stage: sets the deadlines of one tool's calls. `seconds`: 0 when its time need not be counted from here on."""

    def __init__(self, timeouts: Timeouts | None, seconds: float) -> None:
        self._timeouts, self._seconds = timeouts, seconds
        self._clock = asyncio.get_running_loop().time

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """No coroutine of its own: every call would pay for it."""
        if call.sent is not None:  # its time counts already
            return proceed(call)
        call.timeouts = self._timeouts
        if self._seconds and not call.deadline:  # else it has waited for another bridge
            call.deadline = self._clock() + self._seconds
        return proceed(call)

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        call.timeouts = self._timeouts
        if self._seconds:
            call.deadline = self._clock() + self._seconds
        return True
