"""How much CPU the history of calls may take: so little that nobody notices it, whatever the number of calls.

Recording costs a call a little on its way, and four times as much when its record is written, which can wait until the
bridge has less to do. So there are two buckets: how many calls may be recorded (`calls`), and how many CPU seconds may
be spent on writing (`writing`). While the bridge works, both fill by a share of the CPU time that it takes itself;
while it has little to do, by the time that passes, so that ordinary use is recorded whole. What is overdrawn is paid
before anything else is spent. Counting calls is part of neither. `call_log.enabled = true` records every call, without
a budget.
"""

import time
from collections.abc import Callable
from math import inf

_SHARE = 0.015
"""What recording may take, on the way of calls and in the file: of the CPU time that the bridge takes without it."""
_WRITING_PART = 0.8
"""What of that is writing."""
_IDLE_CALLS, _IDLE_WRITING = 1000.0, 0.2
"""Calls a second, and what of one processor writing may take, while the bridge has little to do."""
_CALLS_AT_ONCE, _WRITING_AT_ONCE = 64.0, 0.001
"""Calls, and seconds, that are saved up at most."""
_IDLE = 0.1
"""The part of one processor that a bridge takes at most that has little to do: some hundred calls a second."""
_RECORD_SECONDS = 50e-6
"""What a record costs in all, until that was measured. It is several times that where others use the machine as well,
and so is what calls cost."""
_MEMORY = 0.2
"""How much the last measurement counts."""
_MOST_CALLS_OWED, _MOST_SECONDS_OWED = 100.0, 0.1
_OFTEN = 0.05
"""Seconds between two looks at how much the bridge does: one takes as long as a record."""


class Bucket:
    """An amount of something that may be spent."""

    __slots__ = ("_least", "_most", "left")

    def __init__(self, most: float, owed: float) -> None:
        """`most`: what is saved up at most; `owed`: what is owed at most. It begins full."""
        self.left = self._most = most
        self._least = -owed

    def add(self, amount: float) -> None:
        """Allow so much more."""
        self.left = min(self._most, self.left + max(0.0, amount))

    @property
    def is_full(self) -> bool:
        """There is nothing to be added."""
        return self.left >= self._most

    def take(self, amount: float) -> None:
        """Spend so much, also if there is less."""
        self.left = max(self._least, self.left - amount)


class Budget:
    """What the history of calls may take of one process. For one event loop."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
        *,
        is_bounded: bool = True,
    ) -> None:
        """`is_bounded` False: it may take whatever it takes."""
        self._clock, self._cpu, self.is_bounded = clock, cpu, is_bounded
        self.calls = Bucket(_CALLS_AT_ONCE if is_bounded else inf, _MOST_CALLS_OWED)
        self.writing = Bucket(_WRITING_AT_ONCE if is_bounded else inf, _MOST_SECONDS_OWED)
        self._record_seconds = _RECORD_SECONDS
        self._at, self._cpu_before, self._written = clock(), cpu(), 0.0

    def fill(self) -> None:
        """Add what the time since the last look allows."""
        now = self._clock()
        passed = now - self._at
        if passed < _OFTEN:
            return
        cpu = self._cpu()
        used = max(0.0, cpu - self._cpu_before - self._written)
        if used < _IDLE * passed:
            self.calls.add(_IDLE_CALLS * passed)
            self.writing.add(_IDLE_WRITING * passed)
        else:
            self.calls.add(_SHARE * used / self._record_seconds)
            self.writing.add(_SHARE * _WRITING_PART * used)
        self._at, self._cpu_before, self._written = now, cpu, 0.0

    def wrote(self, seconds: float, records: int) -> None:
        """Writing so many records took so much."""
        self._written += seconds
        self.writing.take(seconds)
        if records:
            found = seconds / records / _WRITING_PART
            self._record_seconds += _MEMORY * (found - self._record_seconds)
