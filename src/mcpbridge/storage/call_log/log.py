"""The call log: which tool was called, by whom and with what outcome, in a file that only grows.

Appending never waits: sizes, digests and encoding are the database thread's work, a tenth of a second later and many
records at a time. A call that may change something goes to the thread before it is sent (`begin`), so what a killed
process had under way is found there later: what SQLite has written survives the process, though not a loss of power.
If the disk cannot follow, records are dropped and counted. The row is decided in `format.py`, calls under way
in `running.py`, rotation in `retention.py`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
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
from mcpbridge.storage.call_log.format import SCHEMA, CallRecord, insert_calls, insert_event
from mcpbridge.storage.call_log.retention import RETENTION_INTERVAL, forget
from mcpbridge.storage.call_log.running import RunningCalls, recover

log = get_logger("mcpbridge.storage")

_GATHER = 0.1
"""Seconds in which records are gathered into one transaction."""
_MOST_WAITING = 10_000
"""Records that wait at most while the disk is slow."""
_ENDED_SECONDS = 60.0
"""Seconds after which a call that ended without a record of its own, such as a shared run, is under way no more."""
_MOST_BYTES = 64 * 1024**2
"""Bytes of arguments and results that wait with them; one record may be larger."""


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
        """`locate` tells where the file is, when it is needed; `redact` masks secrets in what is kept."""
        self.dropped = 0
        """Records that were not written."""
        self._settings = settings
        self._redact = redact
        self._clock = clock
        self._locate = locate
        self._waiting: list[CallRecord] = []
        self._bytes = self._events = 0
        self._running = RunningCalls()
        self._begun = self._beginning = 0
        self._gathered: dict[int, CallRecord] = {}
        """Calls under way that are to be written with the next records."""
        self._ended: dict[int, float] = {}
        """Calls that are over and whose record is still to come; when they ended."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_writing = False
        self._retention: asyncio.TimerHandle | None = None
        self._is_closed = self._has_complained = False
        self._reason = ""

    @cached_property
    def _database(self) -> Database:
        return Database(self._locate(), SCHEMA)

    def configure(self, settings: CallLogSettings) -> None:
        """Other settings from now on; the file stays the same."""
        self._settings = settings

    def problems(self) -> list[str]:
        """Why entries are missing, if some are."""
        if not self.dropped:
            return []
        return [f"{self.dropped} entries are missing in the call log {self._locate()}: {self._reason}"]

    def append(self, record: CallRecord) -> None:
        """Log a call, some time soon."""
        waiting = self._waiting
        size = self._bytes + len(record.arguments) + len(record.result)
        if self._is_closed or (waiting and (size > _MOST_BYTES or len(waiting) >= _MOST_WAITING)):
            self._lost(1, "is closed" if self._is_closed else "more calls than can be written")
            return
        self._bytes = size
        waiting.append(record)
        self._ended.pop(record.running, None)
        self._gathered.pop(record.running, None)
        self._gather()

    def begin(self, record: CallRecord, written: Callable[[], object] | None = None) -> int:
        """Write that a call is about to be sent; returns its number.

        `record` is what would be known of it if the process were killed. The call's own record, which has this number
        as `running`, takes its place. With `written` the row goes to the database's thread at once, and `written` is
        called when it is in the file, or cannot be. Without, it is gathered as records are: a call that ends before
        costs nothing. 0: it has no row, since too many wait, and `written` is not called.
        """
        if self._is_closed or self._beginning + len(self._gathered) >= _MOST_WAITING:
            return 0
        self._begun += 1
        numbered = replace(record, running=self._begun)
        if written is None:
            self._gathered[self._begun] = numbered
            self._gather()
            return self._begun
        self._beginning += 1

        def write(connection: "Connection") -> None:
            self._running.insert(connection, [numbered], self._redact, self._settings.max_content)

        def then() -> None:
            self._beginning -= 1
            written()

        self._post(write, 0, then)
        return self._begun

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
        if not self._is_closed and may_exist(self._locate()):
            self._post(recover, 0)

    def append_event(self, kind: str, facts: Mapping[str, object]) -> None:
        """Log what is no call, such as an approval that was asked for or granted.

        Of the facts, `tool`, `client`, `principal`, `session`, `who` and `detail` are texts with columns of their own;
        `arguments` are the bytes of a call's arguments, of which the same digest is kept as of the call's; `at` is when
        it happened, if not now. Others are kept as JSON.
        """
        if self._is_closed or self._events >= _MOST_WAITING:
            self._lost(1, "is closed" if self._is_closed else "more events than can be written")
            return
        self._events += 1
        rest = dict(facts)
        at = rest.pop("at", None)
        when = at if isinstance(at, int | float) else self._clock()
        self._post(lambda connection: insert_event(connection, when, kind, rest, self._redact), 1, self._event_written)

    async def close(self) -> None:
        """Write what waits, within seconds, and close the file."""
        for timer in (self._timer, self._retention):
            if timer is not None:
                timer.cancel()
        if self._waiting or self._ended or self._gathered:
            self._write(ended_before=inf)
        self._is_closed = True
        if "_database" in self.__dict__:
            await self._database.close()
            self._running.close()

    def _gather(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self._hand_over)

    def _hand_over(self) -> None:
        self._timer = None
        if (
            self._waiting or self._gathered
        ) and not self._is_writing:  # else they wait, bounded, until the disk is through
            self._write()

    def _write(self, *, ended_before: float | None = None) -> None:
        records, self._waiting, self._bytes = self._waiting, [], 0
        begun, self._gathered = [*self._gathered.values()], {}
        self._is_writing = True
        numbers = [record.running for record in records if record.running]
        before = self._clock() - _ENDED_SECONDS if ended_before is None else ended_before
        left = [number for number, at in self._ended.items() if at <= before]
        for number in left:
            del self._ended[number]
        numbers += left

        def write(connection: "Connection") -> None:
            insert_calls(connection, records, self._redact, self._settings.max_content)
            if numbers:
                self._running.delete(connection, numbers)
            if begun:
                self._running.insert(connection, begun, self._redact, self._settings.max_content)

        self._post(write, len(records), self._written)

    def _event_written(self) -> None:
        self._events -= 1

    def _written(self) -> None:
        self._is_writing = False
        if (self._waiting or self._gathered) and not self._is_closed:
            self._gather()

    def _post(self, work: "Callable[[Connection], object]", count: int, then: Callable[[], None] | None = None) -> None:
        def done(error: Exception | None) -> None:
            if error is not None:
                self._lost(count, getattr(error, "what", "") or repr(error))
            elif self._retention is None and not self._is_closed:
                self._keep_retention()  # the file is open now
            if then is not None:
                then()

        self._database.post(work, done)

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
        before = self._clock() - self._settings.keep
        is_more = False

        def work(connection: "Connection") -> None:
            nonlocal is_more
            is_more = forget(connection, before, self._settings.max_rows)
            give_back_room(connection)

        def done(error: Exception | None) -> None:
            if is_more and error is None and not self._is_closed:
                self._database.post(work, done)

        self._database.post(work, done)
