"""When to dial an upstream, when to wait, when to stop asking it; pure, the time is passed in.

Numbers after systemd (starts in a window), Kubernetes (reset after a stable time), AWS (full jitter) and Envoy
(outlier ejection); research on reliability, section 5.
"""

from collections import deque
from dataclasses import dataclass

__all__ = ["Breaker", "Lifecycle", "Wait"]

FIRST_DELAY = 0.5
"""Seconds; the bound of the first wait, which doubles with every failure."""
LONGEST_DELAY = 60.0
"""Seconds; the bound never grows beyond this."""
STABLE_AFTER = 60.0
"""Seconds of being ready after which earlier failures are forgotten."""
FAILURES_IN_WINDOW = 5
WINDOW = 60.0
"""Seconds; so many failures within the window and the upstream is `failed`."""
FAILED_RETRY = 300.0
"""Seconds between attempts while `failed`; a call may ask for one earlier."""
ON_DEMAND_AFTER = 10.0
"""Seconds since the last attempt before a call may cause another one out of turn."""

OPEN_AFTER = 5
"""Consecutive failed calls that open the breaker."""
OPEN_FOR = 10.0
"""Seconds the breaker stays open the first time; multiplied by how often it opened in a row."""
OPEN_AT_MOST = 300.0


@dataclass(frozen=True, slots=True)
class Wait:
    """What to do after a failure: wait so many seconds; `given_up` when it failed too often in a short time."""

    seconds: float
    given_up: bool


class Lifecycle:
    """Decides the waits between the attempts to keep one upstream connected."""

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=FAILURES_IN_WINDOW)
        self._in_a_row = 0
        self._ready_since: float | None = None
        self.last_attempt = float("-inf")

    def dialling(self, now: float) -> None:
        """An attempt begins."""
        self.last_attempt = now

    def ready(self, now: float) -> None:
        """The attempt succeeded."""
        self._ready_since = now

    def lost(self, now: float, chance: float) -> Wait:
        """An attempt failed, or a ready upstream was lost. `chance` is uniform in [0, 1)."""
        if self._ready_since is not None and now - self._ready_since >= STABLE_AFTER:
            self._failures.clear()
            self._in_a_row = 0
        self._ready_since = None
        self._failures.append(now)
        bound = min(LONGEST_DELAY, FIRST_DELAY * 2**self._in_a_row)
        self._in_a_row = min(self._in_a_row + 1, 16)
        if len(self._failures) == FAILURES_IN_WINDOW and now - self._failures[0] <= WINDOW:
            return Wait(FAILED_RETRY, given_up=True)
        return Wait(bound * chance, given_up=False)

    def may_dial_on_demand(self, now: float) -> bool:
        """Whether a call may cause an attempt now instead of at the end of the wait."""
        return now - self.last_attempt >= ON_DEMAND_AFTER


class Breaker:
    """Stops calls to an upstream that fails every one of them, and lets one through from time to time."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._opened = 0
        self._open_until = 0.0
        self._is_probing = False
        self.is_troubled = False
        """The last call failed; else there is nothing to ask or to tell."""

    def retry_in(self, now: float) -> float:
        """Seconds until a call may pass; 0 when it may pass now."""
        if self._in_a_row < OPEN_AFTER:
            return 0.0
        if now < self._open_until:
            return self._open_until - now
        if self._is_probing:
            return 1.0  # one call is finding out
        self._is_probing = True
        return 0.0

    def succeeded(self) -> None:
        """A call was answered."""
        if self._in_a_row:
            self._in_a_row = self._opened = 0
            self._is_probing = self.is_troubled = False

    def failed(self, now: float) -> None:
        """A call got no answer, or an answer that tells of a fault of the server."""
        if now < self._open_until:
            return  # one of the burst that opened it
        self._in_a_row += 1
        self.is_troubled = True
        if self._in_a_row >= OPEN_AFTER:
            self._opened += 1
            self._open_until = now + min(OPEN_AT_MOST, OPEN_FOR * self._opened)
            self._is_probing = False
            self._in_a_row = OPEN_AFTER

    def withdrawn(self) -> None:
        """A call was cancelled by its caller: it tells nothing."""
        self._is_probing = False
