"""Takes what is to be recorded, at once, and has a thread write it: nobody who calls a tool waits for the audit log.

The thread gathers what comes in a quarter of a second, masks, hashes and writes it, and hands the lines to those who
send them to other machines. What waits has a bound. Beyond it entries are counted as lost, and a line says how many.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger
from mcpbridge.base.version import __version__
from mcpbridge.storage.audit.checkpoints import Anchor
from mcpbridge.storage.audit.entries import CALL, Entries
from mcpbridge.storage.audit.exports import Export, Message, attributes_of, exports_of
from mcpbridge.storage.audit.lines import LOST
from mcpbridge.storage.audit.settings import AuditSettings, anchor_folder, audit_folder
from mcpbridge.storage.audit.writer import RETENTION_SECONDS, Entry, Writer
from mcpbridge.storage.call_log.format import CallRecord

STARTED, STOPPED = "audit.started", "audit.stopped"
"""The kinds of the lines that a process begins and ends with."""

log = get_logger("mcpbridge.storage")

_GATHER = 0.25
"""Seconds in which entries are gathered into one piece of work."""
_MOST_WAITING = 20_000
_MOST_BYTES = 64 * 1024**2
"""Entries, and bytes of their arguments, that wait at most."""
_SMALL = 4096
"""Bytes of a result that may wait with its record: nothing is read of it."""
_AT_ONCE = 500
"""Entries that are written together; between two of these the loop of calls has its turn."""
_TURN_SECONDS = 0.0005
"""CPU seconds after which the loop of calls has its turn."""
_TRY_AGAIN = 5.0
"""Seconds until what could not be written is tried again."""
_END_SECONDS = 10.0
"""Seconds that the end waits for what is not written yet."""


class AuditLog:
    """One process's part in the log. Appending is for one thread; the rest is done by another."""

    def __init__(
        self,
        settings: AuditSettings,
        *,
        redact: Callable[[str], str] = str,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = audit_folder(settings, environ)
        self.lost = 0
        """Entries that were not written."""
        self.written = 0
        """Lines about calls and events that this process has written."""
        self._settings, self._clock = settings, clock
        self._anchor = Anchor(anchor_folder(settings, environ), self.folder)
        self._entries = Entries(
            redact, keeps_arguments=settings.arguments == "masked", max_arguments=settings.max_arguments
        )
        self._writer = Writer(self.folder, self._anchor, settings, clock)
        self._exports: Sequence[Export] = ()
        self._waiting = deque[CallRecord | Entry]()
        self._bytes_in = self._bytes_out = 0
        """Of what came, and of what the thread has taken: each is written by one thread alone."""
        self._lost_before = 0
        """Lost entries that a line has spoken of."""
        self._is_awake = False
        self._wake, self._is_ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._problem = ""

    def append(self, record: CallRecord) -> None:
        """Record a call, soon."""
        waiting = self._waiting
        if len(waiting) >= _MOST_WAITING or self._bytes_in - self._bytes_out > _MOST_BYTES:
            self.lost += 1
            return
        self._bytes_in += record.sent
        waiting.append(record if record.received <= _SMALL else replace(record, result=b"", asked=b""))
        if not self._is_awake:
            self._is_awake = True
            self._wake.set()

    def append_event(self, kind: str, facts: Mapping[str, object]) -> None:
        """Record what is no call, soon. `at` among the facts is when it happened, if not now."""
        if len(self._waiting) >= _MOST_WAITING:
            self.lost += 1
            return
        at = facts.get("at")
        self._waiting.append((at if isinstance(at, int | float) else self._clock(), kind, dict(facts)))
        self._is_awake = True
        self._wake.set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Entries are written meanwhile; leaving writes what is left, within seconds.

        Raises:
            ConfigError: what is sent to other machines cannot be.
        """
        self._exports = exports_of(self._settings)
        for export in self._exports:
            export.start()
        self.append_event(STARTED, {"version": __version__, "pid": os.getpid()})
        self._thread = threading.Thread(target=self._work, name="audit log", daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            self.append_event(STOPPED, {"pid": os.getpid()})
            self._is_ending.set()
            self._wake.set()
            await asyncio.shield(
                asyncio.get_running_loop().run_in_executor(None, partial(self._thread.join, _END_SECONDS))
            )

    def write_now(self) -> None:
        """Write what waits on this thread, for programs that record one thing and end.

        Raises:
            OSError: it cannot be written.
        """
        self._exports = exports_of(self._settings)
        for export in self._exports:
            export.start()
        try:
            self._write(self._take(), is_last=True)
        finally:
            self._writer.close()
            for export in self._exports:
                export.end(_END_SECONDS)

    def problems(self) -> list[str]:
        """Why the log is not what it should be, if it is not."""
        found: list[str] = []
        if self._problem:
            found.append(f"the audit log {self.folder} cannot be written: {self._problem}")
        if self.lost:
            found.append(f"{self.lost} entries are missing in the audit log {self.folder}")
        if self._writer.anchor_problem:
            found.append(f"the audit log has no new checkpoints: {self._writer.anchor_problem}")
        found += [
            f"{export.lost} lines of the audit log did not reach {export.name}: {export.problem or 'it was too slow'}"
            for export in self._exports
            if export.lost
        ]
        return found

    def status(self) -> dict[str, Any]:
        """How it is, as JSON values."""
        return {
            "folder": str(self.folder),
            "lines": self.written,
            "last": self._writer.seq,
            "waiting": len(self._waiting),
            "lost": self.lost,
            "exports": [export.status() for export in self._exports],
        }

    # -- the thread

    def _work(self) -> None:
        left: list[CallRecord | Entry] = []
        try:
            while True:
                self._wake.wait(RETENTION_SECONDS)
                self._is_ending.wait(_GATHER)
                self._wake.clear()
                self._is_awake = False
                is_ending = self._is_ending.is_set()
                left += self._take()
                left = self._try_to_write(left, is_ending=is_ending)
                if is_ending:
                    self.lost += len(left)
                    return
                if left:
                    self._is_ending.wait(_TRY_AGAIN)
                    self._wake.set()
        finally:
            self._writer.close()
            for export in self._exports:
                export.end(_END_SECONDS / 2)

    def _take(self) -> list[CallRecord | Entry]:
        waiting = self._waiting
        taken = [waiting.popleft() for _ in range(len(waiting))]
        self._bytes_out += sum(one.sent for one in taken if isinstance(one, CallRecord))
        return taken

    def _try_to_write(self, entries: list[CallRecord | Entry], *, is_ending: bool) -> list[CallRecord | Entry]:
        """Write these; returns what could not be written and is tried again."""
        while True:
            some, rest = entries[:_AT_ONCE], entries[_AT_ONCE:]
            try:
                self._write(some, is_last=is_ending and not rest)
            except (OSError, ConfigError) as error:
                self._complain(getattr(error, "strerror", None) or str(error))
                too_many = len(entries) - _MOST_WAITING
                if too_many > 0:
                    self.lost += too_many
                return entries[max(0, too_many) :]
            except Exception as error:  # noqa: BLE001 - the thread must live: an entry that cannot be spelled is lost
                self._complain(repr(error))
                self.lost += len(some)
            else:
                self._problem = ""
            if not rest:
                return []
            entries = rest

    def _write(self, some: Sequence[CallRecord | Entry], *, is_last: bool) -> None:
        entries: list[Entry] = []
        until = time.thread_time() + _TURN_SECONDS
        for one in some:
            if isinstance(one, CallRecord):
                entries.append((one.at, CALL, self._entries.of_call(one)))
            else:
                entries.append((one[0], one[1], self._entries.of_event(one[2])))
            if time.thread_time() > until:
                time.sleep(0)
                until = time.thread_time() + _TURN_SECONDS
        lost = self.lost
        if lost > self._lost_before:
            entries.append((self._clock(), LOST, {"count": lost - self._lost_before}))
        done = self._writer.append(entries, is_last=is_last)
        self._lost_before = lost
        self.written += len(some)
        if self._exports:
            messages = [
                Message(at, kind, line, fields.get("outcome", ""), attributes=attributes_of(fields))
                for (at, kind, fields), line in done.lines
            ]
            if done.checkpoint:
                messages.append(Message(self._clock(), "audit.checkpoint", done.checkpoint + b"\n", is_checkpoint=True))
            for export in self._exports:
                export.offer(messages)

    def _complain(self, problem: str) -> None:
        if not self._problem:
            log.warning("the audit log cannot be written", folder=str(self.folder), reason=problem)
        self._problem = problem
