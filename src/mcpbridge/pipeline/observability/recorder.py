"""Which calls are recorded in the call log, and which of them are under way.

Every call is (`all`), or as many as cost little (`history`; see `storage/call_log/budget.py`), or none (`off`). Where
several people use the bridge, a history has every call, too (`Recorded.is_whole`). A
call of which `is_open` says so takes a plan that notes the times of its stages (`pipeline/plan.py`); others take the
plain one, and are recorded only if they fail. How many were not recorded follows from what the metrics count.
"""

import asyncio
from collections.abc import Iterable
from time import perf_counter, time

from mcpbridge.core.events import EventBus
from mcpbridge.core.model import Call
from mcpbridge.core.recording import SERVER, Recording, new_uid
from mcpbridge.pipeline.observability.call_records import interrupted, running_call
from mcpbridge.storage.call_log.budget import Budget
from mcpbridge.storage.call_log.format import CallRecord
from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.settings import Recorded

STARTED = "call.started"
"""The event of a call that begins; its data is a `RunningCall`."""

_TICK = 0.25
"""Seconds between two looks at what is spent, and at calls that last."""
_LASTING = 0.1
"""Seconds after which a call that was sent has a row of its own in the history, in case that the bridge is killed."""
_MOST_FAILURES_WAITING = 4000
"""Records that wait, from which on calls that fail are only counted as well."""


class Recorder:
    """Records calls. For one event loop."""

    def __init__(self, log: CallLog, events: EventBus, recorded: Recorded) -> None:
        self.is_open = False
        """The call that begins now is recorded."""
        self.writes_first = False
        """All are, and have a row in the call log before they are sent (`stages/record_running.py`)."""
        self.calls = 0
        """Calls that were recorded."""
        self._log, self._events = log, events
        self._running: dict[int, Call] = {}
        """Those under way that are recorded, by uid, in the order in which they began."""
        self._lasting: dict[int, Call] = {}
        """The same, of those that have a row already."""
        self._timer: asyncio.TimerHandle | None = None
        self._budget: Budget | None = None
        self.configure(recorded)

    def configure(self, recorded: Recorded) -> None:
        """Record so from now on."""
        self.recorded = recorded
        if recorded.grade == "history":
            if recorded.is_whole:
                self._budget = Budget(is_bounded=False)
            elif self._budget is None or not self._budget.is_bounded:
                self._budget = Budget()
        else:
            self._budget = None
        self._log.budget = None if recorded.is_whole else self._budget
        self.writes_first = recorded.grade == "all"
        self.is_open = recorded.grade != "off"

    def keeps_content(self, call: Call, asked: bool | None) -> bool:
        """Whether arguments and result of a call are kept. `asked`: what the configuration says of its tool."""
        return (self.recorded.content and not call.caller.principal) if asked is None else asked

    def begin(self, call: Call, asked: bool | None, sent_at: float = 0.0) -> None:
        """A call begins that is to be recorded. `asked`: as for `keeps_content`.

        `sent_at`: when it was sent, on `time.perf_counter`, if it was already.
        """
        noted = call.recorded
        if noted is None:
            at, keeps = time(), (self.recorded.content and not call.caller.principal) if asked is None else asked
            noted = call.recorded = Recording(new_uid(at), at, perf_counter(), keeps)
        if call.tool is not None:
            noted.asked = call.params.fields.get("arguments", b"")
        self._running[noted.uid] = call
        if self._budget is not None:
            bucket = self._budget.calls
            bucket.left -= 1
            if bucket.left <= 0:
                self.is_open = False
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_TICK, self._look)
        if self._events.subscribers and (started := running_call(call, noted.began)) is not None:
            self._events.publish(STARTED, started, session=started.session, tool=started.tool)
        if sent_at:
            noted.began, noted.sent_at, noted.stage = call.began, sent_at, SERVER

    def ended(self, record: CallRecord) -> None:
        """A call that had begun is over."""
        if self._running.pop(record.uid, None) is None:
            self._lasting.pop(record.uid, None)
        self.calls += 1
        self._log.append(record)

    def failed(self, record: CallRecord) -> None:
        """A call that was not to be recorded has failed."""
        if self._log.waiting < _MOST_FAILURES_WAITING:
            self.calls += 1
            self._log.append(record)

    def running(self) -> Iterable[Call]:
        """Recorded calls under way."""
        return [*self._lasting.values(), *self._running.values()]

    def end(self) -> None:
        """The bridge stops."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        budget = self._budget
        if budget is None:
            return
        budget.fill()
        self.is_open = budget.calls.left > 0 and (self._log.has_room or not budget.is_bounded)
        self._write_lasting()
        if self._running or not (self.is_open and budget.calls.is_full):
            self._timer = asyncio.get_running_loop().call_later(_TICK, self._look)

    def _write_lasting(self) -> None:
        before = perf_counter() - _LASTING
        lasting: list[tuple[int, Call]] = []
        for uid, call in self._running.items():
            noted = call.recorded
            if noted is not None and 0 < noted.sent_at < before:
                lasting.append((uid, call))
        for uid, call in lasting:
            del self._running[uid]
            self._lasting[uid] = call
            noted = call.recorded
            if noted is not None:
                record = interrupted(call, noted.at, noted.decides, keeps_content=noted.keeps_content)
                noted.running = self._log.begin(record)
