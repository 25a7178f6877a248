"""Write down in the call log that a call is about to be sent.

Were the bridge killed now, the log would say so: only of a call that was sent does nobody know whether it took effect.
So this comes after all waiting. Most calls have an entry in the journal of the log, which costs next to nothing. One
whose content is kept, or for which there is no room, gets a row in place of that: it is sent when the row is in the
file if it may change something, else it does not wait. The record that `observe.py` makes at the end replaces both.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from msgspec import Raw

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.observability.call_records import Decides, RuleOf, deciding, interrupted, sent_call
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.storage.call_log.format import CallRecord, SentCall

_NOTHING = Raw()
_PATIENCE = 0.5
"""Seconds that a call waits for its row: a disk that hangs, or another process that writes, must not hold up calls."""


class RunningLog(Protocol):
    """Where calls under way are written down; see `CallLog`."""

    def begin(self, record: CallRecord, written: Callable[[], object] | None = None) -> int:
        """Have it written, at once if `written` is to be called then; returns its number, 0 if it has none."""
        ...

    def write_ahead(self, call: SentCall, record: Callable[[], CallRecord]) -> int:
        """Have it in the journal, in this moment; returns its number, 0 if that cannot be."""
        ...

    def take_back(self, number: int) -> None:
        """The call whose entry was the last one was not sent."""
        ...

    def resumed(self, number: int) -> None:
        """It is sent again."""
        ...

    def ended(self, number: int) -> None:
        """It is over."""
        ...


class RecordRunning:
    """Makes the stage of each tool, and the one of other requests."""

    def __init__(self, log: RunningLog | None, rule_of: RuleOf | None = None, role_of: RuleOf | None = None) -> None:
        """`log` None: calls are not logged. `rule_of`, `role_of`: as in `Observe`."""
        self._log, self._rule_of, self._role_of = log, rule_of, role_of

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """See `StageFactory`."""
        if self._log is None:
            return None
        may_change = tool is not None and options.effect != "read"
        kind = _Journaled if tool is None or not options.log_content else _Recorded if may_change else _RecordedRead
        return kind(self._log, deciding(self._rule_of, self._role_of, tool, options), may_change=may_change)


class _Recorded:
    """The stage of one tool whose content is kept."""

    def __init__(self, log: RunningLog, decides: Decides | None, *, may_change: bool) -> None:
        self._log, self._decides, self._may_change = log, decides, may_change

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        return proceed(call) if call.method.startswith("tasks/") else self._run(call, proceed)

    async def _run(self, call: Call, proceed: CallHandler) -> Body:
        log = self._log
        try:
            if call.sent is not None:  # that was done on the express lane
                pass
            elif call.running:
                log.resumed(call.running)
            else:
                await self._begin(call)
            return await proceed(call)
        finally:
            if call.running:
                log.ended(call.running)

    async def _begin(self, call: Call) -> None:
        record = self._record_of(call)
        if not self._may_change:
            call.running = self._log.begin(record)
            return
        written = asyncio.Event()
        call.running = self._log.begin(record, written.set)
        if call.running:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await written.wait()

    def _record_of(self, call: Call) -> CallRecord:
        keeps_content = call.recorded is not None and call.recorded.keeps_content
        return interrupted(call, time.time(), self._decides, keeps_content=keeps_content)


class _RecordedRead(_Recorded):
    """The same of a tool that only reads: nobody waits until the row is written."""

    def express_sent(self, call: Call, at: float) -> None:
        """See `pipeline/stage.py`."""
        call.running = self._log.begin(self._record_of(call))

    def express_over(self, call: Call) -> None:
        """See `pipeline/stage.py`."""
        if call.running:
            self._log.ended(call.running)


class _Journaled(_Recorded):
    """The stage of calls that have an entry in the journal."""

    async def _begin(self, call: Call) -> None:
        if not self.express_begin(call, _NOTHING):
            await super()._begin(call)

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        call.running = self._log.write_ahead(sent_call(call, self._decides), partial(self._record_of, call))
        return call.running > 0

    def express_unsent(self, call: Call) -> None:
        """See `pipeline/stage.py`."""
        self._log.take_back(call.running)
