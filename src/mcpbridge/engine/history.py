"""What the call log keeps beside calls: the timeline of a bridge, and what was counted in each minute.

The timeline has the sessions of clients, the states of servers, changes of lists and of settings. Each is an event in
the log, and is published under the same name for those who listen. A server that comes and goes all the time must not
fill the log: of each source so many are written in a minute, then one that says so.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.version import __version__
from mcpbridge.core.events import EventBus
from mcpbridge.core.model import BRIDGE
from mcpbridge.engine.audit_trail import AuditTrail
from mcpbridge.pipeline.observability.metrics import Metrics
from mcpbridge.pipeline.observability.minutes import Minutes
from mcpbridge.pipeline.observability.recorder import Recorder
from mcpbridge.storage.call_log.log import CallLog

STARTED, STOPPED = "bridge.started", "bridge.stopped"
NOT_RECORDED = "calls.not_recorded"
"""Calls that came faster than they can be recorded at little cost; they are in the sums of their minute."""
SUPPRESSED = "events.suppressed"

MOST_A_MINUTE = 30
"""Events of one source: a server, or all clients of one name."""
_MOST_SOURCES = 1000
_MINUTE = 60.0
_RECOVER_AFTER = 2.0
"""Seconds after which calls that a killed process had under way are looked for: not while the bridge starts."""


class History:
    """Writes down what happens, and what is counted. For one event loop."""

    def __init__(
        self,
        log: CallLog,
        recorder: Recorder,
        metrics: Metrics,
        events: EventBus,
        trail: AuditTrail | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._recorder, self._events, self._clock = log, recorder, events, clock
        self._trail = trail
        self._minutes = Minutes(metrics)
        self._recorded = 0
        self._counts: dict[str, int] = {}
        """By source, how many events there were in this minute."""
        self._minute = 0
        self._is_ending = False

    @property
    def _is_on(self) -> bool:
        return self._recorder.recorded.grade != "off"

    def note(self, kind: str, facts: Mapping[str, object]) -> None:
        """Something has happened; see `CallLog.append_event` for the facts."""
        if self._trail is not None:
            self._trail.note_event(kind, facts)
        if self._is_ending or not self._is_on or not self._admits(facts):
            return
        if self._counts[_source(facts)] > MOST_A_MINUTE:
            detail = f"more than {MOST_A_MINUTE} events in a minute"
            facts = {**{name: facts[name] for name in ("server", "client") if name in facts}, "detail": detail}
            kind = SUPPRESSED
        self._write(kind, facts)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Writes down every minute what was counted; the rest is written at the end."""
        tasks = OwnedTasks()
        async with tasks.running():
            if self._is_on:
                self._write(STARTED, {"detail": __version__})
            tasks.spawn(self._keep())
            try:
                yield
            finally:
                self._write_minute(self._clock())

    def end(self) -> None:
        """The bridge stops: what happens to its servers from now on is part of that."""
        if self._is_on and not self._is_ending:
            self._write(STOPPED, {})
        self._is_ending = True

    async def _keep(self) -> None:
        await anyio.sleep(_RECOVER_AFTER)
        if self._is_on:
            self._log.recover()
        while True:
            now = self._clock()
            await anyio.sleep(_MINUTE - now % _MINUTE)
            self._write_minute(now)

    def _write_minute(self, at: float) -> None:
        """Also where nothing is recorded: what was counted then must not count as of a later minute."""
        counted, recorded = self._minutes.take(at), self._recorder.calls
        if self._is_on:
            self._log.append_minutes(counted)
        # Calls that named a tool that there is not are counted as the bridge's own, and never recorded.
        calls = sum(minute.calls for minute in counted if minute.tool or minute.server != BRIDGE)
        if self._recorder.recorded.grade == "history" and calls > recorded - self._recorded:
            self._write(NOT_RECORDED, {"calls": calls - (recorded - self._recorded), "at": at - at % _MINUTE})
        self._recorded = recorded

    def _admits(self, facts: Mapping[str, object]) -> bool:
        """Whether one more event of its source is written, or that there were too many."""
        minute = int(self._clock() // _MINUTE)
        if minute != self._minute:
            self._minute = minute
            self._counts.clear()
        source = _source(facts)
        count = self._counts.get(source, 0)
        if count > MOST_A_MINUTE or (not count and len(self._counts) >= _MOST_SOURCES):
            return False
        self._counts[source] = count + 1
        return True

    def _write(self, kind: str, facts: Mapping[str, object]) -> None:
        self._log.append_later(kind, facts)
        if self._events.subscribers:
            self._events.publish(kind, dict(facts), session=str(facts.get("session", "")))


def _source(facts: Mapping[str, object]) -> str:
    return f"{facts.get('server', '')} {facts.get('client', '')}"
