"""Write down in the call log that a call is about to be sent.

Were the bridge killed now, the row would say so: only of a call that was sent does nobody know whether it took effect.
So this comes after all waiting, and a call that may change something is sent when the row is in the file. One that only
reads does not wait, and has a row only if it lasts. The record that `observe.py` makes at the end replaces the row.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.observability.call_records import record_of
from mcpbridge.pipeline.stage import Stage
from mcpbridge.protocol.body import Body
from mcpbridge.storage.call_log.format import CallRecord

_PATIENCE = 0.5
"""Seconds that a call waits for its row: a disk that hangs, or another process that writes, must not hold up calls."""


class RunningLog(Protocol):
    """Where calls under way are written down; see `CallLog`."""

    def begin(self, record: CallRecord, written: Callable[[], object] | None = None) -> int:
        """Have it written, at once if `written` is to be called then; returns its number, 0 if it has none."""
        ...

    def resumed(self, number: int) -> None:
        """It is sent again."""
        ...

    def ended(self, number: int) -> None:
        """It is over."""
        ...


class RecordRunning:
    """Makes the stage of each tool, and the one of other requests."""

    def __init__(self, log: RunningLog | None) -> None:
        """`log` None: calls are not logged."""
        self._log = log

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """See `StageFactory`."""
        if self._log is None:
            return None
        may_change = tool is not None and options.effect != "read"
        return _Recorded(self._log) if may_change else _RecordedRead(self._log)


class _Recorded:
    """The stage of one tool."""

    may_change = True

    def __init__(self, log: RunningLog) -> None:
        self._log = log

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        return proceed(call) if call.method.startswith("tasks/") else self._run(call, proceed)

    async def _run(self, call: Call, proceed: CallHandler) -> Body:
        log = self._log
        try:
            if call.sent is not None:  # `express_sent` did that
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
        keeps_content = call.recorded is not None and call.recorded.keeps_content
        record = record_of(call, at=time.time(), outcome="interrupted", keeps_content=keeps_content)
        if not self.may_change:
            call.running = self._log.begin(record)
            return
        written = asyncio.Event()
        call.running = self._log.begin(record, written.set)
        if call.running:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await written.wait()


class _RecordedRead(_Recorded):
    """The same of a tool that only reads: nobody waits until the row is written."""

    may_change = False

    def express_sent(self, call: Call, at: float) -> None:
        """See `pipeline/stage.py`."""
        keeps_content = call.recorded is not None and call.recorded.keeps_content
        record = record_of(call, at=time.time(), outcome="interrupted", keeps_content=keeps_content)
        call.running = self._log.begin(record)

    def express_over(self, call: Call) -> None:
        """See `pipeline/stage.py`."""
        if call.running:
            self._log.ended(call.running)
