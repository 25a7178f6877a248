"""The call log: which tool was called, by whom and with what outcome, in a file that only grows.

Appending never waits: masking, digests and encoding are the database thread's work, a tenth of a second later and many
records at a time. A call that may change something goes to the thread before it is sent (`begin`), so what a killed
process had under way is found there later: what SQLite has written survives the process, though not a loss of power.
If the disk cannot follow, records are dropped and counted. The row is decided in `format.py`, calls under way
in `running.py`, rotation in `retention.py`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mcpbridge.base.log import get_logger
from mcpbridge.storage.settings import CallLogSettings
from mcpbridge.storage.sqlite.database import Database, give_back_room, may_exist

if TYPE_CHECKING:
    from sqlite3 import Connection

    from mcpbridge.storage.call_log.journal import Journal
from mcpbridge.storage.call_log.budget import Budget
from mcpbridge.storage.call_log.format import (
    CallRecord,
    MinuteRecord,
    SentCall,
    insert_calls,
    insert_event,
    insert_minutes,
)
from mcpbridge.storage.call_log.retention import MINUTE_DAYS, RETENTION_INTERVAL, Limits, forget
from mcpbridge.storage.call_log.running import RunningCalls, recover
from mcpbridge.storage.call_log.schema import SCHEMA

log = get_logger("mcpbridge.storage")

_GATHER = 0.1
"""Seconds in which records are gathered into one transaction."""
_GATHER_STEADY = 0.5
"""The same for a history while calls keep coming: a transaction costs as much as five records."""
_MOST_WAITING = 10_000
"""Records that wait at most while the disk is slow."""
_ENDED_SECONDS = 60.0
"""Seconds after which a call that ended without a record of its own, such as a shared run, is under way no more."""
_MOST_BYTES = 64 * 1024**2
"""Bytes of arguments and results that wait with them; one record may be larger."""
_GATHER_EVENTS = 1.0
"""Seconds in which events of the timeline are gathered, if no record comes before."""
_JOURNAL_AGAIN = 60.0
"""Seconds after which a journal that could not be made is tried again."""
_AT_ONCE, _BYTES_AT_ONCE = 20, 64 * 1024
"""Records, and bytes of their content, in one piece of work where there is a budget: each is paid before the next."""
_NEXT = 0.02
"""Seconds between two such pieces, if nothing is owed."""
_ROOM, _BYTES_ROOM = 2000, 16 * 1024**2
"""Records that wait, and their bytes, from which on a history takes no more."""
_LOOK_AGAIN = 16
"""The size of the file is looked at each time that so small a part of what it may have was written."""
_ROW = 500
"""Bytes of a row without its content, about."""


class CallLog:
    """Appends calls and events to a file, which is opened with the first of them. For one event loop."""

    def __init__(
        self,
        locate: Callable[[], Path],
        settings: CallLogSettings,
        *,
        redact: Callable[[str], str] = str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`locate` returns where the file is, when it is needed; `redact` masks secrets in what is kept."""
        self.dropped = 0
        """Records that were not written."""
        self.calls_written = self.events_written = 0
        """Records of calls, and of events, that are in the file: whoever reads it sees them."""
        self.budget: Budget | None = None
        """What writing may take; None: whatever it takes."""
        self._settings = settings
        self._redact = redact
        self._clock = clock
        self._locate = locate
        self._noted: list[tuple[float, str, dict[str, object]]] = []
        """Events that are to be written with the next records; when each happened."""
        self._since_look = 0
        """Bytes that were written since the size of the file was looked at, about."""
        self._thread_seconds = 0.0
        """Of the database's thread, when its last work began; kept by that thread."""
        self._waiting: list[CallRecord] = []
        self._bytes = self._events = 0
        self._running = RunningCalls()
        self._begun = self._beginning = 0
        self._gathered: dict[int, Callable[[], CallRecord]] = {}
        """What makes the records of calls under way that are to be written with the next ones."""
        self._journaled: dict[int, Callable[[], CallRecord]] = {}
        """The same of those that have an entry in the journal meanwhile."""
        self._have_rows: set[int] = set()
        """Calls under way that were written."""
        self._journal: Journal | None = None
        self._journal_again_at = 0.0
        """When one that could not be made is tried again."""
        self._ended: dict[int, float] = {}
        """Calls that are over and whose record is still to come; when they ended."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_slow = False
        """The timer is one that waits for further events only."""
        self._steady_until = 0.0
        """Of the loop's clock: calls that come before do not come alone."""
        self._half: int | None = None
        """Of the journal: the one whose entries are being written as rows."""
        self._is_writing = False
        self._in_write = (0, 0)
        """Calls and events that are being written."""
        self._retention: asyncio.TimerHandle | None = None
        self._is_closed = self._has_complained = False
        self._reason = ""

    @cached_property
    def _database(self) -> Database:
        return Database(self._locate(), SCHEMA)

    @property
    def path(self) -> Path:
        """The file, whether or not there is one."""
        return self._locate()

    def configure(self, settings: CallLogSettings) -> None:
        """Other settings from now on; the file stays the same."""
        self._settings = settings

    def problems(self) -> list[str]:
        """Why entries are missing, if some are."""
        if not self.dropped:
            return []
        return [f"{self.dropped} entries are missing in the call log {self._locate()}: {self._reason}"]

    @property
    def has_room(self) -> bool:
        """A history can take more; else writing is not so fast."""
        return len(self._waiting) < _ROOM and self._bytes < _BYTES_ROOM

    @property
    def waiting(self) -> int:
        """Records that wait to be written."""
        return len(self._waiting)

    def append(self, record: CallRecord) -> None:
        """Log a call, some time soon."""
        waiting = self._waiting
        size = self._bytes + len(record.arguments) + len(record.asked) + len(record.result)
        if self._is_closed or (waiting and (size > _MOST_BYTES or len(waiting) >= _MOST_WAITING)):
            self._lost(1, "is closed" if self._is_closed else "more calls than can be written")
            return
        self._bytes = size
        waiting.append(record)
        if number := record.running:
            self._ended.pop(number, None)
            if self._journaled.pop(number, None) is None:
                self._gathered.pop(number, None)
        if self._timer is None or self._is_slow:
            self._gather()

    def write_soon(self) -> None:
        """Write what waits now: somebody looks at the file."""
        if self._timer is not None and not self._is_slow:
            self._timer.cancel()
            self._hand_over()

    def begin(self, record: CallRecord, written: Callable[[], object] | None = None) -> int:
        """Write that a call is about to be sent; returns its number.

        `record` is what would be known of it if the process were killed. The call's own record, which has this number
        as `running`, takes its place. With `written` the row goes to the database's thread at once, and `written` is
        called when it is in the file, or cannot be. Without, it is gathered as records are: a call that ends before
        costs nothing. 0: it has no row, since too many wait, and `written` is not called.
        """
        if self._is_closed or self._beginning + len(self._gathered) + len(self._journaled) >= _MOST_WAITING:
            return 0
        self._begun += 1
        if written is None:
            self._gathered[self._begun] = lambda: record
            self._gather()
            return self._begun
        self._beginning += 1
        numbered = replace(record, running=self._begun)
        self._have_rows.add(self._begun)

        def write(connection: "Connection") -> None:
            self._running.insert(connection, [numbered], self._redact, self._settings.max_content)

        def then() -> None:
            self._beginning -= 1
            written()

        self._post(write, 0, then)
        return self._begun

    def write_ahead(self, call: SentCall, record: Callable[[], CallRecord]) -> int:
        """The same in this very moment, by an entry in the journal; `record` makes the record when it is needed.

        0: that cannot be done now.
        """
        if self._is_closed or len(self._journaled) >= _MOST_WAITING:
            return 0
        journal = self._journal or self._open_journal()
        if journal is None or not journal.add(call, self._redact):
            return 0
        self._begun += 1
        self._journaled[self._begun] = record
        if self._timer is None or self._is_slow:
            self._gather()
        return self._begun

    def take_back(self, number: int) -> None:
        """A call with this number was not sent, and nothing was written since its entry."""
        if self._journaled.pop(number, None) is not None and self._journal is not None:
            self._journal.take_back()

    def _open_journal(self) -> "Journal | None":
        from mcpbridge.storage.call_log.journal import Journal  # few bridges write every call down

        if self._clock() >= self._journal_again_at:
            try:
                self._journal = Journal(self._locate())
                self._post(recover, 0)  # opens the file of the log: what is in the journal is of no use without it
            except OSError as error:
                log.warning("calls wait for their rows in the call log: there is no journal", error=str(error))
                self._journal_again_at = self._clock() + _JOURNAL_AGAIN
        return self._journal

    def ended(self, number: int) -> None:
        """A call with this number is over. Its record follows soon, if it has one of its own."""
        if self._gathered.pop(number, None) is None:
            self._ended[number] = self._clock()

    def resumed(self, number: int) -> None:
        """A call with this number is sent again."""
        self._ended.pop(number, None)

    def recover(self) -> None:
        """Make records, some time soon, of the calls that processes had under way that were killed.

        That is done with the first record in any case, and every hour.
        """
        if not self._is_closed and (may_exist(self._locate()) or _has_journals(self._locate())):
            self._post(recover, 0)

    def append_event(self, kind: str, facts: Mapping[str, object]) -> None:
        """Log what is no call, such as an approval that was asked for or granted.

        Of the facts, `server`, `tool`, `client`, `principal`, `session`, `who` and `detail` are texts with columns of
        their own; `arguments` are the bytes of a call's arguments, of which the same digest is kept as of the call's;
        `at` is when it happened, if not now. Others are kept as JSON.
        """
        if self._is_closed or self._events >= _MOST_WAITING:
            self._lost(1, "is closed" if self._is_closed else "more events than can be written")
            return
        self._events += 1
        when, rest = self._when(facts)
        self._post(lambda connection: insert_event(connection, when, kind, rest, self._redact), 1, self._event_written)

    def append_later(self, kind: str, facts: Mapping[str, object]) -> None:
        """The same for what may wait a second, to be written with others."""
        if self._is_closed or len(self._noted) >= _MOST_WAITING:
            self._lost(1, "is closed" if self._is_closed else "more events than can be written")
            return
        when, rest = self._when(facts)
        self._noted.append((when, kind, rest))
        self._gather(_GATHER_EVENTS)

    def append_minutes(self, minutes: Sequence[MinuteRecord]) -> None:
        """Log what was counted in a minute."""
        if minutes and not self._is_closed:
            self._post(lambda connection: insert_minutes(connection, minutes, self._redact), 0)

    def _when(self, facts: Mapping[str, object]) -> tuple[float, dict[str, object]]:
        rest = dict(facts)
        at = rest.pop("at", None)
        return at if isinstance(at, int | float) else self._clock(), rest

    async def close(self) -> None:
        """Write what waits, within seconds, and close the file."""
        for timer in (self._timer, self._retention):
            if timer is not None:
                timer.cancel()
        if self._has_any or self._ended:
            self._write(ended_before=inf)
        self._is_closed = True
        if "_database" in self.__dict__:
            await self._database.close()
            self._running.close()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _gather(self, seconds: float = 0.0) -> None:
        """Write in so many seconds; 0: as calls come."""
        if self._timer is not None and self._is_slow and seconds < _GATHER_EVENTS:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._is_slow = seconds == _GATHER_EVENTS
            seconds = seconds or (_GATHER_STEADY if loop.time() < self._steady_until else _GATHER)
            self._timer = loop.call_later(seconds, self._hand_over)

    def _hand_over(self) -> None:
        self._timer, self._is_slow = None, False
        if not self._has_any or self._is_writing:  # they wait, bounded, until the disk is through
            return
        if self.budget is not None:
            self.budget.fill()
            if self.budget.writing.left <= 0:
                self._gather(_GATHER)
                return
        self._write()

    @property
    def _has_any(self) -> bool:
        return bool(self._waiting or self._gathered or self._journaled or self._noted)

    def _write(self, *, ended_before: float | None = None) -> None:
        records, size = self._take_waiting(has_budget=self.budget is not None and ended_before is None)
        makers = [*self._gathered.items(), *self._journaled.items()]
        begun = [replace(record(), running=number) for number, record in makers]
        self._gathered, self._journaled = {}, {}
        noted, self._noted = self._noted, []
        self._since_look += size + _ROW * len(records)
        self._is_writing = True
        if self.budget is not None:
            self._steady_until = asyncio.get_running_loop().time() + 2 * _GATHER_STEADY
        numbers = [record.running for record in records if record.running in self._have_rows]
        before = self._clock() - _ENDED_SECONDS if ended_before is None else ended_before
        left = [number for number, at in self._ended.items() if at <= before]
        for number in left:
            del self._ended[number]
        numbers += left
        self._have_rows.difference_update(numbers)
        self._have_rows.update(record.running for record in begun)
        # With these rows all entries have one; more of them begin only when these rows are written.
        if self._journal is not None and self._half is None and not self._waiting:
            self._half = self._journal.turn()

        def write(connection: "Connection") -> None:
            insert_calls(connection, records, self._redact, self._settings.max_content)
            if numbers:
                self._running.delete(connection, numbers)
            if begun:
                self._running.insert(connection, begun, self._redact, self._settings.max_content)
            for at, kind, facts in noted:
                insert_event(connection, at, kind, facts, self._redact)

        self._in_write = len(records), len(noted)
        self._post(write, len(records) + len(noted), self._written)

    def _take_waiting(self, *, has_budget: bool) -> tuple[list[CallRecord], int]:
        """What is to be written now, and how many bytes of content that has."""
        waiting, count, size = self._waiting, len(self._waiting), self._bytes
        if has_budget and (count > _AT_ONCE or size > _BYTES_AT_ONCE):
            count = size = 0
            for record in waiting[:_AT_ONCE]:
                count, size = count + 1, size + _content_size(record)
                if size > _BYTES_AT_ONCE:
                    break
        self._waiting, self._bytes = waiting[count:], self._bytes - size
        return waiting[:count], size

    def _event_written(self) -> None:
        self._events -= 1
        self.events_written += 1

    def _written(self) -> None:
        self._is_writing = False
        if self._journal is not None and self._half is not None:
            self._journal.empty(self._half)
        self._half = None
        self.calls_written += self._in_write[0]
        self.events_written += self._in_write[1]
        if self._is_closed:
            return
        if self._has_any:
            self._gather(_GATHER if self.budget is None else _NEXT)
        if self._since_look > self._settings.max_size // _LOOK_AGAIN:
            self._since_look = 0
            self._forget()

    def _post(self, work: "Callable[[Connection], object]", count: int, then: Callable[[], None] | None = None) -> None:
        seconds = 0.0

        def measured(connection: "Connection") -> None:
            # The thread has no other work: what it took since the last one includes the end of that transaction. The
            # first one, which loads what masks secrets, is left out: there is only one.
            nonlocal seconds
            work(connection)
            now = time.thread_time()
            seconds = now - self._thread_seconds if self._thread_seconds else 0.0
            self._thread_seconds = now

        def done(error: Exception | None) -> None:
            if seconds and self.budget is not None:
                self.budget.wrote(seconds, count)
            if error is not None:
                self._lost(count, getattr(error, "what", "") or repr(error))
            elif self._retention is None and not self._is_closed:
                self._keep_retention()  # the file is open now
            if then is not None:
                then()

        self._database.post(measured, done)

    def _lost(self, count: int, reason: str) -> None:
        self.dropped += count
        self._reason = reason
        if not self._has_complained:
            self._has_complained = True
            log.warning("entries are missing from the call log", file=str(self._locate()), reason=reason)

    # -- retention

    def _keep_retention(self) -> None:
        self._retention = asyncio.get_running_loop().call_later(RETENTION_INTERVAL, self._keep_retention)
        self._database.post(recover)
        self._forget()

    def _forget(self) -> None:
        now, settings, is_more = self._clock(), self._settings, False
        limits = Limits(now - settings.keep, settings.max_rows, settings.max_size, now - MINUTE_DAYS * 86400)

        def work(connection: "Connection") -> None:
            nonlocal is_more
            is_more = forget(connection, limits)
            give_back_room(connection)

        def done(error: Exception | None) -> None:
            if is_more and error is None and not self._is_closed:
                self._database.post(work, done)

        self._database.post(work, done)


def _content_size(record: CallRecord) -> int:
    return len(record.arguments) + len(record.asked) + len(record.result)


def _has_journals(log: Path) -> bool:
    from mcpbridge.storage.call_log.journal import has_journals

    return has_journals(log)
