"""How much CPU the history of calls may take: so little that nobody notices it, whatever the number of calls.

A `Bucket` has CPU seconds. It fills by a share of the time that passes, up to what may be spent at once; what costs
more than there is leaves a debt, and nothing is spent before that is paid. There are two: what a recorded call costs on
its way (`Budget.calls`), and what writing records costs, which can wait until the bridge has less to do
(`Budget.writing`).
Counting calls is part of neither. `call_log.enabled = true` records every call, without a budget.
"""

import time
from collections.abc import Callable

CALL_SECONDS = 8e-6
"""What recording costs a call on its way, about."""

_CALLS_SHARE, _CALLS_AT_ONCE = 0.01, 0.002
"""So a thousand calls a second are recorded, and two hundred more at once."""
_WRITING_SHARE, _IDLE_SHARE, _WRITING_AT_ONCE = 0.01, 0.2, 0.01
"""Of one processor, while the bridge works and while it has little to do."""
_IDLE = 0.25
"""The part of one processor that a bridge takes at most that has little to do."""
_MOST_DEBT = 0.1
_OFTEN = 0.05
"""Seconds between two looks at how much the bridge does: one takes as long as a record."""


class Bucket:
    """CPU seconds that may be spent."""

    __slots__ = ("_at", "_most", "left")

    def __init__(self, most: float, now: float) -> None:
        """`most`: what may be spent at once. It begins full."""
        self.left = self._most = most
        self._at = now

    def fill(self, now: float, share: float) -> None:
        """Add a share of the time since the last time."""
        self.left = min(self._most, self.left + share * max(0.0, now - self._at))
        self._at = now

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
        now = clock()
        self.calls, self.writing = Bucket(_CALLS_AT_ONCE, now), Bucket(_WRITING_AT_ONCE, now)
        self._looked_at, self._cpu_before, self._written = now, cpu(), 0.0
        self._is_idle = False

    def fill(self) -> None:
        """Add what the time that has passed allows."""
        now = self._clock()
        self.calls.fill(now, _CALLS_SHARE)
        if now - self._looked_at >= _OFTEN:
            used = self._cpu() - self._cpu_before - self._written
            self._is_idle = used < _IDLE * (now - self._looked_at)
            self._looked_at, self._cpu_before, self._written = now, self._cpu(), 0.0
        self.writing.fill(now, _IDLE_SHARE if self._is_idle else _WRITING_SHARE)

    def wrote(self, seconds: float) -> None:
        """Writing took so much."""
        self._written += seconds
        self.writing.take(seconds)
