"""When calls to an upstream stop for a while since all of them fail: the circuit breaker. Pure: the time is passed in.

After Envoy (outlier ejection). The numbers are the `breaker` table of a server (`BreakerSettings`).
"""

from typing import Literal

from mcpbridge.upstream.settings import BreakerSettings

PROBE_SECONDS = 1.0
"""Seconds after which it is worth asking again, while one call is finding out."""
JITTER = 0.2
"""By so much of it at most, at random, an open time is shorter: bridges of one server should not all come at once."""

BreakerState = Literal["closed", "open", "half-open"]
"""`open`: no call passes; `half-open`: one call may, or does, find out whether it works again."""


class CircuitBreaker:
    """Stops calls to an upstream that fails every one of them, and lets one through from time to time."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._limit, self._open, self._longest = settings.failures, settings.open, settings.max_open
        self._in_a_row = 0
        self._opened = 0
        self._open_until = 0.0
        self._is_tripped = self._is_probing = False
        self.is_troubled = False
        """Not every one of the last calls was answered: what becomes of the next is to be told."""

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self._in_a_row} failures in a row{', tripped' * self._is_tripped}>"

    def state(self, now: float) -> BreakerState:
        """Whether calls pass."""
        if not self._is_tripped:
            return "closed"
        return "open" if now < self._open_until else "half-open"

    def retry_in(self, now: float) -> float:
        """Seconds until a call may pass; 0 when it may pass now. If it is not closed then, that call is the probe."""
        if not self._is_tripped:
            return 0.0
        if now < self._open_until:
            return self._open_until - now
        if self._is_probing:
            return PROBE_SECONDS
        self._is_probing = True
        return 0.0

    def succeeded(self) -> None:
        """A call was answered."""
        if self._in_a_row:
            self._in_a_row = self._opened = 0
            self._is_tripped = self._is_probing = self.is_troubled = False

    def failed(self, now: float, chance: float) -> None:
        """A call got no answer, or one that reports a fault of the server. `chance` is uniform in [0, 1)."""
        if not self._limit or (self._is_tripped and now < self._open_until):
            return  # in the second case: one of the burst that opened it
        self._in_a_row += 1
        self.is_troubled = True
        if self._in_a_row >= self._limit:
            self._opened += 1
            self._open_until = now + min(self._longest, self._open * self._opened) * (1 - JITTER * chance)
            self._is_tripped, self._is_probing = True, False
            self._in_a_row = self._limit

    def warn(self) -> None:
        """Others get no answers: the next failure opens it, and an answer shows that there was no need to."""
        if self._limit > 1 and not self._is_tripped:
            self._in_a_row = self._limit - 1
            self.is_troubled = True

    def withdrawn(self) -> None:
        """The probe was cancelled by its caller, or the like: it shows nothing, so the next call finds out."""
        self._is_probing = False
