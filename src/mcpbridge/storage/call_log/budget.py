"""How much CPU the history of calls may take: so little that nobody notices it, whatever the number of calls.

A `Bucket` has CPU seconds. What costs more than there is leaves a debt, and nothing is spent before that is paid. There
are two: what a recorded call costs on its way (`Budget.calls`), and what writing records costs, which can wait until
the bridge has less to do (`Budget.writing`). While the bridge works, both fill by a share of the CPU time that it takes
itself; while it has little to do, by a share of the time that passes, so that ordinary use is recorded whole. Counting
calls is part of neither. `call_log.enabled = true` records every call, without a budget.
"""

import time
from collections.abc import Callable

CALL_SECONDS = 9e-6
"""What recording costs a call on its way, about."""

_CALLS_SHARE, _WRITING_SHARE = 0.007, 0.018
"""Of the CPU time that the bridge takes. A record costs some 9 µs on the way of its call and 40 µs in the file."""
_CALLS_IDLE_SHARE, _WRITING_IDLE_SHARE = 0.01, 0.2
"""Of one processor, while the bridge has little to do."""
_CALLS_AT_ONCE, _WRITING_AT_ONCE = 0.0009, 0.001
"""Seconds that are saved up at most."""
_IDLE = 0.1
"""The part of one processor that a bridge takes at most that has little to do: some hundred calls a second."""
_MOST_DEBT = 0.1
_OFTEN = 0.05
"""Seconds between two looks at how much the bridge does: one takes as long as a record."""


class Bucket:
    """CPU seconds that may be spent."""

    __slots__ = ("_most", "left")

    def __init__(self, most: float) -> None:
        """`most`: what is saved up at most. It begins full."""
        self.left = self._most = most

    def add(self, seconds: float) -> None:
        """Allow so much more."""
        self.left = min(self._most, self.left + max(0.0, seconds))

    @property
    def is_full(self) -> bool:
        """There is nothing to be added."""
        return self.left >= self._most

    def take(self, seconds: float) -> None:
        """Spend so much, also if there is less."""
        self.left = max(-_MOST_DEBT, self.left - seconds)


class Budget:
    """What the history of calls may take of one process. For one event loop."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self.calls, self.writing = Bucket(_CALLS_AT_ONCE), Bucket(_WRITING_AT_ONCE)
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
            self.calls.add(_CALLS_IDLE_SHARE * passed)
            self.writing.add(_WRITING_IDLE_SHARE * passed)
        else:
            self.calls.add(_CALLS_SHARE * used)
            self.writing.add(_WRITING_SHARE * used)
        self._at, self._cpu_before, self._written = now, cpu, 0.0

    def wrote(self, seconds: float) -> None:
        """Writing took so much."""
        self._written += seconds
        self.writing.take(seconds)
