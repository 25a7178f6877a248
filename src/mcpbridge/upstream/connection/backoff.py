"""When to dial an upstream, when to wait, when to stop asking it; pure, the time is passed in.

Numbers after systemd (starts in a window), Kubernetes (reset after a stable time), AWS (full jitter) and Envoy (outlier
ejection).
"""

from collections import deque
from typing import Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.units import Seconds

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

PROBE_SECONDS = 1.0
"""Seconds after which it is worth asking again, while one call is finding out."""
JITTER = 0.2
"""By so much of it at most, at random, an open time is shorter: bridges of one server should not all come at once."""


class Wait(Struct, frozen=True):
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
        return self.on_demand_in(now) <= 0

    def on_demand_in(self, now: float) -> float:
        """Seconds until a call may cause an attempt out of turn."""
        return self.last_attempt + ON_DEMAND_AFTER - now


BreakerState = Literal["closed", "open", "half-open"]
"""`open`: no call passes; `half-open`: one call may, or does, find out whether it works again."""


class BreakerSettings(BaseModel):
    """The `breaker` table of a server: when it gets no calls for a while, since all of them fail."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    failures: int = Field(default=5, ge=0)
    """Calls in a row that got no answer, or an answer that tells of a fault of the server. 0: it always gets calls."""

    open: Seconds = Field(default=10, gt=0)
    """Seconds without calls the first time, and so many more each time that the call which finds out fails as well."""

    max_open: Seconds = Field(default=300, gt=0)
    """Seconds without calls at most."""


class Breaker:
    """Stops calls to an upstream that fails every one of them, and lets one through from time to time."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._limit, self._open, self._longest = settings.failures, settings.open, settings.max_open
        self._in_a_row = 0
        self._opened = 0
        self._open_until = 0.0
        self._is_tripped = self._is_probing = False
        self.is_troubled = False
        """Not every one of the last calls was answered: what becomes of the next is to be told."""

    def state(self, now: float) -> BreakerState:
        """Where it stands."""
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
        """A call got no answer, or one that tells of a fault of the server. `chance` is uniform in [0, 1)."""
        if not self._limit or (self._is_tripped and now < self._open_until):
            return  # in the second case: one of the burst that opened it
        self._in_a_row += 1
        self.is_troubled = True
        if self._in_a_row >= self._limit:
            self._opened += 1
            self._open_until = now + min(self._longest, self._open * self._opened) * (1 - JITTER * chance)
            self._is_tripped, self._is_probing = True, False
            self._in_a_row = self._limit

    def withdrawn(self) -> None:
        """The probe was cancelled by its caller, or the like: it tells nothing, so the next call finds out."""
        self._is_probing = False
